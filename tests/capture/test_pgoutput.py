"""The decoder of PostgreSQL's replication messages, on bytes that a PostgreSQL 15 has sent."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.capture.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    TypeName,
    Update,
    decode,
    lsn_text,
    parse_lsn,
)
from logplayer.errors import Malformed

# CREATE TABLE t (id int PRIMARY KEY, v text, n numeric, b bytea, a int[]), and what was done to it.
SENT = {
    b"B\x00\x00\x00\x00\x01R\x89\xe8\x00\x03\x03\x8c\x18\x00h0\x00\x00\x02\xd6": Begin(
        0x15289E8, 1795009963116592, 726
    ),
    b"R\x00\x00@\x00public\x00t\x00d\x00\x02\x01id\x00\x00\x00\x00\x17\xff\xff\xff\xff\x00v\x00\x00\x00\x00\x19"
    b"\xff\xff\xff\xff": Relation(
        16384, "public", "t", "d", (RelationColumn("id", 23, -1, True), RelationColumn("v", 25, -1, False))
    ),
    b"I\x00\x00@\x00N\x00\x05t\x00\x00\x00\x011t\x00\x00\x00\x01at\x00\x00\x00\x041.50t\x00\x00\x00\x06\\x00fft"
    b"\x00\x00\x00\x05{1,2}": Insert(16384, ("1", "a", "1.50", "\\x00ff", "{1,2}")),
    b"U\x00\x00@\x00K\x00\x05t\x00\x00\x00\x011nnnnN\x00\x05t\x00\x00\x00\x012t\x00\x00\x00\x01at\x00\x00\x00\x041.50"
    b"t\x00\x00\x00\x06\\x00fft\x00\x00\x00\x05{1,2}": Update(
        16384, ("1", None, None, None, None), ("2", "a", "1.50", "\\x00ff", "{1,2}")
    ),
    b"U\x00\x00@\x00N\x00\x02t\x00\x00\x00\x011u": Update(16384, None, ("1", UNCHANGED)),
    b"D\x00\x00@\x00K\x00\x05t\x00\x00\x00\x011nnnn": Delete(16384, ("1", None, None, None, None)),
    b"M\x01\x00\x00\x00\x00\x01R\x8bPlogplayer\x00\x00\x00\x00\x05hello": LogicalMessage(
        True, 0x1528B50, "logplayer", b"hello"
    ),
    b"T\x00\x00\x00\x01\x00\x00\x00@\x00": Truncate((16384,)),
    b"O\x00\x00\x00\x00\x01R\x89\xe8elsewhere\x00": Origin("elsewhere"),
    b"Y\x00\x00@\x07public\x00mood\x00": TypeName(16391, "public", "mood"),
    b"C\x00\x00\x00\x00\x00\x01R\x89\xe8\x00\x00\x00\x00\x01R\x8a\x18\x00\x03\x03\x8c\x18\x00h0": Commit(
        0x15289E8, 0x1528A18, 1795009963116592
    ),
}


@pytest.mark.parametrize("sent", SENT, ids=lambda sent: chr(sent[0]))
def test_a_message_is_read(sent: bytes) -> None:
    assert decode(sent) == SENT[sent]


@pytest.mark.parametrize("sent", SENT, ids=lambda sent: chr(sent[0]))
def test_a_message_that_is_cut_or_longer_is_refused(sent: bytes) -> None:
    for end in range(len(sent)):
        with pytest.raises(Malformed):
            decode(sent[:end])
    with pytest.raises(Malformed, match="followed by 1 bytes more"):
        decode(sent + b"\0")


@given(st.sampled_from(list(SENT)), st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_damage_is_refused_or_read_as_something(sent: bytes, at: int, damage: bytes) -> None:
    """Never another error than the one that the caller expects."""
    at %= len(sent)
    with contextlib.suppress(Malformed):
        decode(sent[:at] + damage + sent[at + len(damage) :])


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        decode(data)


def test_a_newer_protocol_is_refused_by_its_kind() -> None:
    with pytest.raises(Malformed, match="kind 'S'"):
        decode(b"S\x00\x00\x02\xd6\x01")  # Stream Start, of version 2.


@pytest.mark.parametrize("lsn", [0, 1, 0x1528A18, 0x16_B374D848, 2**64 - 1])
def test_positions_are_written_as_postgresql_does(lsn: int) -> None:
    assert parse_lsn(lsn_text(lsn)) == lsn
    assert lsn_text(0x16_B374D848) == "16/B374D848"


@pytest.mark.parametrize("text", ["", "/", "1", "0/G", "1/123456789", "x/1"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_lsn(text)
