"""The types of a row's values: Python's on one side, ``Value`` of entry.proto on the other, and their texts in keys."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from logplayer.errors import Malformed, UserError
from logplayer.wire.fastpath import read_length, read_varint
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_DAY_US = 86_400_000_000
_INT64 = range(-(1 << 63), 1 << 63)


class Json:
    """A value of type json, as text.

    Args:
        value: JSON as text, or an object that has a form in JSON.

    Raises:
        UserError: JSON has no form for the object.

    Example:
        >>> Json({"paid": True}).text
        '{"paid":true}'
    """

    __slots__ = ("text",)

    def __init__(self, value: Any) -> None:
        if isinstance(value, str):
            self.text = value
            return
        try:
            self.text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UserError(f"JSON has no form for {value!r:.60}: {error}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Json) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Json({self.text!r})"


def encode_value(into: pb.Value, value: Any) -> None:
    """Set the kind that fits the Python value; None sets none."""
    if value is None:
        return
    encode = _ENCODERS.get(type(value))
    if encode is None:
        encode = next((one for kind, one in _ENCODERS.items() if isinstance(value, kind)), None)
    if encode is None:
        known = "None, bool, int, float, Decimal, str, bytes, datetime, date, time, UUID, lp.Json or a list"
        raise UserError(f"a {type(value).__name__} has no type in a row; give {known}")
    try:
        encode(into, value)
    except UnicodeEncodeError as error:
        raise UserError(f"text that UTF-8 cannot write: {error}") from None


def _encode_integer(into: pb.Value, value: int) -> None:
    if value in _INT64:
        into.integer = value
    else:
        into.decimal = str(value)


def _encode_decimal(into: pb.Value, value: Decimal) -> None:
    if value.is_snan():
        raise UserError("a signalling NaN has no form in a database; give Decimal('NaN')")
    into.decimal = str(value)


def _encode_datetime(into: pb.Value, value: datetime) -> None:
    if value.tzinfo is None:
        into.local_timestamp_us = _microseconds(value)
    else:
        into.timestamp_us = _microseconds(value)


def _microseconds(value: datetime) -> int:
    return (value - (_LOCAL_EPOCH if value.tzinfo is None else _EPOCH)) // _MICROSECOND


def _encode_date(into: pb.Value, value: date) -> None:
    into.date_days = value.toordinal() - _EPOCH_DAY


def _encode_time(into: pb.Value, value: time) -> None:
    if value.tzinfo is not None:
        raise UserError("a time with a zone has no type in a row; give a time without, or a datetime")
    seconds = value.hour * 3600 + value.minute * 60 + value.second
    into.time_us = seconds * 1_000_000 + value.microsecond


def _one_nan(value: float) -> float:
    """What is not a number has one form, whatever the bits of it: text, JSON and databases know only one."""
    return float(value) if value == value else math.nan


def _encode_array(into: pb.Value, value: Sequence[Any]) -> None:
    into.array.SetInParent()
    for item in value:
        encode_value(into.array.items.add(), item)


def _setter(field: str, convert: Callable[[Any], Any]) -> Callable[[pb.Value, Any], None]:
    return lambda into, value: setattr(into, field, convert(value))


# A subclass comes before its base: bool is an int, a datetime is a date.
_ENCODERS: dict[type, Callable[[pb.Value, Any], None]] = {
    bool: _setter("boolean", bool),
    int: _encode_integer,
    float: _setter("real", _one_nan),
    str: _setter("text", str),
    Decimal: _encode_decimal,
    bytes: _setter("binary", bytes),
    bytearray: _setter("binary", bytes),
    memoryview: _setter("binary", bytes),
    datetime: _encode_datetime,
    date: _encode_date,
    time: _encode_time,
    UUID: _setter("uuid", lambda value: value.bytes),
    Json: _setter("json", lambda value: value.text),
    list: _encode_array,
    tuple: _encode_array,
}


def decode_value(value: pb.Value) -> Any:
    """The Python value; None for null. Raises Malformed for what Python cannot hold."""
    kind = value.WhichOneof("kind")
    if kind is None:
        return None
    return _DECODERS[kind](getattr(value, kind))


def decimal_of(text: str) -> Decimal:
    """A decimal from its text. Raises Malformed if it is none."""
    try:
        return Decimal(text)
    except ArithmeticError:
        raise Malformed(f"{text!r:.60} is not a decimal") from None


def timestamp_of(microseconds: int, *, zone: bool) -> datetime:
    """A point in time, or a local one. Raises Malformed outside of the years 1 to 9999."""
    try:
        return (_EPOCH if zone else _LOCAL_EPOCH) + timedelta(microseconds=microseconds)
    except OverflowError:
        raise Malformed(f"a timestamp of {microseconds} us is outside of the years 1 to 9999") from None


def date_of(days: int) -> date:
    """A date. Raises Malformed outside of the years 1 to 9999."""
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise Malformed(f"a date of {days} days is outside of the years 1 to 9999") from None


def time_of(microseconds: int) -> time:
    """A time of the day. Raises Malformed if the day has no such time."""
    if not 0 <= microseconds < _DAY_US:
        raise Malformed(f"no day has a time of {microseconds} us")
    seconds, fraction = divmod(microseconds, 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, fraction)


def uuid_of(data: bytes) -> UUID:
    """A UUID of its 16 bytes. Raises Malformed if there are more or fewer."""
    if len(data) != 16:
        raise Malformed(f"a UUID has 16 bytes, not {len(data)}")
    return UUID(bytes=data)


def _same(value: Any) -> Any:
    return value


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "boolean": _same,
    "integer": _same,
    "real": _same,
    "decimal": decimal_of,
    "text": _same,
    "binary": _same,
    "timestamp_us": lambda value: timestamp_of(value, zone=True),
    "local_timestamp_us": lambda value: timestamp_of(value, zone=False),
    "date_days": date_of,
    "time_us": time_of,
    "uuid": uuid_of,
    "json": Json,
    "array": lambda value: [decode_value(item) for item in value.items],
}


def decode_tagged(tag: int, data: bytes) -> Any:
    """A value of ``Value`` by the tag of its kind and what follows it, where the fast path leaves it to this."""
    if tag in (0x38, 0x40):  # timestamp_us, local_timestamp_us
        number, _ = read_varint(data, 0, len(data))
        return timestamp_of((number >> 1) ^ -(number & 1), zone=tag == 0x38)
    if tag == 0x22:  # decimal
        _, at = read_length(data, 0, len(data))
        return decimal_of(data[at:].decode())
    return decode_value(pb.Value.FromString(bytes((tag,)) + data))


# --- Keys. -----------------------------------------------------------------------------------------------


def key_text(value: Any) -> str:
    """One value of a primary key as text: equal values have equal texts."""
    if value is None:
        raise UserError("a primary key cannot be null; give a value")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, float):
        return repr(value + 0.0)  # There is one zero.
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        utc = timestamp_of(_microseconds(value), zone=value.tzinfo is not None)
        return utc.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise UserError(f"a {type(value).__name__} cannot be part of a primary key")


def escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F").replace("{", "%7B").replace("}", "%7D")


def decimal_text(value: Decimal) -> str:
    """A decimal without an exponent and without zeros at its end."""
    if not value.is_finite():
        return str(value)
    if not value:
        return "0"
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
