"""A log directory of a release: all kinds of entries and rows, several segments, a trim, producers before it."""

from __future__ import annotations

import tarfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import logplayer as lp
from logplayer.core.entry import HashMap, MapChanged, Quarantined, Takeover
from logplayer.log import control_chain
from logplayer.log.file.log import FileLog
from logplayer.log.json_lines import record_to_dict
from logplayer.player.maps import map_text
from logplayer.wire.entries import encode_headers

PRODUCERS = ("early", "p", "q")
SEGMENT_BYTES = 16 * 1024  # Several segments of few entries.
TRIM = 10
DDL = 39  # The number of the transaction that is a statement.


def payload(number: int) -> bytes:
    """Puts, deletes, named targets, headers, and now and then a large value, rows of tables, or a statement."""
    if number == DDL:
        return b"".join(mutation.encoded for mutation in lp.ddl("ALTER TABLE orders ADD note text", ["a", "b"]))
    if number % 10 == 5:
        return b"".join(mutation.encoded for mutation in rows(number))
    value = bytes([number]) * 3000 if number % 7 == 0 else b"value %d \xff" % number
    mutations = [lp.put(f"key/{number}", value), lp.delete(f"key/{number - 1}"), lp.put("named", "x", "b")]
    headers = encode_headers({"trace": b"\x00%d" % number}) if number % 2 else b""
    return b"".join(mutation.encoded for mutation in mutations) + headers


def rows(number: int) -> list[lp.Mutation]:
    """One of each operation, and a value of each type."""
    orders, lines = lp.table("orders"), lp.table("lines", key=("order_id", "n"), place="order_id")
    moment = datetime(2026, 11, 18, 20, 30, 1, 250000)
    values = {
        "paid": True,
        "count": -number,
        "weight": 0.5,
        "total": Decimal("9.90"),
        "item": "tea",
        "image": b"\x00\xff",
        "placed": moment.replace(tzinfo=UTC),
        "local": moment,
        "day": moment.date(),
        "at": moment.time(),
        "token": UUID(int=number),
        "extra": lp.Json('{"a": [1]}'),
        "tags": ["new", None, 2],
        "note": None,
    }
    return [
        orders.put(id=number, **values),
        orders.patch(id=number, item="coffee"),
        lines.put(order_id=number, n=1, item="cup"),
        lines.delete(order_id=number, n=2),
    ]


async def write(archive: Path, folder: Path) -> dict[str, Any]:
    """Make the log in ``folder`` and pack it; what it must mean."""
    log = await FileLog.open(folder / "log", segment_bytes=SEGMENT_BYTES)
    try:
        await log.append([lp.NewEntry("early", n, payload(n)) for n in (1, 2, 3)])
        await control_chain.append(log, Takeover("", "golden"), HashMap(("a", "b")), (("a", "tcp://h:1"), ("b", "")))
        for n in range(1, 41):
            await log.append([lp.NewEntry("p", n, payload(n)), lp.NewEntry("q", n, b"")])
        await control_chain.append(log, MapChanged(HashMap(("a", "b"), "tag")), None)
        await control_chain.append(log, Quarantined("a", 20, "golden"), None)
        await log.trim(TRIM)
        found = await read(log)
    finally:
        await log.close()
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder / "log", "log")
    return found


def unpack(archive: Path, folder: Path) -> Path:
    """Where the log is now."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / "log"


async def read(log: Any) -> dict[str, Any]:
    """What a log says about itself, as JSON has it."""
    info = await log.info()
    versions = (await control_chain.load(log)).control(None).router.versions()
    records = [record async for batch in log.read(info.first, info.last) for record in batch]
    return {
        "log_id": info.log_id,
        "first": info.first,
        "last": info.last,
        "control": info.control,
        "newest": {name: list(await log.newest(name)) for name in PRODUCERS},
        "records": [record_to_dict(record) for record in records],
        "maps": [[after, map_text(known)] for after, known in versions],
    }


async def go_on(log: Any, expected: dict[str, Any]) -> None:
    """A later release takes it up: repeats are known, also of what was trimmed, and new entries follow."""
    assert await log.append([lp.NewEntry("early", 2, payload(2))]) == [2]
    assert await log.append([lp.NewEntry("p", 40, payload(40))]) == [expected["newest"]["p"][1]]
    try:
        await log.append([lp.NewEntry("early", 2, b"another payload")])
        raise AssertionError("another payload under a known number was taken")
    except lp.ProducerConflict:
        pass
    assert await log.append([lp.NewEntry("p", 41, b"new")]) > [expected["last"]]
