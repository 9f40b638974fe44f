"""What everybody together may make one target server hold: questions that wait, and frames that are not finished.

A bound for each stream or connection alone would be none, because anybody may open many of them. Whoever comes over a
bound gets that answer (``EXHAUSTED``) and the others are served on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

# Questions that wait for an index to be reached, of one connection and of all. A question over gRPC takes 20 KB.
CONNECTION_QUESTIONS_MAX = 1000
SERVER_QUESTIONS_MAX = 4000
# Bytes of frames that have begun and not ended, of all connections; two of the longest fit.
UNFINISHED_BYTES_MAX = 128 * 1024 * 1024
# Below this a connection's unfinished frame is not counted: the usual frame comes with one or two reads.
COUNTED_BYTES_MIN = 64 * 1024

Connection = TypeVar("Connection", bound=Hashable)


class Questions:
    """The questions that wait at a server, over all of its ports."""

    def __init__(self, server_max: int = SERVER_QUESTIONS_MAX, connection_max: int = CONNECTION_QUESTIONS_MAX) -> None:
        self.waiting = 0
        self._server_max = server_max
        self._connection_max = connection_max
        self._by_connection: Counter[Hashable] = Counter()

    def admit(self, connection: Hashable) -> str:
        """Let one more question of ``connection`` wait, until :meth:`leave`; or the reason why it may not."""
        if self._by_connection[connection] >= self._connection_max:
            return f"{self._connection_max} questions of this connection wait for an answer already; ask again later"
        if self.waiting >= self._server_max:
            return f"{self._server_max} questions wait for an answer here already; ask again later"
        self._by_connection[connection] += 1
        self.waiting += 1
        return ""

    def leave(self, connection: Hashable) -> None:
        """A question that was admitted is answered, or nobody waits for the answer any more."""
        self.waiting -= 1
        self._by_connection[connection] -= 1
        if not self._by_connection[connection]:
            del self._by_connection[connection]


class Unfinished(Generic[Connection]):
    """The bytes of unfinished frames at a server. Over the bound, the connection with the longest one has to go: peers
    that send what is usual never have the longest."""

    def __init__(self, bytes_max: int = UNFINISHED_BYTES_MAX) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._held: dict[Connection, int] = {}

    def note(self, connection: Connection, held: int) -> Connection | None:
        """``connection`` holds this many bytes now, 0 when it is gone. Returns the one that has to go, if any."""
        self.bytes += held - self._held.pop(connection, 0)
        if held:
            self._held[connection] = held
        if self.bytes <= self._bytes_max:
            return None
        return max(self._held, key=lambda other: self._held[other])
