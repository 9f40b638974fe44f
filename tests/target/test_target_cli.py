"""The verbs target and conform, as a user runs them: real processes, exit codes, one clear line for a mistake."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import logplayer as lp
from logplayer.cli import main
from logplayer.core.entry import Delivery, Session
from logplayer.core.fence import Batch
from logplayer.target.protocol import Change
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.testing.conformance.client import ConformanceStream, StreamEnded, covering, message
from logplayer.wire import codec, grpc_link
from tests.servers import Authority

LOGPLAYER = [sys.executable, "-m", "logplayer.cli"]


def logplayer(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LOGPLAYER, *arguments], capture_output=True, text=True, timeout=60)


class Serving:
    """A ``logplayer target serve`` process that has said where it listens."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*LOGPLAYER, "target", "serve", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        self.addresses = [word.rstrip(",") for word in self.said.split() if "://" in word]

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A store with one entry, at index 3."""
    store = SqliteTarget(tmp_path / "t1.db", "t1")
    store.apply(Change(Session(1, 1), log_id="orders"))
    store.apply(Change(Session(1, 1), batch=Batch(0, 3, (message(2, b"k", b"v"),))))
    store.close()
    return str(tmp_path / "t1.db")


@pytest.fixture
def serving(path: str) -> Iterator[Serving]:
    listen = ["--listen", "127.0.0.1:0", "--listen-tcp", "127.0.0.1:0"]
    serving = Serving("--store", "sqlite", "--path", path, "--id", "t1", *listen)
    yield serving
    if serving.process.poll() is None:
        serving.end()


def test_serve_position_wait_and_a_clean_end(serving: Serving) -> None:
    assert serving.said.startswith("target t1 listens at grpc://127.0.0.1:")
    assert serving.said.endswith("index 3\n")
    for address in serving.addresses:
        told = logplayer("target", "position", address, "--json")
        facts = json.loads(told.stdout)
        assert (facts["index"], facts["epoch"], facts["term"], facts["log_id"]) == (3, 1, 1, "orders")
        assert "index 3, session 1.1" in logplayer("target", "wait", address, "--index", "3").stdout
    late = logplayer("target", "wait", serving.addresses[0], "--index", "4", "--timeout", "0.3")
    assert (late.returncode, late.stderr.count("\n")) == (1, 1)
    assert "did not reach index 4" in late.stderr
    code, out, err = serving.end()
    assert (code, out, err) == (0, "target t1 stopped at index 3\n", "")


def test_several_targets_in_one_process(tmp_path: Path, path: str) -> None:
    where = ["--store", "sqlite", "--path", f"{tmp_path}/{{id}}.db", "--listen-tcp", "127.0.0.1:0"]
    served = Serving(*where, "--id", "t1", "--id", "t2")
    assert "target t1 listens at tcp://" in served.said
    [address] = served.addresses
    assert served.process.stdout is not None
    assert f"target t2 listens at {address}, index 0" in served.process.stdout.readline()
    for name, index in (("t1", 3), ("t2", 0)):
        told = json.loads(logplayer("target", "position", address, "--id", name, "--json").stdout)
        assert told["index"] == index
    which = logplayer("target", "position", address)
    assert which.returncode == 1
    assert "several targets are here, so say which: there is 't1', 't2'" in which.stderr
    code, out, err = served.end()
    assert (code, err) == (0, "")
    assert "target t1 stopped at index 3" in out
    assert "target t2 stopped at index 0" in out
    assert sorted(file.name for file in tmp_path.glob("*.db")) == ["t1.db", "t2.db"]


def test_ctrl_c_is_a_clean_end_too(serving: Serving) -> None:
    code, _, err = serving.end(signal.SIGINT)
    assert (code, err) == (0, "")


def test_conform_refuses_a_target_with_real_data(serving: Serving) -> None:
    refused = logplayer("conform", serving.addresses[0], "--id", "t1")
    assert refused.returncode == 2
    assert "holds data of log 'orders'" in refused.stderr


def test_get_and_dump(path: str) -> None:
    where = ["--store", "sqlite", "--path", path, "--id", "t1"]
    assert logplayer("target", "get", *where, "k").stdout == "v\n"
    assert logplayer("target", "get", *where, "none").returncode == 1
    assert json.loads(logplayer("target", "get", *where, "k", "--json").stdout) == {"key": "k", "value": "v"}
    none = logplayer("target", "get", *where, "none", "--json")
    assert (none.returncode, json.loads(none.stdout)) == (1, {"key": "none", "value": None})
    assert json.loads(logplayer("target", "dump", *where).stdout) == {"key": "6b", "value": "76"}
    assert logplayer("target", "dump", *where, "--quarantine").stdout == ""


def test_trace_lines(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    where = ["--store", "sqlite", "--path", str(tmp_path / "x.db"), "--id", "t1"]
    serving = Serving(*where, "--listen-tcp", "127.0.0.1:0", "--trace", str(trace))
    done = logplayer("conform", serving.addresses[0], "--id", "t1", "--rule", "repeat", "--rule", "lower-epoch")
    assert done.returncode == 0, done.stdout
    serving.end()
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert {line["ev"] for line in lines} == {"accept", "refuse", "apply", "reject"}
    assert {line["node"] for line in lines} == {"Tt1"}


def test_conform_with_commands_and_json(tmp_path: Path) -> None:
    where = ["--store", "sqlite", "--path", str(tmp_path / "x.db"), "--id", "t1"]
    serving = Serving(*where, "--listen-tcp", "127.0.0.1:0")
    dump = shlex.join([*LOGPLAYER, "target", "dump", *where])
    options = ["--id", "t1", "--restart-command", "true", "--dump-command", dump, "--json"]
    rules = ["--rule", "content", "--rule", "restart", "--rule", "apply"]
    done = logplayer("conform", serving.addresses[0], *options, *rules)
    verdicts = {verdict["rule"]: verdict["ok"] for verdict in json.loads(done.stdout)}
    assert verdicts == {"apply": True, "restart": True, "content": True}
    failed = logplayer("conform", serving.addresses[0], "--id", "t1", "--restart-command", "false", "--rule", "restart")
    assert failed.returncode == 1
    assert "exit code 1 from the command: false" in failed.stdout
    serving.end()


async def test_a_frozen_target_process_is_found_by_keepalive(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not relied upon, as a process whose event loop hangs still answers pings; but a dead host is found by it."""
    quicker = {"grpc.keepalive_time_ms": 1000, "grpc.http2.ping_timeout_ms": 1000}
    options = [*(pair for pair in grpc_link.CHANNEL_OPTIONS if pair[0] not in quicker), *quicker.items()]
    monkeypatch.setattr(grpc_link, "CHANNEL_OPTIONS", options)
    monkeypatch.setattr("logplayer.testing.conformance.client.ANSWER_SECONDS", 40.0)
    stream = await ConformanceStream.connect(serving.addresses[0])
    assert isinstance(await stream.open("t1", "orders", Session(1, 2)), codec.SessionOpened)
    serving.process.send_signal(signal.SIGSTOP)
    try:
        answer = await stream.answer()
    finally:
        serving.process.send_signal(signal.SIGCONT)
    assert isinstance(answer, StreamEnded)
    assert "ping timeout" in str(answer.error)


