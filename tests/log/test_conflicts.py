"""Two that use one producer's name, through real processes: nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logplayer.errors import LogError, ProducerConflict, SequenceGap
from logplayer.log.client import LogClient
from logplayer.log.file.log import FileLog
from logplayer.log.grpc_errors import from_status, to_status
from logplayer.log.open import open_log
from logplayer.log.protocol import Kind, NewEntry, Newest
from logplayer.log.refusals import producer_conflict, sequence_gap
from logplayer.testing.conformance.log_check import entry
from logplayer.testing.conformance.log_harness import ServerProcess
from logplayer.testing.conformance.logs import collect, fill
from tests.servers import require

TWIN = """
import asyncio, json, sys
from logplayer.errors import ProducerConflict, SequenceGap
from logplayer.log.open import open_log
from logplayer.log.protocol import NewEntry

async def main(address, me):
    log = await open_log(address)
    acknowledged, sequence = {}, 0
    print("ready", flush=True)
    sys.stdin.readline()
    for order in range(60):
        sequence += 1
        payload = f"{me} {order}"
        try:
            [index] = await log.append([NewEntry("web-1", sequence, payload.encode())])
            acknowledged[payload] = index
        except (ProducerConflict, SequenceGap):
            pass
    print(json.dumps(acknowledged))
    await log.close()

asyncio.run(main(*sys.argv[1:]))
"""


def twin(where: str, me: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TWIN, f"grpc://{where}", me]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def test_two_processes_with_one_producer_name_lose_nothing_silently(tmp_path: Path) -> None:
    server = ServerProcess(f"file://{tmp_path}/log")
    await server.start()
    twins = [twin(server.where, me) for me in "AB"]
    try:
        for one in twins:
            assert one.stdout is not None
            assert (await asyncio.to_thread(one.stdout.readline)).strip() == "ready"
        answers = await asyncio.gather(*(asyncio.to_thread(one.communicate, "go\n", 60) for one in twins))
        acknowledged: dict[str, int] = {}
        for out, _ in answers:
            acknowledged |= json.loads(out)
        log = await open_log(f"grpc://{server.where}")
        found = {r.payload.decode(): r.index for r in await collect(log, 1, (await log.info()).last)}
        await log.close()
        assert acknowledged == found, "each one that was acknowledged is in the log, at its index"
        assert len(found) == 60, "one of the two for each sequence"
    finally:
        for one in twins:
            one.kill()
            one.wait()
        await server.stop()


def test_the_command_refuses_a_number_that_was_used_for_another_line(tmp_path: Path) -> None:
    def append(key: str) -> subprocess.CompletedProcess[str]:
        line = {"producer": "web-1", "sequence": 1, "mutations": [{"key": key, "value": "1"}]}
        command = [sys.executable, "-m", "logplayer.cli", "log", "append", "--log", f"file://{tmp_path}/log"]
        return subprocess.run(command, input=json.dumps(line), text=True, capture_output=True, check=False)

    assert "appended 1 transaction" in append("a").stdout
    assert "was in the log already" in append("a").stdout
    refused = append("b")
    assert refused.returncode == 2
    assert "line 1" in refused.stderr
    assert "another payload in the log, at index 1" in refused.stderr


async def test_facts_of_an_error_travel(tmp_path: Path) -> None:
    server = ServerProcess(f"file://{tmp_path}/log")
    await server.start()
    log = await LogClient.open(server.where)
    await log.append([NewEntry("Zoë", number, b"one") for number in (1, 2, 3)])
    with pytest.raises(ProducerConflict, match=r"at index 1; .*newest of this producer is 3, at index 3") as conflict:
        await log.append([NewEntry("Zoë", 1, b"two")])
    found = conflict.value
    assert (found.producer, found.sequence, found.index) == ("Zoë", 1, 1)
    assert (found.newest, found.newest_index) == (3, 3), "how far the twin is"
    with pytest.raises(SequenceGap) as gap:
        await log.append([NewEntry("Zoë", 7, b"two")])
    assert (gap.value.producer, gap.value.sequence, gap.value.newest, gap.value.expected) == ("Zoë", 7, 3, 4)
    await log.close()
    await server.stop()


@pytest.mark.parametrize("facts", ["", "no JSON", "[]", '{"index": "seven", "producer": 3, "x": 1}'])
def test_facts_that_make_no_sense_are_left_out(facts: str) -> None:
    class Status:
        def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
            return ("logplayer-error", "ProducerConflict"), ("logplayer-facts", facts)

        def details(self) -> str:
            return "refused"

    error = from_status(Status(), "here")  # type: ignore[arg-type]
    assert isinstance(error, ProducerConflict)
    assert vars(error) == {"index": 0, "producer": "", "sequence": 0, "newest": 0, "newest_index": 0}


@pytest.mark.parametrize("error", [producer_conflict("p", 3, 7, Newest(9, 12)), sequence_gap("p", 5, 3)])
def test_status_and_back(error: LogError) -> None:
    _, details, trailing = to_status(error)

    class Status:
        def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
            return trailing

        def details(self) -> str:
            return details

    again = from_status(Status(), "here")  # type: ignore[arg-type]
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_log_that_cannot_refuse_twins_warns_with_both_indexes(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka. test_kafka.py has the two writers; here is what either of them reads."""
    require("confluent_kafka")
    from logplayer.log.kafka import sequence_map

    state = sequence_map.KafkaLogState(cast(Any, SimpleNamespace(where="kafka://here/log")))
    for offset, producer, sequence in ((0, "twin", 1), (1, "other", 1), (2, "twin", 1)):
        assert state.learn(offset, producer, sequence, Kind.DATA, bytes([offset] * 8), b"c" * 8)
    assert "holds 'twin'/1 twice, at index 1 and again at index 3: two writers" in caplog.text


