"""Frames on a byte stream: the length of the message and the number of its stream, four bytes each and big-endian, then
the message. Pure; tcp:// uses it."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from logplayer.errors import Malformed
from logplayer.wire.codec import MESSAGE_BYTES_MAX

_HEAD = Struct(">II")
HEAD_BYTES = _HEAD.size
CONNECTION = 0  # The number of what concerns the connection and none of its streams.
_pack, _unpack = _HEAD.pack, _HEAD.unpack_from


def frame_head(stream: int, message: bytes) -> bytes:
    """The bytes before ``message`` on the wire."""
    length = len(message)
    if length > MESSAGE_BYTES_MAX:
        raise Malformed(f"a message of {length} bytes is over the limit of {MESSAGE_BYTES_MAX}")
    return _pack(length, stream)


def frame(stream: int, message: bytes) -> bytes:
    """``message`` as it is on the wire."""
    return frame_head(stream, message) + message


class Deframer:
    """Cuts what comes into messages. Each byte is copied at most twice, however the wire chopped it.

    ``limit`` may be changed between calls; a frame over it is refused before its bytes are kept.
    """

    __slots__ = ("_have", "_parts", "_want", "limit")

    def __init__(self, limit: int = MESSAGE_BYTES_MAX) -> None:
        self.limit = limit
        self._parts: list[bytes] = []  # Pieces of the unfinished frame, its head included.
        self._have = 0  # Bytes in the pieces.
        self._want = HEAD_BYTES  # Bytes that the unfinished frame needs, as far as is known.

    @property
    def idle(self) -> bool:
        """Whether the connection may end here: no frame is unfinished."""
        return self._have == 0

    @property
    def unfinished(self) -> bytes:
        """What came of the unfinished frame."""
        return b"".join(self._parts)

    @property
    def unfinished_bytes(self) -> int:
        """The bytes of a frame that has begun and not ended."""
        return self._have

    def drop(self) -> None:
        """Nothing more will be fed: give back what is kept."""
        self._parts.clear()
        self._have = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The messages that ``data`` completes, in order, each after the number of its stream.

        Take them all before the next call, or make none.
        """
        if self._have:
            if self._have + len(data) < self._want:
                self._keep(data)
                return
            data = b"".join((*self._parts, data))
            self._parts.clear()
            self._have = 0
        position, end = 0, len(data)
        while end - position >= HEAD_BYTES:
            length, stream = _unpack(data, position)
            if length > self.limit:
                raise Malformed(f"a frame of {length} bytes is over the limit of {self.limit}")
            position += HEAD_BYTES
            stop = position + length
            if stop > end:
                position -= HEAD_BYTES
                self._want = HEAD_BYTES + length
                break
            yield stream, data[position:stop]
            position = stop
        else:
            self._want = HEAD_BYTES
        if position < end:
            self._keep(data[position:])

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self._have += len(data)
