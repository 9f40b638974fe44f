"""Structured logs: each line is an object, with the facts as fields."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

from logplayer.observe.logs import JsonLines
from logplayer.observe.timeline import STATE, Timeline
from tests.player.player_support import House, until


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
