"""The command line for a newcomer: help everywhere, exit code 2 for mistakes, quick to start, no tracebacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from logplayer.cli.main import cli


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logplayer.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


CONTEXT = click.Context(cli)


def commands() -> list[tuple[str, ...]]:
    """Every command and every command below it."""
    found: list[tuple[str, ...]] = []
    for verb in cli.list_commands(CONTEXT):
        command = cli.get_command(CONTEXT, verb)
        assert command is not None
        found.append((verb,))
        if isinstance(command, click.Group):
            found += [(verb, name) for name in command.list_commands(CONTEXT)]
    return found


def test_the_help_lists_the_verbs_in_the_order_of_the_story() -> None:
    done = run("--help")
    assert done.returncode == 0
    verbs = cli.list_commands(CONTEXT)
    listed = [line.split()[0] for line in done.stdout.partition("Commands:")[2].splitlines() if line.strip()]
    assert [word for word in listed if word in verbs] == verbs
    assert verbs[:4] == ["log", "target", "play", "status"]


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_has_help(path: tuple[str, ...]) -> None:
    from click.testing import CliRunner

    done = CliRunner().invoke(cli, [*path, "--help"])
    assert done.exit_code == 0, done.output
    assert "Usage:" in done.output
    lines = done.output.splitlines()
    assert len(lines) > 3
    assert any(line.strip() for line in lines[1:4]), "a command tells what it does"


def test_a_verb_that_is_not_there_is_a_mistake() -> None:
    done = run("plya")
    assert done.returncode == 2
    assert "plya" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version() -> None:
    assert run("--version").stdout.startswith("logplayer, version ")


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("grpc", "pyspark", "asyncio", "uvloop", "google.protobuf", "click")
    code = f"import logplayer, sys; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""


def test_the_help_of_all_loads_no_engine() -> None:
    code = (
        "import sys, logplayer.cli.main as c\n"
        "context = c.click.Context(c.cli)\n"
        "c.cli.list_commands(context)\n"
        "print(*[m for m in ('grpc', 'pyspark') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""


def test_commands_that_serve_no_http_load_no_web_server() -> None:
    """It took a third of the time of `log info`, which scripts call in loops."""
    code = (
        "import sys, importlib, logplayer.cli.main as c\n"
        "for verb in ('log', 'target', 'status', 'map', 'table'):\n"
        "    importlib.import_module(c.VERBS[verb].partition(':')[0])\n"
        "print(*[m for m in ('starlette', 'uvicorn', 'pyspark') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""


def test_playing_without_spark_loads_no_spark() -> None:
    code = "import logplayer.cli.play, sys; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("play", "--in-process", "--log", "ftp://x"), "scheme"),
        (("play", "--in-process", "--log", "file:///tmp/logplayer-none/x", "--http", "here"), "HOST:PORT"),
        (("play", "--tokens"), "--tokens"),
        (("status", "--player", "127.0.0.1:1"), "logplayer play"),
        (("status", "--player", "nowhere"), "HOST:PORT"),
        (("target", "serve", "--store", "sqlite", "--path", "x.db", "--id", "a"), "--listen"),
        (("target", "serve", "--store", "oracle", "--id", "a"), "oracle"),
        (("target", "serve", "--store", "sqlite", "--id", "a", "--listen", "127.0.0.1:0"), "--path"),
        (("target", "position", "tcp://127.0.0.1:1"), "127.0.0.1:1"),
        (("target", "position", "127.0.0.1:1"), "grpc://HOST:PORT"),
        (("target", "add", "a", "nonsense", "--log", "grpc://127.0.0.1:1"), "nonsense"),
        (("target", "quarantine", "a", "--index", "0", "--log", "grpc://127.0.0.1:1"), "--index"),
        (("target", "list", "--log", "grpc://127.0.0.1:1"), "127.0.0.1:1"),
        (("log", "info", "--log", "file:///nowhere/at/all"), "/nowhere/at/all"),
        (("log", "serve", "--log", "file:///tmp/x", "--listen", "x"), "x"),
        (("conform", "nonsense", "--id", "a"), "nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_told_without_a_traceback(arguments: tuple[str, ...], word: str, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode in (1, 2), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert word in done.stderr


@pytest.mark.parametrize(("words", "word"), [("logplayer tar", "target"), ("logplayer target wait --ti", "--timeout")])
def test_shells_complete_commands_and_options(words: str, word: str) -> None:
    asked = {"_LOGPLAYER_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    command = [sys.executable, "-m", "logplayer.cli"]
    done = subprocess.run(
        command, env={**os.environ, **asked}, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [f"plain,{word}"], "")