def test_tls_and_a_token(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    where = ["--store", "sqlite", "--path", str(tmp_path / "x.db"), "--id", "t1"]
    listen = ["--listen", "127.0.0.1:0", "--listen-tcp", "127.0.0.1:0"]
    serving = Serving(*where, *listen, "--tls-cert", cert, "--tls-key", key, "--token-file", str(token))
    mine = ["--tls-ca", authority.ca, "--token-file", str(token)]
    for address in serving.addresses:
        assert (
            logplayer("conform", address, "--id", "t1", "--rule", "pipeline", "--rule", "reorder", *mine).returncode
            == 0
        )
        refused = logplayer("target", "position", address, "--tls-ca", authority.ca)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert "wants a token" in refused.stderr
    assert serving.end()[0] == 0


STORE = ["--store", "sqlite", "--id", "t1"]
SERVE = ["target", "serve", *STORE, "--path", "x.db"]
HERE = ["--listen", "127.0.0.1:0"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (SERVE, "needs somewhere to listen"),
        (["target", "serve", *STORE, *HERE], "needs --path"),
        (["target", "serve", *STORE, "--path", "none/x.db", *HERE], "is not a directory"),
        ([*SERVE, "--url", "y", *HERE], "takes no --url"),
        ([*SERVE, "--id", "t2", *HERE], "write {id} where the name belongs"),
        ([*SERVE, "--id", "t1", *HERE], "--id t1 is given twice"),
        (
            ["target", "serve", "--store", "sqlite", "--path", "x.db", "--id", "", *HERE],
            "--id '' is not a target's name",
        ),
        (["target", "serve", "--store", "sqlite", "--path", "x.db", "--id", "../x", *HERE], "is not a target's name"),
        (["target", "add", "a b/c", "tcp://127.0.0.1:1", "--log", "file:///x"], "'a b/c' is not a target's name"),
        (["play", "--log", "file:///x", "--target", "a/b=tcp://127.0.0.1:1"], "--target 'a/b' is not a target's name"),
        ([*SERVE, "--listen", "nowhere"], "not HOST:PORT"),
        ([*SERVE, "--listen", "0.0.0.0:0"], "--insecure if plain text is meant"),
        ([*SERVE, *HERE, "--tls-cert", "c"], "no key"),
        ([*SERVE, *HERE, "--token-file", "t"], "cannot be read"),
        (["target", "position", "127.0.0.1:7001"], "write grpc://HOST:PORT or tcp://HOST:PORT"),
        (["target", "dump", *STORE, "--path", "x.db"], "is not there"),
        (["conform", "tcp://127.0.0.1:x", "--id", "t1"], "HOST:PORT"),
        (["conform", "tcp://127.0.0.1:1", "--id", "t1", "--rule", "nonsense"], "there is no rule 'nonsense'"),
    ],
)
def test_a_mistake_is_one_clear_line(
    arguments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["logplayer", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert told in err
    assert (out, err.count("\n")) == ("", 1)


def test_a_target_that_is_not_there_is_exit_code_1() -> None:
    done = logplayer("target", "position", "tcp://127.0.0.1:1")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no connection to tcp://127.0.0.1:1" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody who may not write")
@pytest.mark.parametrize("serving", [False, True])
def test_a_store_is_read_by_somebody_who_may_not_write(serving: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:  # Pytest's own are closed to others.
        path = Path(folder) / "a.db"
        store = SqliteTarget(path, "a")
        if not serving:
            store.close()
        os.chmod(folder, 0o755)
        for file in Path(folder).iterdir():
            os.chmod(file, 0o644)
        before = sorted(os.listdir(folder))
        script = (
            "import os; from logplayer.target.stores.sqlite import SqliteTarget\n"
            "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            f"store = SqliteTarget({str(path)!r}, 'a', read_only=True)\n"
            "print(store.position().index, store.get(b'k'), list(store.scan()), list(store.quarantine()))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
        assert (done.stdout, done.stderr) == ("0 None [] []\n", "")
        assert sorted(os.listdir(folder)) == before
        if serving:
            store.close()


def test_serve_names_tables_as_the_configuration_says(tmp_path: Path) -> None:
    """[tables] of logplayer.toml, which has everything else too, or of --mapping; not of both."""
    config = tmp_path / "logplayer.toml"
    config.write_text('[log]\naddress = "grpc://127.0.0.1:7100"\n[tables.orders]\nname = "mine"\n')
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY, note TEXT)")
    where = ["--store", "sqlite-tables", "--path", str(tmp_path / "shop.db"), "--id", "t1", "--listen", "127.0.0.1:0"]
    both = logplayer("target", "serve", *where, "--config", str(config), "--mapping", str(config))
    assert (both.returncode, both.stderr.count("\n")) == (2, 1)
    assert "give one of them" in both.stderr
    serving = Serving(*where, "--config", str(config))

    async def play() -> None:
        stream = await ConformanceStream.connect(serving.addresses[0])
        await stream.open("t1", "log", Session(1, 1))
        await stream.batch(covering(0, 1, Delivery(1, lp.table("orders").put(id=1, note="x").encoded)))
        await stream.acked(1)
        stream.cut()

    try:
        asyncio.run(play())
    finally:
        serving.end()
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        assert db.execute("SELECT id, note FROM mine").fetchall() == [(1, "x")]
