"""The simulated world: a log, targets that apply atomically, and sessions that deliver a prefix.

A stand-in for files, sockets and stores, and for nothing else: every decision is the real core's, on both sides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from logplayer.core import chain, digest
from logplayer.core.entry import Entry, HashMap, RangeMap, Refusal, Session, ShardMap
from logplayer.core.events import Acked, Lost, Opened, Refused
from logplayer.core.fence import NOBODY, Batch, Position, admit, advance, check, cut, join
from logplayer.core.trace import Sink, TargetTrace

LOG_ID = "simulated"
END = object()  # What a side reads when it learns that the session is over.

Lie = tuple[str, int]  # FENCED and an epoch, or DIVERGED and an index.
Schedule = Callable[[Callable[[Any], None], Any], None]


class SimLog:
    """An append-only list. ``destinations`` is the oracle: what each target must get, decided at the append."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.indexes: list[int] = []
        self.destinations: dict[int, dict[str, bytes]] = {}
        self.trimmed = 0

    @property
    def last(self) -> int:
        return self.indexes[-1] if self.indexes else 0

    @property
    def chain(self) -> bytes:
        return self.entries[-1].chain if self.entries else chain.GENESIS

    def chain_at(self, index: int) -> bytes | None:
        """The chain value at an index, also below the trim point; None after the end."""
        at = bisect_right(self.indexes, index)
        if index > self.last:
            return None
        return self.entries[at - 1].chain if at else chain.GENESIS

    def append(self, entry: Entry, destinations: dict[str, bytes], born: int) -> None:
        """``born`` tells the entry from every other, also from one that has its index in another history."""
        entry.chain = chain.extend(self.chain, 0, "sim", born, chain.mark_of(entry.payload))
        self.entries.append(entry)
        self.indexes.append(entry.index)
        self.destinations[entry.index] = destinations

    def up_to(self, index: int) -> SimLog:
        """A backup that was made when the log ended at ``index``."""
        older = SimLog()
        older.entries = [entry for entry in self.entries if entry.index <= index]
        older.indexes = [entry.index for entry in older.entries]
        older.destinations = {at: self.destinations[at] for at in older.indexes}
        older.trimmed = self.trimmed
        return older

    def read(self, after: int, count: int, last: int | None = None) -> list[Entry]:
        """Up to ``count`` entries with indexes in (after, last]; the caller has looked at ``trimmed``."""
        at = bisect_right(self.indexes, after)
        found = self.entries[at : at + count]
        if last is not None:
            while found and found[-1].index > last:
                found.pop()
        # Every reader decodes its own.
        return [Entry(entry.index, entry.payload, entry.record, chain=entry.chain) for entry in found]

    def expected(self, target: str, through: int) -> list[int]:
        """The indexes that ``target`` must have applied when it has index ``through``."""
        return [index for index in self.indexes if index <= through and target in self.destinations[index]]


class SimLink:
    """One session's stream. Each direction is a queue; the two ends learn of its end at different times."""

    def __init__(self, host: Any, target: SimTarget, session: Session) -> None:
        self.host = host
        self.target = target
        self.session = session
        self.to_target: deque[Any] = deque()
        self.to_player: deque[Any] = deque()
        self.batches: deque[Batch] = deque()  # Received by the target, waiting for its commit thread.
        self.accepted = False
        self.up = True  # The target's end is open.
        self.hole = False  # A black hole: nothing arrives any more, and no end notices.
        self.hung = False  # The session's commits hang, while the target still answers probes.
        self.stray = False  # Something that the core did not send was put on it.
        self.writing = False  # The player has handed a batch to the stream and has not heard yet that it may go on.


@dataclass(slots=True)
class AppliedDelivery:
    """One delivery, as the target's store holds it."""

    index: int
    payload: bytes
    quarantine: bool
    session: Session
    newest: Session  # The newest session that the target had accepted by then.


