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
import contextvars
import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from logplayer.api import opened
from logplayer.api.background import Background, in_loop, result, run
from logplayer.core.entry import Mutation
from logplayer.core.fence import Position
from logplayer.errors import LogUnavailable
from logplayer.log import open as log_open
from logplayer.log import producer as log_producer
from logplayer.log.mutations import Headers
from logplayer.log.protocol import History, Info, NewEntry, Newest, Record
from logplayer.target import client
from logplayer.wire.security import NONE, Security

__all__ = ["BlockingLog", "BlockingProducer", "BlockingReceipt", "consistent_cut", "open_log", "wait_for"]
T = TypeVar("T")


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

    def __init__(self, log: BlockingLog, receipt: log_producer.Receipt) -> None:
        self.index = receipt.index
        self.producer = receipt.producer
        self.sequence = receipt.sequence
        self._log = log
        self._payload = receipt._payload  # Not the receipt, which has the log of this loop.

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

        async def applied(log: opened.OpenedLog) -> None:
            await log._shards.wait(self.index, self._payload, timeout)

        self._log._do(applied)

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

    @property
    def name(self) -> str:
        """The producer's name in the log.

        Raises:
            LogUnavailable: The log has to be opened for this, and cannot be.
        """

        async def name(producer: log_producer.Producer) -> str:
            return producer.name

        return self._do(name)

    @property
    def sequence(self) -> int:
        """The number of its newest transaction; after a restart what the log has of it.

        Raises:
            BadRequest: This cannot be the name of a producer.
            LogUnavailable: The log cannot be asked.
        """

        async def sequence(producer: log_producer.Producer) -> int:
            return producer.sequence

        return self._do(sequence)

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
        caller = contextvars.copy_context()  # With the span that a trace of the caller is in.

        async def append(producer: log_producer.Producer) -> log_producer.Receipt:
            return await caller.run(functools.partial(producer.append, *mutations, headers=headers, timeout=timeout))

        return BlockingReceipt(self._log, self._do(append))

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

        async def append(producer: log_producer.Producer) -> log_producer.Receipt:
            return await producer.append_payload(payload, timeout=timeout)

        return BlockingReceipt(self._log, self._do(append))

    def _do(self, act: Callable[[log_producer.Producer], Coroutine[Any, Any, T]]) -> T:
        """Do it with the producer of the log that is open now."""

        async def do(background: Background, log: opened.OpenedLog) -> T:
            made = background.producers.get(self)
            if made is None or made[0] is not log or _failed(made[1]):
                made = background.producers[self] = log, asyncio.ensure_future(log.producer(self._wanted))
            return await act(await asyncio.shield(made[1]))

        return self._log._do_in(do)


def _failed(opening: asyncio.Task[Any]) -> bool:
    """Whether it is to be tried again."""
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


async def _is_open(opening: asyncio.Task[Any]) -> bool:
    """Whether there is something to end. The caller that opened it has its error, if not."""
    await asyncio.wait([opening])
    return not _failed(opening)


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
        self._background: Background | None = None  # Where it was opened last.
        self._closed = False

    def producer(self, name: str = "") -> BlockingProducer:
        """A producer that numbers, orders and retries for you; see ``OpenedLog.producer``.

        Args:
            name: For a producer that is started again. One process at a time may use a name.

        Example:
            >>> producer = log.producer()  # doctest: +SKIP
        """
        return BlockingProducer(self, name)

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
        group = list(entries)
        return self._do(lambda log: log.append(group))

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
        reader = _BlockingReader()

        async def following(background: Background, log: opened.OpenedLog) -> list[Record] | None:
            if reader.background is None:
                reader.background = background
                background.readers[reader] = log.read(first, last)
            elif reader.background is not background:
                raise LogUnavailable(f"the process forked while {self.address} was read; read on after what you have")
            return await anext(background.readers[reader], None)

        async def close(background: Background) -> None:
            batches: Any = background.readers.pop(reader)
            await batches.aclose()

        try:
            while (records := self._do_in(following)) is not None:
                yield records
        finally:
            if reader.background is not None:
                _finish(reader.background, close)

    def info(self) -> Info:
        """Where the log is now: its id, first and last index, newest control entry, bytes.

        Raises:
            LogUnavailable: It cannot be asked.

        Example:
            >>> log.info().last  # doctest: +SKIP
            42
        """
        return self._do(lambda log: log.info())

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
        return self._do(lambda log: log.newest(producer))

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
        return self._do(lambda log: log.trim(up_to, history))

    def close(self) -> None:
        """End the producers, readers and connections of this process. Safe to call twice, and done at exit.

        Example:
            >>> log.close()  # doctest: +SKIP
        """
        self._closed = True

        async def close(background: Background) -> None:
            opening = background.logs.pop(self, None)
            if opening is not None and await _is_open(opening):
                await opening.result().close()

        self._finish(close)

    def __enter__(self) -> BlockingLog:
        self._do(_opened)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        async def flush(background: Background) -> None:
            opening = background.logs.get(self)
            if opening is not None and await _is_open(opening):
                await opening.result().flush()

        try:
            if kind is None:
                self._finish(flush)
        finally:
            self.close()

    def _do(self, act: Callable[[opened.OpenedLog], Coroutine[Any, Any, T]]) -> T:
        """Do it with the log as the loop of this process has it; it is opened if it is not."""
        return self._do_in(lambda _, log: act(log))

    def _do_in(self, act: Callable[[Background, opened.OpenedLog], Coroutine[Any, Any, T]]) -> T:
        async def do(background: Background) -> T:
            if self._closed:
                raise LogUnavailable(f"the log {self.address} is closed")
            if self not in background.logs or _failed(background.logs[self]):
                background.logs[self] = asyncio.ensure_future(self._open())
                self._background = background
            return await act(background, await asyncio.shield(background.logs[self]))

        return run(do)

    def _finish(self, act: Callable[[Background], Coroutine[Any, Any, None]]) -> None:
        if self._background is not None:
            _finish(self._background, act)

    async def _open(self) -> opened.OpenedLog:
        return await opened.open_log(self.address, self.security, readonly=self._readonly)


class _BlockingReader:
    """A loop that reads the log, by the object that the background keeps its batches under."""

    background: Background | None = None


def _finish(background: Background, act: Callable[[Background], Coroutine[Any, Any, None]]) -> None:
    """Do it, unless the loop has ended, and with it all that was open there."""
    begun = background.submit(act)
    if begun is not None and not in_loop():  # A generator may be collected as garbage anywhere.
        result(begun)


async def _opened(log: opened.OpenedLog) -> None:
    """Opening it was all there is to do."""


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
    return run(lambda _: client.wait_for(address, target, index, timeout, security))


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

    async def cut(opened_log: opened.OpenedLog | None = None) -> int:
        return await client.consistent_cut(targets, timeout=timeout, security=security, log=opened_log)

    return run(lambda _: cut()) if log is None else log._do(cut)
