"""The conformance kit's player: one stream that does exactly what a rule tells it, right or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from logplayer.core import digest as digests
from logplayer.core.chain import GENESIS, mark_of
from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.fence import Batch, TargetRefusal
from logplayer.errors import LogPlayerError
from logplayer.wire import codec, transport
from logplayer.wire.connections import Connections
from logplayer.wire.security import NONE, Security
from logplayer.wire.versions import Versions

ANSWER_SECONDS = 10.0


class Broken(Exception):
    """A rule does not hold: what was expected, and what was seen instead."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}; saw {seen}")
        self.expected = expected
        self.seen = seen


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The stream is over."""

    error: Exception | None

    def __str__(self) -> str:
        return f"the end of the stream ({self.error})" if self.error else "the end of the stream"


TargetAnswer = codec.ToPlayer | StreamEnded


def encode(batch: Batch) -> bytes:
    """A batch as a ``ToTarget`` message."""
    return codec.encode_batch(batch.prev, batch.to, batch.messages, batch.prev_chain, batch.to_chain)


@dataclass
class ConformanceStream:
    """One stream to the target under test; also the link's listener."""

    link: transport.Link = field(init=False)
    _answers: asyncio.Queue[TargetAnswer] = field(default_factory=asyncio.Queue)
    _ready: asyncio.Event = field(default_factory=asyncio.Event)
    _over: bool = False

    @classmethod
    async def connect(
        cls,
        address: str,
        security: Security = NONE,
        sharing: Connections | None = None,
        timeout: float = ANSWER_SECONDS,
    ) -> ConformanceStream:
        """A stream with a connection of its own, or on one that others share."""
        stream = cls()
        if sharing is not None:
            stream.link = await sharing.connect(address, stream, timeout)
        else:
            stream.link = await transport.connect(address, stream, security, timeout)
        stream._ready.set()
        return stream

    # --- Listener ---

    def received(self, data: bytes) -> None:
        try:
            self._answers.put_nowait(codec.decode_to_player(data))
        except LogPlayerError as error:
            self._answers.put_nowait(StreamEnded(error))

    def writable(self) -> None:
        self._ready.set()

    def closed(self, error: Exception | None) -> None:
        self._over = True
        self._answers.put_nowait(StreamEnded(error))
        self._ready.set()

    # --- What a rule does ---

    async def send(self, data: bytes) -> bool:
        """Send one message as soon as the transport takes it; False, and nothing is sent, if the stream has ended."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            raise Broken("the target to take a message", f"a full stream for {ANSWER_SECONDS:g} s") from None
        if self._over:
            return False
        self._ready.clear()
        self.link.send(data)
        return True

    async def batch(self, *batches: Batch) -> None:
        """Send batches without waiting for answers."""
        for batch in batches:
            await self.send(encode(batch))

    async def answer(self) -> TargetAnswer:
        """The next thing that the target says."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._answers.get()
        except TimeoutError:
            raise Broken("an answer", f"silence for {ANSWER_SECONDS:g} s") from None

    async def open(self, target: str, log_id: str, session: Session, speaks: Versions | None = None) -> TargetAnswer:
        """Send an Open and hear the answer."""
        await self.send(codec.encode_open(target, log_id, session, speaks))
        return await self.answer()

    async def acked(self, index: int) -> codec.Ack:
        """The ack that covers ``index``. Acks must not go back, nor pass what was sent."""
        last = -1
        while True:
            answer = await self.answer()
            if not isinstance(answer, codec.Ack):
                raise Broken(f"an Ack of {index}", describe(answer) + _advice(answer))
            if answer.index < last or answer.index > index:
                raise Broken(f"acks that rise up to {index}", f"an Ack of {answer.index} after {last}")
            last = answer.index
            if last == index:
                return answer

    async def refused(self, *reasons: Refusal, acks: int = -1) -> TargetRefusal:
        """The refusal, with one of ``reasons``; acks up to the index ``acks``, of what came before, may precede it."""
        wanted = " or ".join(reason.name for reason in reasons)
        answer = await self.answer()
        while isinstance(answer, codec.Ack) and answer.index <= acks:
            answer = await self.answer()
        if not isinstance(answer, TargetRefusal) or answer.reason not in reasons:
            raise Broken(f"Refused {wanted}", describe(answer))
        after = await self.answer()
        if not isinstance(after, StreamEnded):
            raise Broken("the end of the stream after Refused", describe(after))
        return answer

    async def ends(self) -> None:
        """The stream ends, by a Refused or otherwise, and nothing is acked before."""
        answer = await self.answer()
        if isinstance(answer, codec.Ack | codec.SessionOpened):
            raise Broken("the stream to be refused or ended", describe(answer))

    async def flood(self, batches: Iterable[Batch]) -> int:
        """Send until all is acked or the stream ends; the last index that was acked."""
        last = 0
        for batch in batches:
            last = batch.to
            await self.batch(batch)
            await asyncio.sleep(0.002)  # Long enough for a restart to hit the middle.
        acked = 0
        while acked < last:
            answer = await self.answer()
            if not isinstance(answer, codec.Ack):
                break
            acked = answer.index
        return acked

    def cut(self) -> None:
        """Close without a word."""
        self.link.close()


def describe(answer: TargetAnswer) -> str:
    """An answer as a verdict tells it."""
    if isinstance(answer, TargetRefusal):
        return f"Refused {answer.reason.name} ({answer.detail})"
    if isinstance(answer, codec.Ack):  # By the names of the protocol, which the reader knows.
        return f"Ack of {answer.index}"
    if isinstance(answer, codec.SessionOpened):
        return f"Opened of {answer.index} with chain value {answer.chain.hex() or 'none'}"
    return str(answer)


def _advice(answer: TargetAnswer) -> str:
    if isinstance(answer, TargetRefusal) and answer.reason is Refusal.POISON:
        return "; a target that takes only its own kind of transactions is judged with --sample FILE"
    return ""


def digest_after(digest: int, batches: Iterable[Batch]) -> int:
    """What a target's digest must be after ``batches`` too."""
    for batch in batches:
        digest = digests.extend(digest, batch.messages)
    return digest


def value_at(index: int) -> bytes:
    """The chain value at an index of the log that the kit pretends to play: to a target it is eight bytes, no more."""
    return mark_of(b"conform %d" % index) if index else GENESIS


def covering(prev: int, to: int, *entries: Delivery, value: Callable[[int], bytes] = value_at) -> Batch:
    """A batch for ``(prev, to]`` as a player sends it: with chain values, in the entries too, but for the end."""
    told = tuple(entry if entry.index == to else entry._replace(chain=value(entry.index)) for entry in entries)
    return Batch(prev, to, told, value(prev), value(to))


def payload(key: bytes, value: bytes | None) -> bytes:
    """An encoded transaction with one mutation."""
    return codec.encode_mutation(key, value).encoded


def message(index: int, key: bytes, value: bytes, *, quarantine: bool = False) -> Delivery:
    """An entry that puts one key."""
    return Delivery(index, payload(key, value), quarantine)
