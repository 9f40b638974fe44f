"""The turn: what gathers writes, and what decides when a stream may send again.

The idea
--------
One entry for twenty targets in one process is twenty small frames for one socket. A system call for each costs more
than all the rest of the delivery, and wakes the peer twenty times. So what is sent within one *turn* leaves with one
write for each connection. A turn is what the player does without giving the event loop back: a step of the core with
its effects, or everything that one read from a socket leads to. Nobody knows better when nothing more comes, so no
timer is involved: a frame never waits for another to come, only for what is being decided at this moment.

    with connections.turn():      the shell, around a step of the core
        link.send(...)            any number of links, of any connection
                                  here each connection that was sent to writes once

Turns nest, and the outermost one ends them all. The transport runs its own callbacks in a turn, so twenty acks in one
read, and the batches that they lead to, are one turn too. What is sent outside of a turn (an Open, a question of a
client that has no core) is gathered too, and leaves when the event loop goes on.

May I send?
-----------
The core keeps the answer, the connection changes it, and nobody in between has an opinion:

    core        ``TargetQueue.writable``: False from SendBatch until Written, so one batch of a session is under way.
    session     keeps nothing: a batch goes down to its link, ``writable()`` goes up as Written.
    link        checks that the core keeps its word: a second ``send`` before ``writable()`` is a broken invariant.
    connection  decides *when* ``writable()`` is called.

Open and Probe go by ``send_control``: they are small, few and in order with the batches, and no ``writable()`` answers
them. So a socket that is full has at most one batch of each stream waiting for it, and under load batches grow by
themselves: whatever comes while one is under way leaves with the next.

When to call ``writable()``
---------------------------
The obvious answer, as soon as the socket has taken the bytes, is true at once: every entry would leave alone, and after
each write the player would be busy hearing twenty times that it may send, at the very moment when the target that it
has just woken needs the processor. They often share one. So:

    the socket's buffer is full        when it has drained (``resume_writing``)
    PROMPT_BYTES or more were written  in the next iteration of the loop: there is bulk to move
    less than that                     the connection *rests*, until the peer answers, until the player has something
                                       new to do, or for REST_SECONDS, whichever comes first

A rest delays no entry: the shell's turn begins by ending every rest, so the streams are ready before the core sees the
entry that the turn is about. It only spares, or moves to a better moment, wake-ups that would find nothing to do. A
turn of the transport's own does not end the rests of other connections: that one target has answered does not mean
that the others are done, nor that there is anything to send to them.

    idle ──first frame──▶ gathering ──the turn ends: one write──▶ resting ──writable()──▶ idle
                              ▲                                      │
                              '────────── another stream sends ──────'

A connection of a single stream has nobody to wait for, and writes at once. gRPC has its own buffers and its own threads
below the event loop: its link has one writer for each stream, calls ``writable()`` when gRPC has taken all that was
sent, and takes no part in turns. ``target.ack_coalescing`` is the other direction.
"""

from __future__ import annotations

from typing import Protocol


class Gathering(Protocol):
    """A connection, as the turn sees it."""

    def end_turn(self) -> None:
        """Nothing more comes: write what was gathered."""

    def end_rest(self) -> None:
        """There may be something to send: let the streams that have sent before send again."""


class Turn:
    """The turns of one player. Enter it around whatever may send on any of its connections."""

    __slots__ = ("_begun", "_depth", "_resting")

    def __init__(self) -> None:
        self._depth = 0
        self._begun: list[Gathering] = []  # Those that were sent to in this turn.
        self._resting: set[Gathering] = set()  # Those that were sent to in earlier turns, since the rests were ended.

    def __enter__(self) -> None:
        self._depth += 1
        if self._resting and self._depth == 1:
            resting, self._resting = self._resting, set()
            for connection in resting:
                connection.end_rest()

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        """The same as entering it, but let rest what rests: for the transport's own callbacks."""
        self._depth += 1

    def end(self) -> None:
        """Leave it; the outermost turn writes."""
        self._depth -= 1
        if self._begun and not self._depth:
            begun, self._begun = self._begun, []
            for connection in begun:
                connection.end_turn()
            self._resting.update(begun)

    def gathers(self, connection: Gathering) -> bool:
        """The first frame of a connection: whether a turn is under way, at whose end ``end_turn`` will be called."""
        if self._depth:
            self._begun.append(connection)
        return self._depth > 0
