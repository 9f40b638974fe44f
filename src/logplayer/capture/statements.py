"""The entries that change or empty tables, before a transaction's own rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from logplayer.capture import source
from logplayer.capture.circles import copy_order
from logplayer.capture.descriptions import SchemaChange
from logplayer.capture.resume import is_at
from logplayer.capture.settings import CaptureSettings, CaptureStopped
from logplayer.capture.transactions import SourceTransaction
from logplayer.log.protocol import Log
from logplayer.wire.entries import encode_headers
from logplayer.wire.rows import encode_ddl


async def statements_before(settings: CaptureSettings, transaction: SourceTransaction) -> list[bytes]:
    """The entries before the transaction's own; a TRUNCATE is the transaction itself."""
    if not transaction.truncated and (not transaction.changes or settings.choices.schema_change != "ddl"):
        return []
    if transaction.truncated and transaction.mutations:
        raise CaptureStopped(
            "truncate",
            f"transaction {transaction.xid} of the source has a TRUNCATE and other changes, which cannot be one "
            "entry; run TRUNCATE in a transaction of its own. Empty the tables of the targets, and start with a "
            "new --slot",
        )
    statements: list[str] = []
    async with await source.connect(settings.url) as db:
        for change in transaction.changes:
            statements += await source.added_columns(db, change)
        for table in reversed(await copy_order(db, transaction.truncated)):
            statements.append(f"DELETE FROM {table.sql_name}")
    headers = encode_headers(transaction.own_headers() + list(transaction.headers))
    targets = settings.choices.ddl_targets
    if transaction.truncated:
        mutations = [encode_ddl(text, target).encoded for text in statements for target in targets]
        return [b"".join([*mutations, headers])]
    return [b"".join([*(encode_ddl(text, target).encoded for target in targets), headers]) for text in statements]


async def statements_made(
    settings: CaptureSettings, log: Log, transaction: SourceTransaction, payloads: list[bytes], sequence: int
) -> list[bytes]:
    """The entries that the log has before those of a transaction that it has from ``sequence`` on.

    What was known of the tables was trimmed, so whether the first row of a table came after a change is asked for.
    """
    for guess in _guesses(transaction):
        with contextlib.suppress(CaptureStopped):  # The guess has columns that nobody added.
            before = await statements_before(settings, guess)
            if await is_at(log, settings.producer, sequence, [*before, *payloads][0]):
                return before
    return await statements_before(settings, transaction)  # The log says that it is not this.


def _guesses(transaction: SourceTransaction) -> Iterator[SourceTransaction]:
    yield transaction
    for change in transaction.first_seen:
        for count in range(len(change.after) - 1, 0, -1):
            before = SchemaChange(change.table, change.after[:count], change.after)
            yield replace(transaction, changes=[*transaction.changes, before])
