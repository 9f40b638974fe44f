"""Is the source still the one whose transactions the log has? After a failover it may not be.

An LSN names a place in the log of one PostgreSQL cluster, on one timeline. A standby that is promoted begins a new
timeline at the place up to which it had received the old one, and gives the LSNs after that place to other
transactions. So a slot with the right name at a plausible LSN proves nothing:

- if the log's newest transaction is from before that place, the promoted server has all that the log has, and its slot
  (made by whoever keeps slots on standbys) may go on;
- if it is from after it, the log and the targets have transactions that the promoted server never received, and the
  server has others at their LSNs. To go on would leave those out in silence. The two have diverged: stop.

A server keeps the places at which its timelines began, so this can be known. What the log must remember is which
cluster and timeline its newest entries are from: the newest entry of the producer ``capture/SLOT/source``. It is
appended before the first transaction from there. Like a mark (see ``resume``) it holds nothing else, so that it can be
asked for after it was trimmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from logplayer.capture.pgoutput import lsn_text, parse_lsn
from logplayer.capture.resume import is_at, read_one
from logplayer.capture.settings import CaptureStopped
from logplayer.log.protocol import Log, NewEntry
from logplayer.wire.entries import decode_headers, encode_headers

SOURCE = "pg-source"


class SourceIdentity(NamedTuple):
    """A PostgreSQL cluster, and the timeline that it writes."""

    system: str
    timeline: int

    def payload(self) -> bytes:
        """The entry that remembers it."""
        return encode_headers([(SOURCE, f"{self.system}/{self.timeline}")])


def source_of(producer: str) -> str:
    """The producer of these entries."""
    return f"{producer}/source"


async def read_identity(log: Log, producer: str, now: SourceIdentity) -> SourceIdentity | None:
    """Where the log's newest transactions are from; None if it does not say.

    Args:
        log: The log.
        producer: The capture's.
        now: What the source says: of an entry that was trimmed, its system and earlier timelines can be asked for.
    """
    name = source_of(producer)
    newest = await log.newest(name)
    if not newest.sequence:
        return None
    record = await read_one(log, newest.index)
    if record is not None:
        system, _, number = dict(decode_headers(record.payload))[SOURCE].decode().partition("/")
        return SourceIdentity(system, int(number))
    for timeline in range(now.timeline, 0, -1):
        known = now._replace(timeline=timeline)
        if await is_at(log, name, newest.sequence, known.payload()):
            return known
    return SourceIdentity("another system", 0)


async def keep_identity(log: Log, producer: str, identity: SourceIdentity) -> None:
    """Remember that what comes next is from there."""
    name = source_of(producer)
    await log.append([NewEntry(name, (await log.newest(name)).sequence + 1, identity.payload())])


def parse_history(text: str) -> dict[int, int]:
    """A timeline's history file: up to which LSN it has each earlier timeline."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0].isdigit():
            found[int(words[0])] = parse_lsn(words[1])
    return found


def check_identity(known: SourceIdentity, now: SourceIdentity, history: Mapping[int, int], lsn: int) -> None:
    """Refuse a source that does not have what the log has.

    Args:
        known: Where the log's newest transactions are from.
        now: What the source is.
        history: Up to which LSN it has each timeline before its own.
        lsn: The log's newest transaction.

    Raises:
        CaptureStopped: It is another cluster, or it never received some of these transactions.
    """
    again = "Empty the tables of the targets, and start with a new --slot"
    if now.system != known.system:
        raise CaptureStopped(
            "other_source",
            f"the source is another PostgreSQL cluster (system {now.system}) than the one that was captured "
            f"({known.system}), so its LSNs mean other transactions: check --url. {again}",
        )
    if now.timeline == known.timeline:
        return
    through = history.get(known.timeline)
    if through is None or lsn > through:
        have = f"has timeline {known.timeline} up to {lsn_text(through)}" if through else f"lacks {known.timeline}"
        raise CaptureStopped(
            "diverged",
            f"the source was promoted to timeline {now.timeline} and {have}, but the log has transactions of timeline "
            f"{known.timeline} up to {lsn_text(lsn)}: the promoted server never received the last of them, and has "
            f"others in their place. {again}, or make the server that has them the primary again",
        )
