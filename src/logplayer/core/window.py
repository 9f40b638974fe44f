"""The send window: what is written to a session's stream and not yet acked, bounded in batches and bytes.

Payloads are not kept: what is lost with a session is read from the log again.
"""

from __future__ import annotations

from collections import deque


class Window:
    """The unacked batches of one session, oldest first."""

    __slots__ = ("batches_max", "bytes", "bytes_max", "count", "flight")

    def __init__(self, batches_max: int, bytes_max: int) -> None:
        self.batches_max = batches_max
        self.bytes_max = bytes_max
        self.flight: deque[tuple[int, int, int]] = deque()  # (to, entries, bytes)
        self.count = 0
        self.bytes = 0

    def __repr__(self) -> str:
        return f"<Window {len(self.flight)} batches, {self.count} entries, {self.bytes} bytes>"

    def room(self) -> int:
        """How many bytes the next batch may have; 0 when the window is closed.

        An empty window takes one batch of any size, so that no entry is too large to pass.
        """
        if not self.flight:
            return self.bytes_max
        if len(self.flight) >= self.batches_max:
            return 0
        return self.bytes_max - self.bytes

    def add(self, to: int, count: int, bytes_: int) -> None:
        """A batch that ends at ``to`` was written."""
        self.flight.append((to, count, bytes_))
        self.count += count
        self.bytes += bytes_

    def ack(self, index: int) -> None:
        """Everything up to ``index`` is durable: one ack may cover several batches."""
        flight = self.flight
        while flight and flight[0][0] <= index:
            _, count, bytes_ = flight.popleft()
            self.count -= count
            self.bytes -= bytes_

    def clear(self) -> None:
        """The session is over; what was in flight will be read again if the target has not applied it."""
        self.flight.clear()
        self.count = 0
        self.bytes = 0
