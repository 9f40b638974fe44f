"""The part of the glossary (CONTRIBUTING.md) that a test can hold, and the paths that ARCHITECTURE.md names."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from logplayer.cli.main import LINES, VERBS, cli
from tests import ROOT
from tests.docs.docs_document import broken_paths, documents, prose
from tests.packaging.test_voice import LEAVES

# Written from the code by tools/docs: their words are those of the code.
GENERATED = {ROOT / "docs" / "reference" / f"{name}.md" for name in ("cli", "config", "errors", "metrics")}
SHOWN = [
    *sorted((ROOT / "src/logplayer/admin/page").glob("*.[hj][ts]*")),
    *sorted((ROOT / "src/logplayer/wire/logplayer/v1").glob("*.proto")),
]
PAGES = [path for path in documents() if path not in GENERATED]

# What is banned, and what to write instead. Two things may be behind: what falls behind, and what is behind.
BANNED = {
    r"(?<!fall )(?<!falls )(?<!fell )(?<!lags )(?<!is )(?<!are )\bbehind\b": "after; behind means lagging only",
    r"\btold\b": "the imperative, or who says it",
    r"(?<!there )\b(?:is|are) no (?!longer\b|more\b)": "is not a ..., are not ...",
    r"\bfor want of\b": "because there is no ...",
    r"\banew\b": "again",
    r"\bso (?:much|many)\b(?! that)": "the number, or as many as",
    r"\b(?:homeless|ownerless)\b": "unknown target, no owner",
    r"\bst(?:and|ands|ood|anding) at\b": "has index",
    r"\bwhoever\b": "anyone who, or the imperative",
    r"(?<![\w,] )\b(?-i:Who) (?![^.]*\?)": "the subject by its name",
}


def offences(text: str) -> list[str]:
    """Each banned word in a document's prose, with what to write instead."""
    found = []
    written = re.sub(r"(?s)<!-- models -->.*?<!-- /models -->", "", prose(text))  # From spec/models.toml.
    written = re.sub(r"`[^`\n]*`", "`code`", written)  # What a program prints is the program's.
    line = " ".join(written.split())
    for pattern, instead in BANNED.items():
        for word in re.finditer(pattern, line, re.IGNORECASE):
            place = line[max(0, word.start() - 40) : word.end() + 40]
            found.append(f"{word.group().strip()!r} in '...{place}...': write {instead}")
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_words_have_one_meaning(path: Path) -> None:
    assert offences(path.read_text()) == []


@pytest.mark.parametrize("path", ["", *LEAVES])
def test_help_keeps_to_the_glossary(path: str) -> None:
    """The pages of the reference are made of it, so it is read as often as they are."""
    command = LEAVES[path] if path else cli
    helps = [item.help or "" for item in command.params if isinstance(item, click.Option)]
    lines = [] if path else [*LINES.values(), *(group.help or "" for group in groups())]
    assert [wrong for text in (command.help or "", *helps, *lines) for wrong in offences(text)] == []


def groups() -> list[click.Command]:
    found = [cli.get_command(click.Context(cli), verb) for verb in VERBS]
    return [command for command in found if isinstance(command, click.Group)]


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_the_page_and_the_wire_format_keep_to_the_glossary(path: Path) -> None:
    """What a browser shows, and what an author of a target in another language reads."""
    text = re.sub(r"(?m)^\s*(//|/\*|\*)", "", path.read_text()).replace("`", "'")
    assert offences(text) == []


def test_architecture_names_files_that_exist() -> None:
    page = ROOT / "ARCHITECTURE.md"
    named = re.findall(r"`((?:src|core|log|player|wire|target|spark|cli|testing)/[\w./]+)`", page.read_text())
    assert len(named) > 40, "the page names the files of each step"
    assert broken_paths(page) == []


def test_architecture_names_every_package() -> None:
    """A folder that the page leaves out is one that a newcomer meets unprepared."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    packages = {path.parent.name for path in (ROOT / "src" / "logplayer").glob("*/__init__.py")}
    assert {name for name in packages if f"`{name}/`" not in page} == set()


def test_architecture_names_functions_that_exist() -> None:
    """Each class, method, function or protobuf message in backticks is defined somewhere in src."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    files = [path for path in (ROOT / "src").rglob("*.p[yr]*") if path.suffix in (".py", ".proto")]
    source = "\n".join(path.read_text() for path in (*files, *(ROOT / "jvm").rglob("*.java")))
    assert unknown_names(page, source) == []


def unknown_names(page: str, source: str) -> list[str]:
    names: set[str] = set()
    for code in re.findall(r"`([A-Za-z_.]+)`", prose(page)):
        home, _, method = code.partition(".")
        if re.fullmatch(r"[A-Z]\w*[a-z]\w*|_[a-z_]+|[a-z]+_[a-z_]+", home):
            names |= {home, method} - {""}
    defined = set(re.findall(r"(?m)^\s*(?:async |public |final )*(?:def|class|message) (\w+)", source))
    return sorted(names - defined)


# --- The checks can fail ---


@pytest.mark.parametrize(
    "wrong",
    [
        "Entries behind this record are routed by it.",
        "The player is told where it is.",
        "A payload that is no transaction.",
        "It waits for want of a slot.",
        "Fill it anew.",
        "About so many bytes.",
        "Homeless entries.",
        "The target stands at index 7.",
        "It is for\nwhoever reads the log.",
        "Tokens help. Who shows none is refused.",
    ],
)
def test_a_banned_word_is_found(wrong: str) -> None:
    assert len(offences(f"# Page\n\n{wrong}\n")) == 1


@pytest.mark.parametrize(
    "right",
    [
        "A target that fell behind catches up.",
        "There is no snapshot.",
        "It is no longer needed.",
        "Teams who shard a database.",
        "## Who may write?",
        "`entry 3 is for nobody: told`",
        "```text\nfilled anew\n```",
    ],
)
def test_good_words_pass(right: str) -> None:
    assert offences(f"# Page\n\n{right}\n") == []


def test_an_unknown_name_is_found(tmp_path: Path) -> None:
    source = "class Shell:\n    async def _fetch("
    assert unknown_names("`Shell._fetch` `route_transaction` `Nonsense`", source) == ["Nonsense", "route_transaction"]
    assert unknown_names("`Shell.fetch` `_dispatch` `core`", source) == ["_dispatch", "fetch"]
    page = tmp_path / "ARCHITECTURE.md"
    page.write_text("`core/trim.py` and `core/gone.py`")
    assert broken_paths(page) == ["core/gone.py"]
