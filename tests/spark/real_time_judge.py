"""What targets must hold after a query in real time: computed from the log alone, in the plainest way.

Nothing of the router, the query or the connector is used: keys are hashed, entries taken apart and the query's effect
written out here once more. A target's digest is the sum over index and payload of every delivery that it ever applied,
so it tells a delivery that was lost, repeated, torn or changed, also where the rows look right in the end. It is a sum,
and so cannot tell in which order they came: where a store notes its writes (tests/spark/written.py), these are compared
one by one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from xxhash import xxh3_128_intdigest

from logplayer.log.protocol import Kind, Record
from logplayer.wire.logplayer.v1 import entry_pb2 as pb
from tests.spark import written
from tests.spark.written import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def query(rows: DataFrame) -> DataFrame:
    """Filters, renames and explodes: of a value with commas each part becomes a row of its own."""
    return (
        rows.where("cast(key as string) not like 'drop%'")
        .selectExpr(
            "log_index",
            "target",
            "op",
            "cast(key as string) name",
            "posexplode_outer(split(cast(value as string), ',')) as (nth, part)",
        )
        .selectExpr(
            "log_index",
            "target",
            "op",
            "concat('k/', name, if(nth is null, '', concat('/', nth))) key",
            "upper(part) value",
        )
    )


def made(key: bytes, value: bytes | None) -> list[Row]:
    """The same, of one mutation."""
    if key.startswith(b"drop"):
        return []
    if value is None:
        return [(b"k/" + key, None)]
    return [(b"k/%s/%d" % (key, nth), part.upper()) for nth, part in enumerate(value.split(b","))]


Maps = Sequence[tuple[int, Sequence[str]]]  # After an index, the names that keys are hashed over.
Made = Callable[[bytes, bytes | None], list[Row]]


class Held(NamedTuple):
    """What a target holds, or must hold."""

    rows: dict[bytes, bytes]
    digest: int
    at: int  # The index that it has.


def deliveries(records: Iterable[Record], target: str, maps: Maps, through: int, make: Made) -> Iterator[_Delivery]:
    """What ``target`` must get up to the index ``through``, in order."""
    for record in records:
        if record.kind is not Kind.DATA or record.index > through:
            continue
        names = [some for after, some in maps if after < record.index][-1]
        entry = pb.Transaction.FromString(record.payload)
        rows: list[Row] = []
        for mutation in entry.mutations:
            if (mutation.target or names[crc32(mutation.key) % len(names)]) == target:
                rows += make(mutation.key, None if mutation.op == pb.DELETE else mutation.value)
        if rows:
            yield _Delivery(record.index, entry, rows)


class _Delivery(NamedTuple):
    at: int  # Its index.
    entry: pb.Transaction
    rows: list[Row]

    def digest(self) -> int:
        share = pb.Transaction(headers=self.entry.headers)
        for key, value in self.rows:
            share.mutations.add(key=key, value=value or b"", op=pb.DELETE if value is None else pb.PUT)
        return xxh3_128_intdigest(self.at.to_bytes(8, "big") + share.SerializeToString())


def expected(sent: Iterable[_Delivery], through: int) -> Held:
    """What a target must hold that got all of these."""
    rows: dict[bytes, bytes] = {}
    digest = 0
    for delivery in sent:
        for key, value in delivery.rows:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        digest = (digest + delivery.digest()) % 2**128
    return Held(rows, digest, through)


def held(path: Path) -> Held:
    """What is in a SQLite store."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        db.execute("BEGIN")  # One view of rows and index, also while they grow.
        rows = {bytes(key): bytes(value) for key, value in db.execute("SELECT key, value FROM data")}
        [(index, digest)] = db.execute("SELECT log_index, digest FROM position").fetchall()
    return Held(rows, int.from_bytes(digest, "big"), index)


def differences(
    records: Collection[Record], paths: dict[str, Path], names: Sequence[str], make: Made = made, later: Maps = ()
) -> list[str]:
    """What is wrong, a line or two for each target that is not as the log and the query say.

    Keys are hashed over ``names``, and after the index of each of the ``later`` maps over its names.
    """
    found = []
    for name, path in paths.items():
        has = held(path)
        sent = list(deliveries(records, name, [(0, names), *later], has.at, make))
        must = expected(sent, has.at)
        if has != must:
            missing = len(must.rows.items() - has.rows.items())
            extra = len(has.rows.items() - must.rows.items())
            found.append(
                f"{name} at index {has.at}: {missing} rows are missing, {extra} must not be there, "
                f"the digest is {'right' if has.digest == must.digest else 'wrong'}"
            )
        if notes(path):
            verdict = written.judge({name: path}, [row for delivery in sent for row in delivery.rows])
            found += [f"{name} at index {has.at}: {verdict}"] if not verdict.right else []
    return found


def notes(path: Path) -> bool:
    """Whether the store notes its writes."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = 'written'").fetchall())
