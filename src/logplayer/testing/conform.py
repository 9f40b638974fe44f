"""The conformance kit: checks a target, written in any language, rule by rule, over the wire.

    verdicts = await conform("grpc://127.0.0.1:7001", "shard-1")

It writes into the target, so it refuses one that holds another log's data. It cannot read a foreign store; with a dump
of the content (``dump``) it also compares that. With ``restart`` it kills and starts the target, alone and under load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from logplayer.core.entry import Message, Session
from logplayer.core.fence import NOBODY, Batch, Position
from logplayer.errors import TargetError, UserError
from logplayer.target import client
from logplayer.testing.conform_client import Broken, Stream, describe, digest_after, message
from logplayer.wire import codec
from logplayer.wire.connections import Connections
from logplayer.wire.security import NONE, Security

LOG_ID = "logplayer-conform"

Restart = Callable[[], Awaitable[None]]
Dump = Callable[[], Awaitable[dict[bytes, bytes]]]


@dataclass(frozen=True, slots=True)
class Verdict:
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


class Skip(Exception):
    """The rule cannot be checked here."""


@dataclass
class Kit:
    """What the rules share: where the target is, and where it must stand."""

    address: str
    target: str
    security: Security = NONE
    restart: Restart | None = None
    dump: Dump | None = None
    index: int = 0  # What the target must report next.
    digest: int = 0
    session: Session = NOBODY
    content: dict[bytes, bytes] = field(default_factory=dict)  # What the rules wrote.
    _streams: list[Stream] = field(default_factory=list)

    # --- Sessions ---

    def next_term(self) -> Session:
        self.session = Session(self.session.epoch, self.session.term + 1)
        return self.session

    def next_epoch(self, term: int = 1) -> Session:
        self.session = Session(self.session.epoch + 1, term)
        return self.session

    async def connect(self, sharing: Connections | None = None) -> Stream:
        """A stream on which nothing was said yet."""
        stream = await Stream.connect(self.address, self.security, sharing)
        self._streams.append(stream)
        return stream

    async def opened(
        self, session: Session | None = None, sharing: Connections | None = None
    ) -> tuple[Stream, codec.Opened]:
        """An open stream, and what the target said."""
        stream = await self.connect(sharing)
        answer = await stream.open(self.target, LOG_ID, session or self.next_term())
        if not isinstance(answer, codec.Opened):
            raise Broken("Opened", describe(answer))
        return stream, answer

    async def open(self, session: Session | None = None, sharing: Connections | None = None) -> Stream:
        """An open stream to a target that stands where it must."""
        stream, answer = await self.opened(session, sharing)
        if answer.index != self.index:
            raise Broken(f"Opened at index {self.index}", describe(answer))
        return stream

    async def unmoved(self) -> None:
        """The target stands where it stood: what was refused left no trace, not in the digest either."""
        stream, answer = await self.opened()
        stream.cut()
        if answer != (self.index, self.digest):
            moved = "the same index" if answer.index == self.index else f"index {answer.index}"
            other = "" if answer.digest == self.digest else " and another digest"
            raise Broken(f"index {self.index} with its digest", f"{moved}{other}")

    async def unmoved_index(self) -> None:
        """The next session finds the target where its last ack put it."""
        (await self.open()).cut()

    # --- Batches ---

    def make(self, *values: bytes, prev: int | None = None, span: int | None = None) -> Batch:
        """A right batch at ``prev`` with one entry for each value; ``span`` is how far the range reaches."""
        start = self.index if prev is None else prev
        messages = tuple(self.entry(start + 1 + i, value) for i, value in enumerate(values))
        return Batch(start, start + (span or len(values)), messages)

    def chain(self, count: int, prev: int | None = None) -> list[Batch]:
        """Right batches in a row, one entry each."""
        start = self.index if prev is None else prev
        return [self.make(b"value %d" % i, prev=start + i) for i in range(count)]

    def heavy(self) -> Batch:
        """A right batch that takes a while to commit, so that what follows it waits in a queue."""
        return self.make(*([b"x" * 4000] * 500))

    @staticmethod
    def entry(index: int, value: bytes) -> Message:
        """Few keys and many entries, so that an entry applied twice or out of order leaves the wrong value."""
        return message(index, b"conform/%d" % (index % 7), b"%d %s" % (index, value))

    def done(self, *batches: Batch) -> None:
        """The target must have these now."""
        self.digest = digest_after(self.digest, batches)
        self.index = batches[-1].to
        for batch in batches:
            for entry in batch.messages:
                if not entry.quarantine:
                    self.content.update(codec.decode_transaction(entry.payload))  # type: ignore[arg-type]

    async def play(self, stream: Stream, *batches: Batch) -> codec.Ack:
        """Send right batches and wait for the ack of the last."""
        await stream.batch(*batches)
        ack = await stream.acked(batches[-1].to)
        self.done(*batches)
        return ack

    def settle(self, opened: codec.Opened, sent: list[Batch], acked: int) -> list[Batch]:
        """After a cut: the target must stand at the end of one of ``sent``, and at or behind what it acked.

        Returns the batches that it does not have.
        """
        have = [batch for batch in sent if batch.to <= opened.index]
        ends = {self.index, *(batch.to for batch in sent)}
        if opened.index not in ends or opened.index < acked:
            raise Broken(f"the end of a batch that was sent, {acked} or more", f"index {opened.index}")
        if digest_after(self.digest, have) != opened.digest:
            raise Broken(f"the digest of exactly the entries up to {opened.index}", "another digest")
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
        """Take the target's word for where it stands, so that one broken rule does not break the next."""
        self.hang_up()
        stood = await self.position()
        self.session = max(self.session, stood.session)
        stream, opened = await self.opened(self.next_epoch())
        stream.cut()
        self.index, self.digest = opened.index, opened.digest