async def test_a_retry_that_waits_with_its_first_try(tmp_path: Path) -> None:
    """Both are planned for one commit, so neither is on the disk when they are compared."""
    log = await FileLog.open(tmp_path / "log")
    calls = [[entry("p", 1)], [NewEntry("p", 1, b"other")], [entry("p", 1)], [entry("p", 2)], [NewEntry("p", 2, b"")]]
    first, other, again, second, empty = await asyncio.gather(
        *(log.append(group) for group in calls), return_exceptions=True
    )
    assert (first, again, second) == ([1], [1], [2])
    assert isinstance(other, ProducerConflict)
    assert isinstance(empty, ProducerConflict)
    await log.close()


async def test_a_reader_of_the_directory_knows_the_newest(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log", segment_bytes=2000)
    p = await fill(log, 30)
    [q] = await fill(log, 1, "q")
    await fill(log, 30, "r")
    await log.trim(q + 20)
    reader = await FileLog.open(tmp_path / "log", readonly=True)
    for producer, found in (("p", (30, p[-1])), ("q", (1, q)), ("s", (0, 0))):
        assert await reader.newest(producer) == await log.newest(producer) == found
    await reader.close()
    await log.close()


async def test_a_history_without_marks_is_still_read(tmp_path: Path) -> None:
    """Of what an older version trimmed nothing but the index is known."""
    log = await FileLog.open(tmp_path / "log", segment_bytes=2000)
    await fill(log, 30)
    await log.trim(20)
    await log.close()
    with sqlite3.connect(tmp_path / "log" / "history.db") as history:
        history.execute("ALTER TABLE spans DROP COLUMN marks")
    log = await FileLog.open(tmp_path / "log", segment_bytes=2000)
    assert await log.append([NewEntry("p", 1, b"whatever")]) == [1]
    await log.trim(25)
    with pytest.raises(ProducerConflict):
        await log.append([NewEntry("p", 30, b"whatever")])
    await log.close()
