"""The event loop in the background that the blocking API works in, and how it gets past a fork.

One loop runs in a thread of this process, for all logs that are opened there. It ends before a fork: the child would
have none of its threads, and gRPC does not outlive a fork that finds it at work. Whoever calls next, in whichever
process, begins another one. Two things keep the threads that call meanwhile from harm:

* A gate. While one thread ends the loop and forks, the others wait before they begin a call. Else the first of them
  would begin another loop, and the fork would find that one at work.
* What is opened belongs to its loop. A call is a function that its loop runs, and that finds what it needs in there. So
  an open log is known by its loop and not by its process: after a fork the parent has the same pid, and another loop.
  Nothing else refers to it: gRPC's threads end with the last of its objects, and a fork must not meet them.

Calls that are under way when the loop ends get ``LogUnavailable``, after the appends of producers had time to get in.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - registers its own end, before ours.
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from logplayer.api.opened import OpenedLog
from logplayer.errors import LogUnavailable
from logplayer.log.producer import Producer
from logplayer.log.protocol import Record
from logplayer.wire import grpc_threads

T = TypeVar("T")
FLUSH_SECONDS = 5.0  # What a fork, or the program's end, waits for appends that are under way.
GRPC_SECONDS = 2.0  # What they wait for gRPC's threads, which end within 20 ms; less risks a child that hangs.


class _LoopThread(threading.Thread):
    """The thread of a loop."""


class Background:
    """An event loop of this process, in a thread of its own, with what is open in it. Only the loop changes that.

    ``logs``, ``producers`` and ``readers`` are by the object of the blocking API that they were opened for.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.logs: dict[object, asyncio.Task[OpenedLog]] = {}
        self.producers: WeakKeyDictionary[object, tuple[OpenedLog, asyncio.Task[Producer]]] = WeakKeyDictionary()
        self.readers: WeakKeyDictionary[object, AsyncIterator[list[Record]]] = WeakKeyDictionary()
        self._loop = asyncio.new_event_loop()
        self._lock = threading.RLock()  # Garbage that is collected inside of submit may submit its own end.
        self._ending = False
        self._thread = _LoopThread(target=self._loop.run_forever, name="logplayer-sync", daemon=True)
        self._thread.start()

    def submit(self, act: Callable[[Background], Coroutine[Any, Any, T]]) -> Future[T] | None:
        """Begin it in the loop. None if the loop has ended: nothing was begun."""
        if self.pid != os.getpid():
            return None
        with self._lock:  # What is submitted before the end is met by the end.
            return None if self._ending else asyncio.run_coroutine_threadsafe(act(self), self._loop)

    def end(self) -> None:
        """Nobody who still waits for something is left waiting."""
        with self._lock:
            self._ending = True
            ended = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        ended.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        opening = tuple(self.logs.values())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await asyncio.gather(*map(_flush, opening), return_exceptions=True)
        await asyncio.gather(*map(_close, opening), return_exceptions=True)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for kept in (self.logs, self.producers, self.readers):
            kept.clear()


async def _flush(opening: asyncio.Task[OpenedLog]) -> None:
    await (await asyncio.shield(opening)).flush()


async def _close(opening: asyncio.Task[OpenedLog]) -> None:
    if opening.done():
        await opening.result().close()


def in_loop() -> bool:
    """Whether this is a thread that would wait for itself if it waited for the loop."""
    return isinstance(threading.current_thread(), _LoopThread)


_lock = threading.Lock()
_background: Background | None = None
_gate = threading.Event()  # Closed while a thread forks; the others wait before they begin a call.
_gate.set()
_keeper: int | None = None  # The thread that has closed it.


def run(act: Callable[[Background], Coroutine[Any, Any, T]]) -> T:
    """Do it in the loop of this process, and wait for it."""
    if in_loop():
        raise RuntimeError("logplayer.sync was called inside its own event loop; use the async API there")
    while True:
        begun = _current().submit(act)
        if begun is not None:
            try:
                return result(begun)
            finally:
                del begun  # An error that the caller keeps must not keep the log open: see _retire.


def result(begun: Future[T]) -> T:
    """Wait for what was submitted."""
    try:
        return begun.result()
    except CancelledError:
        raise LogUnavailable("the process ends, or forks; whether the log did it is not known") from None
    except BaseException:
        begun.cancel()  # Ctrl-C: nobody waits for it any more.
        raise
    finally:
        del begun


def _current() -> Background:
    """The loop of this process; begun if there is none, but not while another thread forks."""
    global _background
    while True:
        with _lock:
            if _keeper in (None, threading.get_ident()):
                if _background is None or _background.pid != os.getpid():
                    _background = Background()
                return _background
            gate = _gate
        gate.wait()


def before_fork() -> None:
    """Let nobody begin a call until the fork is over, and end the loop."""
    if in_loop():
        return  # It cannot end itself. What is called in it has no business to fork.
    _close_gate()
    _retire()


def after_fork_in_parent() -> None:
    """Let everybody go on."""
    global _keeper
    with _lock:
        if _keeper == threading.get_ident():
            _keeper = None
            _gate.set()


def after_fork_in_child() -> None:
    """A lock may have been held by a thread that does not exist here."""
    global _lock, _gate, _keeper
    _lock, _gate, _keeper = threading.Lock(), threading.Event(), None
    _gate.set()


def at_exit() -> None:
    """What is used again is opened again: threads may still be at work."""
    _close_gate()
    try:
        _retire()
    finally:
        after_fork_in_parent()


def _close_gate() -> None:
    global _keeper
    while True:
        with _lock:
            if _keeper in (None, threading.get_ident()):
                _keeper = threading.get_ident()
                _gate.clear()
                return
            gate = _gate
        gate.wait()  # Another thread forks, too.


def _retire() -> None:
    """Close what is open in this process, and end its loop."""
    global _background
    with _lock:
        retired, _background = _background, None
    if retired is None or retired.pid != os.getpid():
        return
    retired.end()
    del retired  # gRPC begins to end its threads when the last of its objects is gone.
    grpc_threads.wait_for_end(GRPC_SECONDS)


os.register_at_fork(before=before_fork, after_in_parent=after_fork_in_parent, after_in_child=after_fork_in_child)
# Before the executors of the event loop end, which atexit is too late for; it is private, so there is the other way.
getattr(threading, "_register_atexit", atexit.register)(at_exit)
