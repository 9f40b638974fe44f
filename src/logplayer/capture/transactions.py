"""A transaction of the source on its way to the log, and the entries that it becomes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from logplayer.capture import pgoutput as pg
from logplayer.capture.descriptions import SchemaChange
from logplayer.capture.settings import HEADER_BYTES, Choices, SourceTable
from logplayer.errors import EntryTooLarge
from logplayer.wire.entries import encode_headers


@dataclass(slots=True)
class SourceTransaction:
    """One transaction of the source that changed captured tables, or wrote to the outbox."""

    commit_time_us: int
    xid: int
    lsn: int = 0  # The commit's end; known when it is complete.
    mutations: list[bytes] = field(default_factory=list)
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    truncated: list[SourceTable] = field(default_factory=list)
    changes: list[SchemaChange] = field(default_factory=list)
    first_seen: list[SchemaChange] = field(default_factory=list)  # Of tables of which nothing was known.
    kept: bool = False  # It becomes an entry also if it has no mutations.
    encoded_bytes: int = 0

    def own_headers(self) -> list[tuple[str, str | bytes]]:
        """What the log says about the source's transaction."""
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.commit_time_us)
        when = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
        return [("pg-lsn", pg.lsn_text(self.lsn)), ("pg-commit-time", when), ("pg-xid", str(self.xid))]


def parts(transaction: SourceTransaction, choices: Choices) -> list[bytes]:
    """The payloads of the transaction's entries: one, unless it is over the limit and may be cut.

    Each part of several has the header ``pg-part``, such as ``2/3``.
    """
    limit = choices.entry_bytes - HEADER_BYTES - len(encode_headers(transaction.headers))
    groups = cut(transaction.mutations, limit)
    if limit < 0 or (len(groups) > 1 and not choices.split_large):
        raise EntryTooLarge(f"the headers of transaction {transaction.xid} leave no room for its rows in one entry")
    payloads = []
    for nth, group in enumerate(groups, 1):
        headers = transaction.own_headers() + list(transaction.headers)
        if len(groups) > 1:
            headers.append(("pg-part", f"{nth}/{len(groups)}"))
        payloads.append(b"".join([*group, encode_headers(headers)]))
    return payloads


def cut(mutations: list[bytes], limit: int) -> list[list[bytes]]:
    """The mutations in groups of at most ``limit`` bytes, in order."""
    groups: list[list[bytes]] = [[]]
    room = limit
    for mutation in mutations:
        if len(mutation) > room and groups[-1]:
            groups.append([])
            room = limit
        groups[-1].append(mutation)
        room -= len(mutation)
    return groups
