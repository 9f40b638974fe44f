"""From the log's records to the core's entries: payloads as they are, control records decoded."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from logplayer.core.entry import Decision, Entry
from logplayer.errors import Malformed
from logplayer.log.protocol import Kind, Record
from logplayer.wire.entries import decode_control


def read_entries(records: Sequence[Record], decided: int | None = None) -> list[Entry]:
    """The entries of some records. What each target gets of them is for the core's router to say.

    A control record that cannot be read is a decision that a player must follow, so the error is raised. But those up
    to ``decided`` are in the state that the player started with, and are not looked at again; None means all, as
    catch-up readers leave decisions to the main stream.
    """
    entries = []
    for index, kind, _, _, _, payload, chain, _ in records:
        if kind != Kind.CONTROL:
            entries.append(Entry(index, payload, chain=chain))
        elif decided is None or index <= decided:
            entries.append(Entry(index, chain=chain))
        else:
            entries.append(Entry(index, record=decode_control(payload), chain=chain))
    return entries


def survey_entries(records: Sequence[Record]) -> list[Entry]:
    """The same for records that are read again only to find what reaches nobody."""
    entries: list[Entry] = []
    for record in records:
        if record.kind != Kind.CONTROL:
            entries.append(Entry(record.index, record.payload))
            continue
        decided: Decision | None = None
        with contextlib.suppress(Malformed):  # It is in the state that the player started with, one way or the other.
            decided = decode_control(record.payload)
        entries.append(Entry(record.index, record=decided))
    return entries
