"""The rows that are there when a capture begins, exactly as of the slot's start.

PostgreSQL exports a snapshot with the slot that it makes: the rows that the snapshot sees, followed by the slot's
stream, are the source, without a gap and without an overlap. Tables are copied parents first, so that foreign keys hold
at the targets at every entry. Locks that only stop ALTER TABLE and TRUNCATE are held meanwhile: PostgreSQL's snapshots
do not protect from those.

A snapshot cannot be opened a second time, so one that was interrupted cannot be continued: a later one sees other rows.
To put its rows over those of the first would be wrong in two ways. Rows that were deleted in between would stay, and a
value that moved from one row to another would break a unique key half-way. So a new start first takes the old rows
back, newest entry first and each from its last row to its first: the reverse of an order that kept every constraint
keeps them too. Then it makes a new slot and copies everything. What the log says about this are the entries' headers:
``begin`` (from here on the slot is the capture's own), ``rows``, ``undo`` with the sequence that it takes back,
``done``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from psycopg import sql

from logplayer.capture import source
from logplayer.capture.appender import Appender, Item
from logplayer.capture.assemble import Assembler, Description, SourceTransaction, cut
from logplayer.capture.pg_stream import PgStream
from logplayer.capture.pgoutput import Begin, Insert, Relation, RelationColumn, lsn_text
from logplayer.capture.resume import SNAPSHOT, describe_tables
from logplayer.capture.settings import HEADER_BYTES, CaptureSettings, SourceTable
from logplayer.crashpoint import crashpoint
from logplayer.errors import UserError
from logplayer.log.protocol import Log
from logplayer.wire.entries import decode_headers, encode_headers, varint
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

CHUNK_BYTES = 256 * 1024
Progress = Callable[[str, int, int], None]
"""Called with a table's name, the rows that are copied, and about how many there are."""


async def copy_tables(
    settings: CaptureSettings, tables: Sequence[SourceTable], appender: Appender, progress: Progress
) -> dict[str, Description]:
    """Make the slot, append every row that its snapshot has, and say that this is done.

    Returns the tables' descriptions.
    """
    async with await source.connect(settings.url) as reader, await source.connect(settings.url) as locks:
        ordered = await source.parents_first(reader, tables)
        base_types = await source.base_types(reader)
        appender.submit(Item([encode_headers([(SNAPSHOT, "begin")])]))
        await appender.drain()
        crashpoint("capture-begun")
        async with locks.transaction():
            names = sql.SQL(", ").join(sql.Identifier(table.schema, table.name) for table in tables)
            await locks.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(names))
            async with await PgStream.open(settings.url) as stream:
                slot = await stream.create_slot(settings.slot)
                crashpoint("capture-slot-made")
                await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                await reader.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(slot.snapshot)))
            known = {}
            for table in ordered:
                known[table.log_name] = await source.describe(reader, table)
                copier = _Copier(settings, table, known[table.log_name], base_types, appender)
                await copier.run(reader, progress)
            await reader.execute("ROLLBACK")
    appender.submit(_done(slot.lsn, known))
    await appender.drain()
    return known


async def begin_without(
    settings: CaptureSettings, db: source.Db, tables: Sequence[SourceTable], appender: Appender
) -> None:
    """Begin at the slot's position, and make the slot if it is not there; no rows are copied."""
    slot = await source.find_slot(db, settings.slot)
    if slot is None:
        async with await PgStream.open(settings.url) as stream:
            await stream.create_slot(settings.slot)
        slot = await source.find_slot(db, settings.slot)
    assert slot is not None
    appender.submit(_done(slot.confirmed, {table.log_name: await source.describe(db, table) for table in tables}))
    await appender.drain()


def _done(lsn: int, known: dict[str, Description]) -> Item:
    return Item([encode_headers([(SNAPSHOT, "done"), ("pg-lsn", lsn_text(lsn))])], lsn, describe_tables(known))


