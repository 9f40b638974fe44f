"""Real processes: a row violates a constraint, is quarantined, the schema is repaired, and it is applied once."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import child_environment
from tests.servers import free_port

PATIENCE = 120.0  # It only ends a test that hangs.
ORDER = '{"mutations": [{"table": "orders", "key": ["id"], "columns": {"id": %d, "total": %s}}]}\n'


def logplayer(*arguments: str, code: int = 0, said: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "logplayer.cli", *arguments],
        input=said,
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[None]:
    """A command that serves until the end of the block; its first line says that it is up."""
    command = [sys.executable, "-m", "logplayer.cli", *arguments]
    process = subprocess.Popen(command, env=child_environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


def rows(path: Path) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT * FROM orders ORDER BY id").fetchall()


def wait_for_block(player: str) -> dict[str, Any]:
    """What blocks the target, once something does."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        [target] = json.loads(logplayer("status", "--player", player, "--json"))["targets"]
        if target["blocked"]:
            return dict(target["blocked"])
        time.sleep(0.1)
    raise AssertionError("the target was never blocked")


def test_a_quarantined_row_is_redriven_once(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE orders (id INT PRIMARY KEY, total INT CONSTRAINT small CHECK (total < 10))")
    log_port, port, http = free_port(), free_port(), free_port()
    log = ("--log", f"grpc://127.0.0.1:{log_port}")
    player = f"127.0.0.1:{http}"
    address = f"tcp://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            running("log", "serve", "--log", f"file://{tmp_path}/wal", "--listen", f"127.0.0.1:{log_port}")
        )
        store = ("--store", "sqlite-tables", "--path", str(path), "--id", "a")
        stack.enter_context(running("target", "serve", *store, "--listen-tcp", f"127.0.0.1:{port}"))
        play = ("play", "--in-process", "--no-trims", *log, "--target", f"a={address}", "--http", player)
        stack.enter_context(running(*play))
        logplayer("log", "append", *log, said=ORDER % (1, "1") + ORDER % (2, "50") + ORDER % (3, "3"))
        blocked = wait_for_block(player)
        assert blocked["kind"] == "POISON"
        assert "small" in blocked["detail"]
        assert "row orders/2: " in blocked["detail"]
        bad = int(blocked["index"])
        said = logplayer("target", "redrive", "a", "--index", str(bad), *log, code=2)
        assert f"entry {bad} is not quarantined at a" in said
        logplayer("target", "quarantine", "a", "--index", str(bad), *log, "--player", player)
        [kept] = _when(lambda: logplayer("target", "dump", *store, "--quarantine").splitlines())
        assert json.loads(kept)["mutations"][0]["columns"] == {"id": 2, "total": 50}
        # SQLite cannot drop a check: the table is made again, by statements that go through the log.
        for statement in (
            "CREATE TABLE larger (id INT PRIMARY KEY, total INT)",
            "CREATE TABLE kept AS SELECT * FROM orders",
            "DROP TABLE orders",
            "ALTER TABLE larger RENAME TO orders",
        ):
            index = json.loads(logplayer("table", "ddl", statement, "--targets", "a", "--json", *log))["index"]
        logplayer("target", "wait", address, "--index", str(index), "--timeout", "100")
        logplayer("log", "trim", "--up-to", str(bad), *log)  # As players do, unless they are asked not to.
        said = logplayer("target", "redrive", "a", "--index", str(bad), "--json", *log, code=2)
        assert "a keeps it in its quarantine: give --store" in said
        first = json.loads(logplayer("target", "redrive", "a", "--index", str(bad), "--json", *log, *store[:4]))
        again = json.loads(logplayer("target", "redrive", "a", "--index", str(bad), "--json", *log))
        assert (first["index"], first["repeated"]) == (again["index"], False)
        assert again["repeated"]
        logplayer("target", "wait", address, "--index", str(first["index"]), "--timeout", "100")
        assert rows(path) == [(2, 50)]
        logplayer("log", "append", *log, said=ORDER % (2, "51"))
        last = json.loads(logplayer("log", "dump", *log, "--json").splitlines()[-1])["index"]
        logplayer("target", "wait", address, "--index", str(last), "--timeout", "100")
        assert rows(path) == [(2, 51)]  # The redriven row came before it, and only once.
        said = logplayer("table", "ddl", "ALTER TABLE x ADD y", "--targets", "nobody", *log, code=2)
        assert "nobody is not a member; the log knows a" in said


