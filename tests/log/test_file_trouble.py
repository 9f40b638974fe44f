"""A file log whose disk fills up half-way, and calls that no log accepts."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logplayer import fsync
from logplayer.errors import LogDiverged
from logplayer.log.file import checkpoint, segment
from logplayer.log.file.log import FileLog
from logplayer.log.file.writer import Writer
from logplayer.log.protocol import BadRequest, History, NewEntry
from logplayer.testing.conformance.logs import in_time
from tests.log.log_support import missing


async def filled(path: Path, **options: Any) -> FileLog:
    log = await FileLog.open(path, **options)
    for sequence in range(1, 31):
        await log.append([NewEntry("p", sequence, os.urandom(100_000))])
    return log


def no_room_once(real: Callable[..., Any], wanted: Callable[..., bool]) -> Callable[..., Any]:
    tried: list[object] = []

    def call(*args: Any) -> Any:
        if wanted(*args) and not tried:
            tried.append(args)
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args)

    return call


def deleted_but_open(folder: Path) -> list[str]:
    if not os.path.exists("/proc/self/fd"):
        missing("/proc, to see what is open")
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if link.startswith(str(folder)) and link.endswith("(deleted)"):
            found.append(link)
    return found


async def test_a_trim_whose_new_segment_found_no_room_gives_the_room_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(tmp_path / "log")
    monkeypatch.setattr(segment, "_build", no_room_once(segment._build, lambda *_: True))
    await log.trim(30)
    info = await log.info()
    assert (info.first, info.last) == (31, 30)
    assert log.directory.segments() == [31]
    assert await log.append([NewEntry("p", 31, b"")]) == [31]
    await log.close()


async def test_a_trim_that_ended_behind_its_mark_is_finished_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(tmp_path / "log")
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_rotate", lambda self: None)  # As if the process had ended here.
        await log.trim(30)
    assert log.directory.segments() == [1]
    await log.close()
    again = await FileLog.open(tmp_path / "log")
    await again.trim(30)
    assert again.directory.segments() == [31]
    await again.close()


async def test_a_deleted_segment_is_not_kept_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "EVERY_BYTES", 100_000)
    folder = tmp_path / "log"
    log = await filled(folder, segment_bytes=20_000_000)
    monkeypatch.setattr(segment, "sync", no_room_once(fsync.sync, lambda path: Path(path) == folder))
    await log.trim(30)
    assert log.directory.segments() == [31]

    async def closed() -> None:
        while deleted_but_open(folder):  # noqa: ASYNC110 - the checkpointer closes it when its turn comes.
            await asyncio.sleep(0.01)

    await in_time(closed())
    await log.close()


async def test_a_retry_behind_many_others_gets_the_first_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them wait for one commit, more than the log remembers without a look at the disk."""
    log = await FileLog.open(tmp_path / "log")
    gate, insert = threading.Event(), segment.insert

    def slow(*args: Any) -> None:
        gate.wait(120)
        insert(*args)

    monkeypatch.setattr(segment, "insert", slow)
    asked = [asyncio.ensure_future(log.append([NewEntry("x", 1, b"")]))]
    await asyncio.sleep(0.1)
    for first in range(1, 34_001, 1000):
        group = [NewEntry("p", sequence, b"") for sequence in range(first, first + 1000)]
        asked.append(asyncio.ensure_future(log.append(group)))
    asked.append(asyncio.ensure_future(log.append([NewEntry("p", 1, b"")])))
    await asyncio.sleep(0.1)
    gate.set()
    answers = await in_time(asyncio.gather(*asked))
    assert answers[-1] == answers[1][:1] == [2]
    await log.close()


@pytest.mark.parametrize(
    "wrong",
    [
        NewEntry("p", 1, "text"),  # type: ignore[arg-type]
        NewEntry("p", 1, memoryview(b"12345678").cast("I")),  # type: ignore[arg-type]
        NewEntry("p", 1.0, b""),  # type: ignore[arg-type]
        NewEntry("p", 1, b"", 7),  # type: ignore[arg-type]
    ],
    ids=["text", "view", "float", "kind"],
)
async def test_what_no_log_takes_is_refused_and_harms_nobody(tmp_path: Path, wrong: NewEntry) -> None:
    log = await FileLog.open(tmp_path / "log")
    for group in ([wrong], [NewEntry("q", 1, b""), wrong]):
        with pytest.raises(BadRequest, match="a payload is bytes"):
            await in_time(log.append(group))
    assert await in_time(log.append([NewEntry("p", 1, b"")])) == [1]
    await log.close()


async def test_the_writer_survives_an_error_that_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await FileLog.open(tmp_path / "log")
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_encode", lambda self, new: 1 / 0)
        with pytest.raises(Exception, match="division by zero"):
            await in_time(log.append([NewEntry("p", 1, b"")]))
    assert await in_time(log.append([NewEntry("p", 1, b"")])) == [1]
    await log.close()


async def test_a_trim_that_needs_the_reserve_still_asks_which_history_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find the chain value takes room too, on a full disk."""
    log = await filled(tmp_path / "log")
    monkeypatch.setattr(
        Writer, "_require_history", no_room_once(Writer._require_history, lambda writer, history, up_to: True)
    )
    with pytest.raises(LogDiverged):
        await in_time(log.trim(20, History(30, b"another!")))
    assert (await log.info()).first == 1
    await log.close()
