"""Which foreign keys a shard map keeps: does a row always have the same owner as the row that it refers to?

A store can check a foreign key only among its own rows. So the question is one about columns: what of a row's key does
the map look at, and does the foreign key make that equal in child and parent? Three ways lead to yes:

1. the map gives all rows of both tables to one target (one target at all; a prefix or a range that the table's name
   decides);
2. it hashes by tag, both tables are placed by a column, and the foreign key says that these two are equal;
3. nothing else: a hash of the whole key differs already by the table's name.

What is said to be torn need not be torn in every row. :func:`count_torn` counts it in real ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from google.protobuf.message import DecodeError

from logplayer.core.entry import ExplicitMap, HashMap, ShardMap
from logplayer.core.routing import NO_OWNER, HashOwner, owner_of
from logplayer.errors import Malformed, UserError
from logplayer.player.maps import map_text
from logplayer.target.stores.tables.foreign_keys import ForeignKey, Pair, SchemaReader, TableSchema
from logplayer.wire.logplayer.v1 import entry_pb2 as pb
from logplayer.wire.rows import Column, row_key
from logplayer.wire.values import escaped

SAMPLE_ROWS = 1000


class RowShape(NamedTuple):
    """How a table's rows are named in the log."""

    key: tuple[str, ...]
    place: str = ""


@dataclass(frozen=True, slots=True)
class KeyVerdict:
    """What a map does with one foreign key."""

    foreign_key: str
    child: str
    parent: str
    kept: bool | None  # None: the map does not decide it.
    why: str
    remedy: str = ""  # If it is torn.
    rows: int = 0  # How many were looked at, and of those:
    torn_rows: int = 0
    example: list[tuple[str, str]] = field(
        default_factory=list
    )  # The child's key and the parent's, each with its owner.


def shapes_of(
    schema: TableSchema, place: Mapping[str, str], logged: Mapping[str, RowShape] | None = None
) -> dict[str, RowShape]:
    """Each table's shape: as its rows in the log have it, else by the catalog; ``place`` overrides where rows live.

    Args:
        schema: The catalog.
        place: Key column that places a table's rows, by table; the table ``""`` stands for all that have it.
        logged: What :func:`shapes_in` has found.

    Raises:
        UserError: ``place`` names a table or a column that is not there.
    """
    shapes = {}
    for name, table in schema.tables.items():
        shape = (logged or {}).get(name, RowShape(table.key))
        column = place.get(name, "")
        if column and column not in shape.key:
            raise UserError(
                f"--place {name}={column}: the key of table {name} is ({', '.join(shape.key)}), and only a column of "
                "it can place a row"
            )
        if not column and place.get("", "") in shape.key:
            column = place[""]
        shapes[name] = shape._replace(place=column) if column else shape
    for name in place:
        if name and name not in shapes:
            raise UserError(f"--place names table {name!r}, which the database does not have")
    return shapes


def shapes_in(payloads: Iterable[bytes]) -> dict[str, RowShape]:
    """How the rows in these transactions are named, by table; the newest row of a table counts."""
    found: dict[str, RowShape] = {}
    for payload in payloads:
        try:
            mutations = pb.Transaction.FromString(payload).mutations
        except DecodeError:
            continue  # Not a transaction; the map's own check counts those.
        for mutation in mutations:
            key = tuple(column.name for column in mutation.columns if column.key)
            parts = mutation.key.split(b"/")[1:]
            if mutation.table and key and len(parts) == len(key):
                place = [name for name, part in zip(key, parts, strict=True) if part.startswith(b"{")]
                found[mutation.table] = RowShape(key, place[0] if place else "")
    return found


def judge(key: ForeignKey, shapes: Mapping[str, RowShape], shard_map: ShardMap) -> KeyVerdict:
    """Whether the map keeps each row of the child with its parent.

    Args:
        key: The foreign key.
        shapes: How rows are named, by table.
        shard_map: The map.
    """
    if key.parent not in shapes or key.child not in shapes:
        gone = key.parent if key.parent not in shapes else key.child
        return _torn(key, f"no rows of table {gone} come by this log", f"bring {gone} as well, or {_LEAVE_OUT}")
    if isinstance(shard_map, ExplicitMap):
        return KeyVerdict(str(key), key.child, key.parent, None, "each row names its target, whatever the map is")
    child, parent = shapes[key.child], shapes[key.parent]
    fixed = [_owner_of_all(name, shape, shard_map) for name, shape in ((key.child, child), (key.parent, parent))]
    if all(fixed):
        if fixed[0] == fixed[1]:
            return KeyVerdict(str(key), key.child, key.parent, True, f"all rows of both are on {fixed[0]}")
        why = f"{key.child} is on {fixed[0]}, {key.parent} on {fixed[1]}"
        return _torn(key, why, _remedy(key, shapes, shard_map))
    if isinstance(shard_map, HashMap) and shard_map.by == "tag" and child.place and parent.place:
        if (child.place, parent.place) in zip(key.columns, key.referred, strict=True):
            why = f"{child.place} places the child and is the parent's {parent.place}, which places that"
            return KeyVerdict(str(key), key.child, key.parent, True, why)
        why = f"{child.place} places {key.child}, {parent.place} places {key.parent}, and the foreign key does not "
        return _torn(key, why + "make them equal", _remedy(key, shapes, shard_map))
    return _torn(key, _unplaced(key, shapes, shard_map), _remedy(key, shapes, shard_map))


