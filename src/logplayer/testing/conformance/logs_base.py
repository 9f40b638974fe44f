"""What the log kit's checks are built on: the harness, the registry and small helpers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

from logplayer.log.protocol import Log, Record
from logplayer.testing.conformance.log_check import AckedAppend, entry

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
"""Only ends a check that hangs; no promise is about time."""


class NotApplicable(Exception):
    """The harness cannot do this, for the reason given."""


class Harness:
    """One log in a place of its own. ``open`` opens the same log each time it is called."""

    async def open(self) -> Log:
        raise NotImplementedError

    async def __aenter__(self) -> Harness:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Remove everything."""

    async def served_at(self) -> str:
        """``host:port`` of the log server through which ``open`` reaches the log, which runs when this returns."""
        raise NotApplicable("no log server is between the log and its users")

    async def crash_under_load(self, newest: dict[str, int]) -> list[AckedAppend]:
        """Append under load, ``kill -9`` what holds the log, and return what was acknowledged.

        ``newest`` is each producer's newest known sequence. Afterwards ``open`` works again.
        """
        raise NotApplicable("this harness cannot kill what holds the log")

    async def flip_bit(self, index: int) -> bool:
        """Flip a bit of a stored payload. True if the log has another copy and must serve the entry all the same."""
        raise NotApplicable("this harness cannot reach the stored bytes")

    async def fill_disk(self) -> None:
        raise NotApplicable("this harness cannot fill the disk")

    async def free_disk(self) -> None:
        raise NotApplicable("this harness cannot free the disk")


LogCheck = Callable[[Harness], Awaitable[None]]
CHECKS: list[LogCheck] = []
SERVED_CHECKS: list[LogCheck] = []


def check(function: LogCheck) -> LogCheck:
    CHECKS.append(function)
    return function


def served_check(function: LogCheck) -> LogCheck:
    """A check of what only a log server does; the harness has ``served_at``."""
    SERVED_CHECKS.append(function)
    return function


def name(function: object) -> str:
    """For pytest's ids."""
    return str(getattr(function, "__name__", function)).removeprefix("check_")


async def in_time(awaitable: Awaitable[T]) -> T:
    """Fail instead of hanging."""
    return await asyncio.wait_for(awaitable, PATIENCE_SECONDS)


async def collect(log: Log, first: int, last: int) -> list[Record]:
    """All records of ``[first, last]``."""

    async def run() -> list[Record]:
        return [record async for records in log.read(first, last) for record in records]

    return await in_time(run())


@contextlib.asynccontextmanager
async def opened(harness: Harness) -> AsyncIterator[Log]:
    log = await in_time(harness.open())
    try:
        yield log
    finally:
        await in_time(log.close())


async def fill(log: Log, count: int, producer: str = "p", since: int = 1, size: int = 200) -> list[int]:
    """Append ``count`` entries of one producer, one by one."""
    return [(await in_time(log.append([entry(producer, s, size)])))[0] for s in range(since, since + count)]


@contextlib.contextmanager
def raises(kind: type[Exception]) -> Iterator[list[Exception]]:
    """pytest.raises without pytest: the kit ships to users."""
    caught: list[Exception] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"{kind.__name__} was not raised"
