"""The rows that are there when a capture begins, exactly as of the slot's start.

PostgreSQL exports a snapshot with the slot that it makes: the rows that the snapshot sees, followed by the slot's
stream, are the source, without a gap and without an overlap. Tables are copied parents first, so that foreign keys hold
at the targets at every entry (``circles`` says what is done where there is no such order). Locks that only stop ALTER
TABLE and TRUNCATE are held meanwhile: PostgreSQL's snapshots do not protect from those.

A snapshot cannot be opened a second time, so one that was interrupted cannot be continued: a later one sees other rows.
To put its rows over those of the first would be wrong in two ways. Rows that were deleted in between would stay, and a
value that moved from one row to another would break a unique key half-way. So a new start first takes the old rows
back, newest entry first and each from its last row to its first: the reverse of an order that kept every constraint
keeps them too. (What was trimmed from the log since cannot be taken back row by row; ``--on-truncate ddl`` empties the
tables instead.) Then it makes a new slot and copies everything. What the log says about this are the entries' headers:
``begin`` (from here on the slot is the capture's own), ``rows``, ``undo`` with the sequence that it takes back,
``done``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from psycopg import sql

from logplayer.capture import source
from logplayer.capture.appender import Appender, Item
from logplayer.capture.assemble import Assembler
from logplayer.capture.circles import plan_copy, warn_of_circles
from logplayer.capture.descriptions import Description
from logplayer.capture.pg_stream import PgStream
from logplayer.capture.pgoutput import UNCHANGED, Begin, Cells, Insert, Relation, RelationColumn, lsn_text
from logplayer.capture.publication import Published, check_published
from logplayer.capture.resume import SNAPSHOT, describe_tables
from logplayer.capture.settings import HEADER_BYTES, CaptureSettings, SourceTable
from logplayer.capture.transactions import SourceTransaction, cut
from logplayer.crashpoint import crashpoint
from logplayer.errors import UserError
from logplayer.log.protocol import Log
from logplayer.wire.entries import decode_headers, encode_headers, varint
from logplayer.wire.logplayer.v1 import entry_pb2 as pb
from logplayer.wire.rows import encode_ddl

CHUNK_BYTES = 256 * 1024
Progress = Callable[[str, int, int], None]
"""Called with a table's name, the rows that are copied, and about how many there are."""


async def copy_tables(
    settings: CaptureSettings, tables: Sequence[SourceTable], appender: Appender, progress: Progress
) -> tuple[dict[str, Description], dict[str, Published]]:
    """Make the slot, append every row that its snapshot has, and say that this is done.

    Returns the tables' descriptions, and how the publication has them.
    """
    async with await source.connect(settings.url) as reader, await source.connect(settings.url) as locks:
        warn_of_circles(await plan_copy(reader, tables))
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
            # Exactly as of the slot's start.
            published = await check_published(reader, settings.publication, tables, {})
            known, copiers = {}, []
            plan = await plan_copy(reader, tables)
            for table in plan.order:
                known[table.log_name] = await source.describe(reader, table)
                late = plan.late.get((table.schema, table.name), ())
                copiers.append(_Copier(settings, table, known[table.log_name], base_types, appender, late))
                await copiers[-1].run(reader, progress)
            for copier in copiers:
                await copier.patch_late(reader)
            await reader.execute("ROLLBACK")
    appender.submit(_done(slot.lsn, known, published))
    await appender.drain()
    return known, published


async def begin_without(
    settings: CaptureSettings, db: source.Db, tables: Sequence[SourceTable], appender: Appender
) -> dict[str, Published]:
    """Begin at the slot's position, and make the slot if it is not there; no rows are copied.

    Returns how the publication has the tables.
    """
    slot = await source.find_slot(db, settings.slot)
    if slot is None:
        async with await PgStream.open(settings.url) as stream:
            await stream.create_slot(settings.slot)
        slot = await source.find_slot(db, settings.slot)
    assert slot is not None
    published = await check_published(db, settings.publication, tables, {})
    known = {table.log_name: await source.describe(db, table) for table in tables}
    appender.submit(_done(slot.confirmed, known, published))
    await appender.drain()
    return published


def _done(lsn: int, known: dict[str, Description], published: dict[str, Published]) -> Item:
    done = encode_headers([(SNAPSHOT, "done"), ("pg-lsn", lsn_text(lsn))])
    return Item([done], lsn, describe_tables(known, published))


