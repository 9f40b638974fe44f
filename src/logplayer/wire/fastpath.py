"""The bytes of the hot path: what is delivered passes through here, once at the player and once at its target.

This file is plain Python and runs as such. Where it can be, it is also compiled, by mypyc, which takes it as it is and
changes nothing but its speed; see docs/decisions/compiled-hot-path.md. So it stays small, and imports little.

What is read here has the form in which protobuf's own libraries write it: known fields, each once, in the order of
their numbers. A reader returns None for anything else, and the generated code decides what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

from logplayer.core.entry import Message, Mutation, Row
from logplayer.core.fence import Batch
from logplayer.core.routing import HashOwner

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


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at ``at`` and the position after it; -1 for the position if none ends before ``end``.

    Nor is there one if it has more than 63 bits: no length and no index of ours has.
    """
    value = 0
    shift = 0
    while at < end and shift < 63:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return value | byte << shift, at
        value |= (byte & 0x7F) << shift
        shift += 7
    return 0, -1


def read_length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The same for a length, which has five bytes at most: protobuf takes no more."""
    return read_varint(data, at, end if end < at + 5 else at + 5)


# --- Transactions. ----------------------------------------------------------------------------------------

_DELETE: Final = 1
_DDL: Final = 3  # The last operation that is known.
_DELETED: Final = -1  # In place of a value's end.
_ROW: Final = -2  # The same: what the mutation has is no value.


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

_double: Final = Struct("<d")


class RowForm(NamedTuple):
    """What rows have in common that one statement can write."""

    op: int
    table: str
    names: tuple[str, ...]
    keys: tuple[bool, ...]  # Which of them are the primary key.


_FORMS_MAX: Final = 10_000  # Of a schema there are few; of a peer that makes them up, as many as it likes.
FormedRow = tuple[RowForm, bytes, tuple[object, ...]]  # The form, the key, the values.
OtherValue = Callable[[int, bytes], object]  # (tag of Value, what follows it) -> the value.


class RowReader:
    """Reads rows. Equal forms are one object, and a row that has the form of the one before costs no names.

    ``other`` makes the values whose types need more than this file imports.
    """

    def __init__(self, other: OtherValue) -> None:
        self._other = other
        self._forms: dict[object, RowForm] = {}
        self._form = RowForm(0, "", (), ())
        self._heads: list[bytes] = []  # Of the form: the table, and each column's name and "k" or nothing.

    def read(self, payload: bytes) -> list[FormedRow] | None:
        """The rows of an encoded ``Transaction``; None for anything but rows and headers."""
        rows: list[FormedRow] = []
        start, end = 0, len(payload)
        while start < end:
            key, key_end, _, value_end, target, target_end, stop = _cut(payload, start, end)
            if stop < 0 and _are_headers(payload, start, end):
                break
            if stop < 0 or value_end != _ROW or (target < target_end and not _is_text(payload[target:target_end])):
                return None
            at, op = key_end, 0
            if payload[at] == 0x18:  # Mutation.op; a row has no value.
                op = payload[at + 1]
                at += 2
            if target < target_end:
                at = target_end
            if op > 2 or at >= stop or payload[at] != 0x2A:  # Mutation.table
                return None
            values: list[object] = []
            if op != self._form.op or not self._fits(payload, at, stop, values):
                self._learn(payload, op, at, stop)
                values = []
                self._fits(payload, at, stop, values)
            rows.append((self._form, payload[key:key_end], tuple(values)))
            start = stop
        return rows

    def form(self, op: int, table: str, names: tuple[str, ...], keys: tuple[bool, ...]) -> RowForm:
        """The form of a row that was read otherwise."""
        form = RowForm(op, table, names, keys)
        return self._forms.setdefault(form, form)

    def _learn(self, payload: bytes, op: int, at: int, stop: int) -> None:
        """Take the form of the row whose table is at ``at``. _cut has checked its bytes."""
        if len(self._forms) > _FORMS_MAX:
            self._forms.clear()
        length, first = read_length(payload, at + 1, stop)
        at = first + length
        heads = [payload[first:at]]
        while at < stop:
            length, at = read_length(payload, at + 1, stop)
            end = at + length
            name = b""
            if at < end and payload[at] == 0x0A:  # Column.name
                length, first = read_length(payload, at + 1, end)
                name = payload[first : first + length]
            heads.append(name)
            heads.append(b"k" if _has_key(payload, at, end) else b"")
            at = end
        names = tuple([head.decode() for head in heads[1::2]])
        self._form = self.form(op, heads[0].decode(), names, tuple([head == b"k" for head in heads[2::2]]))
        self._heads = heads

    def _fits(self, payload: bytes, at: int, stop: int, values: list[object]) -> bool:
        """Whether the row has the form of the one before; its values."""
        heads = self._heads
        count = len(heads)
        length, first = read_length(payload, at + 1, stop)
        at = first + length
        if count == 0 or not _is_same(payload, first, at, heads[0]):
            return False
        nth = 1
        while at < stop:
            length, at = read_length(payload, at + 1, stop)
            end = at + length
            first = at
            if at < end and payload[at] == 0x0A:  # Column.name
                length, first = read_length(payload, at + 1, end)
                at = first + length
            if nth >= count or not _is_same(payload, first, at, heads[nth]):
                return False
            value: object = None
            if at < end and payload[at] == 0x12:  # Column.value
                length, first = read_length(payload, at + 1, end)
                at = first + length
                if first < at:
                    value = _value(payload, first, at, self._other)
            if (at < end and payload[end - 1] == 1) != (len(heads[nth + 1]) > 0):  # Column.key
                return False
            values.append(value)
            nth += 2
            at = end
        return nth == count


def _has_key(payload: bytes, at: int, end: int) -> bool:
    """Whether the column in ``[at, end)`` is part of the key."""
    if at < end and payload[at] == 0x0A:  # Column.name
        length, at = read_length(payload, at + 1, end)
        at += length
    if at < end and payload[at] == 0x12:  # Column.value
        length, at = read_length(payload, at + 1, end)
        at += length
    return at < end and payload[end - 1] == 1


def _is_same(payload: bytes, at: int, end: int, head: bytes) -> bool:
    """Whether ``payload[at:end] == head``, without a copy."""
    if end - at != len(head):
        return False
    for nth in range(end - at):  # noqa: SIM110 - compiled, a generator would cost more than all the rest.
        if payload[at + nth] != head[nth]:
            return False
    return True


def _value(payload: bytes, at: int, end: int, other: OtherValue) -> object:
    tag = payload[at]
    if tag == 0x10:  # Value.integer
        number, _ = read_varint(payload, at + 1, end)
        return -(number >> 1) - 1 if number & 1 else number >> 1
    if tag == 0x08:  # Value.boolean
        return payload[end - 1] != 0
    if tag == 0x19:  # Value.real
        return _double.unpack_from(payload, at + 1)[0]
    if tag == 0x2A:  # Value.text
        _, first = read_length(payload, at + 1, end)
        return payload[first:end].decode()
    if tag == 0x32:  # Value.binary
        _, first = read_length(payload, at + 1, end)
        return payload[first:end]
    return other(tag, payload[at + 1 : end])


# --- Batches: the head and the deliveries one after the other, which is what protobuf makes of a repeated field. ---


def encode_batch(
    prev: int, to: int, messages: Sequence[Message] = (), prev_chain: bytes = b"", to_chain: bytes = b""
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
    messages: list[Message] = []
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
        messages.append(_new_tuple(Message, (index, data[start : start + length], quarantine, chain)))
    batch: Batch = _new_tuple(Batch, (prev, to, tuple(messages), prev_chain, to_chain))
    return batch
