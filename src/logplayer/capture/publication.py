"""Does the publication send every change of every captured table, and has it always done so?

What a publication does not have, PostgreSQL leaves out of the stream without a word, and confirms with the rest. A
table that left it has lost changes for good: to add it again mends nothing, only a new snapshot does. So the tables are
compared, when a session of the stream begins and from time to time after that, with what the capture began with.

A name proves nothing: a table may be dropped and made again, or leave the publication and come back, between two looks
or while no capture runs. But the catalog's rows then have other OIDs. So what is kept of each table (in ``pg-tables``,
beside its columns) is its own OID, and that of the row by which the publication has it: of the table in the
publication, of its schema there, or of the publication of all tables. A rename changes neither, and what is written
under the other name has the table's OID in the stream (``assemble``).

What leaves no such trace between two looks is not noticed: a kind of change that is taken out of ``publish`` and put
back, a table that is moved out of a published schema and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import psycopg
from psycopg import sql

from logplayer.capture.descriptions import renamed, replaced
from logplayer.capture.settings import CaptureStopped, SourceTable
from logplayer.capture.source import Db
from logplayer.errors import UserError

NEW_SLOT = "Empty the tables of the targets, and start with a new --slot"
_OF_PARTS = 150000
"""From this version on publications may have schemas, row filters and column lists."""


class Published(NamedTuple):
    """A table that a publication has, by OIDs that are never the same again."""

    oid: int
    member: int  # Of the catalog's row by which the publication has it; 0 for a partition of a table that it has.


class _Found(NamedTuple):
    published: Published
    restriction: str  # What it has less than all changes of the table; empty for nothing.


def query(version: int) -> str:
    """What a publication has: schema, name, the table's OID, the member's OID, and what is left out of its rows."""
    schema = filtered = "NULL::oid"
    join = ""
    if version >= _OF_PARTS:
        schema, filtered = "s.oid", "r.prqual IS NOT NULL AND s.oid IS NULL"
        filtered = f"CASE WHEN {filtered} THEN 'row filter' WHEN r.prattrs IS NOT NULL THEN 'column list' END"
        join = "LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid AND s.pnnspid = n.oid"
    return f"""
SELECT n.nspname::text, c.relname::text, c.oid::int8,
  coalesce(r.oid, {schema}, CASE WHEN p.puballtables THEN p.oid END, 0::oid)::int8, coalesce(({filtered})::text, '')
FROM pg_publication p JOIN pg_publication_tables t ON t.pubname = p.pubname
JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid {join}
WHERE p.pubname = %s
"""


async def ensure_publication(db: Db, name: str, tables: Sequence[SourceTable]) -> None:
    """Make the publication, or check that it has everything, before a capture begins.

    Raises:
        UserError: It lacks a table, a part of one or a kind of change, or it may not be made.
    """
    kinds = await _all_kinds(db, name)
    if kinds is None:
        statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(sql.Identifier(name), _listed(tables))
        try:
            await db.execute(statement)
        except psycopg.errors.InsufficientPrivilege:
            raise UserError(
                f"the role may not make publication {name}; run as the tables' owner: {statement.as_string(db)}"
            ) from None
        return
    if not kinds:
        raise UserError(
            f"publication {name} leaves out a kind of change; run "
            f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"
        )
    found = await _find(db, name)
    missing = [table for table in tables if (table.schema, table.name) not in found]
    if missing:
        listed = _listed(missing).as_string(db)
        raise UserError(f"publication {name} lacks captured tables; run ALTER PUBLICATION {name} ADD TABLE {listed}")
    for table in tables:
        if restriction := found[table.schema, table.name].restriction:
            one = _listed([table]).as_string(db)
            raise UserError(
                f"publication {name} has a {restriction} for table {table.log_name}, so the stream would have less of "
                f"it than the snapshot; run ALTER PUBLICATION {name} DROP TABLE {one}, and then "
                f"ALTER PUBLICATION {name} ADD TABLE {one}, or give another --publication"
            )


async def find_published(db: Db, name: str) -> dict[SourceTable, Published]:
    """What the publication has, by tables without keys."""
    return {SourceTable(*table, ()): found.published for table, found in (await _find(db, name)).items()}


async def check_published(
    db: Db, name: str, tables: Sequence[SourceTable], kept: Mapping[str, Published]
) -> dict[str, Published]:
    """The captured tables as the publication has them now; ``kept`` is what it had, as far as that is known.

    Raises:
        CaptureStopped: Changes may be missing in the stream.
    """
    there = await _find(db, name)
    kinds = await _all_kinds(db, name)  # After the tables, of which it has none if it is dropped meanwhile.
    if kinds is None:
        raise CaptureStopped("publication", f"publication {name} is gone, so changes may be missing. {NEW_SLOT}")
    if not kinds:
        raise CaptureStopped(
            "publication",
            f"publication {name} leaves out a kind of change since this capture has begun, so changes may be missing; "
            f"run ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate'). {NEW_SLOT}",
        )
    now = {}
    for table in tables:
        before, found = kept.get(table.log_name), there.get((table.schema, table.name))
        if found is None or (before is not None and before.oid != found.published.oid):
            raise await _missing(db, name, table, before)
        if found.restriction or (before or found.published).member != found.published.member:
            why = f"has a {found.restriction} there" if found.restriction else "left it and was added again"
            raise CaptureStopped(
                "publication",
                f"table {table.log_name} is not in publication {name} as it was when this capture began: it {why}, so "
                f"changes may be missing. {NEW_SLOT}",
            )
        now[table.log_name] = found.published
    return now


async def _missing(db: Db, name: str, table: SourceTable, before: Published | None) -> CaptureStopped:
    """Why the publication has no such table, or another one under its name."""
    if before is not None:
        of = "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        is_called = await (await db.execute(f"{of} WHERE c.oid = %s", (before.oid,))).fetchone()
        taken = await (
            await db.execute(f"{of} WHERE n.nspname = %s AND c.relname = %s", (table.schema, table.name))
        ).fetchone()
        if is_called != (table.schema, table.name) and taken is not None:
            return replaced(table)
        if is_called is None:
            return CaptureStopped(
                "schema_change",
                f"table {table.log_name} of the source was dropped. Leave it out of --tables if it has to stay so: the "
                "targets then keep what they have of it; or empty the tables of the targets, and start with a new "
                "--slot and without it",
            )
        if is_called != (table.schema, table.name):
            return renamed(table, *is_called)
    return CaptureStopped(
        "publication",
        f"table {table.log_name} is no longer in publication {name}, so changes of it may be missing, also if it is "
        f"added again; run ALTER PUBLICATION {name} ADD TABLE {_listed([table]).as_string(db)}. {NEW_SLOT}",
    )


async def _all_kinds(db: Db, name: str) -> bool | None:
    """Whether it has inserts, updates, deletes and TRUNCATE; None if it does not exist."""
    row = await (
        await db.execute(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = %s",
            (name,),
        )
    ).fetchone()
    return None if row is None else bool(row[0])


async def _find(db: Db, name: str) -> dict[tuple[str, str], _Found]:
    try:
        rows = await (await db.execute(query(db.info.server_version).encode(), (name,))).fetchall()
    except psycopg.errors.UndefinedObject:  # It was dropped while this was asked.
        return {}
    return {
        (schema, table): _Found(Published(oid, member), restriction) for schema, table, oid, member, restriction in rows
    }


def _listed(tables: Sequence[SourceTable]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(table.schema, table.name) for table in tables)
