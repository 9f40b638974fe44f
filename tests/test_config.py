"""Every wrong logplayer.toml gives one line that names the file, the key and what to change, and exit code 2."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from logplayer import config
from logplayer.cli import main
from logplayer.cli.options import merge
from logplayer.cli.security import security_from, security_options
from logplayer.core.entry import ExplicitMap, RangeMap
from logplayer.core.limits import Limits
from logplayer.errors import ConfigError
from logplayer.wire.security import Security

GOOD = """
[log]
address = "grpc://127.0.0.1:7100"
[player]
group = "g"
http = "127.0.0.1:7300"
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
SHORT = GOOD.replace("[targets.a]\naddress", "[targets]\na").replace("[targets.b]\naddress", "b")
TARGETS = '[targets.a]\naddress = "tcp://127.0.0.1:1"\n[targets.b]\naddress = "tcp://127.0.0.1:2"\n'

# What the file says; what the message must name besides the file: the key, and what to change.
WRONG = {
    "a target with a slash": ('[targets]\n"a/b" = "tcp://h:1"\n', ("[targets]", "not a target's name")),
    "no TOML": ("[log\n", ("not TOML", "line 1")),
    "unknown section": ("[lgo]\n", ("[lgo]", "did you mean 'log'?")),
    "unlike any section": ("[zzz]\n", ("[zzz]", "use one of", "limits")),
    "section as a value": ('log = "x"\n', ("log", "[log]")),
    "unknown key": ('[log]\nadress = "x"\n', ("[log]", "'adress'", "did you mean 'address'?")),
    "unlike any key": ("[player]\nzzz = 1\n", ("[player]", "'zzz'", "use one of", "tick_ms")),
    "a number as a target": ("[targets]\na = 7201\n", ("[targets] a = 7201", "an address in quotes", "[targets.a]")),
    "a word as a target": ('[targets]\na = "shard1"\n', ("[targets.a] address = 'shard1'", "grpc://HOST:PORT")),
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
    "empty target address": ('[targets.a]\naddress = ""\n', ("[targets.a] address", "grpc://HOST:PORT")),
    "target address": ('[targets.a]\naddress = "http://x"\n', ("[targets.a] address", "grpc://HOST:PORT")),
    "target port": ('[targets.a]\naddress = "tcp://h:99999"\n', ("[targets.a] address", "HOST:PORT")),
    "log address": ('[log]\naddress = "/var/wal"\n', ("[log] address", "file:///var/wal")),
    "log scheme": ('[log]\naddress = "fil:///var/wal"\n', ("[log] address", "did you mean file://")),
    "http address": ('[player]\nhttp = "7200"\n', ("[player] http = '7200'", "HOST:PORT")),
    "map kind": (TARGETS + '[map]\nkind = "modulo"\n', ("[map] kind = 'modulo'", "hash, range or explicit")),
    "map target": (TARGETS + '[map]\ntargets = ["c"]\n', ("[map]", "'c'", "[targets.c]")),
    "hash map of nobody": ('[map]\nkind = "hash"\ntargets = []\n', ("[map]", "at least one target")),
    "range without bounds": (TARGETS + '[map]\nkind = "range"\n', ("[map]", "1 rising bounds")),
    "falling bounds": (
        '[map]\nkind = "range"\ntargets = ["a", "b", "c"]\nbounds = ["m", "b"]\n',
        ("[map]", "sort the bounds"),
    ),
    "tables that are no sections": ("[tables]\norders = 1\n", ("[tables.orders]", "may have columns")),
    "table with an unknown key": ("[tables.orders]\nrename = 'x'\n", ("[tables.orders]", "constants, ignore, name")),
    "negative groups": ("[spark]\ngroups = -1\n", ("[spark] groups = -1", "0 (as many as fit) or more")),
    "certificate without key": ('[security]\ncert = "c.pem"\n', ("[security]", "no key", "give both")),
    "no token there": ('[security]\ntoken_file = "nowhere"\n', ("[security]", "token file nowhere", "check the path")),
    "contradiction": ('[security]\nca = "ca.pem"\ninsecure = true\n', ("[security]", "contradict", "leave one out")),
}  # fmt: skip


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["logplayer", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.err


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the good files name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("s3cret\n")


@pytest.mark.usefixtures("token")
def test_a_target_in_one_line() -> None:
    """It is what everyone types first."""
    assert "[targets.a]" not in SHORT
    assert config.read(tomllib.loads(SHORT), "x.toml") == config.read(tomllib.loads(GOOD), "x.toml")


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


@pytest.mark.usefixtures("token")
def test_a_good_file_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    read = config.load(str(path))
    assert read.log == "grpc://127.0.0.1:7100"
    assert (read.group, read.http, read.engine, read.trims) == ("g", "127.0.0.1:7300", "in-process", True)
    assert (read.tick_ms, read.drain_ms_max, read.limits.queue_count_max) == (20, 5000, 10)
    assert read.map == RangeMap((b"m",), ("a", "b"))
    assert read.targets == {"a": "grpc://127.0.0.1:7201", "b": "tcp://127.0.0.1:7302"}
    assert (read.security, read.spark) == (Security(token="s3cret"), config.SparkSettings("local[2]", 2))


def test_what_the_file_leaves_out_has_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert config.load(None) == config.Config()
    (tmp_path / "logplayer.toml").write_text(TARGETS)
    read = config.load(None)
    assert read.map is None  # Hash over all targets.
    assert read.limits == Limits()
    assert config.read({}, "f").map is None
    assert config.read({"map": {"kind": "hash"}}, "f").map is None
    assert config.read({"map": {"kind": "explicit"}}, "f").map == ExplicitMap()


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


@pytest.mark.usefixtures("token")
def test_the_configuration_travels_whole() -> None:
    """What Spark pickles for its tasks is the whole configuration, security included."""
    made = config.read(tomllib.loads(GOOD), "x.toml")
    assert pickle.loads(pickle.dumps(made)) == made
    assert "s3cret" not in repr(made)


@pytest.mark.usefixtures("token")
def test_the_environment_stands_for_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read with the command line and nowhere else. An option wins over them, and they win over the file."""
    seen: list[Security] = []

    @click.command()
    @security_options(server=False)
    def client(**secure: Any) -> None:
        seen.append(merge(None, "grpc://h:1", secure=secure).security)

    @click.command()
    @security_options(server=True)
    def server(**secure: Any) -> None:
        seen.append(security_from(**secure))

    Path("other").write_text("other\n")
    monkeypatch.setenv("LOGPLAYER_TLS_CA", "system")
    monkeypatch.setenv("LOGPLAYER_TOKEN_FILE", "other")
    client([], standalone_mode=False)
    client(["--token-file", "token"], standalone_mode=False)
    Path("logplayer.toml").write_text('[security]\nca = "ca.pem"\n')
    client([], standalone_mode=False)
    server([], standalone_mode=False)
    other, own = Security(ca="system", token="other"), Security(ca="system", token="s3cret")
    assert seen == [other, own, other, Security()]
    monkeypatch.delenv("LOGPLAYER_TLS_CA")
    Path("logplayer.toml").unlink()
    monkeypatch.setenv("LOGPLAYER_INSECURE", "1")
    client([], standalone_mode=False)
    monkeypatch.setenv("LOGPLAYER_INSECURE", "0")
    client([], standalone_mode=False)
    assert [one.insecure for one in seen[-2:]] == [True, False]
