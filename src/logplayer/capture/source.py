"""What a capture asks the source by plain SQL: is it ready, which tables are there, what does the slot say.

Every refusal names what is wrong and the statement that mends it. Decisions rest on SQLSTATE codes and catalogs, never
on the text of an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from logplayer.capture.descriptions import Description, SchemaChange
from logplayer.capture.pgoutput import lsn_text, parse_lsn
from logplayer.capture.settings import CaptureSettings, CaptureStopped, SourceTable
from logplayer.errors import Unavailable, UserError

Db = psycopg.AsyncConnection[Any]
VERSION_MIN = 140000  # pgoutput has had logical messages since 14.
# The text form of values, whatever the server's and the role's settings are.
OPTIONS = (
    "-c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=3 -c bytea_output=hex -c timezone=UTC "
    "-c client_encoding=UTF8 -c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c lock_timeout=0"
)


class Slot(NamedTuple):
    """The replication slot, as the server reports it."""

    confirmed: int
    active_pid: int
    plugin: str
    database: str
    lost: bool


async def connect(url: str, **more: Any) -> Db:
    """A connection to the source.

    Raises:
        UserError: The URL, the role or the password is wrong.
        Unavailable: The server cannot be reached.
    """
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # Its text quotes the URL, and the password in it.
        raise UserError("--url is not a URL of PostgreSQL; write postgresql://USER@HOST:PORT/DATABASE") from None
    try:
        return await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=10, options=OPTIONS, **more)
    except psycopg.OperationalError as error:  # libpq gives no SQLSTATE here: a wrong password looks like the rest.
        raise Unavailable(f"the source cannot be reached: {str(error).strip()}; is it up, and --url right?") from None


async def check_server(db: Db) -> None:
    """Refuse a server from which nothing can be captured."""
    if db.info.server_version < VERSION_MIN:
        raise UserError(f"the source is PostgreSQL {db.info.server_version // 10000}; capture needs 14 or newer")
    level, standby = await _one(db, "SELECT current_setting('wal_level'), pg_is_in_recovery()")
    if level != "logical":
        raise UserError(
            f"the source has wal_level = {level}; run ALTER SYSTEM SET wal_level = logical, and restart PostgreSQL"
        )
    if standby:
        raise UserError("the source is a standby, where no slot can be read; give the primary's --url")


async def check_primary(db: Db) -> None:
    """Wait for a standby to be promoted; only a running capture meets one.

    Raises:
        Unavailable: It is a standby now.
    """
    if (await _one(db, "SELECT pg_is_in_recovery()"))[0]:
        raise Unavailable(
            "the source is a standby now, where no slot can be read; promote it, or give the primary's --url"
        )


_TABLE = """
SELECT c.relkind::text, c.relreplident::text, c.relpersistence::text,
  (SELECT array_agg(a.attname::text ORDER BY k.n) FROM pg_index i
     CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, n)
     JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
     WHERE i.indrelid = c.oid AND i.indisprimary AND k.n <= i.indnkeyatts),
  (SELECT i.indisprimary FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""


async def find_tables(db: Db, settings: CaptureSettings) -> list[SourceTable]:
    """The tables to capture, each with its primary key.

    Raises:
        UserError: One does not exist, is not a plain table, or has rows that cannot be named.
    """
    tables = []
    for given in settings.tables:
        schema, dot, name = given.partition(".")
        schema, name = (schema, name) if dot else ("public", given)
        row = await (await db.execute(_TABLE, (schema, name))).fetchone()
        tables.append(_table(schema, name, row, settings.place))
    names = [table.log_name for table in tables]
    for name in settings.place:
        if name and name not in names:
            raise UserError(f"--place names table {name!r}, which is not captured; captured are {', '.join(names)}")
    return tables


def _table(schema: str, name: str, row: Any, place: Mapping[str, str]) -> SourceTable:
    where = f"table {schema}.{name}"
    if row is None:
        raise UserError(
            f"the source has no {where}: it was dropped or renamed, or --tables is wrong (upper and lower case count)"
        )
    kind, identity, persistence, key, identity_is_primary = row
    if kind == "p":
        raise UserError(
            f"{where} is partitioned, and its rows are in its partitions; give these in --tables, each by its name "
            "(one that is made later needs a slot of its own)"
        )
    if kind != "r" or persistence != "p":
        what = "an unlogged or temporary" if kind == "r" else "not an ordinary"
        raise UserError(f"{where} is {what} table, and PostgreSQL sends changes of logged tables only; leave it out")
    if not key:
        raise UserError(
            f"{where} has no primary key, so its rows cannot be named; add one: "
            f"ALTER TABLE {schema}.{name} ADD COLUMN id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
        )
    if identity == "n" or (identity == "i" and not identity_is_primary):
        raise UserError(
            f"{where} does not send its primary key with changes; run "
            f"ALTER TABLE {schema}.{name} REPLICA IDENTITY DEFAULT"
        )
    table = SourceTable(schema, name, tuple(key))
    column = place.get(table.log_name, place.get("", ""))
    if column and column not in key:
        raise UserError(
            f"--place {column}: {where} has the primary key ({', '.join(key)}), and only a column of it can place a row"
        )
    return table._replace(place=column)


async def find_slot(db: Db, name: str) -> Slot | None:
    """The slot; None if it does not exist."""
    row = await _maybe(
        db,
        "SELECT confirmed_flush_lsn::text, coalesce(active_pid, 0), coalesce(plugin, '')::text, "
        "coalesce(database, '')::text, wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = %s",
        name,
    )
    return None if row is None else Slot(parse_lsn(row[0] or "0/0"), row[1], row[2], row[3], bool(row[4]))


async def drop_slot(db: Db, name: str) -> None:
    """Drop it if it exists and nobody reads it.

    Raises:
        Unavailable: It is in use.
    """
    try:
        await db.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (name,)
        )
    except psycopg.errors.ObjectInUse:
        raise slot_in_use(name) from None


