"""Reads a replicated log: pushed by a consumer on any replica, checked entry by entry, mended from the others.

A replica with a flipped bit may serve a damaged entry or none at all, and one that lost a block looks as if entries
had been deleted. Nothing is ever deleted here but by trim, so every entry is checked and every gap is asked for again:
from each of the servers in turn (each answers for its own replica) and at last from the leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from logplayer.errors import CorruptEntry, LogError
from logplayer.log.frame import corrupt, decode
from logplayer.log.nats.link import API_SECONDS, TROUBLE, NatsLink
from logplayer.log.protocol import BATCH_BYTES, Record
from logplayer.log.refusals import trimmed

BUFFER_BYTES_MAX = 4 * 1024 * 1024
GAP_COUNT_MAX = 20  # A longer gap is pushed again before it is mended entry by entry.
SILENCE_SECONDS = 2.0  # After so long without news, ask the leader whether there should have been any.


class Push:
    """A push consumer that starts at one index. Its buffer is bounded: a slow reader holds the server back.

    The server sends a window of messages and then asks, in band, to go on; it is answered when everything before the
    question is in the buffer. (The client library's own ordered consumer answers up to a quarter of a second later.)
    """

    def __init__(self, link: NatsLink) -> None:
        self._link = link
        self._buffer: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._subscription: Any = None

    @property
    def stopped(self) -> bool:
        return self._subscription is None

    async def start(self, first: int) -> None:
        await self.stop()
        self._buffer.clear()
        self._bytes = 0
        inbox = self._link.nc.new_inbox()
        self._subscription = await self._link.nc.subscribe(
            inbox, cb=self._take, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        config = ConsumerConfig(
            deliver_subject=inbox,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=first,
            ack_policy=AckPolicy.NONE,
            max_deliver=1,
            flow_control=True,
            idle_heartbeat=SILENCE_SECONDS,
            inactive_threshold=4 * SILENCE_SECONDS,
            num_replicas=1,
            mem_storage=True,
        )
        await self._link.js.add_consumer(self._link.stream, config=config)

    async def _take(self, message: Msg) -> None:
        if message.headers and message.headers.get("Status"):
            question = message.reply or message.headers.get("Nats-Consumer-Stalled")
            if question:
                with contextlib.suppress(*TROUBLE):
                    await self._link.nc.publish(question)
            return
        # $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
        self._buffer.append((int(message.reply.split(".")[5]), message.data))
        self._bytes += len(message.data)
        self._news.set()
        if self._bytes > BUFFER_BYTES_MAX:
            self._room.clear()
            await self._room.wait()

    async def next(self, seconds: float) -> list[tuple[int, bytes]]:
        """What has come, at most a batch of it; empty after so many seconds of silence."""
        if not self._buffer:
            self._news.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        out, room = [], BATCH_BYTES
        while self._buffer and room > 0:
            item = self._buffer.popleft()
            room -= len(item[1])
            self._bytes -= len(item[1])
            out.append(item)
        if self._bytes <= BUFFER_BYTES_MAX // 2:
            self._room.set()
        return out

    async def stop(self) -> None:
        self._room.set()
        if self._subscription is not None:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self._subscription.unsubscribe()
            self._subscription = None


class NatsReader:
    """The reading half of a replicated log; any number of reads at once."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link
        self._hosts = list(link.hosts)  # In the order in which they are asked: one that did not answer goes last.
        self._others: dict[str, Client] = {}
        self.mended = 0

    async def close(self) -> None:
        for connection in self._others.values():
            await connection.close()
        self._others.clear()

    async def read(self, first: int, last: int | None) -> AsyncIterator[tuple[list[Record], list[bytes]]]:
        """Batches of (records, their stored bytes), gapless from ``first`` on."""
        await self._require_untrimmed(first)
        at, restarted = first, 0
        push = Push(self._link)
        try:
            await self._start(push, at)
            while last is None or at <= last:
                items = await push.next(SILENCE_SECONDS)
                if not items:
                    missing = await self._missing(at)
                    if missing is None:
                        continue
                    items = missing
                    await push.stop()
                    push = Push(self._link)
                elif items[0][0] - at > GAP_COUNT_MAX and at != restarted:
                    restarted = at  # Lost with a connection, most likely: cheaper to have it pushed again.
                    await self._start(push, at)
                    continue
                records, bodies, damage = await self._check(items, at, last)
                if records:
                    at = records[-1].index + 1
                    yield records, bodies
                if damage is not None:
                    raise damage
                if push.stopped and (last is None or at <= last):
                    await self._start(push, at)
        finally:
            await push.stop()

    async def _start(self, push: Push, first: int) -> None:
        await self._link.patiently(lambda: push.start(first))

    async def _missing(self, at: int) -> list[tuple[int, bytes]] | None:
        """After silence: None if there is nothing new, else the entry that should have been pushed."""
        info = await self._link.info()
        if info.state.last_seq < at:
            return None
        await self._require_untrimmed(at)
        return [(at + 1, b"")]  # As if the next one had come: the check sees the gap and mends it.

    async def _require_untrimmed(self, at: int) -> None:
        state = (await self._link.info()).state
        first = state.last_seq + 1 if not state.messages else state.first_seq
        if at < first:
            raise trimmed(at, first)

    async def _check(
        self, items: list[tuple[int, bytes]], at: int, last: int | None
    ) -> tuple[list[Record], list[bytes], LogError | None]:
        """Decode what is right, ask for the rest; what was got before damage comes with the damage."""
        records: list[Record] = []
        bodies: list[bytes] = []
        try:
            for index, body in items:
                if index < at:
                    continue  # Sent twice, after a consumer was made again.
                while at < index and (last is None or at <= last):
                    record, mended = await self._mend(at)
                    records.append(record)
                    bodies.append(mended)
                    at += 1
                if (last is not None and at > last) or not body:
                    break
                try:
                    record = decode(body, at)
                except CorruptEntry:
                    record, body = await self._mend(at)
                records.append(record)
                bodies.append(body)
                at += 1
        except LogError as damage:
            return records, bodies, damage
        return records, bodies, None

    async def _mend(self, index: int) -> tuple[Record, bytes]:
        """An entry that one replica damaged or lost, from another one."""
        damage: CorruptEntry = corrupt(index, "no replica has it")
        for host in tuple(self._hosts):
            try:
                body = await self._from_replica(host, index)
            except TROUBLE:
                self._hosts.remove(host)
                self._hosts.append(host)
                continue
            if body is not None:
                try:
                    record = decode(body, index)
                except CorruptEntry as error:
                    damage = error
                    continue
                self.mended += 1
                return record, body
        try:
            message = await self._link.patiently(lambda: self._link.js.get_msg(self._link.stream, seq=index))
        except nats.js.errors.NotFoundError:
            await self._require_untrimmed(index)
            raise damage from None
        record = decode(message.data or b"", index)
        self.mended += 1
        return record, message.data

    async def _from_replica(self, host: str, index: int) -> bytes | None:
        """Ask the replica on one server: a server answers direct reads itself if it has the stream."""
        connection = self._others.get(host)
        if connection is None or connection.is_closed:
            connection = self._others[host] = await self._link.connect_to(host)
        request = json.dumps({"seq": index}).encode()
        reply = await connection.request(f"$JS.API.DIRECT.GET.{self._link.stream}", request, timeout=API_SECONDS)
        if (reply.headers or {}).get("Nats-Sequence") != str(index):
            return None
        return bytes(reply.data)
