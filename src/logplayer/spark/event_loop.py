"""One event loop per process, on a thread of its own, for the blocking code that Spark calls.

Spark's Python workers live longer than their tasks. So does this loop: a later task finds what an earlier one left
running (see ``lease``), and gRPC never sees two loops in one process. A forked child gets a loop of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from logplayer.log.open import LogPlace, open_log
from logplayer.log.protocol import Log, Record

T = TypeVar("T")

_lock = threading.Lock()
_current: tuple[int, asyncio.AbstractEventLoop] | None = None


def background() -> asyncio.AbstractEventLoop:
    """This process's loop, running."""
    global _current
    with _lock:
        if _current is None or _current[0] != os.getpid():
            loop = _new_loop()
            threading.Thread(target=loop.run_forever, name="logplayer-loop", daemon=True).start()
            _current = (os.getpid(), loop)
        return _current[1]


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start ``work`` on the background loop."""
    return asyncio.run_coroutine_threadsafe(work, background())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on the background loop and wait for it; an interrupted wait cancels it."""
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def iterate(make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
    """The items of an async iterator. The next one is fetched while the caller works on this one."""
    items = make()

    async def following() -> tuple[bool, T | None]:
        try:
            return True, await anext(items)
        except StopAsyncIteration:
            return False, None

    pending = submit(following())
    try:
        while True:
            more, item = pending.result()
            if not more:
                return
            pending = submit(following())
            assert item is not None
            yield item
    finally:
        pending.cancel()
        close = getattr(items, "aclose", None)
        if close is not None:
            with suppress(RuntimeError):  # The cancelled step is still on its way out, and closes it itself.
                run(close())


@contextmanager
def opened(place: LogPlace, *, readonly: bool = True) -> Iterator[Log]:
    """The log at ``place``, on the background loop."""
    log = run(open_log(*place, readonly=readonly))
    try:
        yield log
    finally:
        run(log.close())


def read_range(place: LogPlace, first: int, last: int) -> Iterator[list[Record]]:
    """The records of ``[first, last]`` in batches."""
    with opened(place) as log:
        yield from iterate(lambda: log.read(first, last))
