"""Arrow columns from Python values, without ``pa.array``: that imports pandas where it is installed, which takes a new
Python worker of Spark two seconds before its first row.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

TRUE = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\x01")])


def columns(values: Iterable[Sequence[Any]], schema: pa.Schema) -> list[pa.Array]:
    """A column for each field of the schema."""
    return [column(some, field.type) for some, field in zip(values, schema, strict=True)]


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values, of which some may be None, as 64-bit numbers, times given as such, bytes, text, or lists of these."""
    missing = None in values
    valid = _bitmap(values) if missing else None
    code = "q" if pa.types.is_int64(kind) or pa.types.is_timestamp(kind) else "d" if pa.types.is_float64(kind) else ""
    if code:
        numbers = array(code, [value or 0 for value in values] if missing else values)
        return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(numbers)])
    if pa.types.is_list(kind):
        lists = [value or () for value in values]
        starts = pa.py_buffer(array("i", accumulate(map(len, lists), initial=0)))
        items = column([item for some in lists for item in some], kind.value_type)
        return pa.Array.from_buffers(kind, len(values), [valid, starts], children=[items])
    if pa.types.is_string(kind):
        data = ["" if value is None else value for value in values] if missing else values
        encoded = [value.encode() for value in data]
    elif pa.types.is_binary(kind):
        encoded = [b"" if value is None else value for value in values] if missing else list(values)
    else:
        raise TypeError(f"no column of {kind} is made here")
    offsets = array("i", accumulate(map(len, encoded), initial=0))  # OverflowError at 2 GB; a piece is far below it.
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))])


def _bitmap(values: Sequence[Any]) -> pa.Buffer:
    """A bit for each value, the lowest first: whether it is there."""
    bits = bytearray((len(values) + 7) // 8)
    for nth, value in enumerate(values):
        if value is not None:
            bits[nth >> 3] |= 1 << (nth & 7)
    return pa.py_buffer(bits)
