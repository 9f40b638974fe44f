"""A producer: it numbers transactions, sends them without waiting for each other, and tries again until they are in.

The log does the hard part: a sequence gets in once, one that skips ahead is refused, and one that is used for another
payload is found out (``logplayer.log.protocol``). What is left to the producer:

1. A transaction gets its number in ``append`` itself, before anything is waited for. So the order of the calls is the
   order in the log, whoever makes them.
2. What waits goes out in groups, a few of them at once. The log applies the calls of one producer in their order.
3. A group whose answer did not come (the log is away, or full) may be in the log or not. Nothing new leaves then; once
   every group under way has ended, one way or the other, all that is unanswered goes out again from the lowest number
   on. What is in the log already gets its index, what is not gets in. A gap is only that a group before it is missing.
4. A number never changes. So an ``append`` that its caller no longer waits for (a timeout, a cancelled task) is still
   sent: later numbers build on it.

An error that no retry can mend ends the producer: everything unanswered gets it, and so does every later ``append``.
After a ``ProducerConflict`` another process uses the name, and to go on would be to race it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import socket
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from logplayer.core.entry import Mutation
from logplayer.crashpoint import crashpoint
from logplayer.errors import LogError, LogFull, LogUnavailable, SequenceGap
from logplayer.log.mutations import Headers, transaction
from logplayer.log.protocol import GROUP_COUNT_MAX, Log, NewEntry, Newest, check_group, check_producer
from logplayer.observe import tracing

GROUPS_MAX = 4  # Under way at once. More would only make the groups smaller.
GROUP_BYTES = 1024 * 1024
RETRY_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
logger = logging.getLogger("logplayer.producer")

Applied = Callable[[int, bytes, float], Awaitable[None]]
"""Waits until every shard that the payload at an index touches has it, or for so many seconds."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A transaction that is in the log for good.

    Attributes:
        index: Where it is in the log.
        producer: The name of its producer.
        sequence: Its number among the producer's transactions.

    Example:
        >>> (await producer.append(lp.put("alice", "90"))).index  # doctest: +SKIP
        1
    """

    index: int
    producer: str
    sequence: int
    _payload: bytes = field(repr=False, compare=False)
    _applied: Applied | None = field(repr=False, compare=False)

    async def applied(self, timeout: float = 30.0) -> None:
        """Wait until every shard that the transaction touches has it: then you read your own writes there.

        Which shards those are, and where, is what the log's records say: the map and the members of its player.

        Args:
            timeout: How many seconds to wait at most.

        Raises:
            TargetError: A shard does not have it in time, is not a member, or has no address in the log; or it has
                another history than the log, which was restored from a backup; or the entry is quarantined there.
            LogError: The log cannot be asked.

        Example:
            >>> receipt = await producer.append(lp.put("alice", "90"))  # doctest: +SKIP
            >>> await receipt.applied()  # doctest: +SKIP
        """
        if self._applied is None:
            raise LogError("this producer was made without a log that knows its members; use lp.open_log")
        await self._applied(self.index, self._payload, timeout)


@dataclass(eq=False, slots=True)
class _Unanswered:
    entry: NewEntry
    answer: asyncio.Future[Receipt]


def own_name() -> str:
    """A producer's name that nobody else has: host and process for people, the rest for uniqueness."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{uuid.uuid4().hex[:16]}"