class _Copier:
    """Copies one table, in entries of bounded size."""

    def __init__(
        self,
        settings: CaptureSettings,
        table: SourceTable,
        description: Description,
        base_types: dict[int, int],
        appender: Appender,
        late: tuple[str, ...],
    ) -> None:
        self._settings = settings
        self._table = table
        self._columns = [name for name, *_ in description]
        self._appender = appender
        self._late = late
        self._choices = replace(settings.choices, split_large=True)  # A chunk may be cut anywhere.
        self._assembler = Assembler({(table.schema, table.name): table}, base_types, self._choices)
        columns = tuple(
            RelationColumn(name, oid, -1 if mod is None else mod, name in table.key) for name, oid, mod in description
        )
        self._assembler.feed(Relation(1, table.schema, table.name, "f", columns))

    async def run(self, reader: source.Db, progress: Progress) -> None:
        name = self._table.log_name
        estimate, refers = await self._facts(reader)
        order = sql.SQL(" ORDER BY {}").format(sql.SQL(", ").join(map(sql.Identifier, self._table.key)))
        shown: list[sql.Composable] = [
            sql.SQL("NULL") if one in self._late else sql.Identifier(one) for one in self._columns
        ]
        query = self._select(shown, order if refers else sql.SQL(""))

        def put(row: Cells) -> None:
            self._assembler.feed(Insert(1, row))

        rows = await self._copy(reader, query, put, lambda rows: progress(name, rows, max(rows, estimate)))
        progress(name, rows, rows)

    async def patch_late(self, reader: source.Db) -> None:
        """The columns that were null at first, now that all rows are there to which they may refer."""
        if not self._late:
            return
        late = sql.SQL(", ").join(map(sql.Identifier, self._late))
        sent = {*self._late, *self._table.key}
        shown = [sql.Identifier(one) if one in sent else sql.SQL("NULL") for one in self._columns]
        query = self._select(shown, sql.SQL(" WHERE num_nonnulls({}) > 0").format(late))

        def patch(row: Cells) -> None:
            cells = [cell if one in sent else UNCHANGED for one, cell in zip(self._columns, row, strict=True)]
            self._assembler.patch(1, tuple(cells))

        await self._copy(reader, query, patch, lambda rows: None)

    def _select(self, shown: Sequence[sql.Composable], suffix: sql.Composable) -> sql.Composed:
        return sql.SQL("COPY (SELECT {} FROM ONLY {}{}) TO STDOUT").format(
            sql.SQL(", ").join(shown), sql.Identifier(self._table.schema, self._table.name), suffix
        )

    async def _copy(
        self,
        reader: source.Db,
        query: sql.Composed,
        change: Callable[[Cells], None],
        progress: Callable[[int], None],
    ) -> int:
        """Append a change for each row of the query; how many there were."""
        rows = 0
        chunk = self._begin()
        async with reader.cursor() as cursor, cursor.copy(query) as copy:
            async for row in copy.rows():
                change(row)
                rows += 1
                if chunk.encoded_bytes >= CHUNK_BYTES:
                    await self._send(chunk)
                    chunk = self._begin()
                    progress(rows)
        if chunk.mutations:
            await self._send(chunk)
        return rows

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


def emptying(tables: Sequence[SourceTable], targets: Sequence[str]) -> list[bytes]:
    """The statements that empty the tables, in this order, at these targets."""
    return [encode_ddl(f"DELETE FROM {table.sql_name}", target).encoded for table in tables for target in targets]


async def take_back(log: Log, producer: str, appender: Appender, statements: Sequence[bytes]) -> int:
    """Delete every row that an interrupted snapshot has put into the log. Returns how many entries that took.

    A player trims what all targets have, so the rows may be known to nobody any more. ``statements`` empty the tables
    then; nothing but the snapshot has written into them.

    Raises:
        UserError: A part of it was trimmed from the log, and there are no statements.
    """
    remaining = await _remaining(log, producer)
    if remaining is None and statements:
        appender.submit(Item([b"".join([*statements, encode_headers([(SNAPSHOT, "undo")])])]))
        await appender.drain()
        crashpoint("capture-undo-sent")
        return 1
    if remaining is None:
        raise UserError(
            f"the snapshot of producer {producer!r} was interrupted, and its beginning was trimmed from the log since, "
            "so which rows it has copied is not known; start with --on-truncate ddl --ddl-targets NAME,NAME, which "
            "empties the captured tables at these targets (DELETE FROM) and copies them again; or empty them by hand, "
            "and start with a new --slot. To keep a snapshot's entries, play with --no-trims until it is complete"
        )
    for sequence, index in sorted(remaining.items(), reverse=True):
        async for records in log.read(index, index):
            payload = _undo(records[0].payload, sequence)
            appender.submit(Item([payload]))
            await appender.room(CHUNK_BYTES * 16)
            crashpoint("capture-undo-sent")
    await appender.drain()
    return len(remaining)


async def _remaining(log: Log, producer: str) -> dict[int, int] | None:
    """The index of each entry with rows that is not taken back, by its sequence; None if the beginning was trimmed."""
    remaining: dict[int, int] = {}
    begun = False
    first, newest = (await log.info()).first, (await log.newest(producer)).index
    if newest < first:
        return None
    async for records in log.read(first, newest):
        for record in records:
            if record.producer != producer:
                continue
            headers = dict(decode_headers(record.payload))
            kind = headers.get(SNAPSHOT)
            begun = begun or kind == b"begin"
            if kind == b"begin":
                remaining.clear()  # A snapshot begins when the one before is taken back.
            elif kind == b"rows":
                remaining[record.sequence] = record.index
            elif kind == b"undo" and "pg-undoes" in headers:
                remaining.pop(int(headers["pg-undoes"]), None)
    return remaining if begun else None


def _undo(payload: bytes, sequence: int) -> bytes:
    """The entry that takes a chunk back, the last row first: deletes of rows, and null for what was patched in."""
    out = []
    for mutation in reversed(pb.Transaction.FromString(payload).mutations):
        gone = pb.Mutation(key=mutation.key, op=pb.DELETE, target=mutation.target, table=mutation.table)
        gone.columns.extend(column for column in mutation.columns if column.key)
        if mutation.op == pb.PATCH:
            gone.op = pb.PATCH
            gone.columns.extend(pb.Column(name=one.name, value=pb.Value()) for one in mutation.columns if not one.key)
        body = gone.SerializeToString()
        out.append(b"\x0a" + varint(len(body)) + body)
    return b"".join([*out, encode_headers([(SNAPSHOT, "undo"), ("pg-undoes", str(sequence))])])
