"""``kill -9`` of a capture at every step, while others write: nothing is lost, nothing is twice."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from logplayer.capture.settings import Choices
from logplayer.errors import UserError
from logplayer.wire.entries import decode_headers
from logplayer.wire.logplayer.v1 import entry_pb2 as pb
from logplayer.wire.rows import decode_row_changes
from tests.capture.capture_support import Source, capture, child, end, entries, fold, sequences
from tests.capture.test_capture import forget
from tests.capture.test_captured_tables import idle

SNAPSHOT_STEPS = ["capture-begun", "capture-slot-made", "capture-rows-sent:4", "capture-group-durable:3"]
STREAM_STEPS = ["capture-transaction-submitted:3", "capture-group-durable:1", "capture-group-durable:4"]
TABLES = ("branches", "accounts", "history")
SCHEMA = (
    "CREATE TABLE branches (id int PRIMARY KEY, total int NOT NULL)",
    "CREATE TABLE accounts (id int PRIMARY KEY, branch int NOT NULL REFERENCES branches, balance int NOT NULL, "
    "label text UNIQUE)",
    "CREATE TABLE history (id bigserial PRIMARY KEY, account int REFERENCES accounts ON DELETE CASCADE, delta int)",
    "INSERT INTO branches SELECT i, 0 FROM generate_series(1, 3) i",
    "INSERT INTO accounts SELECT i, 1 + i % 3, 0, 'label ' || i FROM generate_series(1, 200) i",
)
TRANSFER = """
WITH moved AS (UPDATE accounts SET balance = balance + %(delta)s WHERE id = %(account)s RETURNING id, branch),
  noted AS (INSERT INTO history (account, delta) SELECT id, %(delta)s FROM moved)
UPDATE branches SET total = total + %(delta)s FROM moved WHERE branches.id = moved.branch
"""


@contextmanager
def writers(source: Source, count: int = 2) -> Iterator[None]:
    """Applications that move money, delete and make accounts, and swap unique labels, until the block ends."""
    stop = threading.Event()

    def write(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(source.url) as db:
            while not stop.is_set():
                account, other = chance.sample(range(1, 220), 2)
                try:
                    with db.transaction():
                        db.execute(TRANSFER, {"account": account, "delta": chance.randint(-9, 9)})
                        if chance.random() < 0.3:
                            change_accounts(db, account, other)
                except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
                    continue
                stop.wait(0.002)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def change_accounts(db: psycopg.Connection, account: int, other: int) -> None:
    """The balance goes with the account, so the branches' totals stay those of their accounts."""
    query = "DELETE FROM accounts WHERE id = %s RETURNING branch, balance, label"
    gone = db.execute(query, (account,)).fetchone()
    if gone is None:
        return
    branch, balance, label = gone
    db.execute("UPDATE accounts SET label = label || '*' WHERE id = %s", (other,))
    db.execute("INSERT INTO accounts VALUES (%s, %s, %s, %s)", (account, branch, balance, label))


def check_prefixes(found: list[tuple[int, str, int, bytes]]) -> None:
    """After the snapshot, every prefix of the log is a state of the source: totals match, labels are unique."""
    state: dict[str, dict[bytes, dict[str, Any]]] = {table: {} for table in TABLES}
    complete = False
    for index, _, _, payload in found:
        transaction = pb.Transaction.FromString(payload)
        kind = {header.name: header.value for header in transaction.headers}.get("pg-snapshot", b"")
        for mutation in transaction.mutations:
            row = {c.name: c.value.integer if c.value.HasField("integer") else c.value.text for c in mutation.columns}
            if mutation.op == pb.DELETE:
                state[mutation.table].pop(mutation.key, None)
            else:
                state[mutation.table][mutation.key] = row
            parents(state, mutation.table, row, mutation.op, index)
        complete = complete or kind == b"done"
        if complete and transaction.mutations:
            accounts = state["accounts"].values()
            totals = {row["id"]: row["total"] for row in state["branches"].values()}
            for branch, total in totals.items():
                assert total == sum(a["balance"] for a in accounts if a["branch"] == branch), index
            labels = [row["label"] for row in accounts]
            assert len(labels) == len(set(labels)), index


