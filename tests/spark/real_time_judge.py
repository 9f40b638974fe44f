"""What targets must hold after a query in real time: computed from the log alone, in the plainest way.

Nothing of the router, the query or the connector is used: keys are hashed, entries taken apart and the query's effect
written out here once more. A target's digest is the sum over index and payload of every delivery that it ever applied,
so it tells a delivery that was lost, repeated, torn or changed, also where the rows look right in the end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from xxhash import xxh3_128_intdigest

from logplayer.log.protocol import Kind, Record
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

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


def made(key: bytes, value: bytes | None) -> list[tuple[bytes, bytes | None]]:
    """The same, of one mutation."""
    if key.startswith(b"drop"):
        return []
    if value is None:
        return [(b"k/" + key, None)]
    return [(b"k/%s/%d" % (key, nth), part.upper()) for nth, part in enumerate(value.split(b","))]


class Held(NamedTuple):
    """What a target holds, or must hold."""

    rows: dict[bytes, bytes]
    digest: int
    at: int  # The index that it has.


def expected(records: Iterable[Record], target: str, names: Sequence[str], through: int) -> Held:
    """What ``target``, one of the ``names`` that keys are hashed over, must hold once it has index ``through``."""
    rows: dict[bytes, bytes] = {}
    digest = 0
    for record in records:
        if record.kind is not Kind.DATA or record.index > through:
            continue
        entry = pb.Transaction.FromString(record.payload)
        share = pb.Transaction(headers=entry.headers)
        for mutation in entry.mutations:
            owner = mutation.target or names[crc32(mutation.key) % len(names)]
            if owner != target:
                continue
            value = None if mutation.op == pb.DELETE else mutation.value
            for key, part in made(mutation.key, value):
                op = pb.DELETE if part is None else pb.PUT
                share.mutations.add(key=key, value=part or b"", op=op)
                if part is None:
                    rows.pop(key, None)
                else:
                    rows[key] = part
        if share.mutations:
            payload = share.SerializeToString()
            digest = (digest + xxh3_128_intdigest(record.index.to_bytes(8, "big") + payload)) % 2**128
    return Held(rows, digest, through)


def held(path: Path) -> Held:
    """What is in a SQLite store."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        db.execute("BEGIN")  # One view of rows and index, also while they grow.
        rows = {bytes(key): bytes(value) for key, value in db.execute("SELECT key, value FROM data")}
        [(index, digest)] = db.execute("SELECT log_index, digest FROM position").fetchall()
    return Held(rows, int.from_bytes(digest, "big"), index)


def differences(records: Collection[Record], paths: dict[str, Path], names: Sequence[str]) -> list[str]:
    """What is wrong, one line for each target that is not as the log and the query say."""
    found = []
    for name, path in paths.items():
        has = held(path)
        must = expected(records, name, names, has.at)
        if has != must:
            missing = len(must.rows.items() - has.rows.items())
            extra = len(has.rows.items() - must.rows.items())
            found.append(
                f"{name} at index {has.at}: {missing} rows are missing, {extra} must not be there, "
                f"the digest is {'right' if has.digest == must.digest else 'wrong'}"
            )
    return found
