"""Trouble on the way of an entry in real time: what is malformed, what is too large, and words that get lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import logplayer as lp
from logplayer.errors import ConfigError, LogUnavailable
from logplayer.spark import event_loop
from logplayer.spark.real_time import transform
from logplayer.spark.real_time.query import Realtime
from tests.spark.spark_support import FileWal, Shards, transaction, until
from tests.spark.test_real_time import NAMES, REFUSED, connector, entries, realtime, right, shards

__all__ = ["connector", "shards"]

PUT = transaction((b"n1", b"v", ""))
HEADER = b"\x12\x06\x0a\x01t\x12\x01v"
MALFORMED = {
    "a field that is not known": PUT + b"\x1a\x03\x0a\x01t",  # As a header, it would be one.
    "a field with a number": PUT + b"\x08\x01",
    "a tag of two bytes": b"\x8a\x00" + PUT[1:],
    "a length of six bytes": PUT[:1] + bytes((PUT[1] | 0x80, 0x80, 0x80, 0x80, 0x80, 0)) + PUT[2:],
    "an end inside a mutation": PUT[:-1],
    "a mutation that cannot be read": PUT + b"\x0a\x01\xff",
    "a target that is not text": PUT + b"\x0a\x06\x0a\x01k\x22\x01\xff",
    "an end inside a header": PUT + b"\x12\x02\x0a\x05",
    "a header with a name that is not text": PUT + b"\x12\x03\x0a\x01\xff",
    "no transaction at all": b"\xff\xfe text",
}
ODD = {  # But transactions.
    "nothing": b"",
    "headers only": HEADER,
    "headers first": HEADER + PUT,
    "a length of five bytes": PUT[:1] + bytes((PUT[1] | 0x80, 0x80, 0x80, 0x80, 0)) + PUT[2:],
    "a mutation with a field that is not known": b"\x0a\x0a" + PUT[2:] + b"\x3a\x01x",
}


async def play(log: str, played: Shards, last: int) -> None:
    """Deliver as a player does, up to the index ``last``."""
    async with (
        lp.open_log(log) as opened,
        lp.Player(opened, targets=played.addresses, shards=lp.HashShards(*NAMES)),
    ):
        await asyncio.to_thread(played.wait, last)


def test_what_is_malformed_reaches_no_target_as_with_a_player(
    spark: SparkSession, wal: FileWal, shards: Shards, tmp_path: Path
) -> None:
    """An entry that cannot be understood is for nobody as a whole, whoever plays it."""
    folder = tmp_path / "played"
    folder.mkdir()
    played = Shards(folder, NAMES)
    last = 0
    for nth, payload in enumerate([*MALFORMED.values(), *ODD.values()]):
        wal.append([payload])
        [last] = wal.append([transaction((b"good%d" % nth, b"v", ""))])
    address = wal.serve()
    try:
        event_loop.run(play(address, played, last))
        running = realtime(spark, wal, shards, log=address, transform=None).start()
        try:
            shards.wait(last)
        finally:
            running.stop()
        assert {name: shards.read(name)[::2] for name in NAMES} == {name: played.read(name)[::2] for name in NAMES}
    finally:
        played.stop()


def test_an_entry_that_becomes_too_large_blocks_its_target(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    def repeated(rows: DataFrame) -> DataFrame:
        times = "if(length(value) > 1000000, 24, 1)"
        made = rows.selectExpr("*", f"explode(sequence(1, {times})) nth")
        return made.selectExpr("log_index", "target", "concat(cast(key as string), '/', nth) key", "value", "op")

    wal.append([transaction((b"small", b"v", "a"))])
    [large] = wal.append([transaction((b"large", bytes(3 << 20), "a"))])
    running = realtime(spark, wal, shards, transform=repeated).start()
    try:
        until(lambda: running.status["state"] in ("blocked", "reconnecting"))
        status = running.status
        assert status["state"] == "blocked"
        assert "BAD_ROW at target a" in status["reason"]
        assert f"entry {large} has " in status["reason"]
        assert "makes less of it" in status["reason"]
    finally:
        running.stop()


def test_why_a_task_ends_is_said_again_until_it_is_heard(
    spark: SparkSession, wal: FileWal, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear = Realtime._hear
    missed: list[Any] = []

    def hard_of_hearing(self: Realtime, question: Any) -> Any:
        if question.get("ended") is not None and len(missed) < 2:
            missed.append(question)
            raise LogUnavailable("a test")
        return hear(self, question)

    monkeypatch.setattr(Realtime, "_hear", hard_of_hearing)
    monkeypatch.setattr(transform, "refusal", lambda jvm, rows: "")
    wal.append(entries(0, 20))
    running = realtime(spark, wal, shards, transform=REFUSED["index"][0]).start()
    with pytest.raises(ConfigError, match="UNSAFE"):
        running.wait(120)
    assert len({beat["attempt"] for beat in missed}) == 1  # Spark starts a task again three times: those do not count.
    assert running.status["starts"] == 1


def test_the_offset_of_a_batch_never_falls(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    """Also of one that had no session with its targets."""
    running = realtime(spark, wal, shards, batch_seconds=5).start()
    try:
        wal.append(entries(0, 100))
        shards.wait(wal.last())
        until(lambda: running.progress)
        event_loop.run(shards._servers["a"].stop())
        away = running.progress[-1]["batchId"] + 1  # This one may have begun with it; the next one does not.
        until(lambda: running.progress[-1]["batchId"] > away)
        offsets = [int(batch["sources"][0]["endOffset"]) for batch in running.progress]
        assert offsets == sorted(offsets)
        assert offsets[-1] > 0
    finally:
        running.stop()
    right(wal, shards)
