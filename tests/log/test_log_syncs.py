"""What a file log has made durable, and when: seen by a layer between it and libc, which can make syncs fail."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.sync_layer import DURABLE, Event, SyncLayer

START = """
import asyncio, json, os, sys
from tests.sync_layer import fail_syncs, mark
from logplayer.errors import LogError
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import NewEntry

def heal():
    os.unlink(os.environ["LP_SYNC_FAIL"])

async def tried(what):
    try:
        return await what
    except LogError as error:
        return f"{type(error).__name__}: {error}"

async def append(log, sequence, count=100):
    return await tried(log.append([NewEntry("p", sequence, bytes(count))]))

def main(run):
    print(json.dumps(asyncio.run(run(sys.argv[1]))))
"""

APPENDS = """
async def run(path):
    log = await FileLog.open(path)
    for sequence in range(1, 6):
        mark(f"append {sequence}")
        assert await append(log, sequence) == [sequence]
        mark(f"acked {sequence}")
    await log.close()
main(run)
"""

SEGMENTS = """
async def run(path):
    log = await FileLog.open(path, segment_bytes=2000)
    for sequence in range(1, 21):
        assert await append(log, sequence, 1000) == [sequence]
    mark("trim")
    await log.trim(15)
    mark("trimmed")
    await log.close()
main(run)
"""


def run(layer: SyncLayer, code: str, path: Path) -> Any:
    done = layer.run(START + code, path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_append_is_synced_before_it_is_acknowledged(sync_layer: SyncLayer, tmp_path: Path) -> None:
    """What was acknowledged survives a power loss: at least one sync of the segment between call and answer."""
    run(sync_layer, APPENDS, tmp_path / "log")
    for sequence in range(1, 6):
        synced = sync_layer.synced_before(f"acked {sequence}", after=f"append {sequence}")
        assert any(".seg" in path for path in synced), f"entry {sequence} was acknowledged before a sync"


def test_a_new_segment_is_synced_before_it_has_its_name_and_then_its_directory(
    sync_layer: SyncLayer, tmp_path: Path
) -> None:
    run(sync_layer, SEGMENTS, tmp_path / "log")
    events = sync_layer.events()
    renames = [n for n, event in enumerate(events) if event.kind == "rename" and event.what.endswith(".seg")]
    assert len(renames) > 5
    for before, at in pairwise([-1, *renames]):
        new, name = events[at].what.split()
        assert any(event.kind in DURABLE and event.what == new for event in events[before + 1 : at]), name
        later = [event.what for event in events[at + 1 :] if event.kind in DURABLE]
        of_it = [what for what in later if what == str(tmp_path / "log") or what.startswith(name)]
        assert of_it[0] == str(tmp_path / "log"), f"{name} was written to before its name was durable"


def test_the_history_is_synced_before_a_segment_is_deleted(sync_layer: SyncLayer, tmp_path: Path) -> None:
    run(sync_layer, SEGMENTS, tmp_path / "log")
    events = sync_layer.events()
    events = events[events.index(Event("mark", "trim")) :]
    deleted = [n for n, event in enumerate(events) if event.kind == "unlink" and event.what.endswith(".seg")]
    assert len(deleted) > 3
    for before, at in pairwise([0, *deleted]):
        synced = [event.what for event in events[before:at] if event.kind in DURABLE]
        assert str(tmp_path / "log" / "history.db") in synced, events[at].what


FAILED_APPEND = """
async def run(path):
    log = await FileLog.open(path)
    answers = [await append(log, 1)]
    fail_syncs(".seg-wal")
    answers.append(await append(log, 2))
    heal()
    answers += [await append(log, 2), await append(log, 1), await tried(log.trim(1))]
    await log.close()
    log = await FileLog.open(path)
    answers.append(await append(log, 2))
    await log.close()
    return answers
main(run)
"""


def test_a_failed_sync_stops_the_log_until_its_process_is_started_again(sync_layer: SyncLayer, tmp_path: Path) -> None:
    """The kernel may call the lost pages clean, so a later sync that succeeds proves nothing."""
    first, *refused, after = run(sync_layer, FAILED_APPEND, tmp_path / "log")
    assert any(event.kind.startswith("failed-") for event in sync_layer.events())
    assert first == [1]
    assert len(refused) == 4
    for answer in refused:
        assert str(answer).startswith("LogUnavailable: the disk of"), answer
        assert "failed to sync" in answer
    assert after == [2]


FAILED_SEGMENT = """
async def run(path):
    log = await FileLog.open(path, segment_bytes=2000)
    answers = [await append(log, sequence, 1500) for sequence in (1, 2)]
    fail_syncs(".new")
    answers.append(await append(log, 3))
    heal()
    answers.append(await append(log, 3))
    await log.close()
    log = await FileLog.open(path, segment_bytes=2000)
    answers.append(await append(log, 3))
    await log.close()
    return answers
main(run)
"""


def test_a_failed_sync_of_a_new_segment_stops_the_log_too(sync_layer: SyncLayer, tmp_path: Path) -> None:
    first, second, *refused, after = run(sync_layer, FAILED_SEGMENT, tmp_path / "log")
    assert (first, second, after) == ([1], [2], [3])
    for answer in refused:
        assert str(answer).startswith("LogUnavailable: the disk of"), answer


FAILED_HISTORY = """
async def run(path):
    log = await FileLog.open(path, segment_bytes=2000)
    for sequence in range(1, 11):
        await append(log, sequence, 1500)
    fail_syncs("history.db")
    refused = await tried(log.trim(8))
    segments = log.directory.segments()
    heal()
    await log.close()
    log = await FileLog.open(path, segment_bytes=2000)
    answer = [segments, refused, log.directory.segments(), await append(log, 3, 1500)]
    await log.close()
    return answer
main(run)
"""


def test_no_segment_is_deleted_whose_history_could_not_be_synced(sync_layer: SyncLayer, tmp_path: Path) -> None:
    segments, refused, later, old = run(sync_layer, FAILED_HISTORY, tmp_path / "log")
    assert str(refused).startswith("LogUnavailable"), refused
    assert segments[0] == 1
    assert later[0] > 1, "the next start finishes the trim"
    assert old == [3]
