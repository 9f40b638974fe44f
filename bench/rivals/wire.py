"""How a rival that has no transport of its own reaches the targets: framed TCP, one connection for each of them.

It is the bare stream of ``bench.bare`` from a program that blocks. The receiving process is the one that our
own bare streams use, so the targets' work is the same.
"""

from __future__ import annotations

import socket

from bench.actor import ActorFailed
from bench.bare import HEAD
from logplayer.wire.framing import CONNECTION, Deframer, frame

ANSWER_SECONDS = 60.0


class Deliverer:
    """Sends parts of transactions and waits until every target has answered."""

    def __init__(self, port: int, targets: int) -> None:
        self._sockets = [socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) for _ in range(targets)]
        for sock in self._sockets:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def deliver(self, parts: list[tuple[int, int, bytes]]) -> None:
        """(transaction, target, payload), in order; each target gets all of its parts as one message."""
        messages: dict[int, list[bytes]] = {}
        for number, target, payload in parts:
            messages.setdefault(target, []).append(HEAD.pack(target, number, len(payload)) + payload)
        for target, pieces in messages.items():
            self._sockets[target].sendall(frame(CONNECTION, b"".join(pieces)))
        for target in messages:
            self._wait(self._sockets[target])

    @staticmethod
    def _wait(sock: socket.socket) -> None:
        deframer = Deframer()
        while True:
            data = sock.recv(4096)
            if not data:
                raise ActorFailed("the targets closed a connection")
            if list(deframer.feed(data)):
                return

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
