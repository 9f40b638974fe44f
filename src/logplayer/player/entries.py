"""From the log's records to the core's entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logplayer.core.entry import Entry
from logplayer.errors import Malformed
from logplayer.log.protocol import Kind, Record
from logplayer.wire.entries import decode_control, split_transaction


def decode_entries(records: Sequence[Record], report: Callable[[int, str], None]) -> list[Entry]:
    """The entries of some records. A payload that is no transaction has no destination: it is reported and passed over.

    A control record that cannot be read is another matter: it is a decision that a player must follow, so it is raised.
    """
    entries = []
    for record in records:
        if record.kind == Kind.CONTROL:
            entries.append(Entry(record.index, (), decode_control(record.payload)))
            continue
        try:
            entries.append(Entry(record.index, split_transaction(record.payload)))
        except Malformed as error:
            report(record.index, str(error))
            entries.append(Entry(record.index))
    return entries
