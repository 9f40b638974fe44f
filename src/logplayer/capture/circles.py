"""In which order tables are copied, and what to do where foreign keys leave none.

Rows of parents are copied before those of their children, so that foreign keys hold at the targets at every entry.
Tables that refer to each other in a circle, and rows that refer to a row of the same table with a higher key, have no
such order. If a column of such a key may be null, its rows are copied with null there first, and patched when all
tables are there: a foreign key with a null in it is not checked. (With MATCH FULL all of its columns must be null.)
If none may be, no order of entries satisfies a target that has this key, and the capture says so before it begins.

A CHECK that names the column, or a domain, may forbid null without saying so; such columns count as not nullable.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from psycopg import sql

from logplayer.capture import source
from logplayer.capture.settings import SourceTable

_log = logging.getLogger("logplayer.capture")
Name = tuple[str, str]


class Reference(NamedTuple):
    """A foreign key of a captured table to a captured table."""

    name: str
    child: Name
    parent: Name
    columns: tuple[str, ...]
    named: tuple[str, ...]  # The parent's columns, in the same order.
    nullable: tuple[str, ...]  # Of its columns those that may be null, if that takes it out of force.


class CopyPlan(NamedTuple):
    """How the tables are copied."""

    order: list[SourceTable]
    late: dict[Name, tuple[str, ...]]  # Columns that are null at first, by table.
    impossible: list[Reference]  # Keys that no order satisfies.


_KEYS = """
SELECT f.conname::text, cn.nspname::text, c.relname::text, pn.nspname::text, p.relname::text, f.confmatchtype = 'f',
  (SELECT array_agg(a.attname::text ORDER BY k.n) FROM unnest(f.conkey) WITH ORDINALITY k(attnum, n)
     JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.attnum),
  (SELECT array_agg(a.attname::text ORDER BY k.n) FROM unnest(f.confkey) WITH ORDINALITY k(attnum, n)
     JOIN pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.attnum),
  (SELECT coalesce(array_agg(a.attname::text), '{}') FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
     WHERE a.attrelid = f.conrelid AND a.attnum = ANY (f.conkey) AND NOT a.attnotnull AND t.typtype <> 'd'
     AND a.attgenerated = '' AND NOT EXISTS (SELECT FROM pg_constraint x
       WHERE x.conrelid = f.conrelid AND x.contype = 'c' AND a.attnum = ANY (x.conkey)))
FROM pg_constraint f
JOIN pg_class c ON c.oid = f.conrelid JOIN pg_namespace cn ON cn.oid = c.relnamespace
JOIN pg_class p ON p.oid = f.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace
WHERE f.contype = 'f' ORDER BY f.conname
"""


async def plan_copy(db: source.Db, tables: Sequence[SourceTable]) -> CopyPlan:
    """The order of the copy, as the catalog and the rows are for this connection."""
    known = {(table.schema, table.name): table for table in tables}
    references = [key for key in await _references(db) if key.child in known and key.parent in known]
    order = parents_first(tables, references)
    at = {(table.schema, table.name): nth for nth, table in enumerate(order)}
    late: dict[Name, set[str]] = {}
    impossible = []
    for key in references:
        if at[key.parent] < at[key.child] or (key.child == key.parent and not await _is_forward(db, known, key)):
            continue
        if key.nullable:
            late.setdefault(key.child, set()).update(key.nullable)
        else:
            impossible.append(key)
    return CopyPlan(order, {name: tuple(sorted(columns)) for name, columns in late.items()}, impossible)


async def copy_order(db: source.Db, tables: Sequence[SourceTable]) -> list[SourceTable]:
    """The tables, parents before their children as far as there is such an order."""
    known = {(table.schema, table.name) for table in tables}
    return parents_first(tables, [key for key in await _references(db) if {key.child, key.parent} <= known])


def warn_of_circles(plan: CopyPlan) -> None:
    """Log a warning for each foreign key that a target cannot have while the snapshot is copied."""
    for key in plan.impossible:
        _log.warning(
            "rows of table %s refer to rows that are copied after them (foreign key %s), and none of its columns (%s) "
            "can be null first: a target that has this key refuses the snapshot; drop it at the targets, and add it "
            "again when the snapshot is there",
            ".".join(key.child),
            key.name,
            ", ".join(key.columns),
        )


def parents_first(tables: Sequence[SourceTable], references: Sequence[Reference]) -> list[SourceTable]:
    """An order in which foreign keys find their rows; a circle is opened where its keys can be null."""
    waiting, ordered = list(tables), list[SourceTable]()
    while waiting:
        left = {(table.schema, table.name) for table in waiting}

        def open_keys(table: SourceTable, left: set[Name] = left) -> list[Reference]:
            name = (table.schema, table.name)
            return [key for key in references if key.child == name != key.parent and key.parent in left]

        free = [table for table in waiting if not open_keys(table)]
        free = free or [table for table in waiting if all(key.nullable for key in open_keys(table))] or waiting
        ordered.append(free[0])
        waiting.remove(free[0])
    return ordered


async def _references(db: source.Db) -> list[Reference]:
    found = []
    for name, a, b, c, d, match_full, columns, named, nullable in await (await db.execute(_KEYS)).fetchall():
        usable = () if match_full and len(nullable) < len(columns) else tuple(nullable)
        found.append(Reference(name, (a, b), (c, d), tuple(columns), tuple(named), usable))
    return found


async def _is_forward(db: source.Db, known: dict[Name, SourceTable], key: Reference) -> bool:
    """Whether a row refers to one of the same table that comes after it in the order of the primary key."""
    table = known[key.child]
    if set(key.named) != set(table.key):
        return True  # It refers to another unique key, of which the order says nothing.
    referring = [key.columns[key.named.index(column)] for column in table.key]
    query = sql.SQL("SELECT EXISTS (SELECT FROM ONLY {} WHERE ({}) > ({}))").format(
        sql.Identifier(table.schema, table.name),
        sql.SQL(", ").join(map(sql.Identifier, referring)),
        sql.SQL(", ").join(map(sql.Identifier, table.key)),
    )
    row = await (await db.execute(query)).fetchone()
    return bool(row and row[0])
