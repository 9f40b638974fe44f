"""``lp.open_log``: a log to append to and read from, with its producers, for ``async with`` or ``await``."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Generator, Sequence
from types import TracebackType
from typing import Any

from logplayer.api.applied import Shards
from logplayer.log import open as log_open
from logplayer.log.producer import Producer
from logplayer.log.protocol import History, Info, Log, NewEntry, Newest, Record
from logplayer.wire.security import NONE, Security


class OpenedLog:
    """A log that is open. Made by :func:`open_log`; it belongs to one event loop.

    Attributes:
        address: Where it is.
        security: How it, and the targets that its records name, are reached.
        targets: Name and address of targets that are elsewhere than the log's records say. A player in this
            process adds those that it was given.

    Example:
        >>> async with lp.open_log("grpc://127.0.0.1:7100") as log:  # doctest: +SKIP
        ...     producer = await log.producer()
    """

    def __init__(self, log: Log, address: str, security: Security) -> None:
        self.address = address
        self.security = security
        self._log = log
        self._shards = Shards(log, security)
        self.targets = self._shards.told
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()  # One that has work to do is held by it.

    async def producer(self, name: str = "") -> Producer:
        """A producer that numbers, orders and retries for you.

        Args:
            name: For a producer that is started again: it goes on after its newest transaction in the log, which is
                ``producer.sequence``. One process at a time may use a name. Without a name it gets one of its own.

        Raises:
            BadRequest: This cannot be the name of a producer.
            LogUnavailable: The log cannot be asked for the producer's newest transaction.

        Example:
            >>> producer = await log.producer("web-1")  # doctest: +SKIP
            >>> await producer.append(lp.put("alice", "90"))  # doctest: +SKIP
        """
        made = await Producer.open(self._log, name, self._shards.wait)
        self._producers.add(made)
        return made

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
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
            >>> await log.append([lp.NewEntry("web-1", 1, lp.put("alice", "90").encoded)])  # doctest: +SKIP
            [1]
        """
        return await self._log.append(entries)

    def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        """Batches of the entries ``[first, last]``; without ``last`` for ever, as they come.

        Args:
            first: The first index.
            last: The last one. It is waited for.

        Raises:
            Trimmed: ``first`` is below the trim point.
            CorruptEntry: An entry is damaged; all before it were served.

        Example:
            >>> async for records in log.read(1, 10):  # doctest: +SKIP
            ...     print([record.index for record in records])
        """
        return self._log.read(first, last)

    async def info(self) -> Info:
        """Where the log is now: its id, first and last index, newest control entry, bytes.

        Raises:
            LogUnavailable: It cannot be asked.

        Example:
            >>> (await log.info()).last  # doctest: +SKIP
            42
        """
        return await self._log.info()

    async def newest(self, producer: str) -> Newest:
        """A producer's newest sequence and its index, (0, 0) if it has none; also if that entry was trimmed.

        Args:
            producer: The producer's name.

        Raises:
            BadRequest: This cannot be the name of a producer.
            LogUnavailable: The log cannot be asked.

        Example:
            >>> await log.newest("web-1")  # doctest: +SKIP
            Newest(sequence=7, index=42)
        """
        return await self._log.newest(producer)

    async def trim(self, up_to: int, history: History | None = None) -> int:
        """Forget the entries up to and including ``up_to``, but never the newest control entry.

        Args:
            up_to: The last index to forget. Trim no further than all targets have: see ``lp.consistent_cut``.
            history: An index and the chain value that was read there. If the log has another one, because it was
                restored from a backup since, nothing is forgotten.

        Returns:
            The last index that is forgotten now.

        Raises:
            BadRequest: The index is beyond the log's end.
            ControlJammed: The newest control entry cannot be read; nothing was forgotten.
            LogDiverged: The log does not have ``history``; nothing was forgotten.

        Example:
            >>> await log.trim(await lp.consistent_cut(targets, log=log))  # doctest: +SKIP
            42
        """
        return await self._log.trim(up_to, history)

    async def flush(self) -> None:
        """Wait until everything that the producers of this log have appended so far is in it.

        Raises:
            LogError: A producer has ended with this before all of its transactions were in.

        Example:
            >>> await log.flush()  # doctest: +SKIP
        """
        for producer in list(self._producers):
            await producer.flush()

    async def close(self) -> None:
        """End the producers, readers and connections. Safe to call twice.

        Example:
            >>> await log.close()  # doctest: +SKIP
        """
        for producer in list(self._producers):
            producer.close()
        await self._log.close()

    async def __aenter__(self) -> OpenedLog:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if kind is None:
            await self.flush()
        await self.close()


class _Opening:
    """What ``open_log`` returns: something to await, or to enter."""

    def __init__(self, address: str, security: Security, readonly: bool) -> None:
        log_open.parse(address)
        self._how = address, security, readonly
        self._opened: OpenedLog | None = None

    async def _open(self) -> OpenedLog:
        address, security, readonly = self._how
        return OpenedLog(await log_open.open_log(address, security, readonly=readonly), address, security)

    def __await__(self) -> Generator[Any, None, OpenedLog]:
        return self._open().__await__()

    async def __aenter__(self) -> OpenedLog:
        self._opened = await self._open()
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(kind, error, trace)


def open_log(address: str, security: Security = NONE, *, readonly: bool = False) -> _Opening:
    """Open a log: ``async with lp.open_log(address) as log``, or ``log = await lp.open_log(address)`` and ``close``.

    Args:
        address: ``file:///path``, ``grpc://host:port`` of a log server (``grpc://host:port,host:port`` of several that
            serve one replicated log), ``etcd://host:port,…/name``, ``nats://host:port,…/name`` or
            ``kafka://host:port,…/topic``.
        security: TLS and token of a log server, and of the targets that its records name.
        readonly: For a file log: take no lock and make nothing.

    Raises:
        AddressError: The address cannot be understood, or another kind of server is there.
        ConfigError: A log server beyond loopback, without TLS.
        LogUnavailable: The log is away, or another process writes to it.

    Example:
        >>> async with lp.open_log("file:///var/lib/shop/wal") as log:  # doctest: +SKIP
        ...     producer = await log.producer("web-1")
        ...     await producer.append(lp.put("alice", "90"), lp.delete("bob"))
    """
    return _Opening(address, security, readonly)