ARMED = """
import sys
from logplayer import crashpoint
crashpoint.armed = sys.argv.pop(1)
from logplayer.cli.main import main
main()
"""
AUDITED = """
CREATE TABLE orders_{0} (id int PRIMARY KEY, total int CONSTRAINT small_{0} CHECK (total < 10));
CREATE TABLE applied_{0} (id int, total int);
CREATE FUNCTION note_{0}() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN INSERT INTO applied_{0} VALUES (NEW.id, NEW.total); RETURN NEW; END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE ON orders_{0} FOR EACH ROW EXECUTE FUNCTION note_{0}();
"""


@pytest.mark.parametrize(("step", "is_there"), [("store-position-written:2", False), ("store-committed:2", True)])
def test_a_redriven_row_is_applied_once_although_the_target_is_killed(
    tmp_path: Path, postgres_url: str, step: str, is_there: bool
) -> None:
    """In PostgreSQL, before the commit and after it: a trigger counts how often the row was written."""
    name = f"r{uuid.uuid4().hex[:8]}"
    log_port, port, http = free_port(), free_port(), free_port()
    log = ("--log", f"grpc://127.0.0.1:{log_port}")
    player, address = f"127.0.0.1:{http}", f"tcp://127.0.0.1:{port}"
    store = ("--store", "postgres-tables", "--url", postgres_url, "--id", name)
    serve = ("target", "serve", *store, "--listen-tcp", f"127.0.0.1:{port}")
    with contextlib.ExitStack() as stack, psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(AUDITED.format(name).encode())

        def applied() -> list[tuple[Any, ...]]:
            return db.execute(f"SELECT * FROM applied_{name} ORDER BY id".encode()).fetchall()

        stack.enter_context(
            running("log", "serve", "--log", f"file://{tmp_path}/wal", "--listen", f"127.0.0.1:{log_port}")
        )
        play = ("play", "--in-process", "--no-trims", *log, "--target", f"{name}={address}", "--http", player)
        with running(*serve):
            with running(*play):
                order = ORDER.replace('"orders"', f'"orders_{name}"')
                logplayer("log", "append", *log, said=order % (1, "1") + order % (2, "50") + order % (3, "3"))
                bad = int(wait_for_block(player)["index"])
                logplayer("target", "quarantine", name, "--index", str(bad), *log, "--player", player)
                _when(lambda: (3, 3) in applied())
            db.execute(f"ALTER TABLE orders_{name} DROP CONSTRAINT small_{name}".encode())
        assert applied() == [(1, 1), (3, 3)]
        redrive = ("target", "redrive", name, "--index", str(bad), "--json", *log)
        first = json.loads(logplayer(*redrive))
        command = [sys.executable, "-c", ARMED, step, *serve]
        armed = subprocess.Popen(command, env=child_environment(), stdout=subprocess.PIPE, text=True)
        stack.callback(armed.kill)
        assert armed.stdout is not None
        assert armed.stdout.readline()
        stack.enter_context(running(*play, "--take-over"))
        assert armed.wait(PATIENCE) == -signal.SIGKILL
        assert ((2, 50) in applied()) == is_there
        assert json.loads(logplayer(*redrive))["repeated"]
        stack.enter_context(running(*serve))
        logplayer("target", "wait", address, "--index", str(first["index"]), "--timeout", "100")
        assert applied() == [(1, 1), (2, 50), (3, 3)]


def _when(found: Any) -> Any:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.1)
    raise AssertionError("it never came")
