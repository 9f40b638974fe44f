"""The site builds without a warning, and what is generated from the code is current."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from logplayer.cli.main import cli
from tests import ROOT


@pytest.fixture
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "tools" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "start.html").read_text().count("<h2") >= 5
    pages = "".join(path.read_text() for path in (tmp_path / "site").glob("*.html"))
    assert "https://cdn" not in pages, "readers need nobody but us"


def test_a_page_that_nobody_links_is_found(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "docs" / "lonely.md").write_text("# Lonely\n[nowhere](nowhere.md)\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "lonely.md" in done.stderr
    assert "nowhere.md" in done.stderr


def test_what_is_generated_is_current() -> None:
    """In a process of its own: click remembers a verb's help option from its first use, also from another test's."""
    command = [sys.executable, str(ROOT / "tools" / "generate_docs.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}: run tools/docs"


def test_the_page_says_which_commands_read_no_file_by_themselves(generator: ModuleType) -> None:
    """The others have ``logplayer.toml`` as their default, or no file at all."""

    def given(command: click.Command, name: str) -> Iterator[str]:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for part in command.list_commands(context):
                one = command.get_command(context, part)
                assert one is not None
                yield from given(one, f"{name} {part}".strip())
        elif any(option.name == "config_path" and option.default == "" for option in command.params):
            yield name

    assert list(given(cli, "")) == ["target serve"]
    assert "`logplayer target serve` reads `[tables]` of the file that `--config` names, and no other" in (
        generator.config_page()
    )


def test_a_new_transition_needs_a_reason(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    states = generator.State
    legal = {**generator.LEGAL, states.SUSPENDED: frozenset({states.CATCHING_UP, states.LIVE})}
    monkeypatch.setattr(generator, "LEGAL", legal)
    with pytest.raises(SystemExit, match="LIVE"):
        generator.diagram()


def test_a_new_key_needs_a_description(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {**generator.config.SCHEMA, "log": {"address": str, "colour": str}}
    monkeypatch.setattr(generator.config, "SCHEMA", schema)
    with pytest.raises(SystemExit, match="colour"):
        generator.config_page()