class Producer:
    """Appends transactions under one name. Made by ``log.producer(name)``; it belongs to one event loop.

    Any number of coroutines may append at once.

    Attributes:
        name: The producer's name in the log.
        sequence: The number of its newest transaction. After a restart this is what the log has, so a program that
            appends the lines of a file, or the rows of a table, knows how many of them are in.

    Example:
        >>> producer = await log.producer("web-1")  # doctest: +SKIP
        >>> await producer.append(lp.put("alice", "90"))  # doctest: +SKIP

    Invariant: what is unanswered has the numbers up to ``sequence``, without a gap, in the order of ``_groups`` and
    then ``_unsent``.
    """

    def __init__(self, log: Log, name: str, newest: Newest, applied: Applied | None = None) -> None:
        self.name = name
        self.sequence = newest.sequence
        self._log = log
        self._applied = applied
        self._unsent: deque[_Unanswered] = deque()
        self._groups: list[list[_Unanswered]] = []  # Under way, or failed and to be sent again, in order.
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way = 0  # So many of the groups.
        self._trouble: LogError | None = None  # Why nothing is sent until all groups have ended.
        self._attempts = 0
        self._end: LogError | None = None
        self._loop = asyncio.get_running_loop()
        self._woken = False
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []  # Up to which number each waits.

    @classmethod
    async def open(cls, log: Log, name: str = "", applied: Applied | None = None) -> Producer:
        """A producer that goes on after the newest sequence that the log has of it. ``log.producer`` is the easier way.

        Args:
            log: The log to append to.
            name: As for ``log.producer``.
            applied: What waits until every shard that a payload touches has it; for ``receipt.applied``.

        Raises:
            BadRequest: This cannot be the name of a producer.
            LogUnavailable: The log cannot be asked for the producer's newest transaction.

        Example:
            >>> producer = await lp.Producer.open(log, "web-1")  # doctest: +SKIP
        """
        if not name:
            return cls(log, own_name(), Newest(0, 0), applied)
        check_producer(name)
        return cls(log, name, await log.newest(name), applied)

    def append(
        self, *mutations: Mutation, headers: Headers = (), timeout: float | None = None
    ) -> asyncio.Future[Receipt]:
        """Append one transaction; await the result.

        The transaction has its place after all earlier calls once this returns, also if you do not await it. It is
        tried again for as long as it takes, whatever happens to the log.

        Args:
            mutations: What it changes, as a whole or not at all: ``lp.put(...)`` and ``lp.delete(...)``.
            headers: What to say about it beside the rows: names with text or bytes, or pairs, where a name may occur
                several times. Every target gets them with its part.
            timeout: How many seconds to wait for the log's answer. The producer goes on trying after that.

        Returns:
            A future of the receipt, which is there once the transaction is durable in the log.

        Raises:
            EntryTooLarge: The transaction is larger than an entry may be. Nothing was appended.
            BadRequest: No mutation was given, or one is not a mutation, or a header is neither text nor bytes.
                Nothing was appended.
            LogUnavailable: No answer came in ``timeout`` seconds, or the producer was closed: the transaction may be
                in the log or get there.
            ProducerConflict: Another process uses this producer's name. This transaction was not appended.
            LogError: The log refuses it for another reason, and this producer is at its end.

        Example:
            >>> receipt = await producer.append(lp.put("alice", "90"), lp.put("bob", "110"))  # doctest: +SKIP
            >>> receipt.index  # doctest: +SKIP
            1
        """
        payload = transaction(mutations, headers)
        if not tracing.active():
            return self.append_payload(payload, timeout=timeout)
        payload, span = tracing.begin_append(payload, self.name)
        answer = self.append_payload(payload, timeout=timeout)
        answer.add_done_callback(functools.partial(tracing.end_append, span))
        return answer

    def append_payload(self, payload: bytes, *, timeout: float | None = None) -> asyncio.Future[Receipt]:
        """Append a transaction that is encoded already; as :meth:`append` otherwise.

        Args:
            payload: An encoded transaction.
            timeout: As for :meth:`append`.

        Raises:
            LogError: As for :meth:`append`.

        Example:
            >>> await producer.append_payload(lp.put("alice", "90").encoded)  # doctest: +SKIP
        """
        entry = NewEntry(self.name, self.sequence + 1, payload)
        check_group((entry,))
        if self._end is not None:
            raise self._end
        self.sequence += 1
        answer: asyncio.Future[Receipt] = self._loop.create_future()
        self._unsent.append(_Unanswered(entry, answer))
        crashpoint("transaction-numbered")
        if timeout is not None:
            timer = self._loop.call_later(timeout, self._give_up, answer, entry.sequence, timeout)
            answer.add_done_callback(lambda _: timer.cancel())
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._send)  # Together with what others append in this turn of the loop.
        return answer

    async def flush(self) -> None:
        """Wait until everything that was appended so far is in the log, also what its caller no longer waits for.

        Raises:
            LogError: The producer has ended with this before all of it was in.

        Example:
            >>> await producer.flush()  # doctest: +SKIP
        """
        # Not by the callers' futures: a timeout ends such a future, and the transaction is still to be sent.
        done = self._loop.create_future()
        self._flushes.append((self.sequence, done))
        self._tell_flushes()
        await done
        if self._end is not None:
            raise self._end

    def close(self) -> None:
        """Send nothing more. What is unanswered fails with ``LogUnavailable``: it may be in the log or not.

        Example:
            >>> producer.close()  # doctest: +SKIP
        """
        if self._end is None:
            self._end = LogUnavailable(
                f"producer {self.name!r} is closed; what was unanswered may be in the log or not"
            )
        for task in self._tasks:
            task.cancel()
        for one in [*self._unsent, *(one for group in self._groups for one in group)]:
            _fail(one, self._end)
        self._unsent.clear()
        self._groups.clear()
        self._tell_flushes()

    def _tell_flushes(self) -> None:
        """End those whose transactions have all been answered for good."""
        first = next((group[0] for group in self._groups), self._unsent[0] if self._unsent else None)
        waiting = []
        for reached, done in self._flushes:
            if first is not None and first.entry.sequence <= reached:
                waiting.append((reached, done))
            elif not done.done():
                done.set_result(None)
        self._flushes = waiting

    # --- Sending ---

    def _send(self) -> None:
        self._woken = False
        while self._unsent and self._trouble is None and self._end is None and len(self._groups) < GROUPS_MAX:
            group: list[_Unanswered] = []
            room = GROUP_BYTES
            while self._unsent and len(group) < GROUP_COUNT_MAX and (room > 0 or not group):
                group.append(self._unsent.popleft())
                room -= len(group[-1].entry.payload)
            self._groups.append(group)
            self._under_way += 1
            self._start(self._carry(group))
            crashpoint("group-started")

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, group: list[_Unanswered]) -> None:
        error: LogError | None = None
        indexes: list[int] = []
        try:
            indexes = await self._log.append([one.entry for one in group])
        except LogError as refused:
            error = refused
        except Exception as broken:  # noqa: BLE001 - of a loop or a channel that was closed under the log, perhaps.
            error = self._unexpected(group, broken)
        self._under_way -= 1
        crashpoint("group-answered")
        if error is None:
            self._groups.remove(group)
            self._attempts = 0
            for one, index in zip(group, indexes, strict=True):
                if not one.answer.done():
                    receipt = Receipt(index, self.name, one.entry.sequence, one.entry.payload, self._applied)
                    one.answer.set_result(receipt)
            crashpoint("receipts-given")
        elif self._end is not None:
            self._drop(group, error)
        else:
            self._failed(group, error)
        if self._trouble is None:
            self._send()
        elif not self._under_way and self._end is None:
            self._start(self._again())
        elif not self._under_way:
            for failed in tuple(self._groups):
                self._drop(failed, self._trouble)
        if self._flushes:
            self._tell_flushes()

    def _unexpected(self, group: list[_Unanswered], broken: Exception) -> LogError:
        first, last = group[0].entry.sequence, group[-1].entry.sequence
        error = LogError(
            f"an append of producer {self.name!r} failed with {broken!r}: transactions {first} to {last} may be in the "
            "log or not, and the producer is at its end; open the log again, and ask it with log.newest(...)"
        )
        error.__cause__ = broken
        return error

    def _failed(self, group: list[_Unanswered], error: LogError) -> None:
        if isinstance(error, SequenceGap) and group is self._groups[0]:
            # All before it was acknowledged, so a log that does not have it has lost it.
            error = LogError(f"{error}; the log has acknowledged more than that: was it restored from a backup?")
        if not isinstance(error, LogUnavailable | LogFull | SequenceGap):
            self._drop(group, error)
            self._finish(error)
            return
        if self._trouble is None or isinstance(self._trouble, SequenceGap):
            self._trouble = error  # A gap only follows from what happened to a group before it.
            if not self._attempts:
                logger.warning("producer %s goes on trying: %s", self.name, error)

    async def _again(self) -> None:
        """Everything unanswered goes out once more, from the lowest number on."""
        pause = RETRY_SECONDS[min(self._attempts, len(RETRY_SECONDS) - 1)]
        self._attempts += 1
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        self._unsent.extendleft(one for group in reversed(self._groups) for one in reversed(group))
        self._groups.clear()
        self._trouble = None
        self._send()

    def _finish(self, error: LogError) -> None:
        """Nothing more is sent. Groups under way still get their own answers, and then those that failed before.

        What is in doubt stays in doubt.
        """
        self._end = error
        for one in self._unsent:
            _fail(one, error)
        self._unsent.clear()

    def _drop(self, group: list[_Unanswered], error: LogError) -> None:
        if isinstance(error, SequenceGap) and self._end is not None:
            error = self._end  # The gap is only what the end has left.
        self._groups.remove(group)
        for one in group:
            _fail(one, error)

    @staticmethod
    def _give_up(answer: asyncio.Future[Receipt], sequence: int, seconds: float) -> None:
        if not answer.done():
            answer.set_exception(
                LogUnavailable(
                    f"no answer to transaction {sequence} in {seconds:g} s: it may be in the log or get there"
                )
            )


def _fail(one: _Unanswered, error: LogError) -> None:
    if not one.answer.done():
        one.answer.set_exception(error)
