"""Several calls of append in one, as the log server hands them to a file log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from logplayer.errors import LogFull, LogUnavailable, ProducerConflict, SequenceGap
from logplayer.log.file.log import FileLog
from logplayer.log.file.writer import FileLogRequest
from logplayer.log.protocol import BadRequest, NewEntry
from logplayer.testing.conformance.log_check import entry


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[FileLog]:
    opened = await FileLog.open(tmp_path / "log")
    yield opened
    await opened.close()


async def test_groups_given_together_are_appended_each_by_itself(log: FileLog) -> None:
    groups = [[entry("p", 1), entry("p", 2)], [], [entry("p", 5)], [entry("p", 3)]]
    done = await log.append_groups(groups)
    assert (done[0], done[3]) == ([1, 2], [3])
    assert isinstance(done[1], BadRequest)
    assert isinstance(done[2], SequenceGap)
    await log.close()
    [closed] = await log.append_groups([[entry("p", 4)]])
    assert isinstance(closed, LogUnavailable)


async def test_transactions_given_together_are_one_request_and_answered_each_by_itself(log: FileLog) -> None:
    """What a message of the log server holds, nearly always; one that is refused does not touch the others."""
    asked: list[FileLogRequest] = []
    assert log._writer is not None
    submit = log._writer.submit

    def noted(request: FileLogRequest) -> None:
        asked.append(request)
        submit(request)

    log._writer.submit = noted  # type: ignore[method-assign]
    groups = [[entry("p", 1)], [entry("q", 2)], [entry("p", 2)], [NewEntry("p", 1, b"other")], [entry("p", 1)]]
    done = await log.append_groups(groups)
    assert len(asked) == 1
    assert (done[0], done[2], done[4]) == ([1], [2], [1])
    assert isinstance(done[1], SequenceGap)
    assert isinstance(done[3], ProducerConflict)
    waiting = log.append_groups([[entry("p", number)] for number in range(3, 6)])
    await log.close()
    assert await waiting == [[3], [4], [5]]


async def test_when_the_writer_fails_each_of_them_is_told(log: FileLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "no room")

    with monkeypatch.context() as broken:
        broken.setattr("logplayer.log.file.segment.insert", full)
        done = await log.append_groups([[entry("p", number)] for number in range(1, 4)])
    assert [type(one) for one in done] == [LogFull] * 3
    assert await log.append_groups([[entry("p", 1)], [entry("p", 2)]]) == [[1], [2]]
