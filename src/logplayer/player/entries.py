"""From the log's records to the core's entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logplayer.core.entry import Entry
from logplayer.core.route import Router
from logplayer.errors import Malformed
from logplayer.log.protocol import Kind, Record
from logplayer.wire.entries import decode_control, route_transaction, split_transaction

Report = Callable[[int, str], None]


def decode_entries(records: Sequence[Record], report: Report) -> list[Entry]:
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


def route_entries(records: Sequence[Record], router: Router, report: Report) -> list[Entry]:
    """The same for records whose maps are all known to the router, split among the targets already.

    A control record among them may change the map for those behind it, so they are left for the core to split.
    """
    entries = []
    ownerless = router.ownerless
    for index, kind, _, _, _, payload, _ in records:
        if kind == Kind.CONTROL:
            router.ownerless = ownerless  # The core will count them.
            return decode_entries(records, report)
        try:
            parts, nobodys = route_transaction(payload, router.owner_at(index))
        except Malformed as error:
            report(index, str(error))
            parts, nobodys = {}, 0
        router.ownerless += nobodys
        entries.append(Entry(index, (), None, parts))
    return entries