def count_torn(
    verdict: KeyVerdict, pairs: Iterable[Pair], shapes: Mapping[str, RowShape], shard_map: ShardMap
) -> KeyVerdict:
    """The verdict with what the map does with real rows: how many are not with their parent, and one of them."""
    owner = owner_of(shard_map)
    rows = torn = 0
    example: list[tuple[str, str]] = []
    for pair in pairs:
        found = []
        for table, values in ((verdict.child, pair.child), (verdict.parent, pair.parent)):
            shape = shapes[table]
            columns = [Column(name, value, True) for name, value in zip(shape.key, values, strict=True)]
            try:
                key = row_key(table, columns, shape.place)
            except (UserError, Malformed):  # A type that no row of the log has in its key.
                return verdict
            found.append((key.decode(errors="backslashreplace"), owner(key)))
        rows += 1
        if found[0][1] != found[1][1]:
            torn += 1
            example = example or found
    return replace(verdict, rows=rows, torn_rows=torn, example=example)


def check_foreign_keys(
    reader: SchemaReader,
    shard_map: ShardMap,
    *,
    place: Mapping[str, str],
    logged: Mapping[str, RowShape] | None = None,
    tables: Iterable[str] | None = None,
) -> list[KeyVerdict]:
    """Judge every foreign key of a database, torn ones first, those with real rows.

    Args:
        reader: The database.
        shard_map: The map.
        place: As :func:`shapes_of` takes it.
        logged: As :func:`shapes_of` takes it.
        tables: Only these come by the log. Without: all that the database has.
    """
    schema = reader.read()
    shapes = shapes_of(schema, place, logged)
    if tables is not None:
        chosen = set(tables)
        shapes = {name: shape for name, shape in shapes.items() if name in chosen}
    verdicts = []
    for key in schema.foreign_keys:
        if tables is not None and key.child not in shapes:
            continue
        verdict = judge(key, shapes, shard_map)
        named = [shapes[name].key == schema.tables[name].key for name in (key.child, key.parent) if name in shapes]
        if verdict.kept is False and named == [True, True]:
            with contextlib.suppress(UserError):  # Whoever may not read the rows may read the catalog.
                verdict = count_torn(verdict, reader.pairs(schema, key, SAMPLE_ROWS), shapes, shard_map)
        verdicts.append(verdict)
    return sorted(verdicts, key=lambda verdict: verdict.kept is not False)


def verdict_lines(verdict: KeyVerdict) -> list[str]:
    """For people."""
    if verdict.kept is not False:
        return [f"{'kept' if verdict.kept else 'open'} {verdict.foreign_key}: {verdict.why}"]
    lines = [f"torn {verdict.foreign_key}: {verdict.why}"]
    if verdict.example:
        told = ", ".join(f"{key} is on {target}" for key, target in verdict.example)
        lines.append(f"  {verdict.torn_rows} of {verdict.rows} rows are not with their parent, for example: {told}")
    lines.append(f"  {verdict.remedy}")
    return lines


_LEAVE_OUT = "leave this foreign key out at the targets"


def _torn(key: ForeignKey, why: str, remedy: str) -> KeyVerdict:
    return KeyVerdict(str(key), key.child, key.parent, False, why, remedy)


def _owner_of_all(table: str, shape: RowShape, shard_map: ShardMap) -> str:
    """The target that owns every row of the table, whatever its key is; NO_OWNER if they have several."""
    owner = owner_of(shard_map)
    head = f"{escaped(table)}/".encode()
    if len(set(getattr(shard_map, "targets", ()))) == 1:
        return owner(head)
    if isinstance(owner, HashOwner):
        head += b"{" if shape.key and shape.place == shape.key[0] else b""
        return owner(head) if owner.separator and head.find(owner.separator) > 0 else NO_OWNER
    # Keys are UTF-8, which has no byte 0xff: the two are before and after all keys of the table.
    first, last = owner(head), owner(head + b"\xff")
    return first if first == last else NO_OWNER


def _unplaced(key: ForeignKey, shapes: Mapping[str, RowShape], shard_map: ShardMap) -> str:
    if isinstance(shard_map, HashMap) and shard_map.by == "tag":
        bare = [name for name in dict.fromkeys((key.child, key.parent)) if not shapes[name].place]
        return f"no column places the rows of {' and '.join(bare)}, so their whole keys are hashed"
    return f"{map_text(shard_map)} does not look at the columns of this foreign key alone"


def _remedy(key: ForeignKey, shapes: Mapping[str, RowShape], shard_map: ShardMap) -> str:
    """How to keep it: a pair of its columns that can place both tables, else what would have to change."""
    targets = ",".join(getattr(shard_map, "targets", ())) or "a,b"
    child, parent = shapes[key.child], shapes[key.parent]
    pairs = list(zip(key.columns, key.referred, strict=True))
    usable = [(one, other) for one, other in pairs if one in child.key and other in parent.key]
    if key.child == key.parent:  # One column places all rows of a table.
        usable = [(one, other) for one, other in usable if one == other]
    if usable:
        one, other = usable[0]
        return (
            f"place both by it (--place {key.child}={one} --place {key.parent}={other}) and use the map "
            f"hash[tag]:{targets}"
        )
    one, other = next(((one, other) for one, other in pairs if other in parent.key), pairs[0])
    if key.child != key.parent and other in parent.key:
        return (
            f"make {one} a part of the primary key of {key.child}, place both by it (--place {key.child}={one} --place "
            f"{key.parent}={other}) and use the map hash[tag]:{targets}; or {_LEAVE_OUT}"
        )
    return (
        f"give both tables a column that they share in their primary keys and in this foreign key, place both by it "
        f"(--place) and use the map hash[tag]:{targets}; or {_LEAVE_OUT}"
    )
