"""One session on the wire: connects, opens, sends what the core asks for, and tells the core what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from logplayer.core import event
from logplayer.core.effect import SendBatch
from logplayer.core.entry import Session
from logplayer.core.fence import Refused
from logplayer.errors import LogPlayerError, Malformed
from logplayer.wire import codec
from logplayer.wire.connections import Connections
from logplayer.wire.hot import encode_batch
from logplayer.wire.transport import Link

Tell = Callable[[event.Event], None]

_OPEN, _BATCH, _PROBE = "open", "batch", "probe"


class TargetSession:
    """The shell's end of one (epoch, term) of one target; a :class:`logplayer.wire.transport.Listener`."""

    def __init__(
        self, target: str, session: Session, address: str, log_id: str, connections: Connections, tell: Tell
    ) -> None:
        self.target = target
        self.session = session
        self._address = address
        self._log_id = log_id
        self._connections = connections
        self._tell = tell
        self._link: Link | None = None
        self._writing = ""  # What the link is taking now; "" when it is ready for the next message.
        self._batch: bytes | None = None  # A batch that waits for the link: at most one, by the core's own rule.
        self._probe = False
        self._closed = False
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
        self._send(_OPEN, codec.encode_open(self.target, self._log_id, self.session))

    # --- What the core asks for ---

    def send(self, batch: SendBatch) -> None:
        """Send the batch, at once if the link is ready."""
        _, _, prev, to, messages = batch
        data = encode_batch(prev, to, messages)
        if self._writing:
            self._batch = data
        elif self._link is not None:
            self._writing = _BATCH
            self._link.send(data)

    def probe(self) -> None:
        """Ask for a sign of life, behind whatever is being written."""
        if self._writing:
            self._probe = True
        else:
            self._send(_PROBE, codec.PROBE)

    def close(self) -> None:
        """Drop the stream; the core wants to hear nothing more of it."""
        self._closed = True
        self._task.cancel()
        if self._link is not None:
            self._link.close()

    def _send(self, what: str, data: bytes) -> None:
        if self._link is not None:
            self._writing = what
            self._link.send(data)

    # --- What the link tells ---

    def received(self, data: bytes) -> None:
        if self._closed:
            return
        try:
            message = codec.decode_to_player(data)
        except Malformed as error:
            self._lost(f"the target sent what this version cannot read: {error}")
            return
        if isinstance(message, codec.Ack):
            self._tell(event.Acked(self.target, self.session, message.index, message.digest))
        elif isinstance(message, codec.Opened):
            self._tell(event.Opened(self.target, self.session, message.index, message.digest))
        elif isinstance(message, Refused):
            told = event.Refused(self.target, self.session, message.reason, message.detail, message.index)
            self._tell(told)
        elif isinstance(message, codec.Failed):
            self._lost(message.detail)

    def writable(self) -> None:
        if self._closed:
            return
        done, self._writing = self._writing, ""
        if self._batch is not None:
            data, self._batch = self._batch, None
            self._send(_BATCH, data)
        elif done == _BATCH:
            self._tell(event.Written(self.target, self.session))
        if self._probe and not self._writing and not self._closed:
            self._probe = False
            self._send(_PROBE, codec.PROBE)

    def closed(self, error: Exception | None) -> None:
        if not self._closed:
            self._lost(str(error) if error else "the target ended the stream")

    def _lost(self, error: str) -> None:
        if not self._closed:
            self._tell(event.Lost(self.target, self.session, error))
