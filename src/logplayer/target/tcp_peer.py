"""One TCP connection at a target, and the streams on it: each is a player's, and none knows of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from logplayer.errors import LogPlayerError, Malformed
from logplayer.target.ack_coalescing import AckRound
from logplayer.target.bounds import COUNTED_BYTES_MIN, Questions, Unfinished
from logplayer.target.host import Host
from logplayer.target.stream import Stream
from logplayer.wire import codec, versions
from logplayer.wire.framing import CONNECTION, Deframer, frame
from logplayer.wire.security import Security
from logplayer.wire.tcp_link import WRITE_BUFFER_BYTES, tune

# What somebody may send before the token is known to be right.
_STRANGER_BYTES_MAX = 16 * 1024
# How long a connection may have no stream.
_IDLE_SECONDS = 30.0
# How long a player may take to hear what is wrong with its connection before it is cut.
_LINGER_SECONDS = 5.0
# Streams that one connection may have at once.
STREAMS_MAX = 1000


class TcpPeer(asyncio.Protocol):
    """The connection. What its streams say within one turn of the event loop leaves with one write."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        acks: AckRound,
        security: Security,
        peers: set[TcpPeer],
        questions: Questions,
        unfinished: Unfinished[TcpPeer],
    ) -> None:
        self.clogged = False  # The other side reads too slowly: nothing more may be said for now.
        self._hosts = hosts
        self._acks = acks
        self._security = security
        self._peers = peers  # Those of the server: this one is among them while it is connected.
        self._known = not security.token
        self._deframer = Deframer(codec.MESSAGE_BYTES_MAX if self._known else _STRANGER_BYTES_MAX)
        self._questions = questions
        self._unfinished = unfinished
        self._counted = False  # Whether an unfinished frame of this connection is counted.
        self._first = True
        self._lanes: dict[int, _Lane] = {}
        self._newest = CONNECTION  # The highest number that a stream had.
        self._full: set[int] = set()  # The streams that can take no more for now.
        self._out: list[bytes] = []
        self._said_all = False
        self._transport: asyncio.Transport
        self._patience: asyncio.TimerHandle

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        tune(transport)
        self._peers.add(self)
        self._wait_for_a_stream()

    def data_received(self, data: bytes) -> None:
        if self._said_all:
            return  # What was under way when the connection failed; see _fail.
        with self._acks.reading():
            try:
                self._read(data)
            except Malformed as error:
                self._fail(codec.INVALID, str(error))

    def _read(self, data: bytes) -> None:
        lanes = self._lanes
        for number, message in self._deframer.feed(data):
            lane = lanes.get(number)
            if lane is not None and message:
                lane.stream.received(message)
            elif not self._other(number, message):
                return
        if self._deframer.unfinished_bytes >= COUNTED_BYTES_MIN or self._counted:
            self._count(self._deframer.unfinished_bytes)

    def pause_writing(self) -> None:
        self.clogged = True

    def resume_writing(self) -> None:
        self.clogged = False
        for lane in list(self._lanes.values()):
            lane.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.discard(self)
        self._patience.cancel()
        self._said_all = True
        self._drop_lanes()
        self._count(0)

    # --- For its streams ---

    def say(self, number: int, message: bytes) -> None:
        """Send it at the end of this turn, with what the other streams say."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame(number, message))

    def full(self, number: int) -> None:
        """A stream can take no more, so nothing is read for any of them. A player's usual window is too small."""
        if not self._full:
            self._transport.pause_reading()
        self._full.add(number)

    def roomy(self, number: int) -> None:
        """It can take more."""
        self._full.discard(number)
        if not self._full:
            self._transport.resume_reading()

    def over(self, number: int) -> None:
        """A stream has ended, and its last message was said."""
        if self._lanes.pop(number, None) is not None:
            if number in self._full:
                self.roomy(number)
            if not self._lanes:
                self._wait_for_a_stream()

    # --- Inside ---

    def cut(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _other(self, number: int, message: bytes) -> bool:
        """Not a message of a stream: the token, the begin or the end of a stream, or late. Whether all is well."""
        first, self._first = self._first, False
        if number == CONNECTION:
            return self._admit(message, first)
        if not self._known:
            return self._fail(codec.UNAUTHENTICATED, "this target wants a token")
        lane = self._lanes.get(number)
        if lane is not None:  # An empty message: the player has cut the stream.
            lane.stream.gone()
            self.over(number)
        elif number > self._newest and message:
            if len(self._lanes) >= STREAMS_MAX:
                return self._fail(codec.INVALID, f"more than {STREAMS_MAX} streams on one connection")
            self._newest = number
            self._patience.cancel()
            lane = self._lanes[number] = _Lane(self, number)
            lane.stream = Stream(self._hosts, lane, self._acks, self._questions, self)
            lane.stream.received(message)
        return True  # What is left is for a stream that has ended: the player has not yet heard so.

    def _admit(self, message: bytes, first: bool) -> bool:
        """What is for the connection can only be the token, in the first frame. Whether it is so, and right."""
        try:
            auth = codec.decode_to_target(message)
        except LogPlayerError:
            auth = codec.Probe()
        if not first or not isinstance(auth, codec.Auth):
            return self._fail(codec.INVALID, "a message has no stream, and is not the token in the first frame")
        if versions.agreed(auth.versions) is None:  # First, as a later version may have another kind of token.
            return self._fail(codec.VERSION, versions.conflict("player", auth.versions, "target"))
        if not self._security.permits(auth.token):
            return self._fail(codec.UNAUTHENTICATED, "the token is wrong")
        self._known = True
        self._deframer.limit = codec.MESSAGE_BYTES_MAX
        return True

    def _count(self, held: int) -> None:
        """``held`` bytes are here of a frame that has not ended; somebody has to go if all of them are too much."""
        self._counted = held >= COUNTED_BYTES_MIN
        longest = self._unfinished.note(self, held if self._counted else 0)
        if longest is not None:
            longest.give_up()

    def give_up(self) -> None:
        """Too much is unfinished at this server, and the longest frame is this one's."""
        self._fail(
            codec.EXHAUSTED, "too many long frames are unfinished here; send shorter ones, or connect again later"
        )

    def _wait_for_a_stream(self) -> None:
        self._patience = self._loop.call_later(_IDLE_SECONDS, self.cut)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def _fail(self, code: int, detail: str) -> bool:
        """Say what is wrong with the connection, and let the player close. Returns that it is not well.

        Closing first could destroy the last message: what the player still sends would meet a closed socket, and
        the reset that answers it drops what the player has not read.
        """
        if self._said_all:
            return False
        self._said_all = True
        self._drop_lanes()
        self._deframer.drop()
        self._count(0)
        self.say(CONNECTION, codec.encode_failed(code, detail))
        self._transport.resume_reading()
        self._patience.cancel()
        self._loop.call_later(_LINGER_SECONDS, self.cut)
        return False

    def _drop_lanes(self) -> None:
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.stream.gone()


class _Lane:
    """Between a stream and its connection; see :class:`logplayer.target.stream.Peer`."""

    __slots__ = ("_connection", "_number", "stream")

    def __init__(self, connection: TcpPeer, number: int) -> None:
        self._connection = connection
        self._number = number
        self.stream: Stream

    def flush(self) -> None:
        connection, number, stream = self._connection, self._number, self.stream
        while not connection.clogged:
            message = stream.take()
            if message is not None:
                connection.say(number, message)
                continue
            if stream.ended:
                if stream.failure is not None:
                    connection.say(number, codec.encode_failed(*stream.failure))
                connection.over(number)
            return

    def pause(self) -> None:
        self._connection.full(self._number)

    def resume(self) -> None:
        self._connection.roomy(self._number)
