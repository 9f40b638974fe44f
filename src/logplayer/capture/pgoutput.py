"""PostgreSQL's logical replication messages (``pgoutput``, protocol version 1) as values. Pure: bytes in, values out.

Each message is one :class:`Begin`, :class:`Commit`, :class:`Relation`, ... Column values stay text, as PostgreSQL
writes them; ``logplayer.capture.pg_values`` gives them types. Bytes that do not fit the protocol are refused with
``Malformed``, never guessed at: a row that was read wrongly would be wrong in every copy.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import NamedTuple

from logplayer.errors import Malformed

EPOCH_US = 946_684_800_000_000
"""PostgreSQL counts microseconds from 2000-01-01; this is that moment since 1970."""


class Absent(enum.Enum):
    """What a tuple may have in place of a value, beside null."""

    UNCHANGED = "u"  # A large value (TOAST) that the statement did not touch; PostgreSQL does not send it.


UNCHANGED = Absent.UNCHANGED
Cell = str | None | Absent
Cells = tuple[Cell, ...]


class Begin(NamedTuple):
    """A transaction begins; all of its messages follow without another's in between."""

    commit_lsn: int
    commit_time_us: int  # Since 1970.
    xid: int


class Commit(NamedTuple):
    """The transaction's end. Confirmed up to ``end_lsn``, after its commit record, it is not sent again."""

    commit_lsn: int
    end_lsn: int
    commit_time_us: int


class RelationColumn(NamedTuple):
    """One column of a table as the stream describes it."""

    name: str
    type_oid: int
    modifier: int
    identity: bool  # Part of the replica identity.


class Relation(NamedTuple):
    """A table's description, sent before its first row in a session and after each change of it."""

    oid: int
    schema: str
    name: str
    identity: str  # d: primary key, f: the whole row, i: an index, n: nothing.
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    """A new row."""

    relation: int
    new: Cells


class Update(NamedTuple):
    """A changed row. ``old`` has its old key if that changed, the whole old row by REPLICA IDENTITY FULL, else None."""

    relation: int
    old: Cells | None
    new: Cells


class Delete(NamedTuple):
    """A row is gone. ``old`` has its key, or the whole row by REPLICA IDENTITY FULL."""

    relation: int
    old: Cells


class Truncate(NamedTuple):
    """Tables were emptied."""

    relations: tuple[int, ...]


