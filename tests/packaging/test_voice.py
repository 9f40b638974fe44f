"""The command line speaks with one voice: examples, --json, completion, exit codes, and no traceback on a mistake."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from logplayer.cli.main import LINES, VERBS, cli
from tests import ROOT

NO_JSON = {"target dump"}  # It is lines of JSON already.
PROGRAM = str(Path(sys.executable).parent / "logplayer")


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every verb that does something, by its path."""
    context = click.Context(cli, info_name="logplayer")
    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                yield f"{verb} {name}", below
        else:
            yield verb, command


LEAVES = dict(leaves())


def run(*arguments: str, stdin: str = "", cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, **env},
    )


def test_every_verb_has_its_line_in_the_help() -> None:
    assert set(VERBS) <= set(LINES)
    order = [name for name in LINES if name in VERBS]
    assert list(VERBS) == order, "the verbs stand in the order of the story"


@pytest.mark.parametrize("path", LEAVES)
def test_every_verb_shows_an_example_that_it_understands(path: str) -> None:
    command = LEAVES[path]
    text = (command.help or "").replace("\\\n", " ")
    examples = [line for line in text.splitlines() if re.search(rf"logplayer {path}\b", line)]
    assert examples, f"logplayer {path} shows no example"
    for example in examples:
        typed = re.split(r" {3,}|\||&", example[example.index("logplayer ") :])[0]
        command.make_context(path, shlex.split(typed)[1 + len(path.split()) :])


@pytest.mark.parametrize("path", LEAVES)
def test_scripts_can_read_the_answer(path: str) -> None:
    options = {option for item in LEAVES[path].params for option in item.opts}
    assert ("--json" in options) is (path not in NO_JSON)


@pytest.mark.parametrize("path", LEAVES)
def test_options_are_explained(path: str) -> None:
    bare = [item.name for item in LEAVES[path].params if isinstance(item, click.Option) and not item.help]
    assert bare == []


def test_every_variable_is_documented() -> None:
    """Those that options read, and those that the product reads itself."""
    read = {str(item.envvar) for command in LEAVES.values() for item in command.params if item.envvar}
    for path in (ROOT / "src" / "logplayer").rglob("*.py"):
        if "testing" not in path.parts:  # Of our own tests.
            read |= set(re.findall(r'"(LOGPLAYER_[A-Z_]*[A-Z])"', path.read_text()))
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert len(read) > 15
    assert sorted(name for name in read if f"| `{name}` |" not in page) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = run(_LOGPLAYER_COMPLETE=f"{shell}_source")
    assert done.returncode == 0
    assert "_LOGPLAYER_COMPLETE" in done.stdout


def test_bash_completes_verbs_and_options() -> None:
    done = run(_LOGPLAYER_COMPLETE="bash_complete", COMP_WORDS="logplayer s", COMP_CWORD="1")
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == ["status", "sim", "spec"]
    done = run(_LOGPLAYER_COMPLETE="bash_complete", COMP_WORDS="logplayer log serve --li", COMP_CWORD="3")
    assert "plain,--listen" in done.stdout


def test_exit_codes(tmp_path: Path) -> None:
    log = ("--log", f"file://{tmp_path}/log")
    good = '{"mutations": [{"key": "k", "value": "v"}]}'
    assert run("log", "append", *log, stdin=good).returncode == 0
    assert run("log", "append", *log, stdin="nonsense").returncode == 2
    served = ("--store", "sqlite", "--path", str(tmp_path / "a.db"), "--id", "a")
    assert run("target", "get", *served, "k").returncode == 2, "there is no such file"
    assert run("target", "position", "grpc://127.0.0.1:1", "--timeout", "1").returncode == 1
    tail = subprocess.Popen([PROGRAM, "log", "tail", *log, "--from", "1"], stdout=subprocess.PIPE, text=True)
    assert tail.stdout is not None
    assert "k" in tail.stdout.readline()
    tail.send_signal(signal.SIGINT)
    assert tail.wait(60) == 130


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{PROGRAM} --help | true; echo ${{PIPESTATUS[0]}}", shell=True, executable="/bin/bash", capture_output=True
    )
    assert done.stdout.strip() in (b"0", b"1")
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