def parents(
    state: dict[str, dict[bytes, dict[str, Any]]], table: str, row: dict[str, Any], op: int, index: int
) -> None:
    """The foreign keys, at every row that is written: also in the middle of a snapshot."""
    if op == pb.PUT and table == "accounts":
        assert f"branches/{row['branch']}".encode() in state["branches"], index
    if op == pb.PUT and table == "history":
        assert f"accounts/{row['account']}".encode() in state["accounts"], index


async def finish(source: Source, directory: Path) -> None:
    await capture(source, directory, *TABLES)
    found = await entries(directory)
    assert fold(found, TABLES) == source.rows(*TABLES)
    check_prefixes(found)
    numbers = sequences(found, f"capture/{source.slot}")
    assert numbers == list(range(1, len(numbers) + 1))
    lsns = [
        header.value
        for _, producer, _, payload in found
        if producer == f"capture/{source.slot}"
        for header in pb.Transaction.FromString(payload).headers
        if header.name == "pg-xid"
    ]
    assert len(lsns) == len(set(lsns))


@pytest.mark.parametrize("step", SNAPSHOT_STEPS)
async def test_a_snapshot_that_is_killed_begins_again(source: Source, tmp_path: Path, step: str) -> None:
    source.run(*SCHEMA)
    with writers(source):
        process = child(source, tmp_path, ",".join(TABLES), step)
        assert process.wait(timeout=120) == -9
        source.run("DELETE FROM accounts WHERE id <= 5", "UPDATE accounts SET label = 'label 1' WHERE id = 6")
        for undo in ("capture-undo-sent:1", "capture-undo-sent:2") if "durable" in step else ():
            process = child(source, tmp_path, ",".join(TABLES), undo, "--until-now")
            assert process.wait(timeout=120) in (-9, 0)
    await finish(source, tmp_path)
    undone = [name for *_, payload in await entries(tmp_path) for name, _ in decode_headers(payload)].count("pg-undoes")
    assert undone or "durable" not in step


@pytest.mark.parametrize("step", STREAM_STEPS)
async def test_a_stream_that_is_killed_goes_on(source: Source, tmp_path: Path, step: str) -> None:
    source.run(*SCHEMA)
    await capture(source, tmp_path, *TABLES)
    with writers(source):
        for _ in range(2 if step == STREAM_STEPS[-1] else 1):
            process = child(source, tmp_path, ",".join(TABLES), step)
            assert process.wait(timeout=120) == -9, process.communicate()[0]
    await finish(source, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
async def test_kills_at_random(source: Source, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    source.run(*SCHEMA)
    with writers(source):
        for _ in range(25):
            process = child(source, tmp_path, ",".join(TABLES))
            await asyncio.sleep(chance.uniform(0.3, 2.5))
            said = end(process)
            assert process.returncode == -9, said
    await finish(source, tmp_path)


@pytest.mark.parametrize("step", ["capture-begun", "capture-slot-made", "capture-rows-sent:4"])
async def test_a_snapshot_that_is_killed_and_wholly_trimmed_begins_again(
    source: Source, tmp_path: Path, step: str
) -> None:
    """Nothing is left that says how far it was; but nothing says that it was complete, either."""
    source.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    source.run("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 300) i")
    assert child(source, tmp_path, "t", step).wait(timeout=120) == -9
    await forget(tmp_path)
    before = source.confirmed()
    if before:
        await idle(source)
    with pytest.raises(UserError, match=r"trimmed from the log since.*--on-truncate ddl --ddl-targets.*--no-trims"):
        await capture(source, tmp_path, "t")
    assert source.confirmed() == before
    _, said = await capture(source, tmp_path, "t", choices=Choices(truncate="ddl", ddl_targets=("a",)))
    assert said[:2] == ["interrupted snapshot taken back", "snapshot copied"]
    found = [entry for entry in await entries(tmp_path) if entry[1] == f"capture/{source.slot}"]
    assert [change.sql for change in decode_row_changes(found[0][3])] == ['DELETE FROM "t"']
    assert fold(found[1:], ("t",)) == source.rows("t")