class SimTarget:
    """A target whose store applies atomically. ``position`` and ``applied`` are durable, everything else is not."""

    def __init__(self, name: str, schedule: Schedule, start: Position, trace: Sink | None) -> None:
        self.name = name
        self.position = start
        self.applied: list[AppliedDelivery] = []
        self.poisoned: Container[int] = ()
        self.lie: Lie | None = None  # What it answers to every Open, instead of the truth.
        self.lies: set[tuple[str, int]] = set()  # What it has claimed, for the checkers.
        self.accepted: list[Session] = []  # Every session that was accepted, in order, for the checkers.
        self.up = True
        self.frozen = False
        self.stalled: list[tuple[Callable[[Any], None], Any]] = []
        self.links: list[SimLink] = []
        self._schedule = schedule
        self._trace = TargetTrace(name, trace) if trace else None

    # --- What the network does to it ------------------------------------------------------------------------

    def receive(self, link: SimLink) -> None:
        """Take the next message from the wire, in order."""
        if not link.to_target:
            return  # Lost with the session.
        if self.frozen:
            self.stalled.append((self.receive, link))
            return
        message = link.to_target.popleft()
        if message is END:
            link.up = False  # The reader is gone; a commit that has begun is not.
        elif link.up:
            self._handle(link, message)

    def _handle(self, link: SimLink, message: Any) -> None:
        if isinstance(message, Session):
            self._open(link, message)
        elif isinstance(message, Batch):
            if link.accepted:
                link.batches.append(message)
                self._schedule(self.commit, link)
        else:  # A probe: the answer is the durable index, from the event loop, whatever the commit thread does.
            if link.accepted and self.position.session == link.session:
                self._answer(link, Acked(self.name, link.session, self.position.index))

    def _open(self, link: SimLink, session: Session) -> None:
        if self.lie is not None:
            self._tell_lie(link, session, self.lie)
            return
        answer = admit(self.position, session, LOG_ID)
        if isinstance(answer, Position):
            self.position = answer
            link.accepted = True
            self.accepted.append(session)
            self._record("accept", session, index=answer.index)
            self._answer(link, Opened(self.name, session, answer.index, chain=answer.chain))
        else:
            self._record("refuse", session)
            self._refuse(link, answer.reason, answer.detail, answer.index, answer.epoch)

    def _tell_lie(self, link: SimLink, session: Session, lie: Lie) -> None:
        """Nothing happens at the target, so the trace has no line for it: to the spec, the Open was never read."""
        kind, index = lie
        self.lies.add(lie)
        if kind == "DIVERGED":
            self._answer(link, Opened(self.name, session, index))
        else:
            self._refuse(link, Refusal.FENCED, "a lie", self.position.index, index)

    def commit(self, link: SimLink) -> None:
        """The commit thread: joins what has arrived and applies it in one transaction. It outlives its stream."""
        if self.frozen:
            self.stalled.append((self.commit, link))
            return
        if not link.batches or not self.up or link.hung:
            return  # Joined by an earlier commit, or the process died, or this thread never comes back.
        batches = [link.batches.popleft()]
        while link.batches and link.batches[0].prev == batches[-1].to:
            if link.batches[0].prev_chain != batches[-1].to_chain:
                break
            batches.append(link.batches.popleft())
        batch = join(batches)
        refused = check(self.position, link.session, batch)
        if refused is not None:
            self._record("reject", link.session)
            self._refuse(link, refused.reason, refused.detail, refused.index, refused.epoch)
            return
        poison = next((m for m in batch.messages if m.index in self.poisoned and not m.quarantine), None)
        if poison is not None:
            before = cut(batch, poison.index)
            if before is not None:
                self._apply(link, before)
            self._refuse(link, Refusal.POISON, "the store refuses it", poison.index)
            return
        self._apply(link, batch)
        self._answer(link, Acked(self.name, link.session, batch.to))

    def _apply(self, link: SimLink, batch: Batch) -> None:
        self.position = advance(self.position, batch)
        for m in batch.messages:
            self.applied.append(AppliedDelivery(m.index, m.payload, m.quarantine, link.session, self.accepted[-1]))
        self._record("apply", link.session, index=batch.to)

    # --- Answers and endings --------------------------------------------------------------------------------

    def _answer(self, link: SimLink, message: Any) -> None:
        if link.up and not link.hole:
            link.to_player.append(message)
            self._schedule(link.host.receive, link)

    def _refuse(self, link: SimLink, reason: Refusal, detail: str, index: int, epoch: int = 0) -> None:
        self._answer(link, Refused(self.name, link.session, reason, detail, index, epoch, self.position.chain))
        self.drop(link)

    def drop(self, link: SimLink) -> None:
        """The target's end closes; the player reads what was sent before and then learns of the end."""
        if link.up:
            self._answer(link, END)
            link.up = False
        link.to_target.clear()
        link.batches.clear()

    def crash(self) -> None:
        """``kill -9``: only position and data stay."""
        self.up = False
        self.frozen = False
        self.stalled.clear()
        for link in self.links:
            self.drop(link)
        self.links.clear()

    def refill(self, at: int, value: bytes) -> None:
        """Somebody filled the store with everything up to ``at``. What it knew of sessions stays."""
        self.position = self.position._replace(index=at, digest=digest.EMPTY, chain=value)
        self.applied.clear()

    def unfence(self) -> None:
        """An operator frees the store from the epoch of a player that no log shows."""
        self.position = self.position._replace(session=NOBODY)
        self.accepted.clear()

    def restart(self) -> None:
        self.up = True
        if self._trace:
            self._trace.crash(self.position.index)

    def thaw(self) -> None:
        self.frozen = False
        for act, argument in self.stalled:
            self._schedule(act, argument)
        self.stalled.clear()

    def _record(self, event: str, session: Session, **facts: object) -> None:
        if self._trace:
            self._trace.session(event, session, **facts)


def lost(link: SimLink, error: str) -> Lost:
    """What the player hears when a link has ended."""
    return Lost(link.target.name, link.session, error)


class Every(Container[int]):
    """The indexes i with i mod n = r, without writing them down."""

    def __init__(self, modulus: int, remainder: int) -> None:
        self._modulus, self._remainder = modulus, remainder

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and index % self._modulus == self._remainder


def owner_by(shard_map: ShardMap, key: bytes) -> str:
    """The oracle's own reading of a map, written without the router."""
    if isinstance(shard_map, HashMap):
        return shard_map.targets[crc32(key) % len(shard_map.targets)]
    assert isinstance(shard_map, RangeMap)
    found = shard_map.targets[0]
    for bound, target in zip(shard_map.bounds, shard_map.targets[1:], strict=True):
        if key >= bound:
            found = target
    return found
