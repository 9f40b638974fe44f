"""Structured logs: each line is an object, with the facts as fields."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from logplayer.core import effects
from logplayer.core.entry import HashMap
from logplayer.core.feed import Feed
from logplayer.demo.world import free_ports
from logplayer.errors import CorruptEntry
from logplayer.log.client import LogClient
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import NewEntry
from logplayer.observe import logs
from logplayer.observe.logs import JsonLines, process_is
from logplayer.observe.timeline import STATE, Timeline
from logplayer.player.feeding import Feeding
from logplayer.spark.resident.heartbeat import Beat
from logplayer.spark.resident.overview import Overview
from logplayer.testing.conformance.log_harness import flip_in_files
from logplayer.wire.security import NONE
from tests.player.player_support import House, until


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may have run a command in this process."""
    monkeypatch.setattr(logs, "_process", {})


def test_a_line_has_the_facts_as_fields() -> None:
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger = logging.Logger("logplayer.test")
    logger.addHandler(Keep())
    timeline = Timeline(logger)
    timeline.facts.update(log_id="l", group="g", epoch=7)
    timeline.say(logging.WARNING, STATE, "target %s: %s", "a", "away", target="a", index=41)
    line = json.loads(JsonLines().format(records[0]))
    assert line.pop("at").endswith("Z")
    assert line == {
        "level": "warning", "logger": "logplayer.test", "text": "target a: away", "kind": "state", "log_id": "l",
        "group": "g", "epoch": 7, "target": "a", "index": 41,
    }  # fmt: skip


def test_the_time_line_is_bounded_and_can_be_read_on() -> None:
    timeline = Timeline(items_max=3)
    for number in range(5):
        timeline.say(logging.INFO, STATE, "%d", number)
    assert [item["text"] for item in timeline.since(0)] == ["2", "3", "4"]
    assert [item["number"] for item in timeline.since(4)] == [5]
    assert timeline.since(5) == []


def test_a_process_says_what_all_of_its_lines_are_about() -> None:
    process_is(log_id="l", target="a")
    record = logging.LogRecord("x", logging.INFO, "", 0, "hello", (), None)
    record.facts = {"target": "b", "index": 7}
    line = json.loads(JsonLines().format(record))
    assert (line["log_id"], line["target"], line["index"]) == ("l", "b", 7)


@contextlib.asynccontextmanager
async def logging_as_objects(*arguments: str) -> AsyncIterator[list[dict[str, Any]]]:
    """A command with --log-format json; the lines that it has logged, once it has said that it is there."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "logplayer.cli", *arguments, "--json", "--log-format", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    lines: list[dict[str, Any]] = []

    async def read() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            lines.append(json.loads(line))

    assert process.stdout is not None
    reading = asyncio.create_task(read())
    assert await process.stdout.readline()
    try:
        yield lines
    finally:
        process.terminate()
        await process.wait()
        await reading


async def test_a_target_logs_objects(tmp_path: Path) -> None:
    """Who plays to it, and what it refuses."""
    [port] = free_ports(1)
    where = ("--store", "sqlite", "--path", str(tmp_path / "a.db"), "--id", "a", "--listen-tcp", f"127.0.0.1:{port}")
    async with House(tmp_path) as house, logging_as_objects("target", "serve", *where) as lines:
        player = await house.play(targets={"a": f"tcp://127.0.0.1:{port}"}, map=HashMap(("a",)))
        await until(lambda: any("accepted epoch" in line["text"] for line in lines), "it says who plays")
        epoch, log_id = player.shell.core.epoch, player.shell.log_id
        [line] = [line for line in lines if "accepted epoch" in line["text"]]
        known = ("a", log_id, epoch, 0)
        assert (line["target"], line["log_id"], line["epoch"], line["index"]) == known
        index = await house.append(10)
        await until(lambda: player.target("a").index >= index, "it has everything")
        with sqlite3.connect(tmp_path / "a.db") as db:
            db.execute("CREATE TRIGGER no BEFORE INSERT ON data BEGIN SELECT raise(ABORT, 'no such account'); END")
        db.close()
        poison = await house.append(1)
        await until(lambda: any(line.get("reason") == "POISON" for line in lines), "it says what it refuses")
        line = next(line for line in lines if line.get("reason") == "POISON")
        assert (line["level"], line["target"], line["log_id"], line["epoch"]) == ("warning", "a", log_id, epoch)
        assert index <= line["index"] < poison
        assert "no such account" in line["text"]


async def test_a_log_server_logs_objects(tmp_path: Path) -> None:
    needle = b"a payload that gets damaged"
    log = await FileLog.open(tmp_path / "log")
    log_id = (await log.info()).log_id
    await log.append([NewEntry("p", 1, b"fine"), NewEntry("p", 2, needle)])
    await log.close()
    assert flip_in_files([path for path in (tmp_path / "log").rglob("*") if path.is_file()], needle)
    [port] = free_ports(1)
    where = ("--log", f"file://{tmp_path / 'log'}", "--listen", f"127.0.0.1:{port}")
    async with logging_as_objects("log", "serve", *where) as lines:
        client = await LogClient.open(f"127.0.0.1:{port}")
        with pytest.raises(CorruptEntry):
            async for _ in client.read(1, 2):
                pass
        await client.close()
        await until(lambda: any("CorruptEntry" in line["text"] for line in lines), "it says what is damaged")
        line = next(line for line in lines if "CorruptEntry" in line["text"])
        assert (line["level"], line["log_id"], line["index"]) == ("error", log_id, 2)


def test_a_feed_logs_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed("a", 7, 50)
    Feeding(feed, "tcp://x:1", "l", NONE, lambda request: None)._report(effects.Report("a", "it is slow"))
    line = json.loads(JsonLines().format(caplog.records[-1]))
    assert (line["target"], line["log_id"], line["epoch"], line["index"]) == ("a", "l", 7, -1)


def test_lines_about_a_group_on_spark_have_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    row = {"target": "a", "state": "LIVE", "index": 41, "error": ""}
    with caplog.at_level(logging.INFO):
        Overview("spark").heard(Beat(1, "w", {"log_id": "l", "epoch": 7, "targets": [row]}, None))
    played, live = [json.loads(JsonLines().format(record)) for record in caplog.records]
    assert (played["group"], played["log_id"], played["epoch"]) == ("spark/1", "l", 7)
    assert (live["group"], live["log_id"], live["epoch"]) == ("spark/1", "l", 7)
    assert (live["target"], live["state"], live["index"]) == ("a", "LIVE", 41)


async def test_a_player_logs_objects(tmp_path: Path) -> None:
    async with House(tmp_path) as house:
        [seat] = await house.targets("a")
        where = ("--target", f"a={seat.address}", "--http", "127.0.0.1:0", "--log-format", "json")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "logplayer.cli", "play", "--in-process", "--log", house.log_address, *where),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        lines: list[dict[str, object]] = []

        async def read() -> None:
            assert process.stderr is not None
            async for line in process.stderr:
                lines.append(json.loads(line))

        reading = asyncio.create_task(read())
        await until(lambda: any(line.get("state") == "LIVE" for line in lines), "a is live, in the log")
        process.terminate()
        await process.wait()
        await reading
    [takeover] = [line for line in lines if line.get("kind") == "epoch"]
    [live] = [line for line in lines if line.get("state") == "LIVE"]
    assert takeover["epoch"] == live["epoch"]
    assert (live["target"], live["log_id"], live["group"]) == ("a", takeover["log_id"], "")
