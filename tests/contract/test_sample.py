"""``conform --sample``: a target that refuses everything but its own transactions is judged with those."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from logplayer.errors import UserError
from logplayer.testing.conformance.targets import RULES, SampleTransaction, conform
from logplayer.wire.entries import encode_mutation
from tests.player.player_support import logplayer

pytestmark = pytest.mark.asyncio
# An order is a key "order/NUMBER" with JSON that has an item and a count of 1 or more.
ORDERS = '''
import json
import sqlite3

import logplayer as lp


class Orders:
    def __init__(self, path, name):
        self.name = name
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.db.executescript(
            "PRAGMA synchronous = FULL;"
            "CREATE TABLE IF NOT EXISTS orders"
            "  (number INTEGER PRIMARY KEY, item TEXT NOT NULL, count INTEGER CHECK (count > 0));"
            "CREATE TABLE IF NOT EXISTS refused (entry INTEGER PRIMARY KEY, payload BLOB);"
            "CREATE TABLE IF NOT EXISTS position (one INTEGER PRIMARY KEY, stored BLOB);"
        )

    def position(self):
        row = self.db.execute("SELECT stored FROM position").fetchone()
        return lp.decode_position(row[0]) if row else lp.Position()

    def apply(self, change):
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            after = self.check(change)
            for entry, key, value in change.rows:
                try:
                    kind, number = key.decode().split("/")
                    assert kind == "order", f"{kind!r} is not an order"
                    self.write(int(number), value and json.loads(value))
                except (ValueError, AssertionError, LookupError, TypeError, sqlite3.IntegrityError) as error:
                    raise lp.Poison(f"not an order: {error}", entry) from None
            for message in change.quarantined:
                self.db.execute("REPLACE INTO refused VALUES (?, ?)", (message.index, message.payload))
            self.db.execute("REPLACE INTO position VALUES (1, ?)", (lp.encode_position(self.name, after),))
        return after

    def check(self, change):
        return change.check(self.position())

    def write(self, number, order):
        if order is None:
            self.db.execute("DELETE FROM orders WHERE number = ?", (number,))
        else:
            self.db.execute("REPLACE INTO orders VALUES (?, ?, ?)", (number, order["item"], order["count"]))


class Forgetful(Orders):
    """Writes the rows of a batch and forgets to store the index."""

    def check(self, change):
        at, after = self.position(), change.check(self.position())
        return after if change.batch is None else after._replace(index=at.index)
'''
SAMPLE = [
    {"mutations": [{"key": "order/1", "value": '{"item": "apple", "count": 3}'}]},
    {"mutations": [{"key": "order/2", "value": '{"item": "pear", "count": 1}'}, {"key": "order/1", "op": "delete"}]},
    {"mutations": [{"key": "order/3", "value": '{"item": "fig", "count": 7}'}], "headers": {"trace": "x"}},
]


@pytest.fixture
def sample(tmp_path: Path) -> str:
    path = tmp_path / "orders.jsonl"
    path.write_text("\n\n".join(json.dumps(line) for line in SAMPLE) + "\n")
    return str(path)


@contextlib.asynccontextmanager
async def serving(folder: Path, kind: str = "Orders", listen: str = "--listen") -> AsyncIterator[str]:
    """The typed target in a process of its own, as a user serves it."""
    (folder / "orders.py").write_text(ORDERS)
    command = [sys.executable, "-m", "logplayer.cli", "target", "serve", "--store", f"{folder}/orders.py:{kind}"]
    command += ["--path", f"{folder}/orders.db", "--id", "orders", listen, "127.0.0.1:0", "--json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield json.loads(await asyncio.wait_for(process.stdout.readline(), 120))["addresses"][0]
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()


def verdicts(printed: str) -> dict[str, Any]:
    return {verdict["rule"]: verdict for verdict in json.loads(printed)}


@pytest.mark.parametrize("listen", ["--listen", "--listen-tcp"])
async def test_a_typed_target_is_judged_with_its_own_transactions(tmp_path: Path, sample: str, listen: str) -> None:
    async with serving(tmp_path, listen=listen) as address:
        found = verdicts(await logplayer("conform", address, "--id", "orders", "--sample", sample, "--json"))
    from logplayer.testing.conformance import faults, histories, rules  # noqa: F401 - they fill the list.

    assert set(found) == set(RULES)
    skipped = {"restart", "restart-under-load", "content"}
    assert {rule: verdict["seen"] for rule, verdict in found.items() if not verdict["ok"] and rule not in skipped} == {}


async def test_without_a_sample_the_verdict_says_what_to_do(tmp_path: Path) -> None:
    async with serving(tmp_path) as address:
        only = ("--rule", "apply", "--rule", "open")
        found = verdicts(await logplayer("conform", address, "--id", "orders", *only, "--json", code=1))
    assert found["open"]["ok"]
    assert "Refused POISON (not an order:" in found["apply"]["seen"]
    assert "--sample FILE" in found["apply"]["seen"]


async def test_a_broken_typed_target_is_caught(tmp_path: Path, sample: str) -> None:
    async with serving(tmp_path, "Forgetful") as address:
        only = ("--rule", "apply", "--rule", "repeat", "--rule", "open-comes-first")
        said = await logplayer("conform", address, "--id", "orders", "--sample", sample, *only, "--json", code=1)
    assert {rule: verdict["ok"] for rule, verdict in verdicts(said).items()} == {
        "open-comes-first": True,
        "apply": False,
        "repeat": False,
    }


async def test_what_is_wrong_with_a_sample_is_said(tmp_path: Path, sample: str) -> None:
    bad = {
        "missing": (None, "cannot be read: No such file"),
        "empty": ("\n\n", "has 0 transactions; give 1 to 1000"),
        "text": ('{"mutations": [{"key": "order/1", "value": "{}"}]}\nnonsense\n', "line 2 of"),
        "refused": (json.dumps(SAMPLE[0]) + '\n{"mutations": [{"key": "invoice/1", "value": "{}"}]}\n', "line 2 of"),
    }
    async with serving(tmp_path) as address:
        for name, (text, why) in bad.items():
            path = tmp_path / f"{name}.jsonl"
            if text is not None:
                path.write_text(text)
            said = await logplayer("conform", address, "--id", "orders", "--sample", str(path), code=2)
            assert why in said, name
            assert str(path) in said, name
            assert said.count("\n") == 1, said
        assert "the target refuses line 2" in said
        found = await conform(address, "orders", only=["apply"], samples=[SampleTransaction("the first", payload())])
        assert [verdict.ok for verdict in found] == [True]
        with pytest.raises(UserError, match="refuses the other: entry"):
            await conform(address, "orders", only=["apply"], samples=[SampleTransaction("the other", b"\xff")])


def payload() -> bytes:
    return encode_mutation(b"order/9", b'{"item": "kiwi", "count": 1}').encoded
