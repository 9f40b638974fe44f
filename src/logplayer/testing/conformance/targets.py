"""The conformance kit: checks a target, written in any language, rule by rule, over the wire.

    verdicts = await conform("grpc://127.0.0.1:7001", "shard-1")

It writes into the target, so it refuses one that holds another log's data. It cannot read a foreign store; with a dump
of the content (``dump``) it also compares that. With ``restart`` it kills and starts the target, alone and under load.
A target that takes only transactions of its own kind is judged with such transactions (``samples``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logplayer.core.chain import GENESIS
from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.fence import NOBODY, Batch, Position, TargetRefusal
from logplayer.errors import Malformed, TargetError, UserError
from logplayer.target import client
from logplayer.testing.conformance.client import (
    Broken,
    ConformanceStream,
    covering,
    describe,
    digest_after,
    message,
    value_at,
)
from logplayer.wire import codec
from logplayer.wire.connections import Connections
from logplayer.wire.entries import encode_headers
from logplayer.wire.security import NONE, Security

LOG_ID = "logplayer-conform"

Restart = Callable[[], Awaitable[None]]
Dump = Callable[[], Awaitable[dict[bytes, bytes]]]


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """What one rule's check found. ``ok`` is None if it was skipped, and ``seen`` then says why."""

    rule: str
    says: str
    ok: bool | None
    expected: str = ""
    seen: str = ""

    def __str__(self) -> str:
        word = {True: "ok", False: "FAILED", None: "skipped"}[self.ok]
        more = {True: "", False: f"\n    expected {self.expected}\n    saw      {self.seen}", None: f" ({self.seen})"}
        return f"{word:8}{self.rule:24}{self.says}{more[self.ok]}"


class SampleTransaction(NamedTuple):
    """A transaction that the target accepts, at any time and any number of times."""

    where: str  # Where it comes from, for messages: "line 3 of orders.jsonl".
    payload: bytes


class Skip(Exception):
    """The rule cannot be checked here."""


def _keys_and_values(payload: bytes) -> list[tuple[bytes, bytes | None]]:
    """What a dump must show of an entry: nothing of rows, which a target has in a schema of its own."""
    try:
        return codec.decode_transaction(payload)
    except Malformed:
        return []


