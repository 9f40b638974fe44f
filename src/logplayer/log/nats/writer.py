"""How a batch gets into a NATS stream, for ``position_writer``: one atomic publish that expects its position."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import nats.js.errors
from nats.aio.msg import Msg

from logplayer.errors import LogUnavailable
from logplayer.log.frame import encode
from logplayer.log.nats.link import TROUBLE, NatsLink, decode_json, error_of
from logplayer.log.nats.reader import NatsReader
from logplayer.log.position_writer import Planned, PositionTaken
from logplayer.log.protocol import Kind, NewEntry, Record

ACK_SECONDS = 2.0
POSITION_TAKEN = (10071, 10164)  # NATS's error codes of a publish whose expected last sequence is wrong.


class NatsEngine:
    """The two streams of one log, as the writer sees them."""

    batch_bytes = 4 * 1024 * 1024  # A batch may hold as many entries as a group; the server knows no larger ones.
    trouble: tuple[type[Exception], ...] = TROUBLE

    def __init__(self, link: NatsLink, reader: NatsReader) -> None:
        self._link = link
        self._reader = reader
        self.where = link.where
        self.patience_seconds = link.patience_seconds
        self._inbox = ""
        self._answer: asyncio.Future[Msg] | None = None
        self._expected = ""  # The subject of the answer that we wait for.

    async def bounds(self) -> tuple[int, int]:
        state = (await self._link.info()).state
        return state.first_seq if state.messages else state.last_seq + 1, state.last_seq

    async def records(self, first: int, last: int) -> AsyncIterator[list[Record]]:
        async for records, _ in self._reader.read(first, last):
            yield records

    async def require_room(self, entries: Sequence[NewEntry]) -> None:
        """The stream's limit shows at the commit."""

    async def commit(self, new: Planned, chain: Sequence[bytes]) -> None:
        """One entry as a message, several as an atomic batch; the server takes it at this position or not at all."""
        if not self._inbox:
            self._inbox = self._link.nc.new_inbox()
            await self._link.nc.subscribe(f"{self._inbox}.*", cb=self._on_answer)
        self._answer = asyncio.get_running_loop().create_future()
        self._expected = f"{self._inbox}.{uuid.uuid4().hex}"  # Answers to what was sent before mean nothing now.
        await self._publish(new, chain)
        try:
            async with asyncio.timeout(ACK_SECONDS):
                message = await self._answer
        except TimeoutError:
            raise LogUnavailable("no acknowledgement came") from None
        reply = decode_json(message.data)
        if "error" in reply or reply.get("seq") != new[-1][0]:
            raise self._refused(reply, message)

    async def _publish(self, new: Planned, chain: Sequence[bytes]) -> None:
        now_us = time.time_ns() // 1000
        batch = uuid.uuid4().hex if len(new) > 1 else ""
        for nth, ((index, entry), value) in enumerate(zip(new, chain, strict=True), 1):
            headers: dict[str, str] = {}
            if nth == 1:
                headers["Nats-Expected-Last-Sequence"] = str(index - 1)
            if batch:
                headers["Nats-Batch-Id"], headers["Nats-Batch-Sequence"] = batch, str(nth)
            if batch and nth == len(new):
                headers["Nats-Batch-Commit"] = "1"
            subject = self._link.control_subject if entry.kind == Kind.CONTROL else self._link.data_subject
            body = b"".join(encode(index, entry, now_us, value))
            answer_to = self._expected if nth == len(new) else ""
            await self._link.nc.publish(subject, body, reply=answer_to, headers=headers)

    async def _on_answer(self, message: Msg) -> None:
        """A publish was acknowledged, or refused."""
        if message.subject == self._expected and self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    def _refused(self, reply: dict[str, Any], message: Msg) -> Exception:
        fatal = error_of(reply, self.where)
        if fatal is not None:
            return fatal
        refusal = reply.get("error") or {}
        why = refusal.get("description") or (message.headers or {}).get("Status", "no answer")
        return (PositionTaken if refusal.get("err_code") in POSITION_TAKEN else LogUnavailable)(str(why))

    async def forget(self, up_to: int) -> None:
        await self._link.js.purge_stream(self._link.stream, seq=up_to + 1)

    async def newest_block(self) -> tuple[int, bytes] | None:
        link = self._link
        try:
            message = await link.patiently(lambda: link.js.get_last_msg(link.map_stream, link.map_subject))
        except nats.js.errors.NotFoundError:
            return None
        return message.seq, message.data

    async def read_block(self, number: int) -> bytes:
        link = self._link
        message = await link.patiently(lambda: link.js.get_msg(link.map_stream, seq=number))
        return bytes(message.data)

    async def write_block(self, number: int, data: bytes) -> None:
        headers = {"Nats-Expected-Last-Sequence": str(number - 1)}
        try:
            await self._link.js.publish(self._link.map_subject, data, headers=headers, timeout=5)
        except (*TROUBLE, nats.js.errors.APIError) as error:
            raise LogUnavailable(f"the sequence map of {self.where} was not written ({error})") from None
