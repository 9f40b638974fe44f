"""A target in memory, for tests and benchmarks. NOT durable: what it acks is gone when the process ends."""

from __future__ import annotations

from collections.abc import Iterator

from logplayer.core.fence import Position
from logplayer.target.protocol import Change, Store


class MemoryTarget(Store):
    """Rows in memory, for tests of your own. Atomic, because nothing here can fail after the check.

    Args:
        inline: Apply on the event loop instead of in a thread: quicker, for a store that never blocks.

    Example:
        >>> lp.TargetServer({"a": lp.MemoryTarget()})  # doctest: +SKIP
    """

    def __init__(self, inline: bool = False) -> None:
        self.inline = inline  # It never waits, so it can do without a thread: see logplayer.target.host.
        self._position = Position()
        self._data: dict[bytes, bytes] = {}
        self._quarantine: dict[int, bytes] = {}

    def position(self) -> Position:
        return self._position

    def apply(self, change: Change) -> Position:
        after = change.check(self._position)
        for _, key, value in change.rows:
            if value is None:
                self._data.pop(key, None)
            else:
                self._data[key] = value
        for message in change.quarantined:
            self._quarantine[message.index] = message.payload
        self._position = after
        return after

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        yield from list(self._data.items())

    def quarantine(self) -> Iterator[tuple[int, bytes]]:
        yield from list(self._quarantine.items())

    def close(self) -> None:
        pass  # There is nothing to give back.