@dataclass
class Kit:
    """What the rules share: where the target is, and the index that it must have."""

    address: str
    target: str
    security: Security = NONE
    restart: Restart | None = None
    dump: Dump | None = None
    samples: Sequence[SampleTransaction] = ()  # What the entries hold; without any, puts of a few keys.
    index: int = 0  # What the target must report next.
    digest: int = 0
    chain: bytes = GENESIS  # The chain value that it must report with the index.
    session: Session = NOBODY
    content: dict[bytes, bytes | None] = field(default_factory=dict)  # What the rules wrote.
    _streams: list[ConformanceStream] = field(default_factory=list)

    # --- Sessions ---

    def next_term(self) -> Session:
        self.session = Session(self.session.epoch, self.session.term + 1)
        return self.session

    def next_epoch(self, term: int = 1) -> Session:
        self.session = Session(self.session.epoch + 1, term)
        return self.session

    async def connect(self, sharing: Connections | None = None) -> ConformanceStream:
        """A stream on which nothing was said yet."""
        stream = await ConformanceStream.connect(self.address, self.security, sharing)
        self._streams.append(stream)
        return stream

    async def opened(
        self, session: Session | None = None, sharing: Connections | None = None
    ) -> tuple[ConformanceStream, codec.SessionOpened]:
        """An open stream, and what the target said."""
        stream = await self.connect(sharing)
        answer = await stream.open(self.target, LOG_ID, session or self.next_term())
        if not isinstance(answer, codec.SessionOpened):
            raise Broken("Opened", describe(answer))
        return stream, answer

    async def open(self, session: Session | None = None, sharing: Connections | None = None) -> ConformanceStream:
        """An open stream to a target that has the index it must have."""
        stream, answer = await self.opened(session, sharing)
        if answer.index != self.index:
            raise Broken(f"Opened at index {self.index}", describe(answer))
        return stream

    async def unmoved(self) -> None:
        """The target has what it had: what was refused left no trace, not in the digest or the chain value either."""
        stream, answer = await self.opened()
        stream.cut()
        if answer != (self.index, self.digest, self.chain):
            moved = "the same index" if answer.index == self.index else f"index {answer.index}"
            other = "" if answer.digest == self.digest else " and another digest"
            broken = "" if answer.chain == self.chain else f" and the chain value {answer.chain.hex() or 'none'}"
            expected = f"index {self.index} with its digest and the chain value {self.chain.hex() or 'none'}"
            raise Broken(expected, f"{moved}{other}{broken}")

    async def unmoved_index(self) -> None:
        """The next session finds the target where its last ack put it."""
        (await self.open()).cut()

    # --- Batches ---

    def value(self, index: int) -> bytes:
        """The log's chain value at ``index``; where the target is, its own, so that one lie does not break the rest."""
        return self.chain if index == self.index else value_at(index)

    def covering(self, prev: int, to: int, *entries: Delivery) -> Batch:
        """A batch for ``(prev, to]`` with the chain values of this kit's log."""
        return covering(prev, to, *entries, value=self.value)

    def make(self, *values: bytes, prev: int | None = None, span: int | None = None) -> Batch:
        """A right batch at ``prev`` with one entry for each value; ``span`` is how far the range reaches."""
        start = self.index if prev is None else prev
        entries = (self.entry(start + 1 + i, value) for i, value in enumerate(values))
        return self.covering(start, start + (span or len(values)), *entries)

    def row(self, count: int, prev: int | None = None) -> list[Batch]:
        """Right batches in a row, one entry each."""
        start = self.index if prev is None else prev
        return [self.make(b"value %d" % i, prev=start + i) for i in range(count)]

    def heavy(self) -> Batch:
        """A right batch that takes a while to commit, so that what follows it waits in a queue."""
        return self.make(*([b"x" * 4000] * 500))

    def entry(self, index: int, value: bytes) -> Delivery:
        """Few keys and many entries, so that an entry applied twice or out of order leaves the wrong value.

        Of a sample the transactions take turns; a value is then as long a header.
        """
        if self.samples:
            sample = self.samples[index % len(self.samples)].payload
            return Delivery(index, sample + encode_headers({"conform": b"%d %s" % (index, value)}))
        return message(index, b"conform/%d" % (index % 7), b"%d %s" % (index, value))

    def done(self, *batches: Batch) -> None:
        """The target must have these now."""
        self.digest = digest_after(self.digest, batches)
        self.index, self.chain = batches[-1].to, batches[-1].to_chain
        for batch in batches:
            for entry in batch.messages:
                if not entry.quarantine:
                    self.content.update(_keys_and_values(entry.payload))

    async def play(self, stream: ConformanceStream, *batches: Batch) -> codec.Ack:
        """Send right batches and wait for the ack of the last."""
        await stream.batch(*batches)
        ack = await stream.acked(batches[-1].to)
        self.done(*batches)
        return ack

    def settle(self, opened: codec.SessionOpened, sent: list[Batch], acked: int) -> list[Batch]:
        """After a cut: the target must have the end of one of ``sent``, and at least what it acked.

        Returns the batches that it does not have.
        """
        have = [batch for batch in sent if batch.to <= opened.index]
        ends = {self.index, *(batch.to for batch in sent)}
        if opened.index not in ends or opened.index < acked:
            raise Broken(f"the end of a batch that was sent, {acked} or more", f"index {opened.index}")
        if digest_after(self.digest, have) != opened.digest:
            raise Broken(f"the digest of exactly the entries up to {opened.index}", "another digest")
        if opened.chain != self.value(opened.index):
            raise Broken(f"the chain value of index {opened.index}", f"chain value {opened.chain.hex() or 'none'}")
        if have:
            self.done(*have)
        return sent[len(have) :]

    # --- Around a rule ---

    async def position(self) -> Position:
        return await client.position(self.address, self.target, security=self.security)

    def hang_up(self) -> None:
        for stream in self._streams:
            stream.cut()
        self._streams.clear()

    async def resync(self) -> None:
        """Take the target's word for its index, so that one broken rule does not break the next."""
        self.hang_up()
        stood = await self.position()
        self.session = max(self.session, stood.session)
        stream, opened = await self.opened(self.next_epoch())
        stream.cut()
        self.index, self.digest, self.chain = opened

    async def take_samples(self) -> None:
        """Play every sample twice. Raises UserError for one that the target refuses: it cannot be judged with that."""
        await self.resync()
        stream = await self.open()
        for where, payload in (*self.samples, *self.samples):
            batch = self.covering(self.index, self.index + 1, Delivery(self.index + 1, payload))
            await stream.batch(batch)
            answer = await stream.answer()
            if isinstance(answer, TargetRefusal) and answer.reason is Refusal.POISON:
                raise UserError(
                    f"the target refuses {where}: {answer.detail}; a sample holds transactions that the target accepts "
                    "at any time and any number of times"
                )
            if not isinstance(answer, codec.Ack):
                break  # Not the sample's fault: the rules find out what is wrong.
            self.done(batch)
        self.hang_up()


