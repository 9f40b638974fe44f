"""The bytes of the hot path: what is delivered passes through here, once at the player and once at its target.

This file is plain Python and runs as such. Where it can be, it is also compiled, by mypyc, which takes it as it is and
changes nothing but its speed; see docs/decisions/compiled-hot-path.md. So it stays small, and imports little.

What is read here has the form in which protobuf's own libraries write it: known fields, each once, in the order of
their numbers. A reader returns None for anything else, and the generated code decides what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from logplayer.core.entry import Delivery, Mutation, Row
from logplayer.core.fence import Batch
from logplayer.core.routing import HashOwner

if TYPE_CHECKING:
    from mypy_extensions import i64  # To mypyc a number of the machine; an int where this file runs as it is.

_new_tuple: Final[Any] = tuple.__new__  # A third of the time that the class itself takes.

# --- Numbers. ---------------------------------------------------------------------------------------------

# Two bytes hold 14 bits: a table makes the usual lengths and indexes cheap.
_SHORT: Final = tuple([bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(1 << 14)])
_MORE: Final = tuple([bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(1 << 14)])


def varint(value: int) -> bytes:
    """``value`` in protobuf's base-128 encoding."""
    if value < 0x4000:
        return _SHORT[value]
    if value < 0x1000_0000:
        return _MORE[value & 0x3FFF] + _SHORT[value >> 14]
    return _MORE[value & 0x3FFF] + varint(value >> 14)


