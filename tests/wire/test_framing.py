"""However the network chops a stream, the same messages come out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.errors import Malformed
from logplayer.wire import framing
from logplayer.wire.framing import Deframer, frame


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=50)), max_size=10), st.data())
def test_frames_survive_any_chopping(messages: list[tuple[int, bytes]], data: st.DataObject) -> None:
    wire = b"".join(frame(*message) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=12)))
    deframer = Deframer()
    out: list[tuple[int, bytes]] = []
    for first, last in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        out += deframer.feed(wire[first:last])
    assert out == messages
    assert deframer.idle


def test_a_byte_at_a_time() -> None:
    deframer = Deframer()
    wire = frame(1, b"abc") + frame(2, b"") + frame(1, b"d" * 300)
    out = [message for i in range(len(wire)) for message in deframer.feed(wire[i : i + 1])]
    assert out == [(1, b"abc"), (2, b""), (1, b"d" * 300)]


def test_an_unfinished_frame_is_not_idle() -> None:
    deframer = Deframer()
    assert list(deframer.feed(frame(1, b"abc")[:-1])) == []
    assert not deframer.idle


def test_a_large_frame_in_small_pieces_is_not_copied_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece that does not finish the frame is only kept: no join, whatever the frame's length."""
    deframer = Deframer()
    wire = frame(1, bytes(1_000_000))
    pieces = [wire[i : i + 1000] for i in range(0, len(wire), 1000)]
    for piece in pieces[:-1]:
        assert list(deframer.feed(piece)) == []
        assert deframer._parts[-1] is piece or len(deframer._parts) == 1
    assert list(deframer.feed(pieces[-1])) == [(1, bytes(1_000_000))]


def test_a_frame_over_the_limit_is_refused_by_its_head_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    deframer = Deframer(limit=10)
    with pytest.raises(Malformed, match="over the limit of 10"):
        list(deframer.feed((11).to_bytes(4, "big") + (1).to_bytes(4, "big")))
    monkeypatch.setattr(framing, "MESSAGE_BYTES_MAX", 10)
    with pytest.raises(Malformed, match="over the limit"):
        frame(1, bytes(11))
