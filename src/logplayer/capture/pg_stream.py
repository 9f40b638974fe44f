"""A logical replication stream of PostgreSQL on the event loop, by libpq's own functions.

psycopg's cursors know nothing of the replication protocol, but its ``pq`` layer has all that it needs: a query that
starts the copy, data in and data out. Nothing is ever confirmed to the server except by :meth:`PgStream.confirm`. That
matters: a client that also confirms what keepalives name would confirm positions that the log does not know.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, NamedTuple

import psycopg
from psycopg import pq, sql

from logplayer.capture import source
from logplayer.capture.pgoutput import EPOCH_US, lsn_text, parse_lsn
from logplayer.capture.settings import CaptureStopped
from logplayer.errors import Malformed, Unavailable, UserError

_HEAD = struct.Struct(">QQQ")
_STATUS = struct.Struct(">cQQQQB")
_COPY_BOTH = pq.ExecStatus.COPY_BOTH
STATUS_SECONDS = 1.0


class CreatedSlot(NamedTuple):
    """A slot that was made now, and the snapshot of the data at its start."""

    lsn: int
    snapshot: str  # Usable until this connection does something else.


class PgStream:
    """One replication connection. ``async with await PgStream.open(url) as stream``.

    Attributes:
        server_end: How far the server's log goes, as far as its messages have said.
    """

    def __init__(self, db: source.Db) -> None:
        self._db = db
        self._pq: Any = db.pgconn
        self._confirmed = 0
        self.server_end = 0

    @classmethod
    async def open(cls, url: str) -> PgStream:
        """Connect for replication.

        Raises:
            Unavailable: The server cannot be reached, or has no walsender left.
            UserError: The URL is wrong.
        """
        return cls(await source.connect(url, replication="database"))

    async def __aenter__(self) -> PgStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._db.close()

    async def create_slot(self, name: str) -> CreatedSlot:
        """Make a slot that stays, and a snapshot of the data exactly at its start."""
        text = sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput EXPORT_SNAPSHOT").format(sql.Identifier(name))
        try:
            row = await (await self._db.execute(text.as_string(self._db).encode())).fetchone()
        except psycopg.Error as error:
            raise refusal(error.sqlstate or "", str(error), name) from None
        assert row is not None
        return CreatedSlot(parse_lsn(row[1]), row[2])

    async def identify(self) -> tuple[str, int]:
        """The cluster's identifier, and the timeline that it writes now."""
        row = await (await self._db.execute(b"IDENTIFY_SYSTEM")).fetchone()
        assert row is not None
        return str(row[0]), int(row[1])

    async def history(self, timeline: int) -> str:
        """The history file of a timeline: where those before it ended; the first one has none."""
        if timeline <= 1:
            return ""
        row = await (await self._db.execute(b"TIMELINE_HISTORY %d" % timeline)).fetchone()
        assert row is not None
        return row[1].decode() if isinstance(row[1], bytes) else str(row[1])

    async def start(self, slot: str, publication: str, confirmed: int) -> None:
        """Begin the stream after what is confirmed.

        Raises:
            UserError: There is no such slot, or no such publication.
            Unavailable: Another process reads the slot, or the connection was lost.
        """
        options = sql.SQL("(proto_version '1', publication_names {}, messages 'true')").format(
            sql.Literal(sql.Identifier(publication).as_string(self._db))
        )
        command = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} {}").format(
            sql.Identifier(slot),
            sql.SQL(lsn_text(confirmed)),
            options,
        )
        self._confirmed = confirmed
        text = command.as_string(self._db).encode()
        try:
            result = await asyncio.to_thread(self._pq.exec_, text)
        except psycopg.Error as error:
            raise _gone(error) from None
        if result.status != _COPY_BOTH:
            state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
            raise refusal(state.decode(), result.error_message.decode(errors="replace"), slot)
        self._pq.nonblocking = 1

    async def messages(self, ask: bool = False) -> AsyncIterator[list[bytes]]:
        """The stream's messages, as many at once as are there; an empty list when a second went by without any.

        Args:
            ask: Ask the server each second how far it is, for a caller that waits for an end.

        Raises:
            Unavailable: The connection was lost.
        """
        last = 0.0
        while True:
            found = self._received()
            if time.monotonic() - last >= STATUS_SECONDS:
                last = time.monotonic()
                self.send_status(ask)
            if not found:
                await self._readable(STATUS_SECONDS)
                found = self._received()
            yield found

    def confirm(self, lsn: int) -> None:
        """Everything up to ``lsn`` is durable in the log: the server may forget it."""
        if lsn > self._confirmed:
            self._confirmed = lsn

    # --- Inside ---

    def _received(self) -> list[bytes]:
        found: list[bytes] = []
        try:
            self._pq.consume_input()
            self._pq.flush()
            while len(found) < 1000:
                count, data = self._pq.get_copy_data(1)
                if count == 0:
                    break
                if count < 0:
                    raise self._ended()
                self._take(bytes(data), found)
        except psycopg.Error as error:
            raise _gone(error) from None
        return found

    def _take(self, data: bytes, found: list[bytes]) -> None:
        if data[:1] == b"w" and len(data) > _HEAD.size:
            self.server_end = max(self.server_end, _HEAD.unpack_from(data, 1)[1])
            found.append(data[1 + _HEAD.size :])
        elif data[:1] == b"k" and len(data) == 18:
            self.server_end = max(self.server_end, int.from_bytes(data[1:9], "big"))
            if data[17]:
                self.send_status()
        else:
            raise Malformed(f"the replication stream has a frame of kind {data[:1]!r}, which it does not have")

    def send_status(self, ask: bool = False) -> None:
        """Say what is confirmed, and that this side is alive; a caller that pauses does so by itself."""
        now = time.time_ns() // 1000 - EPOCH_US
        at = self._confirmed
        try:
            self._pq.put_copy_data(_STATUS.pack(b"r", at, at, at, now, ask))
            self._pq.flush()
        except psycopg.Error as error:
            raise self._ended(error) from None

    def _ended(self, error: Exception | None = None) -> Exception:
        """Why the server ended the stream, as far as it has said so; else ``error``."""
        result = None if self._pq.is_busy() else self._pq.get_result()
        if result is None and error is not None:
            return _gone(error)
        found = result.error_field(pq.DiagnosticField.SQLSTATE) if result is not None else None
        state = found.decode() if found else "unknown"
        if state == _UNDEFINED_OBJECT:  # PostgreSQL looks the publication up as it was at that place of its log.
            return CaptureStopped(
                "publication",
                "the publication does not exist at the place of the source's log that comes next: it was made, or made "
                "again, after that. Empty the tables of the targets, and start with a new --slot",
            )
        return Unavailable(f"the source ended the replication stream (SQLSTATE {state}); its log says why")

    async def _readable(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        descriptor = self._pq.socket
        loop.add_reader(descriptor, ready.set)
        try:
            async with asyncio.timeout(seconds):
                await ready.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(descriptor)


def _gone(error: Exception) -> Unavailable:
    return Unavailable(f"the connection to the source was lost: {str(error).strip()}")


_UNDEFINED_OBJECT, _OBJECT_IN_USE, _NOT_READY, _NO_RIGHT = "42704", "55006", "55000", "42501"
_FULL, _INVALID_NAME, _EXISTS = "53400", "42602", "42710"


def refusal(state: str, text: str, slot: str) -> UserError | Unavailable:
    """The server refused a command about the slot: what that means, by its SQLSTATE."""
    why = " ".join(text.removeprefix("ERROR:").split())
    if state == _OBJECT_IN_USE:
        return source.slot_in_use(slot)
    if state == _UNDEFINED_OBJECT:
        return UserError(f"{why}; see 'If the slot is gone' in docs/how-to/copy-a-postgres.md")
    if state == _NOT_READY:
        return UserError(f"slot {slot} cannot be read: {why}; see docs/how-to/copy-a-postgres.md")
    if state == _NO_RIGHT:
        return UserError(f"the role may not replicate: {why}; run ALTER ROLE ... REPLICATION")
    if state in (_INVALID_NAME, _EXISTS):
        return UserError(f"slot {slot} cannot be made: {why}")
    if state == _FULL:
        return UserError(f"{why}; raise max_replication_slots, or drop a slot that nobody uses")
    return Unavailable(f"the source refused: {why} (SQLSTATE {state or 'unknown'})")
