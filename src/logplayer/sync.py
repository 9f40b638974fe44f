"""The blocking API, for programs without an event loop: ``lp.sync.open_log(...)``.

One event loop runs in a background thread of the process, for all logs that are opened here. Everything may be called
from any thread. A call puts its work into that loop and waits; the order in which one thread calls is kept.

A process that was forked (a worker of a web server whose parent had loaded the application) has none of its parent's
threads, and gRPC does not outlive a fork that finds it at work. So a log is opened when it is first used, closed before
a fork, and opened again when it is used next, in whichever process. A producer without a name has another one then; two
processes with one name are found out as a ``ProducerConflict``.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - registers its own end, before ours.
import contextlib
import contextvars
import functools
import gc
import os
import threading
import weakref
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from logplayer.api import opened
from logplayer.core.entry import Mutation
from logplayer.core.fence import Position
from logplayer.errors import LogPlayerError, LogUnavailable
from logplayer.log import open as log_open
from logplayer.log import producer as log_producer
from logplayer.log.mutations import Headers
from logplayer.log.protocol import History, Info, NewEntry, Newest, Record
from logplayer.target import client
from logplayer.wire import grpc_threads
from logplayer.wire.security import NONE, Security

__all__ = ["BlockingLog", "BlockingProducer", "BlockingReceipt", "consistent_cut", "open_log", "wait_for"]
T = TypeVar("T")
FLUSH_SECONDS = 5.0  # What a fork, or the program's end, waits for appends that are under way.
GRPC_SECONDS = 2.0  # What they wait for gRPC's threads, which end within 20 ms; less risks a child that hangs.


class _Background:
    """The event loop of this process, in a thread of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="logplayer-sync", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it in the loop, and wait for it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("logplayer.sync was called inside its own event loop; use the async API there")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except CancelledError:
            raise LogUnavailable("the process ends, or forks; whether the log did it is not known") from None
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits for it any more.
            raise

    def stop(self) -> None:
        """Nobody who still waits for something is left waiting."""
        self.run(_cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


_lock = threading.Lock()
_background: _Background | None = None
_logs: set[BlockingLog] = set()
_with_locks: weakref.WeakSet[BlockingLog | BlockingProducer] = weakref.WeakSet()


def _loop() -> _Background:
    global _background
    with _lock:
        if _background is None or _background.pid != os.getpid():
            _background = _Background()
        return _background


def _retire() -> None:
    """Close what is open in this process, and end its loop. What is used again is opened again."""
    global _background
    if _background is None or _background.pid != os.getpid():
        return
    for log in tuple(_logs):
        log._retire(FLUSH_SECONDS)
    with _lock:
        retired, _background = _background, None
    retired.stop()
    gc.collect()  # gRPC begins to end its threads when the last of its objects is gone.
    grpc_threads.wait_for_end(GRPC_SECONDS)


def _after_fork() -> None:
    """A lock may have been held by a thread that does not exist here."""
    global _lock
    _lock = threading.Lock()
    for one in _with_locks:
        one._lock = threading.Lock()


os.register_at_fork(before=_retire, after_in_child=_after_fork)
# Before the executors of the event loop end, which atexit is too late for; it is private, so there is the other way.
getattr(threading, "_register_atexit", atexit.register)(_retire)


class BlockingReceipt:
    """A transaction that is in the log for good. Made by ``producer.append``.

    Attributes:
        index: Where it is in the log.
        producer: The name of its producer.
        sequence: Its number among the producer's transactions.

    Example:
        >>> producer.append(lp.put("alice", "90")).index  # doctest: +SKIP
        1
    """

    def __init__(self, receipt: log_producer.Receipt) -> None:
        self.index = receipt.index
        self.producer = receipt.producer
        self.sequence = receipt.sequence
        self._receipt = receipt

    def applied(self, timeout: float = 30.0) -> None:
        """Wait until every shard that the transaction touches has it.

        Args:
            timeout: How many seconds to wait at most.

        Raises:
            TargetError: A shard does not have it; see ``Receipt.applied``.
            LogError: The log cannot be asked.

        Example:
            >>> producer.append(lp.put("alice", "90")).applied()  # doctest: +SKIP
        """
        _loop().run(self._receipt.applied(timeout))

    def __repr__(self) -> str:
        return f"BlockingReceipt(index={self.index}, producer={self.producer!r}, sequence={self.sequence})"


class BlockingProducer:
    """A producer for any number of threads. Made by ``log.producer(name)``.

    Example:
        >>> producer = log.producer("web-1")  # doctest: +SKIP
        >>> producer.append(lp.put("alice", "90")).applied()  # doctest: +SKIP
    """

    def __init__(self, log: BlockingLog, name: str) -> None:
        self._log = log
        self._wanted = name
        self._lock = threading.Lock()
        self._made: tuple[int, log_producer.Producer] | None = None
        _with_locks.add(self)

    @property
    def name(self) -> str:
        """The producer's name in the log.

        Raises:
            LogUnavailable: The log has to be opened for this, and cannot be.
        """
        return self._producer().name

    @property
    def sequence(self) -> int:
        """The number of its newest transaction; after a restart what the log has of it.

        Raises:
            BadRequest: This cannot be the name of a producer.
            LogUnavailable: The log cannot be asked.
        """
        return self._producer().sequence

    def append(self, *mutations: Mutation, headers: Headers = (), timeout: float | None = None) -> BlockingReceipt:
        """Append one transaction, and return once it is durable in the log.

        Args:
            mutations: What it changes, as a whole or not at all: ``lp.put(...)`` and ``lp.delete(...)``.
            headers: What to say about it beside the rows; see ``Producer.append``.
            timeout: How many seconds to wait for the log's answer; for ever without it. The producer goes on trying.

        Raises:
            EntryTooLarge: The transaction is larger than an entry may be. Nothing was appended.
            LogUnavailable: No answer came in time: the transaction may be in the log or get there.
            ProducerConflict: Another process uses this producer's name. This transaction was not appended.

        Example:
            >>> producer.append(lp.put("alice", "90"), lp.delete("bob")).index  # doctest: +SKIP
            1
        """
        producer = self._producer()
        caller = contextvars.copy_context()  # With the span that a trace of the caller is in.

        async def append() -> log_producer.Receipt:
            return await caller.run(functools.partial(producer.append, *mutations, headers=headers, timeout=timeout))

        return BlockingReceipt(_loop().run(append()))

    def append_payload(self, payload: bytes, *, timeout: float | None = None) -> BlockingReceipt:
        """Append a transaction that is encoded already; as :meth:`append` otherwise.

        Args:
            payload: An encoded transaction.
            timeout: As for :meth:`append`.

        Raises:
            LogError: As for :meth:`append`.

        Example:
            >>> producer.append_payload(lp.put("alice", "90").encoded).index  # doctest: +SKIP
            1
        """
        producer = self._producer()

        async def append() -> log_producer.Receipt:
            return await producer.append_payload(payload, timeout=timeout)

        return BlockingReceipt(_loop().run(append()))

    def _producer(self) -> log_producer.Producer:
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                made = _loop().run(self._log._opened().producer(self._wanted))
                self._made = os.getpid(), made
            return self._made[1]

    def _forget(self) -> None:
        with self._lock:
            self._made = None


class BlockingLog:
    """A log for any number of threads, for ``with`` or until :meth:`close`. Made by :func:`open_log`.

    Example:
        >>> with lp.sync.open_log("grpc://127.0.0.1:7100") as log:  # doctest: +SKIP
        ...     log.producer().append(lp.put("alice", "90"))
    """

    def __init__(self, address: str, security: Security, readonly: bool) -> None:
        log_open.parse(address)
        self.address = address
        self.security = security
        self._readonly = readonly
        self._lock = threading.Lock()
        self._made: tuple[int, opened.OpenedLog] | None = None
        self._closed = False
        self._producers: weakref.WeakSet[BlockingProducer] = weakref.WeakSet()
        _with_locks.add(self)

    def producer(self, name: str = "") -> BlockingProducer:
        """A producer that numbers, orders and retries for you; see ``OpenedLog.producer``.

        Args:
            name: For a producer that is started again. One process at a time may use a name.

        Example:
            >>> producer = log.producer()  # doctest: +SKIP
        """
        made = BlockingProducer(self, name)
        self._producers.add(made)
        return made

    def append(self, entries: Iterable[NewEntry]) -> list[int]:
        """Append entries that you number yourself, as a whole or not at all.

        Args:
            entries: Each with its producer, the next sequence of that producer, and an encoded transaction.

        Returns:
            Their indexes, once they are durable. A sequence that is in the log already gets its first index.

        Raises:
            SequenceGap: A sequence was skipped; nothing was appended.
            ProducerConflict: A sequence is in the log with another payload; nothing was appended.
            EntryTooLarge: An entry or the group is over the limit; nothing was appended.
            LogUnavailable: No answer; send the same again.

        Example:
            >>> log.append([lp.NewEntry("web-1", 1, lp.put("alice", "90").encoded)])  # doctest: +SKIP
            [1]
        """
        return _loop().run(self._opened().append(list(entries)))

    def read(self, first: int, last: int | None = None) -> Iterator[list[Record]]:
        """Batches of the entries ``[first, last]``; without ``last`` for ever, as they come.

        Args:
            first: The first index.
            last: The last one. It is waited for.

        Raises:
            Trimmed: ``first`` is below the trim point.
            CorruptEntry: An entry is damaged; all before it were served.

        Example:
            >>> for records in log.read(1, log.info().last):  # doctest: +SKIP
            ...     print([record.index for record in records])
        """
        batches: Any = self._opened().read(first, last)

        async def following() -> list[Record] | None:
            found: list[Record] | None = await anext(batches, None)
            return found

        async def close() -> None:
            await batches.aclose()

        try:
            while (records := _loop().run(following())) is not None:
                yield records
        finally:
            _loop().run(close())

    def info(self) -> Info:
        """Where the log is now: its id, first and last index, newest control entry, bytes.

        Raises:
            LogUnavailable: It cannot be asked.

        Example:
            >>> log.info().last  # doctest: +SKIP
            42
        """
        return _loop().run(self._opened().info())

    def newest(self, producer: str) -> Newest:
        """A producer's newest sequence and its index, (0, 0) if it has none; also if that entry was trimmed.

        Args:
            producer: The producer's name.

        Raises:
            BadRequest: This cannot be the name of a producer.
            LogUnavailable: The log cannot be asked.

        Example:
            >>> log.newest("web-1")  # doctest: +SKIP
            Newest(sequence=7, index=42)
        """
        return _loop().run(self._opened().newest(producer))

    def trim(self, up_to: int, history: History | None = None) -> int:
        """Forget the entries up to and including ``up_to``, but never the newest control entry.

        Args:
            up_to: The last index to forget. Trim no further than all targets have: see ``lp.sync.consistent_cut``.
            history: What was read at an index; if the log has something else there, nothing is forgotten.

        Returns:
            The last index that is forgotten now.

        Raises:
            BadRequest: The index is beyond the log's end.
            ControlJammed: The newest control entry cannot be read; nothing was forgotten.
            LogDiverged: The log does not have ``history``; nothing was forgotten.

        Example:
            >>> log.trim(lp.sync.consistent_cut(targets, log=log))  # doctest: +SKIP
            42
        """
        return _loop().run(self._opened().trim(up_to, history))

    def close(self) -> None:
        """End the producers, readers and connections of this process. Safe to call twice, and done at exit.

        Example:
            >>> log.close()  # doctest: +SKIP
        """
        self._closed = True
        self._retire(0)

    def _retire(self, flush_seconds: float) -> None:
        with self._lock:
            made, self._made = self._made, None
        _logs.discard(self)
        if made is not None and made[0] == os.getpid():
            _loop().run(_close(made[1], flush_seconds))
        for producer in tuple(self._producers):
            producer._forget()

    def __enter__(self) -> BlockingLog:
        self._opened()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        made = self._made
        if kind is None and made is not None and made[0] == os.getpid():
            _loop().run(made[1].flush())
        self.close()

    def _opened(self) -> opened.OpenedLog:
        """The log as this process has it."""
        with self._lock:
            if self._closed:
                raise LogUnavailable(f"the log {self.address} is closed")
            if self._made is None or self._made[0] != os.getpid():
                made = _loop().run(self._open())
                self._made = os.getpid(), made
                _logs.add(self)
            return self._made[1]

    async def _open(self) -> opened.OpenedLog:
        return await opened.open_log(self.address, self.security, readonly=self._readonly)


async def _close(log: opened.OpenedLog, flush_seconds: float) -> None:
    """What is under way in other threads gets its answer, if it comes soon."""
    with contextlib.suppress(TimeoutError, LogPlayerError):
        async with asyncio.timeout(flush_seconds):
            await log.flush()
    await log.close()


def open_log(address: str, security: Security = NONE, *, readonly: bool = False) -> BlockingLog:
    """A log for programs without an event loop. It is opened when it is first used, in each process that uses it.

    Args:
        address: As for ``lp.open_log``.
        security: TLS and token of a log server, and of the targets that its records name.
        readonly: For a file log: take no lock and make nothing.

    Raises:
        AddressError: The address cannot be understood.

    Example:
        >>> log = lp.sync.open_log("grpc://127.0.0.1:7100")  # doctest: +SKIP
        >>> log.producer().append(lp.put("alice", "90")).applied()  # doctest: +SKIP
    """
    return BlockingLog(address, security, readonly)


def wait_for(address: str, target: str, index: int, timeout: float = 10.0, security: Security = NONE) -> Position:
    """Return once the target has everything up to ``index``; as ``lp.wait_for``.

    Args:
        address: ``tcp://host:port`` or ``grpc://host:port``.
        target: The target's name.
        index: What it must have; ``receipt.index``, for example.
        timeout: How many seconds to wait at most.
        security: TLS and token.

    Raises:
        TargetError: It has not within ``timeout`` seconds.

    Example:
        >>> lp.sync.wait_for("tcp://127.0.0.1:7201", "a", 42).index  # doctest: +SKIP
        42
    """
    return _loop().run(client.wait_for(address, target, index, timeout, security))


def consistent_cut(
    targets: Mapping[str, str], *, timeout: float = 10.0, security: Security = NONE, log: BlockingLog | None = None
) -> int:
    """The index up to which every target has everything; as ``lp.consistent_cut``. Give ``log`` if you trim by it.

    Args:
        targets: Names with their addresses.
        timeout: How many seconds to wait for each answer.
        security: TLS and token.
        log: The log that they are played from: what each has must be what this log has up to there.

    Raises:
        TargetError: A target did not answer, or has another history than ``log``, or has less than ``log`` can tell of.
        LogError: ``log`` cannot be asked.

    Example:
        >>> lp.sync.consistent_cut({"a": "tcp://127.0.0.1:7201"}, log=log)  # doctest: +SKIP
        42
    """
    compared = None if log is None else log._opened()
    return _loop().run(client.consistent_cut(targets, timeout=timeout, security=security, log=compared))