class _Copier:
    """Copies one table, in entries of bounded size."""

    def __init__(
        self,
        settings: CaptureSettings,
        table: SourceTable,
        description: Description,
        base_types: dict[int, int],
        appender: Appender,
    ) -> None:
        self._settings = settings
        self._table = table
        self._columns = [name for name, _ in description]
        self._appender = appender
        self._choices = replace(settings.choices, split_large=True)  # A chunk may be cut anywhere.
        self._assembler = Assembler({(table.schema, table.name): table}, base_types, self._choices)
        columns = tuple(RelationColumn(name, oid, -1, name in table.key) for name, oid in description)
        self._assembler.feed(Relation(1, table.schema, table.name, "f", columns))

    async def run(self, reader: source.Db, progress: Progress) -> None:
        name = self._table.log_name
        estimate, refers = await self._facts(reader)
        order = sql.SQL(" ORDER BY {}").format(sql.SQL(", ").join(map(sql.Identifier, self._table.key)))
        query = sql.SQL("COPY (SELECT {} FROM ONLY {}{}) TO STDOUT").format(
            sql.SQL(", ").join(map(sql.Identifier, self._columns)),
            sql.Identifier(self._table.schema, self._table.name),
            order if refers else sql.SQL(""),
        )
        rows = 0
        chunk = self._begin()
        async with reader.cursor() as cursor, cursor.copy(query) as copy:
            async for row in copy.rows():
                self._assembler.feed(Insert(1, row))
                rows += 1
                if chunk.encoded_bytes >= CHUNK_BYTES:
                    await self._send(chunk)
                    chunk = self._begin()
                    progress(name, rows, max(rows, estimate))
        if chunk.mutations:
            await self._send(chunk)
        progress(name, rows, rows)

    async def _facts(self, reader: source.Db) -> tuple[int, bool]:
        query = (
            "SELECT reltuples::int8, EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND conrelid = c.oid "
            "AND confrelid = c.oid) FROM pg_class c WHERE oid = %s::regclass"
        )
        named = sql.Identifier(self._table.schema, self._table.name).as_string(reader)
        row = await (await reader.execute(query, (named,))).fetchone()
        assert row is not None
        return row[0], row[1]

    def _begin(self) -> SourceTransaction:
        return self._assembler.begin(Begin(0, 0, 0))

    async def _send(self, chunk: SourceTransaction) -> None:
        headers = encode_headers([(SNAPSHOT, "rows"), ("pg-table", self._table.log_name)])
        for group in cut(chunk.mutations, self._choices.entry_bytes - HEADER_BYTES):
            self._appender.submit(Item([b"".join([*group, headers])]))
        await self._appender.room(self._settings.unanswered_bytes_max)
        crashpoint("capture-rows-sent")


async def take_back(log: Log, producer: str, appender: Appender) -> int:
    """Delete every row that an interrupted snapshot has put into the log. Returns how many entries that took.

    Raises:
        UserError: A part of it was trimmed from the log, so that nobody knows which rows it had.
    """
    newest = (await log.newest(producer)).index
    remaining: dict[int, int] = {}  # The index of each entry with rows, by its sequence.
    begun = False
    async for records in log.read((await log.info()).first, newest):
        for record in records:
            if record.producer == producer:
                headers = dict(decode_headers(record.payload))
                kind = headers.get(SNAPSHOT)
                begun = begun or kind == b"begin"
                if kind == b"begin":
                    remaining.clear()  # A snapshot begins when the one before is taken back.
                elif kind == b"rows":
                    remaining[record.sequence] = record.index
                elif kind == b"undo":
                    remaining.pop(int(headers["pg-undoes"]), None)
    if not begun:
        raise UserError(
            f"the snapshot of producer {producer!r} was interrupted, and its beginning was trimmed from the log since; "
            "empty the tables of the targets, and start with a new --slot"
        )
    for sequence, index in sorted(remaining.items(), reverse=True):
        async for records in log.read(index, index):
            payload = _undo(records[0].payload, sequence)
            appender.submit(Item([payload]))
            await appender.room(CHUNK_BYTES * 16)
            crashpoint("capture-undo-sent")
    await appender.drain()
    return len(remaining)


def _undo(payload: bytes, sequence: int) -> bytes:
    """The entry that deletes the rows of a chunk, the last one first."""
    out = []
    for mutation in reversed(pb.Transaction.FromString(payload).mutations):
        gone = pb.Mutation(key=mutation.key, op=pb.DELETE, target=mutation.target, table=mutation.table)
        gone.columns.extend(column for column in mutation.columns if column.key)
        body = gone.SerializeToString()
        out.append(b"\x0a" + varint(len(body)) + body)
    return b"".join([*out, encode_headers([(SNAPSHOT, "undo"), ("pg-undoes", str(sequence))])])
