"""What a column would change in silence: pure.

Databases refuse a text that is too long and a number that is too large, but they round, cut and pad without a word: a
third decimal in ``numeric(8, 2)``, microseconds in ``DATETIME``, half of a number in ``smallint``, blanks at the end of
a text that fits without them, the time of day in ``date``. A copy that differs is worse than one that stops. So the
types of the columns are read once, with the names, and each column that could change a value gets a :class:`Limit`.
Most columns have none and cost nothing; the others cost a look at the types of a run's values, and a call for each of
those that matter.

What a type means by itself does not count: ``char`` pads, and trailing blanks have no meaning in it; a point in time in
a column without a zone is in UTC.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from datetime import datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

_BOOLEAN, _INTEGER, _REAL, _DECIMAL, _TEXT, _BINARY, _TIMESTAMP, _LOCAL, _TIME = (
    1 << field for field in (1, 2, 3, 4, 5, 6, 7, 8, 10)
)  # As the kinds of a run have them.
_NUMBERS = _INTEGER | _REAL | _DECIMAL | _TEXT
_TIMES = _TIMESTAMP | _LOCAL | _TIME | _TEXT
_KINDS_OF: dict[type, int] = {
    type(None): 0,
    bool: 0,
    int: _INTEGER,
    float: _REAL,
    Decimal: _DECIMAL,
    str: _TEXT,
    bytes: _BINARY,
    datetime: _TIMESTAMP | _LOCAL,
    time: _TIME,
}
_DECLARED = re.compile(r"([a-z ]+?) *(?:\((\d+)(?:, *(-?\d+))?\))?((?: with(?:out)? time zone| unsigned| zerofill)*)")
_FRACTION = re.compile(r"\.(\d+)")
_FLOAT = struct.Struct("f")
_EXACT_DIGITS = 15  # Of a double in decimal; PostgreSQL casts no more of them to numeric, SQLite keeps no more.


class Limit(NamedTuple):
    """What a column keeps as it is."""

    kinds: int  # Of the values that must be looked at.
    keeps: Callable[[Any], bool]
    declared: str
    free: frozenset[type]  # Types of values that it always keeps.


def limit_of(declared: str, fraction: int) -> Limit | None:
    """What a column of PostgreSQL or MySQL keeps; None if it keeps, or refuses, whatever it gets.

    Args:
        declared: The column's type with its length, as the catalog writes it.
        fraction: How many digits of a second a type without a length has.

    Example:
        >>> limit = limit_of("numeric(8,2)", 6)
        >>> limit.keeps(Decimal("9.90")), limit.keeps(Decimal("9.905"))
        (True, False)
    """
    found = _DECLARED.fullmatch(declared.lower())
    if found is None:
        return None
    name, first, second, _ = found.groups()
    length = int(first) if first is not None else None
    made = _limit(name, length, int(second) if second is not None else None, fraction)
    if made is None:
        return None
    return Limit(*made, declared, frozenset(type_ for type_, kinds in _KINDS_OF.items() if not kinds & made[0]))


def limits_of(types: Mapping[str, str], fraction: int = 0) -> dict[str, Limit]:
    """The limits of columns by their names; without ``fraction`` as MySQL has it."""
    return {name: limit for name, declared in types.items() if (limit := limit_of(declared, fraction)) is not None}


Keeps = Callable[[Any], bool]


def _limit(name: str, length: int | None, scale: int | None, fraction: int) -> tuple[int, Keeps] | None:
    if name in ("numeric", "decimal"):
        if length is None:
            return _REAL, _is_short
        return _NUMBERS & ~_INTEGER if (scale or 0) >= 0 else _NUMBERS, lambda value: _has_scale(value, scale or 0)
    if name in ("smallint", "integer", "bigint", "int", "tinyint", "mediumint"):
        return _REAL | _DECIMAL | _TEXT, lambda value: _has_scale(value, 0)
    if name in ("real", "float", "double precision", "double"):
        if scale is not None:  # FLOAT(7, 4) of MySQL.
            return _NUMBERS & ~_INTEGER, lambda value: _has_scale(value, scale)
        return (_NUMBERS, _is_float) if name in ("real", "float") else (_NUMBERS & ~_REAL, _is_double)
    if name in ("character varying", "character", "varchar", "char") and length is not None:
        return _TEXT, lambda value: not isinstance(value, str) or len(value) <= length
    if name == "binary":
        return _BINARY, lambda value: not isinstance(value, bytes) or len(value) == (length or 1)
    if name == "boolean":
        return _INTEGER, lambda value: not isinstance(value, int) or value in (0, 1)
    if name == "date":
        return _TIMESTAMP | _LOCAL | _TEXT, _is_midnight
    if name in ("timestamp", "datetime", "time"):
        digits = fraction if length is None else length
        if name == "time":
            return _TIMES, lambda value: not _is_moment(value) and _has_fraction(value, digits)
        return (_TIMES, lambda value: _has_fraction(value, digits)) if digits < 6 else None
    return None


def affinity_limit(declared: str) -> Limit | None:
    """The same for a column of SQLite, whose type depends on the value: a long decimal becomes a double in it."""
    upper = declared.upper()
    if "INT" not in upper and (not upper or any(one in upper for one in ("CHAR", "CLOB", "TEXT", "BLOB"))):
        return None
    return Limit(_DECIMAL, _has_few_digits, f"{declared}; declare it TEXT for decimals", frozenset((int, float)))


# --- Numbers ----------------------------------------------------------------------------------------------


def _decimals(value: Decimal) -> int:
    """How many digits are after the point, without zeros at the end."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not value:
        return -(10**9)  # Zero; NaN and infinity are for the database to judge.
    at = len(digits)
    while digits[at - 1] == 0:
        at -= 1
    return at - len(digits) - exponent