class LogicalMessage(NamedTuple):
    """What ``pg_logical_emit_message`` wrote."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


class Origin(NamedTuple):
    """The transaction came to the server by replication from elsewhere."""

    name: str


class TypeName(NamedTuple):
    """The name of a type that is not built in."""

    oid: int
    schema: str
    name: str


SourceMessage = Begin | Commit | Relation | Insert | Update | Delete | Truncate | LogicalMessage | Origin | TypeName

_U64, _U32, _I32, _U16 = struct.Struct(">Q"), struct.Struct(">I"), struct.Struct(">i"), struct.Struct(">H")
_BEGIN, _COMMIT = struct.Struct(">QQI"), struct.Struct(">BQQQ")


class _MessageReader:
    """Reads a message from its start to its end, and refuses what goes beyond it."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 1  # After the kind.

    def unpack(self, shape: struct.Struct) -> tuple[int, ...]:
        try:
            values: tuple[int, ...] = shape.unpack_from(self.data, self.at)
        except struct.error:
            raise self.wrong("ends too early") from None
        self.at += shape.size
        return values

    def one(self, shape: struct.Struct) -> int:
        return self.unpack(shape)[0]

    def byte(self) -> int:
        return self.raw(1)[0]

    def raw(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise self.wrong("ends too early")
        found = self.data[self.at : end]
        self.at = end
        return found

    def name(self) -> str:
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise self.wrong("has a name without an end")
        return self.text(end - self.at, 1)

    def text(self, count: int, skip: int = 0) -> str:
        raw = self.raw(count)
        self.at += skip
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.wrong("has text that is not UTF-8") from None

    def wrong(self, how: str) -> Malformed:
        return Malformed(f"a replication message of kind {chr(self.data[0])!r} {how} (at byte {self.at})")

    def cells(self) -> Cells:
        return tuple([self._cell() for _ in range(self.one(_U16))])

    def _cell(self) -> Cell:
        kind = self.byte()
        if kind == 0x74:  # t
            return self.text(self.one(_I32))
        if kind == 0x6E:  # n
            return None
        if kind == 0x75:  # u
            return UNCHANGED
        raise self.wrong(f"has a column of the unknown kind {chr(kind)!r}")

    def expect(self, kinds: bytes) -> int:
        kind = self.byte()
        if kind not in kinds:
            raise self.wrong(f"has a tuple of the unknown kind {chr(kind)!r}")
        return kind


def _begin(reader: _MessageReader) -> Begin:
    lsn, time, xid = reader.unpack(_BEGIN)
    return Begin(lsn, time + EPOCH_US, xid)


def _commit(reader: _MessageReader) -> Commit:
    _, lsn, end, time = reader.unpack(_COMMIT)
    return Commit(lsn, end, time + EPOCH_US)


def _relation(reader: _MessageReader) -> Relation:
    oid, schema, name, identity = reader.one(_U32), reader.name(), reader.name(), chr(reader.byte())
    columns = []
    for _ in range(reader.one(_U16)):
        flags, column = reader.byte(), reader.name()
        columns.append(RelationColumn(column, reader.one(_U32), reader.one(_I32), bool(flags & 1)))
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _insert(reader: _MessageReader) -> Insert:
    relation = reader.one(_U32)
    reader.expect(b"N")
    return Insert(relation, reader.cells())


def _update(reader: _MessageReader) -> Update:
    relation, kind, old = reader.one(_U32), reader.expect(b"KON"), None
    if kind != 0x4E:  # N
        old = reader.cells()
        reader.expect(b"N")
    return Update(relation, old, reader.cells())


def _delete(reader: _MessageReader) -> Delete:
    relation = reader.one(_U32)
    reader.expect(b"KO")
    return Delete(relation, reader.cells())


def _truncate(reader: _MessageReader) -> Truncate:
    count, _ = reader.one(_U32), reader.byte()
    if count * _U32.size > len(reader.data):
        raise reader.wrong("ends too early")
    return Truncate(tuple([reader.one(_U32) for _ in range(count)]))


def _logical_message(reader: _MessageReader) -> LogicalMessage:
    flags, lsn, prefix = reader.byte(), reader.one(_U64), reader.name()
    return LogicalMessage(bool(flags & 1), lsn, prefix, reader.raw(reader.one(_I32)))


def _origin(reader: _MessageReader) -> Origin:
    reader.one(_U64)
    return Origin(reader.name())


def _type_name(reader: _MessageReader) -> TypeName:
    return TypeName(reader.one(_U32), reader.name(), reader.name())


_KINDS: dict[int, Callable[[_MessageReader], SourceMessage]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("R"): _relation,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _logical_message,
    ord("O"): _origin,
    ord("Y"): _type_name,
}


def decode(data: bytes) -> SourceMessage:
    """One message of the stream.

    Args:
        data: The message as ``XLogData`` carries it.

    Raises:
        Malformed: The bytes are not a message of this protocol version, or do not end where it ends.

    Example:
        >>> decode(bytes.fromhex("420000000001528a18000303 8c18006830 000002d6".replace(" ", ""))).xid
        726
    """
    if not data:
        raise Malformed("a replication message is empty")
    read = _KINDS.get(data[0])
    if read is None:
        raise Malformed(f"a replication message has the kind {chr(data[0])!r}, which protocol version 1 does not have")
    reader = _MessageReader(data)
    message = read(reader)
    if reader.at != len(data):
        raise reader.wrong(f"is followed by {len(data) - reader.at} bytes more")
    return message


def lsn_text(lsn: int) -> str:
    """A position in PostgreSQL's write-ahead log, as PostgreSQL writes it.

    Example:
        >>> lsn_text(22186520)
        '0/1528A18'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """The inverse of :func:`lsn_text`.

    Raises:
        Malformed: The text is not such a position.

    Example:
        >>> parse_lsn("0/1528A18")
        22186520
    """
    high, found, low = text.partition("/")
    try:
        if found and len(high) <= 8 and len(low) <= 8:
            return int(high, 16) << 32 | int(low, 16)
    except ValueError:
        pass
    raise Malformed(f"{text!r:.40} is not a position in PostgreSQL's write-ahead log, such as 0/1528A18")
