"""The bytes of a record, the same on the disk, on the wire and in memory.

A record is an encoded ``logplayer.v1.Record`` whose fields are in the order of their numbers, so ``crc`` is last::

    ┌───────────────┬────────────────────────────────────────────────────────────┬───────────────┐
    │ 0A  length    │ index kind producer sequence committed_at_us payload chain │ 45  crc (4)   │
    └───────────────┴────────────────────────────────────────────────────────────┴───────────────┘
      frame prefix    what the CRC-32 covers                                       little endian

Frames joined are a valid ``ReadReply``: a chunk read from the disk goes out on the wire as it is.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from logplayer.core.chain import VALUE_BYTES
from logplayer.errors import CorruptEntry
from logplayer.log.crc import crc32
from logplayer.log.protocol import Kind, NewEntry, Record
from logplayer.wire.entries import varint
from logplayer.wire.logplayer.v1 import log_pb2

FRAME_TAG = 0x0A
CRC_TAG = 0x45
CRC_BYTES = 5  # The tag and four bytes.
_TAIL = struct.Struct("<BI").pack
_CHAIN = bytes((0x3A, VALUE_BYTES))  # Record.chain: field 7, of 8 bytes
KINDS = (Kind.DATA, Kind.CONTROL)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The integer at ``at`` and the position after it; IndexError or ValueError when there is none."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a varint is longer than 64 bits")


@functools.lru_cache(4096)
def _who(kind: int, producer: str) -> bytes:
    """The fields between index and sequence, the same for all entries of a producer."""
    name = producer.encode()
    return (b"\x10" + varint(kind) if kind else b"") + b"\x1a" + varint(len(name)) + name + b"\x20"


@functools.lru_cache(64)
def _when(committed_at_us: int, size: int) -> bytes:
    """The fields between sequence and payload, the same for all entries of a length in a commit."""
    return b"\x28" + varint(committed_at_us) + (b"\x32" + varint(size) if size else b"")


def encode(index: int, entry: NewEntry, committed_at_us: int, chain: bytes) -> tuple[bytes, bytes, bytes]:
    """One record in parts, to be joined; the payload is not copied. ``chain`` is the value at this entry."""
    producer, sequence, payload, kind = entry
    who = _who(kind, producer)
    head = b"\x08" + varint(index) + who + varint(sequence) + _when(committed_at_us, len(payload))
    value = _CHAIN + chain
    return head, payload, value + _TAIL(CRC_TAG, crc32(value, crc32(payload, crc32(head))))


def encode_frame(index: int, entry: NewEntry, committed_at_us: int, chain: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """One record with its frame prefix, in parts."""
    head, payload, tail = encode(index, entry, committed_at_us, chain)
    return b"\x0a" + varint(len(head) + len(payload) + len(tail)), head, payload, tail


def decode(body: bytes | memoryview, index: int) -> Record:
    """Check and decode the record that should have ``index``."""
    if len(body) < CRC_BYTES or crc32(memoryview(body)[:-CRC_BYTES]) != int.from_bytes(body[-4:], "little"):
        raise corrupt(index, "its checksum does not match")
    return _parse(bytes(body), index)


def _parse(body: bytes, index: int) -> Record:
    """Fields of a record whose checksum was found right."""
    record = _record(body, index)
    if record.index != index:
        raise corrupt(index, f"entry {record.index} is in its place")
    return record


def _record(body: bytes, index: int) -> Record:
    """A right checksum says that the bytes are those that were sent, not that the sender wrote a record of ours."""
    try:
        m = log_pb2.Record.FromString(body)
    except DecodeError as error:
        raise corrupt(index, f"its checksum matches but it is not a record ({error})") from None
    if m.index >= 2**63:
        raise corrupt(index, f"its index {m.index} is larger than any")
    if not 0 <= m.kind < len(KINDS):
        raise corrupt(index, f"its kind is {m.kind}, which this version does not know")
    if len(m.chain) != VALUE_BYTES:
        raise corrupt(index, f"its chain value has {len(m.chain)} bytes")
    return Record(m.index, KINDS[m.kind], m.producer, m.sequence, m.committed_at_us, m.payload, m.chain, m.crc)


def corrupt(index: int, why: str) -> CorruptEntry:
    """The error that names a damaged entry."""
    return CorruptEntry(
        f"entry {index} is damaged: {why}. It is not served; restore it from a replica, a backup or the producer", index
    )


def spans(data: bytes | memoryview, first: int, low: int = 0, high: int = 2**63) -> Iterator[tuple[int, int, int, int]]:
    """(index, frame start, record start, end) of each record of ``[low, high]`` in gapless frames from ``first`` on.

    Raises ``CorruptEntry`` for the first record of the range whose frame or checksum is wrong.
    """
    view = memoryview(data)
    at, index, stop = 0, first, len(view)
    while at < stop and index <= high:
        try:
            if view[at] != FRAME_TAG:
                raise ValueError("no frame starts here")
            length, start = read_varint(view, at + 1)
            end = start + length
            if length < CRC_BYTES or end > stop:
                raise ValueError("its frame is cut short")
            crc = int.from_bytes(view[end - 4 : end], "little")
        except (IndexError, ValueError) as error:
            raise corrupt(max(index, low), str(error)) from None
        if index >= low:
            if crc32(view[start : end - CRC_BYTES]) != crc:
                raise corrupt(index, "its checksum does not match")
            yield index, at, start, end
        at, index = end, index + 1


def decode_frames(data: bytes | memoryview, first: int, low: int, high: int) -> Iterator[Record]:
    """Records of ``[low, high]`` among gapless frames that start at ``first``."""
    view = memoryview(data)
    for index, _, start, end in spans(view, first, low, high):
        yield _parse(bytes(view[start:end]), index)


def decode_reply(data: bytes, after: int) -> Iterator[Record]:
    """Records of a ``ReadReply`` as another process sent it; indexes rise above ``after`` and may have gaps.

    A damaged record is named by the index it must have if the log has no gaps, the best that can be known.
    """
    view = memoryview(data)
    for _, _, start, end in spans(view, after + 1):
        record = _record(bytes(view[start:end]), after + 1)
        if record.index <= after:
            raise corrupt(after + 1, f"entry {record.index} is in its place")
        after = record.index
        yield record


def last_index(data: bytes) -> int:
    """The index of the last record of joined frames; only lengths are read on the way."""
    at, start = 0, 0
    try:
        while at < len(data):
            length, start = read_varint(data, at + 1)
            at = start + length
        index, _ = read_varint(data, start + 1)
    except (IndexError, ValueError):
        return 0  # Damaged: whoever decodes it says so.
    return index