def check_slot(slot: Slot | None, name: str, database: str) -> None:
    """Refuse a slot of something else, and one that has lost what it is for."""
    if slot is None:
        return
    if slot.plugin != "pgoutput" or slot.database != database:
        raise UserError(
            f"slot {name} belongs to database {slot.database!r} and plugin {slot.plugin!r}, not to {database!r} and "
            "'pgoutput'; choose another --slot"
        )
    if slot.lost:
        raise CaptureStopped(
            "slot_lost",
            f"PostgreSQL has removed what slot {name} needed (max_slot_wal_keep_size); drop the slot, empty the "
            "tables of the targets, and start with a new --slot",
        )


def slot_is_gone(name: str, lsn: int) -> UserError:
    """The slot that was there is not."""
    return CaptureStopped(
        "slot_gone",
        f"slot {name} is gone from the source, and with it what was committed after "
        f"{lsn_text(lsn) if lsn else 'the newest entry'}: it was dropped, or a standby without it was promoted. "
        "Empty the tables of the targets, and start with a new --slot",
    )


def slot_in_use(name: str) -> Unavailable:
    """Another process reads the slot now."""
    return Unavailable(
        f"slot {name} is active: another process captures with it; stop that one first, or wait until the server has "
        "noticed that it is gone (wal_sender_timeout)"
    )


async def base_types(db: Db) -> dict[int, int]:
    """The type under each domain, by OID."""
    rows = await (await db.execute("SELECT oid::int8, typbasetype::int8 FROM pg_type WHERE typtype = 'd'")).fetchall()
    direct = dict(rows)

    def under(oid: int) -> int:
        while oid in direct:
            oid = direct[oid]
        return oid

    return {oid: under(oid) for oid in direct}


async def describe(db: Db, table: SourceTable) -> Description:
    """The table's columns as the stream will describe them: generated ones are not sent."""
    query = (
        "SELECT attname::text, atttypid::int8, atttypmod::int8 FROM pg_attribute WHERE attrelid = %s::regclass "
        "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
    )
    named = sql.Identifier(table.schema, table.name).as_string(db)
    return tuple(await (await db.execute(query, (named,))).fetchall())


_ADDED = """
SELECT format_type(atttypid, atttypmod), atthasmissing, atthasdef, (attmissingval::text::text[])[1]
FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s AND NOT attisdropped
"""


async def added_columns(db: Db, change: SchemaChange) -> list[str]:
    """The statements that add the new columns, with the value that the source's existing rows have.

    Raises:
        UserError: The source gave existing rows values that no statement can repeat.
    """
    table, statements = change.table, []
    named = sql.Identifier(table.schema, table.name).as_string(db)
    for column in change.added:
        row = await (await db.execute(_ADDED, (named, column))).fetchone()
        if row is None or (row[2] and not row[1]):
            raise CaptureStopped(
                "schema_change",
                f"column {column} of table {table.log_name} is new, and which values existing rows have cannot be "
                "derived; add it to the tables of the targets, then go on once with --on-schema-change accept",
            )
        kind, has_value, _, value = row
        text = sql.SQL("ALTER TABLE {} ADD COLUMN {} ").format(sql.SQL(table.sql_name), sql.Identifier(column))
        default = sql.SQL(" DEFAULT {}").format(sql.Literal(value)).as_string(db) if has_value else ""
        statements.append(f"{text.as_string(db)}{kind}{default}")
    return statements


async def _one(db: Db, query: str) -> Any:
    return await (await db.execute(query)).fetchone()


async def _maybe(db: Db, query: str, value: str) -> Any:
    return await (await db.execute(query, (value,))).fetchone()
