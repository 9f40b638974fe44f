"""However the network chops a stream, the same messages come out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.errors import Malformed
from logplayer.wire import framing
from logplayer.wire.framing import Deframer, frame


@given(st.lists(st.binary(max_size=50), max_size=10), st.data())
def test_frames_survive_any_chopping(messages: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(frame, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    deframer = Deframer()
    out: list[bytes] = []
    for first, last in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        out += deframer.feed(stream[first:last])
    assert out == messages
    assert deframer.idle


def test_a_byte_at_a_time() -> None:
    deframer = Deframer()
    stream = frame(b"abc") + frame(b"") + frame(b"d" * 300)
    out = [message for i in range(len(stream)) for message in deframer.feed(stream[i : i + 1])]
    assert out == [b"abc", b"", b"d" * 300]


def test_an_unfinished_frame_is_not_idle() -> None:
    deframer = Deframer()
    assert deframer.feed(frame(b"abc")[:-1]) == []
    assert not deframer.idle


def test_a_large_frame_in_small_pieces_is_not_copied_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece that does not finish the frame is only kept: no join, whatever the frame's length."""
    deframer = Deframer()
    stream = frame(bytes(1_000_000))
    pieces = [stream[i : i + 1000] for i in range(0, len(stream), 1000)]
    for piece in pieces[:-1]:
        assert deframer.feed(piece) == []
        assert deframer._parts[-1] is piece or len(deframer._parts) == 1
    assert deframer.feed(pieces[-1]) == [bytes(1_000_000)]


def test_a_frame_over_the_limit_is_refused_by_its_head_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    deframer = Deframer(limit=10)
    with pytest.raises(Malformed, match="over the limit of 10"):
        deframer.feed((11).to_bytes(4, "big"))
    monkeypatch.setattr(framing, "MESSAGE_BYTES_MAX", 10)
    with pytest.raises(Malformed, match="over the limit"):
        frame(bytes(11))
