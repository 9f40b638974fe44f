"""What a target claims about the log, and how the log's own answer judges it.

Two words of a target are claims about the log, and neither may be taken on trust:

``FENCED by epoch e``   a newer player has taken over. Then its takeover record is in the log at index e. Believed
                        without a look, one target that is wrong stops the delivery to all the others.
``Opened at index i``   everything up to i is durable there, of the history that its chain value names. An i past the
                        log's end, or another chain value at i, cannot be: the log has lost entries or was restored
                        from an older backup. Believed, the target looks LIVE, and what the log has now in the place
                        of what it lost is skipped over in silence.

What the main stream has read itself needs no question: a takeover of our group ends the player as it comes past, so an
epoch up to ``current`` that has not ended us is invented. Everything else is looked up, and until the log has answered
the target stays without a session. A player that cannot read the log delivers nothing to that target meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

from logplayer.core.entry import Decision, Takeover
from logplayer.core.events import LookedUp, Opened, Refused
from logplayer.core.reconnect import Blocked


class Claim(NamedTuple):
    """The target claims something about ``at``: with ``opened``, that it has everything up to there; else an epoch.

    With ``blocked``, nobody has the epoch, and ``at`` is the target's index: is it of this log at all?
    """

    at: int
    opened: Opened | None = None
    fenced: Refused | None = None
    blocked: Blocked | None = None


def takes_over(record: Decision | None, index: int, group: str, epoch: int) -> bool:
    """Whether the record at ``index`` ends a player of this group and epoch."""
    return isinstance(record, Takeover) and record.group == group and index > epoch


def not_shown(epoch: int, fact: LookedUp | None = None) -> Blocked:
    """The log does not show the takeover that a target refuses us for."""
    why = "the log shows no such takeover of this group"
    if fact is not None and isinstance(fact.record, Takeover):
        why = f"that is the takeover of another group, {fact.record.group!r}: only one group may play into a target"
    detail = (
        f"the target says that epoch {epoch} has taken over, but {why}. Only this target waits. If no other player "
        "owns it, free its store with 'logplayer target unfence'"
    )
    return Blocked("FENCED", detail, epoch)


def lacks(index: int, needed: int, trimmed: int) -> Blocked:
    """The target has less than the log can add to: it was trimmed, or the target was added as one that has more."""
    if index < trimmed:
        return Blocked("RESEED", f"has index {index}, needs {needed} or more: backfill it")
    detail = (
        f"has index {index}, but was added as one that has {needed} (--at): remove it and add it again with "
        f"--at {index}, or backfill it"
    )
    return Blocked("RESEED", detail)


REMEDY = (
    "The log has lost entries or was restored from an older backup. Nothing is delivered to this target. Restore the "
    "newer log; or restore this target's own backup from before; or remove it, fill it again with a backfill and add it"
)


def judge(fact: LookedUp, chain: bytes) -> Blocked | None:
    """Why what a target has is not what the log has, or None. It has index ``fact.index`` with this chain value."""
    if fact.index > fact.last:
        return Blocked("DIVERGED", f"it has index {fact.index}, the log ends at {fact.last}. {REMEDY}", fact.index)
    if fact.chain is not None and fact.chain != chain:
        return diverged(fact.index, None)
    return None


def diverged(index: int, agreed: int | None) -> Blocked:
    """The log has another entry at ``index`` than the target; up to ``agreed`` they are the same, if that is known."""
    common = "" if agreed is None else f"; up to {agreed} they have the same"
    detail = f"what it has up to index {index} is not what the log has up to there{common}. {REMEDY}"
    return Blocked("DIVERGED", detail, index)
