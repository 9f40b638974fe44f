"""One session on the wire: connects, opens, sends what the core asks for, and tells the core what comes back.

It keeps no account of what may be sent: the core asks for the next batch when Written has answered the last one, and
the link says when that is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from logplayer.core import events
from logplayer.core.effects import SendBatch
from logplayer.core.entry import Session
from logplayer.core.fence import TargetRefusal
from logplayer.errors import LogPlayerError, Malformed, VersionMismatch
from logplayer.observe.instruments import SessionCounts
from logplayer.wire import codec
from logplayer.wire.connections import Connections
from logplayer.wire.fastpath import encode_batch
from logplayer.wire.transport import Link

Tell = Callable[[events.Event], None]


class TargetSession:
    """The shell's end of one (epoch, term) of one target; a :class:`logplayer.wire.transport.LinkListener`."""

    def __init__(
        self,
        target: str,
        session: Session,
        address: str,
        log_id: str,
        connections: Connections,
        tell: Tell,
        counts: SessionCounts | None = None,
        on_acked: Callable[[str, int, float], None] | None = None,
    ) -> None:
        self.target = target
        self.session = session
        self._address = address
        self._log_id = log_id
        self._connections = connections
        self._tell = tell
        self._link: Link | None = None
        self._closed = False
        self._counts = counts or SessionCounts()
        self._on_acked = on_acked  # Called with target, index and seconds, for one batch at a time.
        self._timed_to = 0  # The end of the batch whose way is timed now; 0: of none.
        self._timed_at = 0.0
        self._task = asyncio.get_running_loop().create_task(self._connect())

    def __repr__(self) -> str:
        return f"<TargetSession {self.target} {self.session} {self._address}>"

    async def _connect(self) -> None:
        try:
            # The core's own deadline for an unanswered Open is shorter than this one; it closes us.
            link = await self._connections.connect(self._address, self, timeout=30.0)
        except (LogPlayerError, OSError, ValueError) as error:  # ValueError: a host that no resolver can spell.
            self._lost(str(error) or type(error).__name__)
            return
        if self._closed:
            link.close()
            return
        self._link = link
        link.send_control(codec.encode_open(self.target, self._log_id, self.session))

    # --- What the core asks for ---

    def send(self, batch: SendBatch) -> None:
        """Send the batch. The session is open, so there is a link."""
        if self._link is not None:
            _, _, prev, to, messages, prev_chain, to_chain = batch
            self._link.send(encode_batch(prev, to, messages, prev_chain, to_chain))
            self._counts.batches += 1
            if not self._timed_to and messages:
                self._timed_to, self._timed_at = to, time.perf_counter()

    def probe(self) -> None:
        """Ask for a sign of life, after whatever is being written."""
        if self._link is not None:
            self._link.send_control(codec.PROBE)

    def close(self) -> None:
        """Drop the stream; the core wants to hear nothing more of it."""
        self._closed = True
        self._task.cancel()
        if self._link is not None:
            self._link.close()

    # --- What the link tells ---

    def received(self, data: bytes) -> None:
        if self._closed:
            return
        try:
            message = codec.decode_to_player(data)
        except VersionMismatch as error:
            self._lost(str(error))
            return
        except Malformed as error:
            self._lost(f"the target sent what this version cannot read: {error}")
            return
        if isinstance(message, codec.Ack):
            index = message.index
            self._tell(events.Acked(self.target, self.session, index, message.digest))
            if self._timed_to and index >= self._timed_to and self._on_acked is not None:
                to, self._timed_to = self._timed_to, 0
                self._on_acked(self.target, to, time.perf_counter() - self._timed_at)
        elif isinstance(message, codec.SessionOpened):
            self._tell(events.Opened(self.target, self.session, *message))
        elif isinstance(message, TargetRefusal):
            self._counts.refusals[self.target, message.reason.name] += 1
            told = message.reason, message.detail, message.index, message.epoch, message.chain
            self._tell(events.Refused(self.target, self.session, *told))
        elif isinstance(message, codec.Failed):
            self._lost(message.detail)

    def writable(self) -> None:
        self._tell(events.Written(self.target, self.session))

    def closed(self, error: Exception | None) -> None:
        if not self._closed:
            self._lost(str(error) if error else "the target ended the stream")

    def _lost(self, error: str) -> None:
        if not self._closed:
            self._counts.losses[self.target] += 1
            self._tell(events.Lost(self.target, self.session, error))