def read_varint(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """The number at ``at`` and the position after it; -1 for the position if none ends before ``end``.

    Nor is there one if it has more than 63 bits: no length and no index of ours has.
    """
    value: i64 = 0
    shift: i64 = 0
    while at < end and shift < 63:
        byte: i64 = data[at]
        at += 1
        if byte < 0x80:
            return value | byte << shift, at
        value |= (byte & 0x7F) << shift
        shift += 7
    return 0, -1


def read_length(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """The same for a length, which has five bytes at most: protobuf takes no more."""
    return read_varint(data, at, end if end < at + 5 else at + 5)


# --- Transactions. ----------------------------------------------------------------------------------------

_DELETE: Final = 1
_PATCH: Final = 2
_OPS: Final = (b"\0", b"\1", b"\2")
_DDL: Final = 3  # The last operation that is known.
_DELETED: Final = -1  # In place of a value's end.
_ROW: Final = -2  # The same: what the mutation has is not a value.


def _cut(payload: bytes, start: int, end: int) -> tuple[int, int, int, int, int, int, int]:
    """Where the mutation at ``start`` has its key, its value and its target: first and last bound of each.

    The last number is the end of the mutation, or -1 if its form is another. A deleted key has a value that ends at
    _DELETED; that of a row or a statement ends at _ROW.
    """
    length, at = read_length(payload, start + 1, end)
    stop = at + length
    if at < 0 or stop > end or payload[start] != 0x0A:  # Transaction.mutations: field 1, length-delimited.
        return _UNKNOWN
    key = key_end = value = value_end = target = target_end = at
    if at < stop and payload[at] == 0x0A:  # Mutation.key
        length, key = read_length(payload, at + 1, stop)
        at = key_end = key + length
        if key < 0 or at > stop:
            return _UNKNOWN
    if at < stop and payload[at] == 0x12:  # Mutation.value
        length, value = read_length(payload, at + 1, stop)
        at = value_end = value + length
        if value < 0 or at > stop:
            return _UNKNOWN
    if at == stop:  # As most are.
        return key, key_end, value, value_end, target, target_end, stop
    if payload[at] == 0x18:  # Mutation.op
        op, at = read_varint(payload, at + 1, stop)
        if at < 0 or op > _DDL:
            return _UNKNOWN
        if op:
            value_end = _DELETED if op == _DELETE else _ROW
    if at < stop and payload[at] == 0x22:  # Mutation.target
        length, target = read_length(payload, at + 1, stop)
        at = target_end = target + length
        if target < 0 or at > stop:
            return _UNKNOWN
    if at != stop:
        value_end = _ROW
        if not _is_row(payload, at, stop):
            return _UNKNOWN
    return key, key_end, value, value_end, target, target_end, stop


def _is_row(payload: bytes, at: int, end: int) -> bool:
    """Whether there is nothing but a table and its columns from ``at`` on: what routing passes through untouched."""
    if payload[at] == 0x2A:  # Mutation.table
        length, table = read_length(payload, at + 1, end)
        at = table + length
        if table < 0 or at > end or not _is_text(payload[table:at]):
            return False
    while at < end:
        if payload[at] != 0x32:  # Mutation.columns
            return False
        length, at = read_length(payload, at + 1, end)
        stop = at + length
        if at < 0 or stop > end:
            return False
        if at < stop and payload[at] == 0x0A:  # Column.name
            length, name = read_length(payload, at + 1, stop)
            at = name + length
            if name < 0 or at > stop or not _is_text(payload[name:at]):
                return False
        if at < stop and payload[at] == 0x12:  # Column.value
            length, value = read_length(payload, at + 1, stop)
            at = value + length
            if value < 0 or at > stop or not _is_value(payload, value, at):
                return False
        if at + 2 == stop and payload[at] == 0x18 and payload[at + 1] <= 1:  # Column.key
            at = stop
        if at != stop:
            return False
    return True


def _is_value(payload: bytes, at: int, end: int) -> bool:
    """Whether ``[at, end)`` is a Value of one kind or of none. Arrays are left to the generated code."""
    if at == end:
        return True
    tag = payload[at]
    if tag in (0x08, 0x10, 0x38, 0x40, 0x48, 0x50):  # Numbers and points in time.
        _, at = read_varint(payload, at + 1, end)
        return at == end
    if tag == 0x19:  # Value.real
        return at + 9 == end
    if tag in (0x22, 0x2A, 0x32, 0x5A, 0x62):  # Texts and bytes.
        length, body = read_length(payload, at + 1, end)
        if body < 0 or body + length != end:
            return False
        return tag in (0x32, 0x5A) or _is_text(payload[body:end])
    return False


_UNKNOWN: Final = (0, 0, 0, 0, 0, 0, -1)
_HEADERS: Final = 0x12  # Transaction.headers: field 2, length-delimited. They come after the mutations.


def _are_headers(payload: bytes, start: int, end: int) -> bool:
    """Whether there is nothing but headers from ``start`` on."""
    while start < end:
        length, at = read_length(payload, start + 1, end)
        stop = at + length
        if at < 0 or stop > end or payload[start] != _HEADERS:
            return False
        if at < stop and payload[at] == 0x0A:  # Header.name
            length, name = read_length(payload, at + 1, stop)
            at = name + length
            if name < 0 or at > stop or not _is_text(payload[name:at]):
                return False
        if at < stop and payload[at] == 0x12:  # Header.value
            length, value = read_length(payload, at + 1, stop)
            at = value + length
            if value < 0:
                return False
        if at != stop:
            return False
        start = stop
    return True


def read_mutations(payload: bytes) -> list[Mutation] | None:
    """The mutations of an encoded ``Transaction``, each with its slice of ``payload``; headers are left out."""
    mutations: list[Mutation] = []
    start, end = 0, len(payload)
    while start < end:
        key, key_end, _, _, target, target_end, stop = _cut(payload, start, end)
        if stop < 0:
            return mutations if _are_headers(payload, start, end) else None
        name = ""
        if target < target_end:
            try:
                name = payload[target:target_end].decode()
            except UnicodeDecodeError:
                return None
        mutations.append(_new_tuple(Mutation, (payload[key:key_end], payload[start:stop], name)))
        start = stop
    return mutations


def read_parts(payload: bytes, owner: Callable[[bytes], str]) -> tuple[dict[str, bytes], int] | None:
    """What each target gets of an encoded ``Transaction``, and how many of its mutations have no owner.

    A mutation is for the target that it names, else for the one that ``owner`` gives for its key. The targets stand in
    the order in which the transaction first has something for them. Each of them gets all headers.
    """
    parts: dict[str, bytes] = {}
    several: dict[str, list[bytes]] = {}
    hashed: tuple[str, ...] = owner.targets if type(owner) is HashOwner else ()
    by_tag: bool = owner.tag if type(owner) is HashOwner else False
    separator: bytes = owner.separator if type(owner) is HashOwner else b""
    by_part = by_tag or len(separator) > 0
    count = len(hashed)
    ownerless = 0
    headers = b""
    start, end = 0, len(payload)
    while start < end:
        key, key_end, _, _, target, target_end, stop = _cut(payload, start, end)
        if stop < 0:
            if not _are_headers(payload, start, end):
                return None
            headers = payload[start:end]
            break
        if target < target_end:
            try:
                name = payload[target:target_end].decode()
            except UnicodeDecodeError:
                return None
        elif count:
            if by_part:
                key, key_end = _hashed_part(payload, key, key_end, by_tag, separator)
            name = hashed[crc32(payload[key:key_end]) % count]
        else:
            name = owner(payload[key:key_end])
        piece = payload[start:stop]
        start = stop
        if not name:
            ownerless += 1
        elif name not in parts:
            parts[name] = piece
        elif name in several:
            several[name].append(piece)
        else:
            several[name] = [parts[name], piece]
    for name, pieces in several.items():
        parts[name] = b"".join(pieces)
    if headers:
        for name, part in parts.items():
            parts[name] = part + headers
    return parts, ownerless


def _hashed_part(payload: bytes, key: int, end: int, by_tag: bool, separator: bytes) -> tuple[int, int]:
    """Where the part of a key stands that is hashed: as ``HashOwner.part`` says."""
    if by_tag:
        start = payload.find(b"{", key, end) + 1
        stop = payload.find(b"}", start, end)
        return (start, stop) if 0 < start < stop else (key, end)
    stop = payload.find(separator, key, end)
    return (key, stop) if stop > key else (key, end)


def read_changes(payload: bytes) -> list[tuple[bytes, bytes | None]] | None:
    """The changes in an encoded ``Transaction``, in order: key and value; the value is None for a delete."""
    changes: list[tuple[bytes, bytes | None]] = []
    start, end = 0, len(payload)
    while start < end:
        key, key_end, value, value_end, target, target_end, stop = _cut(payload, start, end)
        if stop < 0 and _are_headers(payload, start, end):
            break
        if stop < 0 or value_end == _ROW or (target < target_end and not _is_text(payload[target:target_end])):
            return None
        changes.append((payload[key:key_end], None if value_end < 0 else payload[value:value_end]))
        start = stop
    return changes


def read_rows(entry: int, payload: bytes) -> list[Row] | None:
    """The same as rows of the entry."""
    rows: list[Row] = []
    start, end = 0, len(payload)
    while start < end:
        key, key_end, value, value_end, target, target_end, stop = _cut(payload, start, end)
        if stop < 0 and _are_headers(payload, start, end):
            break
        if stop < 0 or value_end == _ROW or (target < target_end and not _is_text(payload[target:target_end])):
            return None
        written = None if value_end < 0 else payload[value:value_end]
        rows.append(_new_tuple(Row, (entry, payload[key:key_end], written)))
        start = stop
    return rows


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- Rows, for stores of tables. ---------------------------------------------------------------------------

_unpack_double: Final[Any] = Struct("<d").unpack_from
_DAY_US: Final = 86_400_000_000
_EPOCH: Final[Any] = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final[Any] = datetime(1970, 1, 1)
_timedelta: Final[Any] = timedelta
_EPOCH_DAY: Final = 719_163  # date(1970, 1, 1).toordinal()
_TWO_DIGITS: Final = tuple([f"{n:02}" for n in range(60)])
_FORMS_MAX: Final = 10_000  # Of a schema there are few; of a peer that makes them up, as many as it likes.
_BAD: Final = object()  # In place of a value: its bytes have another form.

NOT_FINITE: Final = 1 << 16  # In the kinds of a run: a double is not a number, or infinite.
ANY_KIND: Final = (1 << 17) - 1

OtherValue = Callable[[int, bytes], object]  # (tag of Value, what follows it) -> the value.


class RowForm(NamedTuple):
    """What rows have in common that one statement can write."""

    op: int
    table: str
    names: tuple[str, ...]
    keys: tuple[bool, ...]  # Which of them are the primary key.

    @property
    def key_names(self) -> list[str]:
        """The columns of the primary key."""
        return [name for name, key in zip(self.names, self.keys, strict=True) if key]

    @property
    def other_names(self) -> list[str]:
        """The columns that are written beside the key."""
        return [name for name, key in zip(self.names, self.keys, strict=True) if not key]


class RowRun:
    """Rows of one form, in order: what one statement can write. Of DDL there are none, and ``sql`` is the statement."""

    def __init__(self, form: RowForm, key: bytes, sql: str = "") -> None:
        self.form = form
        self.key = key  # Of the first row, for messages.
        self.sql = sql
        self.rows: list[tuple[object, ...]] = []
        self.kinds: i64 = 0  # Of their values: bit n for field n of Value, and NOT_FINITE.
        self.ended: bool = False  # What follows belongs into another run.
        self.seen: set[bytes] = set()  # The keys of its rows, if each may be in it only once.


class _Layout:
    """A form as bytes: how the fields of such a row begin."""

    def __init__(self, form: RowForm, table: bytes, heads: list[bytes], flags: bytes) -> None:
        self.form = form
        self.op: i64 = form.op
        self.table = table  # The whole field.
        self.heads = heads  # Of each column: the field with its name.
        self.flags = flags  # Of each column: 1 if it is part of the key.
        # A changed primary key: the key of what comes after it may be the new one.
        self.moves = form.op == _PATCH and len(set(form.names)) < len(form.names)


class RowReader:
    """Reads rows into runs. A row that has the form of one before costs no names, only the comparison of their bytes.

    Args:
        other: Makes the values whose types need more than this file imports.
        distinct: A row is in a run only once: for databases whose statement may not change a row twice.
        zone: None makes a ``datetime`` of a timestamp. A text makes it text in ISO 8601, with this at the end if it has
            a zone.
    """

    def __init__(self, other: OtherValue, *, distinct: bool = True, zone: str | None = None) -> None:
        self._other = other
        self._distinct: bool = distinct
        self._texts: bool = zone is not None
        self._zone: str = zone or ""
        self._forms: dict[RowForm, RowForm] = {}
        self._layouts: dict[bytes, _Layout] = {}  # By the operation and the table.
        self._layout = _Layout(RowForm(-1, "", (), ()), b"", [], b"")  # The newest.
        self._kinds: i64 = 0  # Of the row that is read.
        self._day: i64 = 0
        self._day_text: str = "1970-01-01 "

    def form(self, op: int, table: str, names: tuple[str, ...], keys: tuple[bool, ...]) -> RowForm:
        """The form of such rows; equal forms are one object."""
        if len(self._forms) > _FORMS_MAX:
            self._forms.clear()
        form = RowForm(op, table, names, keys)
        return self._forms.setdefault(form, form)

    def read(self, payload: bytes, runs: list[RowRun]) -> bool:
        """Append the rows of an encoded ``Transaction`` to the last of the runs, and to new ones.

        False for anything but rows and headers in the usual form; then nothing is appended.
        """
        count = len(runs)
        rows = len(runs[-1].rows) if count else 0
        if self._read(payload, runs):
            return True
        del runs[count:]
        if count:
            del runs[-1].rows[rows:]
        return False

    def add(self, runs: list[RowRun], form: RowForm, key: bytes, values: tuple[object, ...], kinds: i64) -> None:
        """Append one row that was read otherwise."""
        self._add(runs, _Layout(form, b"", [], b""), key, values, kinds)

    def _add(self, runs: list[RowRun], layout: _Layout, key: bytes, values: tuple[object, ...], kinds: i64) -> None:
        run: RowRun | None = runs[-1] if len(runs) > 0 else None
        if run is None or run.form is not layout.form or run.ended or (self._distinct and key in run.seen):
            run = RowRun(layout.form, key)
            run.ended = layout.moves
            runs.append(run)
        if self._distinct:
            run.seen.add(key)
        run.rows.append(values)
        run.kinds = run.kinds | kinds

    def _read(self, payload: bytes, runs: list[RowRun]) -> bool:
        start: i64 = 0
        end: i64 = len(payload)
        while start < end:
            if payload[start] != 0x0A:  # Transaction.mutations
                return _are_headers(payload, start, end)
            length, at = read_length(payload, start + 1, end)
            stop: i64 = at + length
            if at < 0 or stop > end:
                return False
            key = b""
            if at < stop and payload[at] == 0x0A:  # Mutation.key
                length, first = read_length(payload, at + 1, stop)
                at = first + length
                if first < 0 or at > stop:
                    return False
                key = payload[first:at]
            op: i64 = 0
            if at + 1 < stop and payload[at] == 0x18:  # Mutation.op
                op = payload[at + 1]
                at += 2
            if at < stop and payload[at] == 0x22:  # Mutation.target
                length, first = read_length(payload, at + 1, stop)
                at = first + length
                if first < 0 or at > stop or not _is_text(payload[first:at]):
                    return False
            if op > _PATCH or at >= stop or payload[at] != 0x2A:  # Mutation.table
                return False
            values = self._values(payload, op, at, stop)
            if values is None:
                return False
            self._add(runs, self._layout, key, tuple(values), self._kinds)
            start = stop
        return True

    def _values(self, payload: bytes, op: i64, table: i64, stop: i64) -> list[object] | None:
        """The values of the row whose table is at ``table``, and its layout in ``_layout``; None for another form."""
        length, at = read_length(payload, table + 1, stop)
        at += length
        if at < length or at > stop:
            return None
        layout = self._layout
        if layout.op != op or not _begins(payload, table, at, layout.table) or table + len(layout.table) != at:
            known = self._layouts.get(_OPS[op] + payload[table:at])
            if known is None:
                return self._learned(payload, op, table, at, stop)
            self._layout = layout = known
        values = self._fitting(payload, at, stop, layout)
        return self._learned(payload, op, table, at, stop) if values is None else values

    def _learned(self, payload: bytes, op: i64, table: i64, at: i64, stop: i64) -> list[object] | None:
        """Learn the layout of a row whose columns begin at ``at``; its values, or None for another form."""
        field = payload[table:at]
        heads: list[bytes] = []
        flags: list[int] = []
        names: list[str] = []
        columns = at
        while at < stop:
            if payload[at] != 0x32:  # Mutation.columns
                return None
            length, first = read_length(payload, at + 1, stop)
            end: i64 = first + length
            if first < 0 or end > stop:
                return None
            at = first
            name = b""
            if at < end and payload[at] == 0x0A:  # Column.name
                length, begin = read_length(payload, at + 1, end)
                at = begin + length
                if begin < 0 or at > end:
                    return None
                name = payload[begin:at]
            heads.append(payload[first:at])
            if at < end and payload[at] == 0x12:  # Column.value
                length, begin = read_length(payload, at + 1, end)
                at = begin + length
                if begin < 0:
                    return None
            flags.append(1 if at < end and payload[end - 1] == 1 else 0)
            if not _is_text(name):
                return None
            names.append(name.decode())
            at = end
        _, begin = read_length(field, 1, len(field))
        if not _is_text(field[begin:]):
            return None
        form = self.form(op, field[begin:].decode(), tuple(names), tuple([flag == 1 for flag in flags]))
        if len(self._layouts) > _FORMS_MAX:
            self._layouts.clear()
        self._layout = self._layouts[_OPS[op] + field] = _Layout(form, field, heads, bytes(flags))
        return self._fitting(payload, columns, stop, self._layout)

    def _fitting(self, payload: bytes, at: i64, stop: i64, layout: _Layout) -> list[object] | None:
        """The values of a row whose columns begin at ``at``, if it has this layout; else None."""
        values: list[object] = []
        heads = layout.heads
        flags = layout.flags
        nth: i64 = 0
        count: i64 = len(heads)
        self._kinds = 0
        while at < stop:
            if nth == count or payload[at] != 0x32:  # Mutation.columns
                return None
            length, at = read_length(payload, at + 1, stop)
            end: i64 = at + length
            head = heads[nth]
            if at < 0 or end > stop or not _begins(payload, at, end, head):
                return None
            at += len(head)
            value: object = None
            if at < end and payload[at] == 0x12:  # Column.value
                length, first = read_length(payload, at + 1, end)
                at = first + length
                if first < 0 or at > end:
                    return None
                if first < at:
                    value = self._value(payload, first, at)
                    if value is _BAD:
                        return None
            flag: i64 = 0
            if at + 2 == end and payload[at] == 0x18:  # Column.key
                flag = payload[at + 1]
                at = end
            if at != end or flag != flags[nth]:
                return None
            values.append(value)
            nth += 1
        return values if nth == count else None

    def _value(self, payload: bytes, at: i64, end: i64) -> object:
        """The value in ``[at, end)``; _BAD if it is not of one kind in its usual form, or an array."""
        tag: i64 = payload[at]
        self._kinds = self._kinds | 1 << (tag >> 3 & 15)
        if tag == 0x19:  # Value.real
            return self._real(payload, at + 1) if at + 9 == end else _BAD
        number, after = read_varint(payload, at + 1, end)  # Or the length.
        if tag == 0x10:  # Value.integer
            if after != end:
                return _BAD
            return -(number >> 1) - 1 if number & 1 else number >> 1
        if tag == 0x2A or tag == 0x62 or tag == 0x22:  # Value.text, json, decimal
            if after < 0 or after + number != end or after > at + 6:
                return _BAD
            try:
                text = payload[after:end].decode()
            except UnicodeDecodeError:
                return _BAD
            return text if tag == 0x2A else self._other(tag, payload[at + 1 : end])
        if tag == 0x32 or tag == 0x5A:  # Value.binary, uuid
            if after < 0 or after + number != end or after > at + 6:
                return _BAD
            return payload[after:end] if tag == 0x32 else self._other(tag, payload[at + 1 : end])
        if after != end:
            return _BAD
        if tag == 0x08:  # Value.boolean
            return number != 0
        if tag == 0x38 or tag == 0x40:  # Value.timestamp_us, local_timestamp_us
            made = self._timestamp(-(number >> 1) - 1 if number & 1 else number >> 1, tag == 0x38)
            return self._other(tag, payload[at + 1 : end]) if made is None else made
        if tag == 0x48 or tag == 0x50:  # Value.date_days, time_us
            return self._other(tag, payload[at + 1 : end])
        return _BAD

    def _real(self, payload: bytes, at: i64) -> object:
        value: float = _unpack_double(payload, at)[0]
        if value - value != 0.0:
            self._kinds = self._kinds | NOT_FINITE
        return value

    def _timestamp(self, us: i64, zone: bool) -> object:
        """A point in time; None if Python has no such."""
        if not self._texts:
            try:
                return (_EPOCH if zone else _LOCAL_EPOCH) + _timedelta(0, 0, us)
            except OverflowError:
                return None
        day: i64 = us // _DAY_US
        rest: i64 = us - day * _DAY_US
        if day != self._day:
            try:
                self._day_text = date.fromordinal(day + _EPOCH_DAY).isoformat() + " "
            except (ValueError, OverflowError):
                return None
            self._day = day
        seconds: i64 = rest // 1_000_000
        us = rest - seconds * 1_000_000
        minutes: i64 = seconds // 60
        hours: i64 = minutes // 60
        seconds -= minutes * 60
        minutes -= hours * 60
        text = f"{self._day_text}{_TWO_DIGITS[hours]}:{_TWO_DIGITS[minutes]}:{_TWO_DIGITS[seconds]}"
        if us:
            text += f".{us:06}"
        return text + self._zone if zone else text


def _begins(payload: bytes, at: i64, end: i64, head: bytes) -> bool:
    """Whether ``payload[at:end]`` begins with ``head``, without a copy."""
    count: i64 = len(head)
    if count > end - at:
        return False
    nth: i64 = 0
    while nth < count:
        if payload[at + nth] != head[nth]:
            return False
        nth += 1
    return True


# --- Batches: the head and the deliveries one after the other, which is what protobuf makes of a repeated field. ---


def encode_batch(
    prev: int, to: int, messages: Sequence[Delivery] = (), prev_chain: bytes = b"", to_chain: bytes = b""
) -> bytes:
    """A ``ToTarget`` with the batch for ``(prev, to]``. Each payload is copied once, into the result."""
    prev_, to_ = varint(prev), varint(to)
    length = 2 + len(prev_) + len(to_)
    pieces = [b"\x12", b"", b"\x08", prev_, b"\x10", to_]
    if prev_chain:
        length += 2 + len(prev_chain)
        pieces += [b"\x1a", varint(len(prev_chain)), prev_chain]
    if to_chain:
        length += 2 + len(to_chain)
        pieces += [b"\x22", varint(len(to_chain)), to_chain]
    for number, payload, quarantine, chain in messages:
        index, size = varint(number), varint(len(payload))
        inner = 2 + len(index) + len(size) + len(payload)
        if quarantine:
            inner += 2
        if chain and number != to:
            inner += 2 + len(chain)
        outer = varint(inner)
        length += 1 + len(outer) + inner
        pieces += [b"\x2a", outer, b"\x08", index, b"\x12", size, payload]
        if quarantine:
            pieces.append(b"\x18\x01")
        if chain and number != to:
            pieces += [b"\x22", varint(len(chain)), chain]
    pieces[1] = varint(length)
    return b"".join(pieces)


def read_batch(data: bytes) -> Batch | None:
    """A batch as :func:`encode_batch` makes it; None for any other form or message."""
    end = len(data)
    if end == 0 or data[0] != 0x12:  # ToTarget.batch
        return None
    length, at = read_length(data, 1, end)
    if at < 0 or at + length != end or at == end or data[at] != 0x08:  # Batch.prev
        return None
    prev, at = read_varint(data, at + 1, end)
    if at < 0 or at == end or data[at] != 0x10:  # Batch.to
        return None
    to, at = read_varint(data, at + 1, end)
    if at < 0 or prev > to:
        return None
    prev_chain = to_chain = b""
    if at + 10 <= end and data[at] == 0x1A and data[at + 1] == 8:  # Batch.prev_chain
        prev_chain = data[at + 2 : at + 10]
        at += 10
    if at + 10 <= end and data[at] == 0x22 and data[at + 1] == 8:  # Batch.to_chain
        to_chain = data[at + 2 : at + 10]
        at += 10
    messages: list[Delivery] = []
    while at < end:
        if data[at] != 0x2A:  # Batch.deliveries
            return None
        length, at = read_length(data, at + 1, end)
        stop = at + length
        if at < 0 or at == stop or stop > end or data[at] != 0x08:  # Delivery.index
            return None
        index, at = read_varint(data, at + 1, stop)
        if at < 0 or at == stop or data[at] != 0x12 or index > to:  # Delivery.payload
            return None
        length, start = read_length(data, at + 1, stop)
        at = start + length
        if start < 0 or at > stop:
            return None
        quarantine = False
        if at + 2 <= stop and data[at] == 0x18 and data[at + 1] == 1:  # Delivery.quarantine
            quarantine = True
            at += 2
        chain = b""
        if at + 10 == stop and data[at] == 0x22 and data[at + 1] == 8:  # Delivery.chain
            chain = data[at + 2 : stop]
            at = stop
        if at != stop:
            return None
        messages.append(_new_tuple(Delivery, (index, data[start : start + length], quarantine, chain)))
    batch: Batch = _new_tuple(Batch, (prev, to, tuple(messages), prev_chain, to_chain))
    return batch
