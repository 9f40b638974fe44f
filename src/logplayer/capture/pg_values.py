"""PostgreSQL's text form of a value, with the type that the log has for it. Pure.

Types without a counterpart (enums, intervals, ranges, geometry, everything that is not built in) stay text as
PostgreSQL writes it: a PostgreSQL target reads it back by its column's type. A value of a known type may still not fit,
because the log's types end earlier than PostgreSQL's: ``infinity`` as a time, a year before 1 or after 9999,
``24:00:00``, an array of arrays. :class:`Unfit` says which; the caller stops, or sends the text, as its user chose.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from logplayer.errors import LogPlayerError
from logplayer.wire.values import Json


class Unfit(LogPlayerError):
    """The log has no value of the column's type for this text."""


Reader = Callable[[str], Any]


def _boolean(text: str) -> bool:
    if text not in ("t", "f"):
        raise ValueError(text)
    return text == "t"


def _binary(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError(text)
    return bytes.fromhex(text[2:])


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(text) from None


_ZONE = re.compile(r"[+-]\d\d(?::\d\d(?::\d\d)?)?$")


def _timestamp_with_zone(text: str) -> datetime:
    found = _ZONE.search(text)
    if found is None:
        raise ValueError(text)
    zone = found[0] if ":" in found[0] else f"{found[0]}:00"
    return datetime.fromisoformat(_padded(text[: found.start()]) + zone).astimezone(UTC)


def _timestamp(text: str) -> datetime:
    return _no_zone(datetime.fromisoformat(_padded(text)))


def _no_zone(value: datetime) -> datetime:
    if value.tzinfo is not None:
        raise ValueError(value)
    return value


def _time(text: str) -> time:
    return time.fromisoformat(_padded(text))


def _padded(text: str) -> str:
    """Six digits after the point: PostgreSQL leaves out trailing zeros."""
    head, point, fraction = text.partition(".")
    return f"{head}.{fraction:0<6}" if point else text


READERS: dict[int, Reader] = {
    16: _boolean,
    17: _binary,
    20: int,
    21: int,
    23: int,
    26: int,
    114: Json,
    700: float,
    701: float,
    1082: date.fromisoformat,
    1083: _time,
    1114: _timestamp,
    1184: _timestamp_with_zone,
    1700: _decimal,
    2950: UUID,
    3802: Json,
}
"""By the type's OID, which is the same in every PostgreSQL for types that are built in. Every other type is text."""

_ELEMENTS = {
    1000: 16,
    1001: 17,
    1016: 20,
    1005: 21,
    1007: 23,
    1028: 26,
    199: 114,
    1021: 700,
    1022: 701,
    1182: 1082,
    1183: 1083,
    1115: 1114,
    1185: 1184,
    1231: 1700,
    2951: 2950,
    3807: 3802,
    1009: 25,
    1015: 1043,
    1014: 1042,
    1003: 19,
    1002: 18,
}
"""The type of an array's elements, by the array's OID."""


def read_value(type_oid: int, text: str) -> Any:
    """The value that a column of this type has, from its text.

    Args:
        type_oid: The column's type; for a domain, the type under it.
        text: The value, as the server writes it with ``datestyle = ISO`` and ``bytea_output = hex``.

    Raises:
        Unfit: The log has no such value of this type.

    Example:
        >>> read_value(1700, "9.90"), read_value(1007, "{1,NULL}")
        (Decimal('9.90'), [1, None])
    """
    element = _ELEMENTS.get(type_oid)
    try:
        if element is not None:
            read = READERS.get(element, str)
            return [None if item is None else read(item) for item in _array_items(text)]
        return READERS.get(type_oid, str)(text)
    except (ValueError, OverflowError):
        raise Unfit(f"{text[:60]!r} does not fit any value of the log") from None


_NAMES = {
    16: "boolean",
    17: "bytea",
    20: "bigint",
    21: "smallint",
    23: "integer",
    25: "text",
    700: "real",
    701: "double precision",
    1042: "char",
    1043: "varchar",
    1082: "date",
    1083: "time",
    1114: "timestamp",
    1184: "timestamptz",
    1700: "numeric",
    2950: "uuid",
    3802: "jsonb",
}


def type_text(type_oid: int, modifier: int | None) -> str:
    """A type for people, with its length, or its precision and scale.

    Example:
        >>> type_text(1043, 7), type_text(1700, 393222), type_text(600, -1)
        ('varchar(3)', 'numeric(6,2)', 'type 600')
    """
    name = _NAMES.get(type_oid, f"type {type_oid}")
    if modifier is None or modifier < 0:
        return name
    if type_oid == 1700:
        scale = (modifier - 4) & 0x7FF
        return f"{name}({(modifier - 4) >> 16},{scale - 2048 if scale > 1023 else scale})"
    return f"{name}({modifier - 4 if type_oid in (1042, 1043) else modifier})"


_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}\\]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _array_items(text: str) -> list[str | None]:
    """The elements of an array of one dimension; an array of arrays, or with bounds of its own, is refused."""
    if text == "{}":
        return []
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(text)
    items: list[str | None] = []
    at, last = 1, len(text) - 1
    while True:
        found = _ITEM.match(text, at, last)
        if found is None:
            raise ValueError(text)
        quoted, plain = found.groups()
        items.append(_ESCAPED.sub(r"\1", quoted) if plain is None else None if plain == "NULL" else plain)
        at = found.end()
        if at == last:
            return items
        if text[at] != ",":
            raise ValueError(text)
        at += 1
