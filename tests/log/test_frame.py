"""The bytes of a record: ours are protobuf's, and every flipped bit is seen."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.errors import CorruptEntry, LogError
from logplayer.log.crc import crc32
from logplayer.log.frame import decode, decode_frames, decode_reply, encode, encode_frame, last_index
from logplayer.log.protocol import Kind, NewEntry
from logplayer.wire.entries import varint
from logplayer.wire.logplayer.v1 import log_pb2 as pb

numbers = st.integers(1, 2**63 - 1)
values = st.binary(min_size=8, max_size=8)
entries = st.builds(NewEntry, st.text(min_size=1, max_size=20), numbers, st.binary(max_size=300), st.sampled_from(Kind))


@given(numbers, entries, numbers, values)
def test_a_record_is_what_protobuf_would_write(index: int, entry: NewEntry, when: int, chain: bytes) -> None:
    body = b"".join(encode(index, entry, when, chain))
    message = pb.Record.FromString(body)
    assert message.crc == zlib.crc32(body[:-5])
    assert message.SerializeToString(deterministic=True) == body
    record = decode(body, index)
    assert (record.index, record.kind, record.producer) == (index, entry.kind, entry.producer)
    assert (record.sequence, record.payload, record.committed_at_us) == (entry.sequence, entry.payload, when)
    assert record.chain == message.chain == chain


@given(st.binary(max_size=100), st.integers(0, 20_000), st.integers(0, 2**32 - 1))
def test_the_checksum_is_that_of_zlib(data: bytes, size: int, start: int) -> None:
    long = data + bytes(range(256)) * (size // 256)
    assert crc32(long, start) == zlib.crc32(long, start)
    assert crc32(memoryview(long)[3:]) == zlib.crc32(long[3:])


@given(entries, values, st.data())
def test_every_flipped_bit_is_seen(entry: NewEntry, chain: bytes, data: st.DataObject) -> None:
    body = bytearray(b"".join(encode(7, entry, 1, chain)))
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    body[bit // 8] ^= 1 << bit % 8
    # The tag in front of the checksum is not covered by it; a damaged one hides the field from protobuf, no more.
    if bit // 8 != len(body) - 5:
        with pytest.raises(CorruptEntry):
            decode(bytes(body), 7)


@given(st.lists(entries, min_size=1, max_size=8), st.integers(1, 1000), st.data())
def test_frames_are_a_read_reply(group: list[NewEntry], first: int, data: st.DataObject) -> None:
    frames = b"".join(b"".join(encode_frame(first + i, entry, 5, b"chained!")) for i, entry in enumerate(group))
    assert [m.index for m in pb.ReadReply.FromString(frames).records] == list(range(first, first + len(group)))
    assert [r.payload for r in decode_reply(frames, first - 1)] == [entry.payload for entry in group]
    assert last_index(frames) == first + len(group) - 1
    low = data.draw(st.integers(first, first + len(group) - 1))
    assert [r.index for r in decode_frames(frames, first, low, 2**63)] == list(range(low, first + len(group)))


@given(st.integers(0, 2**64 - 1))
def test_varints(value: int) -> None:
    message = pb.TrimRequest(up_to=value).SerializeToString()
    assert message == (b"\x08" + varint(value) if value else b"")


def framed(body: bytes) -> bytes:
    """A frame whose checksum is right, whatever the body is."""
    return b"\x0a" + varint(len(body) + 5) + body + b"\x45" + zlib.crc32(body).to_bytes(4, "little")


def test_a_right_checksum_over_a_wrong_body_is_a_damaged_entry() -> None:
    """Such bytes come from a broken server, and a player must be able to name what it met."""
    no_message = bytes.fromhex("0a0f32070a016110808001de3d92680e0b")
    with pytest.raises(CorruptEntry, match="entry 5 is damaged") as caught:
        list(decode_reply(no_message, 4))
    assert caught.value.index == 5
    unknown_kind = framed(pb.Record(index=5, kind=2, producer="p", sequence=1).SerializeToString())  # type: ignore[arg-type]
    with pytest.raises(CorruptEntry, match="its kind is 2"):
        list(decode_reply(unknown_kind, 4))
    with pytest.raises(CorruptEntry, match="its kind is 2"):
        list(decode_frames(unknown_kind, 5, 5, 5))


bodies = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda index, kind, rest: pb.Record(index=index, kind=kind).SerializeToString() + rest,
        st.integers(0, 2**64 - 1),
        st.integers(-3, 5),
        st.binary(max_size=20),
    ),
)


@given(st.lists(st.one_of(st.binary(max_size=30), bodies.map(framed)), max_size=4), st.integers(0, 2**63 - 2))
def test_nothing_but_the_logs_own_errors_comes_out_of_a_reply(parts: list[bytes], after: int) -> None:
    data = b"".join(parts)
    try:
        indexes = [record.index for record in decode_reply(data, after)]
    except LogError:
        return
    assert indexes == sorted(set(indexes))
    assert all(index > after for index in indexes)
    assert indexes == [] or last_index(data) == indexes[-1] < 2**63
