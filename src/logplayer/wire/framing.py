"""Frames on a byte stream: four bytes with the length, big-endian, then the message. Pure; tcp:// uses it."""

from __future__ import annotations

from logplayer.errors import Malformed
from logplayer.wire.codec import MESSAGE_BYTES_MAX

_HEAD = 4


def frame(message: bytes) -> bytes:
    """``message`` as it stands on the stream."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise Malformed(f"a message of {len(message)} bytes is over the limit of {MESSAGE_BYTES_MAX}")
    return len(message).to_bytes(_HEAD, "big") + message


class Deframer:
    """Cuts a stream into messages. Each byte is copied at most twice, however the stream was chopped.

    ``limit`` may be changed between calls; a frame over it is refused before its bytes are kept.
    """

    __slots__ = ("_have", "_parts", "_want", "limit")

    def __init__(self, limit: int = MESSAGE_BYTES_MAX) -> None:
        self.limit = limit
        self._parts: list[bytes] = []  # Pieces of the unfinished frame, its head included.
        self._have = 0  # Bytes in the pieces.
        self._want = _HEAD  # Bytes that the unfinished frame needs, as far as is known.

    @property
    def idle(self) -> bool:
        """Whether the stream may end here: no frame is unfinished."""
        return self._have == 0

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that ``data`` completes, in order."""
        if self._have:
            if self._have + len(data) < self._want:
                self._keep(data)
                return []
            data = b"".join((*self._parts, data))
            self._parts.clear()
            self._have = 0
        elif len(data) == _HEAD + int.from_bytes(data[:_HEAD], "big") <= self.limit:
            return [data[_HEAD:]]  # One whole frame, as when there is little to do.
        messages = []
        position, end = 0, len(data)
        while end - position >= _HEAD:
            length = int.from_bytes(data[position : position + _HEAD], "big")
            if length > self.limit:
                raise Malformed(f"a frame of {length} bytes is over the limit of {self.limit}")
            stop = position + _HEAD + length
            if stop > end:
                self._want = _HEAD + length
                break
            messages.append(data[position + _HEAD : stop])
            position = stop
        else:
            self._want = _HEAD
        if position < end:
            self._keep(data[position:])
        return messages

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self._have += len(data)
