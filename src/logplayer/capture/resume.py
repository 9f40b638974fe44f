"""Where a capture goes on: the log is its only memory.

Idea. Every entry of the producer ``capture/SLOT`` has the header ``pg-lsn``, the end of the source's commit. The newest
one says what the log has: transactions up to that LSN are skipped, the next one is appended. The slot is confirmed only
up to what is durable in the log, so the server sends again everything that may be missing. There is no second place
that could disagree, hence no window.

Trimmed entries. A player trims what all targets have, and with it the newest entry's header. What a log keeps for ever
is, for each sequence of a producer, its index and a hash of its payload. So it can still be *asked* whether a given
payload is at a given sequence: an append with a used sequence changes nothing, and answers with the index, or with
``ProducerConflict`` if the payload differs. For this a capture has a second producer, ``capture/SLOT/marks``. Its
entries hold one LSN and nothing else, so their bytes can be guessed by whoever knows the LSN, and

1. the slot is confirmed at marked LSNs only, after the mark is durable (``PgStream`` confirms nothing by itself);
2. a mark is after the entry whose LSN it has, and before the next entry of the capture (``appender`` says how).

So whatever position the slot has (a crash of PostgreSQL may take it back to an earlier one), it is that of a mark.
Asking the marks from the newest to the oldest finds it; the entry before it, found by bisection over the indexes that
``ProducerConflict`` reports, is the one with the slot's LSN. The transactions that follow in the stream have the
sequences that follow, and the log finds out which of them it has. Everything is again as it was, to the byte: if it is
not, because other options are given now, the log refuses it with ``ProducerConflict``, and nothing is lost or doubled.

Another position of the slot (``pg_replication_slot_advance``, a slot that was dropped and made again) is the position
of no mark: transactions may be missing, and the capture refuses to go on.

A snapshot that is not complete has no mark yet, so one that was trimmed as a whole has nothing to ask for. But the
tables' descriptions are appended with ``done`` and not before, so a capture without any is in its snapshot.

The descriptions themselves, and the OIDs that the tables had, which ``descriptions_at`` finds, are trimmed as
everything else. To append them again from time to time would not help a capture that is down while the log is trimmed,
so they are asked for as well: what the source's catalog says now is most often what the log has. If it is not, what a
new column or a new table would have made of it is tried, because then the stream, or the comparison with ``--tables``,
says exactly what is new. Other changes, and a table that was made again, leave no trace that could be guessed; then the
capture stops, and says so.
"""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Mapping
from typing import NamedTuple

from logplayer.capture.descriptions import Description
from logplayer.capture.pgoutput import lsn_text, parse_lsn
from logplayer.capture.publication import Published
from logplayer.capture.settings import CaptureStopped
from logplayer.capture.source import Slot
from logplayer.errors import Malformed, ProducerConflict, Trimmed, UserError
from logplayer.log.protocol import Log, NewEntry, Record
from logplayer.wire.entries import decode_headers, encode_headers

PROBES = 64  # Questions under way at once.
SNAPSHOT = "pg-snapshot"
"""A header: ``begin``, ``rows``, ``undo`` or ``done``."""


class CapturePhase(enum.Enum):
    """How far a capture has come, by its newest entry."""

    NOTHING = "nothing"  # No entry yet.
    SNAPSHOT = "snapshot"  # A snapshot was begun and is not complete.
    STREAM = "stream"


class Resume(NamedTuple):
    """Where to go on."""

    phase: CapturePhase
    sequence: int = 0  # Of the newest entry that is known to be in the log.
    lsn: int = 0  # Transactions up to here are in the log.
    parts: int = 0  # So many parts of the next one, whose commit ends at part_lsn, are there as well.
    part_lsn: int = 0
    mark: int = 0  # The index of the mark from which on entries are made again, because they were trimmed.
    newest: int = 0  # The newest sequence then; 0 if nothing is made again.


def marks_of(producer: str) -> str:
    """The producer of the marks."""
    return f"{producer}/marks"


def schema_of(producer: str) -> str:
    """The producer of the tables' descriptions."""
    return f"{producer}/schema"


def mark(lsn: int) -> bytes:
    """The payload of a mark: it depends on the LSN only."""
    return encode_headers([("pg-lsn", lsn_text(lsn))])