WRONG = [
    "",
    "-x",
    "nonsense",
    "log",
    "log serve --log",
    "log serve --log file:///",
    "log serve --log file:///proc/x/y",
    "log serve --log file://{dir}/file/log",
    "log serve --log file://{dir}/log --listen 127.0.0.1:99999",
    "log serve --log file://{dir}/log --listen 192.0.2.1:7100",
    "log append --log nats://127.0.0.1:1/x/y",
    "log dump --log file://{dir}/nowhere",
    "log dump --log file://{dir}/file",
    "log dump --log file://{dir}/log --from x",
    "log trim --log file://{dir}/log",
    "log verify --log file://{dir}/nowhere",
    "target serve --store sqlite --path {dir}/file --id a --listen 127.0.0.1:0",
    "target serve --store sqlite --path {dir}/no/a.db --id a --listen 127.0.0.1:0",
    "target serve --store sqlite --path {dir} --id a --listen 127.0.0.1:0",
    "target serve --store sqlite --path {dir}/a.db --id a --listen here",
    "target serve --store sqlite --path {dir}/a.db --id a --listen 0.0.0.0:0",
    "target serve --store sqlite --path {dir}/a.db --id a --listen 127.0.0.1:0 --tls-cert {dir}/file",
    "target serve --store sqlite --path {dir}/a.db --id a --listen 127.0.0.1:0 --trace {dir}/no/trace",
    "target serve --store postgres --url postgresql://127.0.0.1:1/x --id a --listen 127.0.0.1:0",
    "target serve --store redis --url redis://127.0.0.1:1/0 --id a --listen 127.0.0.1:0",
    "target serve --store rocksdb --path {dir}/file --id a --listen 127.0.0.1:0",
    "target get --store sqlite --path {dir}/nowhere.db --id a k",
    "target dump --store sqlite --path {dir}/file --id a",
    "target position tcp://nowhere.invalid:1 --timeout 2",
    "target wait grpc://127.0.0.1:1 --index -1",
    "target list --log file://{dir}/nowhere",
    "target retry a --player 127.0.0.1:1",
    "target retry a --player nowhere",
    "play",
    "play --log file://{dir}/log --target a",
    "play --log file://{dir}/log --target a=b",
    "play --in-process --log file://{dir}/file/log",
    "play --config {dir}/nowhere.toml",
    "play --config {dir}/file",
    "play --config {dir}",
    "status --player 127.0.0.1:1",
    "status --player x --json",
    "status --token-file {dir}/nowhere",
    "audit",
    "audit --log x",
    "backfill --log file://{dir}/log --target nonsense",
    "backfill --log file://{dir}/log --map nonsense",
    "archive --log file://{dir}/log",
    "archive --log file://{dir}/log --to {dir}/x --range-entries 0",
    "cluster down --dir {dir}/nowhere",
    "cluster up --dir {dir}/file",
    "cluster up --port 7",
    "conform tcp://127.0.0.1:1 --id a",
    "conform x --id a",
    "sim x",
    "sim --runs 0",
    "sim 1 --trace {dir}/no/such/trace",
    "spec nonsense",
    "spec --trace",
    "spec --trace {dir}/nowhere",
    "demo --shards 1",
    "demo --keep {dir}",
    "demo --keep {dir}/file/x --engine in-process",
]


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """Exit code, output and errors of each."""
    jobs = []
    for typed in WRONG:
        folder = tmp_path_factory.mktemp("typed")
        (folder / "file").write_text("this is some text\n")
        jobs.append([str(folder), shlex.split(typed.format(dir=folder))])
    many = [sys.executable, "-m", "tests.packaging.forked_commands"]
    typed_in = json.dumps(jobs)
    done = subprocess.run(many, cwd=ROOT, input=typed_in, capture_output=True, text=True, timeout=240, check=True)
    return dict(zip(WRONG, map(tuple, json.loads(done.stdout)), strict=True))


@pytest.mark.parametrize("typed", WRONG)
def test_a_mistake_is_told_in_our_words(typed: str, mistakes: dict[str, tuple[int, str, str]]) -> None:
    code, out, errors = mistakes[typed]
    assert code in (1, 2), out + errors
    assert "Traceback" not in errors
    if typed not in ("", "log"):  # These two show their help.
        last = errors.strip().splitlines()[-1]
        assert last.startswith("logplayer: "), errors