TargetCheck = Callable[[Kit], Awaitable[None]]
RULES: dict[str, TargetCheck] = {}


def rule(name: str) -> Callable[[TargetCheck], TargetCheck]:
    """Put a check into the list under ``name``."""

    def add(check: TargetCheck) -> TargetCheck:
        RULES[name] = check
        return check

    return add


async def conform(
    address: str,
    target: str,
    security: Security = NONE,
    restart: Restart | None = None,
    dump: Dump | None = None,
    only: Collection[str] = (),
    tell: Callable[[RuleVerdict], object] = bool,
    samples: Sequence[SampleTransaction] = (),
) -> list[RuleVerdict]:
    """The verdict on every rule, or on those in ``only``, in the order of docs/reference/protocol.md.

    ``tell`` hears each as it falls: a target that is silent where it should answer takes ten seconds for each.
    Raises UserError if the target holds data of a real log, or refuses one of ``samples``, and TargetError if it cannot
    be reached.
    """
    # Imported for their rules, in the order of the verdicts; not above, as they need this module whole.
    from logplayer.testing.conformance import rules, histories, faults  # noqa: F401, I001

    unknown = sorted(set(only) - set(RULES))
    if unknown:
        raise UserError(f"there is no rule {unknown[0]!r}; the rules are {', '.join(RULES)}")
    stood = await client.position(address, target, security=security)
    if stood.log_id not in ("", LOG_ID):
        held = f"the target at {address} holds data of log {stood.log_id!r}"
        raise UserError(f"{held}; the kit would write into it, so start it on an empty store")
    kit = Kit(address, target, security, restart, dump, samples, session=stood.session)
    kit.next_epoch()
    if samples:
        await kit.take_samples()
    verdicts = []
    for name, check in RULES.items():
        if only and name not in only:
            continue
        verdicts.append(await _judge(kit, name, check))
        tell(verdicts[-1])
    return verdicts


async def _judge(kit: Kit, name: str, check: TargetCheck) -> RuleVerdict:
    says = (check.__doc__ or "").strip().splitlines()[0]
    try:
        await kit.resync()
        await asyncio.wait_for(check(kit), 120)
    except Skip as skip:
        return RuleVerdict(name, says, None, seen=str(skip))
    except Broken as broken:
        return RuleVerdict(name, says, False, broken.expected, broken.seen)
    except (TargetError, TimeoutError) as error:
        return RuleVerdict(name, says, False, "the target to answer", str(error) or "no end within 120 s")
    finally:
        kit.hang_up()
    return RuleVerdict(name, says, True)