def describe_tables(known: Mapping[str, Description], published: Mapping[str, Published]) -> bytes:
    """The payload of an entry that keeps the tables' descriptions and, of those that are ``published``, their OIDs."""
    headers = [("pg-schema", json.dumps(known, sort_keys=True, separators=(",", ":")))]
    oids = {name: published[name] for name in known if name in published}
    if oids:
        headers.append(("pg-tables", json.dumps(oids, sort_keys=True, separators=(",", ":"))))
    return encode_headers(headers)


async def find_resume(log: Log, producer: str, slot: Slot | None) -> Resume:
    """Where the capture of this producer goes on.

    Raises:
        UserError: The slot and the log do not fit together, so that going on would lose or repeat transactions.
    """
    newest = await log.newest(producer)
    if not newest.sequence:
        return Resume(CapturePhase.NOTHING)
    record = await read_one(log, newest.index)
    if record is None:
        return await _by_marks(log, producer, newest.sequence, slot)
    headers = {name: value.decode(errors="replace") for name, value in decode_headers(record.payload)}
    if headers.get(SNAPSHOT, "done") != "done":
        return Resume(CapturePhase.SNAPSHOT, newest.sequence)
    if "pg-lsn" not in headers:
        raise UserError(
            f"entry {newest.index} of producer {producer!r} was not written by a capture; choose another --slot, "
            "or another log"
        )
    lsn = parse_lsn(headers["pg-lsn"])
    if slot is not None and slot.confirmed > lsn:
        raise _moved(lsn_text(slot.confirmed), f"the log has the source's transactions up to {lsn_text(lsn)}")
    nth, _, count = headers.get("pg-part", "1/1").partition("/")
    if nth == count:
        return Resume(CapturePhase.STREAM, newest.sequence, lsn)
    # The rest of a transaction that was cut is missing; all before it is there.
    return Resume(CapturePhase.STREAM, newest.sequence, lsn - 1, int(nth), lsn)


async def _by_marks(log: Log, producer: str, sequence: int, slot: Slot | None) -> Resume:
    marks = await log.newest(marks_of(producer))
    at = slot and await _find_mark(log, marks_of(producer), marks.sequence, mark(slot.confirmed))
    if not at and not (await log.newest(schema_of(producer))).sequence:
        return Resume(CapturePhase.SNAPSHOT, sequence)
    if slot is None:
        return Resume(CapturePhase.STREAM, sequence)  # There is nothing to go on from; the caller refuses.
    if not at:
        raise _moved(lsn_text(slot.confirmed), "no mark in the log has that position")
    low, high = 0, sequence  # Sequence low is before the mark, high + 1 is not.
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if await _index_of(log, producer, middle) < at else (low, middle - 1)
    return Resume(CapturePhase.STREAM, low, slot.confirmed, mark=at, newest=sequence)


async def _find_mark(log: Log, producer: str, newest: int, payload: bytes) -> int:
    """The index of the newest mark with this payload, 0 if there is none."""
    for last in range(newest, 0, -PROBES):
        sequences = range(last, max(0, last - PROBES), -1)
        for index in await asyncio.gather(*[is_at(log, producer, one, payload) for one in sequences]):
            if index:
                return index
    return 0


async def is_at(log: Log, producer: str, sequence: int, payload: bytes) -> int:
    """The index of the sequence if it has this payload, else 0. It is in use, so nothing is appended."""
    try:
        return (await log.append([NewEntry(producer, sequence, payload)]))[0]
    except ProducerConflict:
        return 0


async def _index_of(log: Log, producer: str, sequence: int) -> int:
    """The index of a sequence that is in use; no capture has written an empty payload."""
    try:
        return (await log.append([NewEntry(producer, sequence, b"")]))[0]
    except ProducerConflict as conflict:
        return conflict.index


async def read_one(log: Log, index: int) -> Record | None:
    """The entry at ``index``; None if it was trimmed, or for index 0."""
    if not index:
        return None
    try:
        async for records in log.read(index, index):
            return records[0]
    except Trimmed:
        return None
    raise Malformed(f"the log has no entry at index {index}, which its newest sequences name")


def _moved(confirmed: str, known: str) -> UserError:
    return CaptureStopped(
        "slot_moved",
        f"the slot begins at {confirmed}, but {known}: it was advanced by another program, or dropped and made "
        "again, or "
        "a snapshot was interrupted and then trimmed, so rows may be missing. Empty the tables of the targets, and "
        "start with a new --slot",
    )