Check = Callable[[Kit], Awaitable[None]]
RULES: dict[str, Check] = {}


def rule(name: str) -> Callable[[Check], Check]:
    """Put a check into the list under ``name``."""

    def add(check: Check) -> Check:
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
    tell: Callable[[Verdict], object] = bool,
) -> list[Verdict]:
    """The verdict on every rule, or on those in ``only``, in the order of docs/reference/protocol.md.

    ``tell`` hears each as it falls: a target that is silent where it should answer takes ten seconds for each.
    Raises UserError if the target holds data of a real log, and TargetError if it cannot be reached.
    """
    # Imported for their rules, in the order of the verdicts; not above, as they need this module whole.
    from logplayer.testing import conform_rules, conform_faults  # noqa: F401, I001

    unknown = sorted(set(only) - set(RULES))
    if unknown:
        raise UserError(f"there is no rule {unknown[0]!r}; the rules are {', '.join(RULES)}")
    stood = await client.position(address, target, security=security)
    if stood.log_id not in ("", LOG_ID):
        held = f"the target at {address} holds data of log {stood.log_id!r}"
        raise UserError(f"{held}; the kit would write into it, so start it on an empty store")
    kit = Kit(address, target, security, restart, dump, session=stood.session)
    kit.next_epoch()
    verdicts = []
    for name, check in RULES.items():
        if only and name not in only:
            continue
        verdicts.append(await _judge(kit, name, check))
        tell(verdicts[-1])
    return verdicts


async def _judge(kit: Kit, name: str, check: Check) -> Verdict:
    says = (check.__doc__ or "").strip().splitlines()[0]
    try:
        await kit.resync()
        await asyncio.wait_for(check(kit), 120)
    except Skip as skip:
        return Verdict(name, says, None, seen=str(skip))
    except Broken as broken:
        return Verdict(name, says, False, broken.expected, broken.seen)
    except (TargetError, TimeoutError) as error:
        return Verdict(name, says, False, "the target to answer", str(error) or "no end within 120 s")
    finally:
        kit.hang_up()
    return Verdict(name, says, True)