def _number(value: Any) -> Decimal | None:
    """A value as a decimal; None for what is not a number: the database says what it thinks of that."""
    if isinstance(value, Decimal):
        return value
    try:
        return Decimal(repr(value) if isinstance(value, float) else value)
    except (InvalidOperation, TypeError, ValueError):
        return None


def _has_scale(value: Any, scale: int) -> bool:
    if isinstance(value, float) and not _is_short(value):
        return False
    number = _number(value)
    return number is None or _decimals(number) <= scale


def _is_short(value: Any) -> bool:
    return not isinstance(value, float) or value != value or float(f"{value:.{_EXACT_DIGITS}g}") == value


def _is_double(value: Any) -> bool:
    number = _number(value)
    if number is None or not number.is_finite() or isinstance(value, float):
        return True
    return Decimal(repr(float(number))) == number or Decimal(float(number)) == number


def _is_float(value: Any) -> bool:
    """Whether single precision has this value, or shows it: 0.33333334 is one third as ``real`` has it."""
    number = _number(value)
    if number is None or not number.is_finite():
        return True
    try:
        [single] = _FLOAT.unpack(_FLOAT.pack(float(number)))
    except OverflowError:
        return True  # The database refuses it.
    digits = len(number.normalize().as_tuple().digits)
    return Decimal(single) == number or (digits <= 9 and Decimal(f"{single:.{digits}g}") == number)


def _has_few_digits(value: Any) -> bool:
    if not isinstance(value, str):
        return True
    number = _number(value)
    if number is None or not number.is_finite():
        return True
    digits = len(number.normalize().as_tuple().digits)
    return digits <= _EXACT_DIGITS or (_decimals(number) <= 0 and -(2**63) <= number < 2**63)


# --- Times ------------------------------------------------------------------------------------------------


def _has_fraction(value: Any, digits: int) -> bool:
    if isinstance(value, datetime | time):
        return not value.microsecond % 10 ** (6 - digits) if digits < 6 else True
    if isinstance(value, str):
        found = _FRACTION.search(value)
        return found is None or len(found[1].rstrip("0")) <= digits
    return True


def _is_midnight(value: Any) -> bool:
    if isinstance(value, datetime):
        return not (value.hour or value.minute or value.second or value.microsecond)
    return not isinstance(value, str) or not any(digit in value[10:] for digit in "123456789")


def _is_moment(value: Any) -> bool:
    return isinstance(value, datetime) or (isinstance(value, str) and value[4:5] == "-")
