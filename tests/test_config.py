"""Every wrong logplayer.toml gives one line that names the file, the key and what to change, and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from logplayer import cli, config
from logplayer.core.entry import ExplicitMap, HashMap, RangeMap
from logplayer.core.limits import Limits
from logplayer.errors import ConfigError

GOOD = """
[log]
address = "grpc://127.0.0.1:7100"
[player]
group = "g"
status = "127.0.0.1:7300"
engine = "in-process"
trims = true
tick_ms = 20
drain_ms_max = 5000
[limits]
queue_count_max = 10
[map]
kind = "range"
targets = ["a", "b"]
bounds = ["m"]
[targets.a]
address = "grpc://127.0.0.1:7201"
[targets.b]
address = "tcp://127.0.0.1:7302"
[security]
token_file = "token"
[spark]
master = "local[2]"
groups = 2
"""
TARGETS = '[targets.a]\naddress = "tcp://127.0.0.1:1"\n[targets.b]\naddress = "tcp://127.0.0.1:2"\n'

# What the file says; what the message must name besides the file: the key, and what to change.
WRONG = {
    "no TOML": ("[log\n", ("not TOML", "line 1")),
    "unknown section": ("[lgo]\n", ("[lgo]", "did you mean 'log'?")),
    "unlike any section": ("[zzz]\n", ("[zzz]", "use one of", "limits")),
    "section as a value": ('log = "x"\n', ("log", "[log]")),
    "unknown key": ('[log]\nadress = "x"\n', ("[log]", "'adress'", "did you mean 'address'?")),
    "unlike any key": ("[player]\nzzz = 1\n", ("[player]", "'zzz'", "use one of", "tick_ms")),
    "number for text": ("[log]\naddress = 7100\n", ("[log] address = 7100", "text in quotes")),
    "text for number": ('[player]\ntick_ms = "5"\n', ("[player] tick_ms = '5'", "a whole number")),
    "fraction for number": ("[player]\ntick_ms = 0.5\n", ("tick_ms = 0.5", "a whole number")),
    "bool for number": ("[limits]\nqueue_count_max = true\n", ("queue_count_max = True", "a whole number")),
    "number for bool": ("[player]\ntrims = 1\n", ("[player] trims = 1", "true or false")),
    "text for list": ('[map]\ntargets = "a"\n', ("[map] targets = 'a'", "a list of texts")),
    "numbers in a list": ("[map]\ntargets = [1]\n", ("[map] targets = [1]", "a list of texts")),
    "unknown engine": ('[player]\nengine = "flink"\n', ("[player] engine = 'flink'", "spark, in-process")),
    "tick of zero": ("[player]\ntick_ms = 0\n", ("[player] tick_ms = 0", "at least 1")),
    "negative drain": ("[player]\ndrain_ms_max = -1\n", ("[player] drain_ms_max = -1", "at least 1")),
    "tick over its limit": ("[player]\ntick_ms = 5000\n", ("[player] tick_ms = 5000", "tick_ms_max")),
    "limit of zero": ("[limits]\nqueue_count_max = 0\n", ("[limits] queue_count_max = 0", "at least 1")),
    "limits that do not fit": ("[limits]\nheartbeat_ms = 9000\n", ("heartbeat_ms", "silence_ms_max", "lower")),
    "target without address": ("[targets.a]\n", ("[targets.a]", "address =")),
    "target as a value": ('[targets]\na = "tcp://127.0.0.1:1"\n', ("[targets] a", "[targets.a]")),
    "empty target address": ('[targets.a]\naddress = ""\n', ("[targets.a] address", "grpc://HOST:PORT")),
    "target address": ('[targets.a]\naddress = "http://x"\n', ("[targets.a] address", "grpc://HOST:PORT")),
    "target port": ('[targets.a]\naddress = "tcp://h:99999"\n', ("[targets.a] address", "HOST:PORT")),
    "log address": ('[log]\naddress = "/var/wal"\n', ("[log] address", "file:///var/wal")),
    "log scheme": ('[log]\naddress = "fil:///var/wal"\n', ("[log] address", "did you mean file://")),
    "status address": ('[player]\nstatus = "7200"\n', ("[player] status = '7200'", "HOST:PORT")),
    "map kind": (TARGETS + '[map]\nkind = "modulo"\n', ("[map] kind = 'modulo'", "hash, range or explicit")),
    "map target": (TARGETS + '[map]\ntargets = ["c"]\n', ("[map]", "'c'", "[targets.c]")),
    "hash map of nobody": ('[map]\nkind = "hash"\n', ("[map]", "at least one target")),
    "range without bounds": (TARGETS + '[map]\nkind = "range"\n', ("[map]", "1 rising bounds")),
    "falling bounds": (
        '[map]\nkind = "range"\ntargets = ["a", "b", "c"]\nbounds = ["m", "b"]\n',
        ("[map]", "sort the bounds"),
    ),
    "negative groups": ("[spark]\ngroups = -1\n", ("[spark] groups = -1", "0 (as many as fit) or more")),
    "certificate without key": ('[security]\ncert = "c.pem"\n', ("[security]", "no key", "give both")),
    "no token there": ('[security]\ntoken_file = "nowhere"\n', ("[security]", "token file nowhere", "check the path")),
    "contradiction": ('[security]\nca = "ca.pem"\ninsecure = true\n', ("[security]", "contradict", "leave one out")),
}  # fmt: skip


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["logplayer", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.err


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_told_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, named = WRONG[name]
    path = tmp_path / "logplayer.toml"
    path.write_text(text)
    monkeypatch.chdir(tmp_path)
    arguments = ["play", "--in-process", "--config", str(path)]
    if "[log]" not in text:
        arguments += ["--log", "grpc://127.0.0.1:1"]
    code, error = run(arguments, monkeypatch, capsys)
    assert code == 2, error
    assert error.count("\n") == 1, error
    for word in (str(path), *named):
        assert word in error


@pytest.mark.parametrize("verb", [["target", "list"], ["target", "add", "x", "tcp://127.0.0.1:1"], ["play"]])
def test_every_verb_that_reads_the_file_says_it(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logplayer.toml").write_text("[lgo]\n")
    monkeypatch.chdir(tmp_path)
    code, error = run(verb, monkeypatch, capsys)
    assert (code, "logplayer.toml: there is no section [lgo]" in error) == (2, True)


def test_a_file_that_is_not_there_or_not_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = run(["play", "--config", str(tmp_path / "no.toml")], monkeypatch, capsys)
    assert (code, "no.toml cannot be read" in error) == (2, True)
    (tmp_path / "latin.toml").write_bytes(b'[log]\naddress = "\xe9"\n')
    code, error = run(["play", "--config", str(tmp_path / "latin.toml")], monkeypatch, capsys)
    assert (code, "UTF-8" in error) == (2, True)


def test_no_log_and_wrong_options_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOGPLAYER_LOG", raising=False)
    for arguments, word in (
        (["play"], "--log ADDRESS"),
        (["play", "--log", "/x"], "file:///x"),
        (["play", "--log", "file:///x", "--target", "a"], "NAME=ADDRESS"),
        (["play", "--log", "file:///x", "--target", "a=b"], "target a"),
        (["play", "--log", "file:///x", "--target", "a=tcp://h:1", "--target", "a=tcp://h:2"], "twice"),
    ):
        code, error = run(arguments, monkeypatch, capsys)
        assert (code, error.count("\n")) == (2, 1)
        assert word in error


def test_a_good_file_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    read = config.load(str(path))
    assert read.log == "grpc://127.0.0.1:7100"
    assert (read.group, read.status, read.engine, read.trims) == ("g", "127.0.0.1:7300", "in-process", True)
    assert (read.tick_ms, read.drain_ms_max, read.limits.queue_count_max) == (20, 5000, 10)
    assert read.map == RangeMap((b"m",), ("a", "b"))
    assert read.targets == {"a": "grpc://127.0.0.1:7201", "b": "tcp://127.0.0.1:7302"}
    assert (read.security, read.master, read.groups) == ({"token_file": "token"}, "local[2]", 2)


def test_what_the_file_leaves_out_has_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert config.load(None) == config.Config()
    (tmp_path / "logplayer.toml").write_text(TARGETS)
    read = config.load(None)
    assert read.map == HashMap(("a", "b"))
    assert read.limits == Limits()
    assert config.read({}, "f").map == ExplicitMap()


def test_every_limit_can_be_set() -> None:
    wanted = Limits(queue_count_max=7, tick_ms_max=300)
    values = {name: getattr(wanted, name) for name in Limits.__dataclass_fields__}
    assert config.read({"limits": values}, "f").limits == wanted
    with pytest.raises(ConfigError, match=r"f: \[limits\] has no key"):
        config.read({"limits": {"queue_max": 1}}, "f")


def test_from_a_shell(tmp_path: Path) -> None:
    (tmp_path / "logplayer.toml").write_text("[player]\ntick_ms = 'x'\n")
    command = [sys.executable, "-m", "logplayer.cli", "play"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("logplayer: logplayer.toml: [player] tick_ms = 'x'")
    assert done.stdout == ""
