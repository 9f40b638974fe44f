"""The target's half of the protocol: which session may write, and what fits.

A store calls these two functions *inside the transaction* in which it reads its position and writes the result,
so that an Open and a commit that outlives its stream cannot interleave.

- :func:`admit` answers an ``Open``. Accepting stores the session, which fences every older one, and the index that
  goes back in ``Opened`` is the one read in the same transaction.
- :func:`check` answers a ``Batch``: the session must be the stored one, and the range must start at the stored index
  and continue the stored chain value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from logplayer.core import digest as digests
from logplayer.core.chain import GENESIS
from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.invariants import broken

NOBODY = Session(0, 0)
_new_tuple = tuple.__new__  # A third of the time that the class itself takes.


class Position(NamedTuple):
    """What a store keeps in the same transaction as its data.

    Attributes:
        index: Every entry up to here is applied, or quarantined, and durable.
        session: The only session that may write.
        digest: The digest of all that was applied; equal for equal deliveries.
        log_id: The log that filled this store; empty until the first Open.
        chain: The log's chain value at the index: which of its histories filled this store.

    Example:
        >>> Position(index=42)._replace(index=43).index
        43
    """

    index: int = 0  # type: ignore[assignment]  # Hides tuple's own method.
    session: Session = NOBODY
    digest: int = digests.EMPTY
    log_id: str = ""
    chain: bytes = GENESIS


class Batch(NamedTuple):
    """Covers the log range ``(prev, to]``; ``messages`` are the entries of that range for this target."""

    prev: int
    to: int
    messages: tuple[Delivery, ...] = ()
    prev_chain: bytes = GENESIS  # The log's chain values at the ends of the range.
    to_chain: bytes = GENESIS


@dataclass(frozen=True, slots=True)
class TargetRefusal:
    """The target's no, and what the player needs to know to do the right thing next."""

    reason: Refusal
    detail: str
    index: int
    epoch: int
    chain: bytes = GENESIS  # The target's.


def admit(position: Position, session: Session, log_id: str) -> Position | TargetRefusal:
    """The position to store if ``session`` may open, with all older sessions fenced; else the refusal."""
    if position.log_id and log_id != position.log_id:
        return _refused(position, Refusal.WRONG_LOG, f"filled from log {position.log_id!r}, not {log_id!r}")
    if session.epoch < position.session.epoch:
        return _refused(position, Refusal.FENCED, f"epoch {position.session.epoch} has taken over")
    if session <= position.session:
        return _refused(position, Refusal.STALE_SESSION, f"session {position.session} is already open")
    return position._replace(session=session, log_id=log_id)


def check(position: Position, session: Session, batch: Batch) -> TargetRefusal | None:
    """Why ``batch`` may not be applied at ``position``, or None if it may."""
    if session != position.session:
        reason = Refusal.FENCED if session.epoch < position.session.epoch else Refusal.STALE_SESSION
        return _refused(position, reason, f"session {session} was fenced by {position.session}")
    if batch.prev != position.index:
        return _refused(
            position, Refusal.OUT_OF_SYNC, f"batch starts at {batch.prev}, the target is at {position.index}"
        )
    if batch.prev_chain != position.chain:
        # As Raft compares the term of the entry before. The index alone would let in a log that was restored.
        return _refused(
            position,
            Refusal.DIVERGED,
            f"entry {position.index} here is of another history of the log: its chain value is "
            f"{position.chain.hex() or 'none'}, the batch continues {batch.prev_chain.hex() or 'none'}",
        )
    if not well_formed(batch):
        return _refused(position, Refusal.BAD_BATCH, f"indexes do not rise within ({batch.prev}, {batch.to}]")
    return None


def advance(position: Position, batch: Batch) -> Position:
    """The position to store with the batch's data, in one transaction. Call only after :func:`check`."""
    _, session, digest, log_id, _ = position
    digest = digests.extend(digest, batch.messages)
    return _new_tuple(Position, (batch.to, session, digest, log_id, batch.to_chain))


def well_formed(batch: Batch) -> bool:
    """Whether the batch moves forward and its indexes rise strictly within ``(prev, to]``."""
    prev, to, messages, _, _ = batch
    last = prev
    for message in messages:
        index = message.index
        if index <= last:
            return False
        last = index
    return last <= to and prev < to


def join(batches: Sequence[Batch]) -> Batch:
    """One batch for several of one session, so that they are applied with one commit.

    Each must start where the one before it ends; a gap would vanish in the joined range, so it is refused here.
    """
    for before, after in pairwise(batches):
        if after.prev != before.to or after.prev_chain != before.to_chain:
            raise broken("BatchCoversItsEntries", before=before, after=after)
    messages = tuple(message for batch in batches for message in _with_ends(batch))
    first, last = batches[0], batches[-1]
    return Batch(first.prev, last.to, messages, first.prev_chain, last.to_chain)


def cut(batch: Batch, before: int) -> Batch | None:
    """What of the batch lies before its delivery ``before``: up to and including the delivery in front; or None."""
    messages = tuple(message for message in _with_ends(batch) if message.index < before)
    if not messages:
        return None
    return Batch(batch.prev, messages[-1].index, messages, batch.prev_chain, messages[-1].chain)


def _with_ends(batch: Batch) -> tuple[Delivery, ...]:
    """The deliveries, each with its chain value: on the wire one that ends the range leaves it to the range."""
    messages = batch.messages
    if messages and messages[-1].index == batch.to:
        return (*messages[:-1], messages[-1]._replace(chain=batch.to_chain))
    return messages


def _refused(position: Position, reason: Refusal, detail: str) -> TargetRefusal:
    return TargetRefusal(reason, detail, position.index, position.session.epoch, position.chain)
