"""The conformance kit passes what is right, and catches each broken target by the rule that it breaks."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from logplayer.core import fence
from logplayer.core.entry import Refusal, Session
from logplayer.core.fence import NOBODY, Batch, Position, TargetRefusal
from logplayer.errors import Poison, UserError
from logplayer.target import host as hosts
from logplayer.target import protocol, stream, tcp_peer
from logplayer.target.protocol import Change, Rejected, Target
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.testing.conformance.targets import conform
from logplayer.wire import versions
from logplayer.wire.framing import Deframer

# --- Mutants: targets that break one rule each. -----------------------------------------------------------


class NoFence(MemoryTarget):
    """Takes batches of any session."""

    def apply(self, change: Change) -> Position:
        if change.batch is not None:
            change = Change(self._position.session, batch=change.batch)
        return super().apply(change)


class RangeFirst(MemoryTarget):
    """Looks at the range before the session."""

    def apply(self, change: Change) -> Position:
        if change.batch is not None and change.batch.prev != self._position.index:
            change = Change(self._position.session, batch=change.batch)
        return super().apply(change)


class NoRangeCheck(MemoryTarget):
    """Takes batches wherever they start."""

    def apply(self, change: Change) -> Position:
        if change.batch is not None:
            self._position = self._position._replace(index=change.batch.prev)
        return super().apply(change)


class OnlyForward(MemoryTarget):
    """Compares with <= where == is meant: a gap passes."""

    def apply(self, change: Change) -> Position:
        if change.batch is not None and change.batch.prev > self._position.index:
            self._position = self._position._replace(index=change.batch.prev)
        return super().apply(change)


class LastEntryCounts(MemoryTarget):
    """Stores the last entry's index instead of the end of the range."""

    def apply(self, change: Change) -> Position:
        super().apply(change)
        if change.messages:
            self._position = self._position._replace(index=change.messages[-1].index)
        return self._position


class EmptyStays(MemoryTarget):
    """Acks an empty batch and does not store that it passed it."""

    def apply(self, change: Change) -> Position:
        before = self._position
        after = super().apply(change)
        if change.batch is not None and not change.messages:
            self._position = after._replace(index=before.index)
        return after


class AnyEpoch(MemoryTarget):
    """Lets a lower epoch open."""

    def apply(self, change: Change) -> Position:
        if change.batch is None and change.session.epoch < self._position.session.epoch:
            self._position = self._position._replace(session=NOBODY)
        return super().apply(change)


class SameTermAgain(MemoryTarget):
    """Lets the stored session open again."""

    def apply(self, change: Change) -> Position:
        if change.batch is None and change.session.epoch == self._position.session.epoch:
            self._position = self._position._replace(session=Session(change.session.epoch, 0))
        return super().apply(change)


class TermsOnly(MemoryTarget):
    """Orders sessions by term and forgets the epoch."""

    def apply(self, change: Change) -> Position:
        stored = self._position
        newer = change.batch is None and change.session.epoch > stored.session.epoch
        if newer and change.session.term < stored.session.term:
            raise Rejected(TargetRefusal(Refusal.STALE_SESSION, "term", stored.index, stored.session.epoch))
        return super().apply(change)


class AnyLog(MemoryTarget):
    """Takes entries of any log."""

    def apply(self, change: Change) -> Position:
        self._position = self._position._replace(log_id=change.log_id or self._position.log_id)
        return super().apply(change)


class WrongDigest(MemoryTarget):
    """Sums over the payloads only."""

    def apply(self, change: Change) -> Position:
        super().apply(change)
        self._position = self._position._replace(digest=sum(len(message.payload) for message in change.messages))
        return self._position


class DigestSkipsQuarantine(MemoryTarget):
    """Leaves quarantined entries out of the digest."""

    def apply(self, change: Change) -> Position:
        before = self._position
        after = super().apply(change)
        if change.batch is not None:
            kept = tuple(message for message in change.messages if not message.quarantine)
            after = fence.advance(before, change.batch._replace(messages=kept))
        self._position = after
        return after


class LyingAck(MemoryTarget):
    """Acks a batch before it is stored: the last one is lost if the stream ends."""

    _held: Position | None = None

    def position(self) -> Position:
        return self._position

    def apply(self, change: Change) -> Position:
        if change.batch is None:
            self._held = None
        elif self._held is not None:
            self._position, self._held = self._held, None
        before = self._position
        after = super().apply(change)
        if change.batch is not None:
            self._position, self._held = before, after
        return after


class AppliesQuarantine(MemoryTarget):
    """Writes what it should keep aside, as far as it can."""

    def apply(self, change: Change) -> Position:
        after = super().apply(change)
        for message in change.quarantined:
            try:
                rows = protocol.decode_rows(message)
            except Poison:
                continue
            self._data.update((row.key, row.value or b"") for row in rows)
        return after


class PoisonStopsAll(MemoryTarget):
    """Calls the first entry of a poisoned batch the poisoned one."""

    def apply(self, change: Change) -> Position:
        try:
            return super().apply(change)
        except Poison as poison:
            raise Poison(str(poison), change.messages[0].index) from None


class NonAtomic(MemoryTarget):
    """Stores the index first and the data later: a crash in between loses the data."""

    def __init__(self) -> None:
        super().__init__()
        self._later: Change | None = None

    def apply(self, change: Change) -> Position:
        after = change.check(self._position)
        for _, key, value in self._later.rows if self._later else []:
            self._data[key] = value or b""
        self._later = change
        self._position = after
        return after

    def crash(self) -> None:
        self._later = None


class NoChainCheck(MemoryTarget):
    """Takes batches of any history."""

    def apply(self, change: Change) -> Position:
        if change.batch is not None and change.batch.prev == self._position.index:
            self._position = self._position._replace(chain=change.batch.prev_chain)
        return super().apply(change)


class ChainFirst(MemoryTarget):
    """Looks at the chain value before the session and the range."""

    def apply(self, change: Change) -> Position:
        stored = self._position
        if change.batch is not None and change.batch.prev_chain != stored.chain:
            raise Rejected(TargetRefusal(Refusal.DIVERGED, "chain", stored.index, stored.session.epoch, stored.chain))
        return super().apply(change)


class UnsaidChainFits(MemoryTarget):
    """Takes a batch that says nothing of its history."""

    def apply(self, change: Change) -> Position:
        if change.batch is not None and not change.batch.prev_chain:
            change = Change(change.session, batch=change.batch._replace(prev_chain=self._position.chain))
        return super().apply(change)


class ChainStays(MemoryTarget):
    """Does not store the chain value of the end, and so takes what continues the old one."""

    def apply(self, change: Change) -> Position:
        kept = self._position.chain
        if change.batch is not None and change.batch.prev == self._position.index:
            self._position = self._position._replace(chain=change.batch.prev_chain)
        self._position = super().apply(change)._replace(chain=kept)
        return self._position


class ChainOfTheLastEntry(MemoryTarget):
    """Stores the chain value of the last entry instead of the one at the end of the range."""

    def apply(self, change: Change) -> Position:
        after = super().apply(change)
        if change.messages and change.messages[-1].index < after.index:
            self._position = after._replace(chain=change.messages[-1].chain)
        return self._position


class RefusesWithoutItsChain(MemoryTarget):
    """Says DIVERGED, but not what it has."""

    def apply(self, change: Change) -> Position:
        try:
            return super().apply(change)
        except Rejected as rejected:
            raise Rejected(dataclasses.replace(rejected.refused, chain=b"")) from None


class ForgetsChain(MemoryTarget):
    """Keeps the chain value in memory only."""

    def crash(self) -> None:
        self._position = self._position._replace(chain=b"")


class ForgetsSession(MemoryTarget):
    """Keeps the session in memory only."""

    def crash(self) -> None:
        self._position = self._position._replace(session=NOBODY)


class ForgetsDigest(MemoryTarget):
    """Keeps the digest in memory only."""

    def crash(self) -> None:
        self._position = self._position._replace(digest=0)


class AcksUnstored(MemoryTarget):
    """Stores what it has when a session opens, and acks all the time."""

    def __init__(self) -> None:
        super().__init__()
        self._stored = Position()

    def apply(self, change: Change) -> Position:
        after = super().apply(change)
        if change.batch is None:
            self._stored = after
        return after

    def crash(self) -> None:
        self._position = self._stored


class RefusesHeaders(MemoryTarget):
    """Takes only transactions of mutations."""

    def apply(self, change: Change) -> Position:
        for message in change.messages:
            if change.headers(message.index):
                raise Poison(f"entry {message.index} has headers", message.index)
        return super().apply(change)


MUTANTS: list[tuple[type[MemoryTarget], set[str]]] = [
    (RefusesHeaders, {"headers"}),
    (NoFence, {"fence", "zombie"}),
    (RangeFirst, {"fence-order"}),
    (NoRangeCheck, {"repeat", "gap", "overlap", "reorder"}),
    (OnlyForward, {"gap", "reorder"}),
    (LastEntryCounts, {"range-beyond-entries"}),
    (EmptyStays, {"empty-range"}),
    (AnyEpoch, {"lower-epoch"}),
    (SameTermAgain, {"stale-term"}),
    (TermsOnly, {"new-epoch"}),
    (AnyLog, {"wrong-log"}),
    (WrongDigest, {"digest"}),
    (DigestSkipsQuarantine, {"quarantine"}),
    (LyingAck, {"acked-is-durable"}),
    (AppliesQuarantine, {"content"}),
    (PoisonStopsAll, {"poison"}),
    (NonAtomic, {"content"}),
    (NoChainCheck, {"other-history", "other-history-in-a-queue"}),
    (ChainFirst, {"chain-order"}),
    (UnsaidChainFits, {"other-history"}),
    (ChainStays, {"chain"}),
    (ChainOfTheLastEntry, {"chain"}),
    (RefusesWithoutItsChain, {"other-history"}),
    (ForgetsChain, {"restart", "restart-under-load"}),
    (ForgetsSession, {"restart"}),
    (ForgetsDigest, {"restart", "restart-under-load"}),
    (AcksUnstored, {"restart", "restart-under-load"}),
]


# --- Running the kit. -------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(target: Target, scheme: str = "tcp") -> AsyncIterator[str]:
    server = TargetServer({"t1": target})
    addresses = await server.start(**{scheme: "127.0.0.1:0"})
    try:
        yield addresses[0]
    finally:
        await server.stop()


@pytest.fixture(autouse=True)
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken targets fall silent; on loopback two seconds are enough to call it that."""
    monkeypatch.setattr("logplayer.testing.conformance.client.ANSWER_SECONDS", 2.0)


async def failures(
    target: MemoryTarget | SqliteTarget, scheme: str = "tcp", only: Collection[str] = ()
) -> dict[str, str]:
    """The rules that the kit says are broken."""

    async def restart() -> None:
        await asyncio.sleep(0.1)  # So that some batches are under way.
        getattr(target, "crash", lambda: None)()

    async def dump() -> dict[bytes, bytes]:
        return dict(target.scan())

    async with serving(target, scheme) as address:
        verdicts = await conform(address, "t1", restart=restart, dump=dump, only=only)
    assert all(verdict.ok is not None for verdict in verdicts)
    return {verdict.rule: str(verdict) for verdict in verdicts if not verdict.ok}


async def test_our_own_target_passes_over_grpc(tmp_path: Path) -> None:
    """Over tcp:// every store does, see tests/target."""
    assert await failures(SqliteTarget(tmp_path / "t1.db", "t1"), "grpc") == {}


@pytest.mark.parametrize(("mutant", "rules"), MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_broken_store_is_caught(
    mutant: type[MemoryTarget], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if mutant in (NoFence, RangeFirst):
        # Our server also ends fenced streams by itself; without the store's check both must go.
        monkeypatch.setattr(stream.Stream, "fenced", lambda self, by: None)
    caught = await failures(mutant(), only=rules | {"apply", "pipeline"})
    assert rules == set(caught) - {"apply", "pipeline"}, caught


def joins_without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins malformed batches with their neighbours."""
    monkeypatch.setattr(stream, "well_formed", lambda batch: True)


def joins_over_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins batches that do not meet, and keeps the queue to do so."""

    def take_all(self: stream.Stream) -> Batch:
        batches = [batch for batch, _ in self._batches]
        self._batches.clear()
        messages = tuple(message for batch in batches for message in batch.messages)
        return Batch(min(b.prev for b in batches), max(b.to for b in batches), messages)

    monkeypatch.setattr(stream.Stream, "_take_joined", take_all)


def joins_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins batches whose ranges meet and looks at no chain value but the first and the last."""

    def take_all(self: stream.Stream) -> Batch:
        batches = [batch for batch, _ in self._batches]
        self._batches.clear()
        messages = tuple(message for batch in batches for message in batch.messages)
        first, last = batches[0], batches[-1]
        return Batch(first.prev, last.to, messages, first.prev_chain, last.to_chain)

    monkeypatch.setattr(stream.Stream, "_take_joined", take_all)


def stops_in_front_of_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops at the index before a poisoned entry, whose chain value it does not know."""

    def cut(batch: Batch, before: int) -> Batch | None:
        kept = tuple(message for message in batch.messages if message.index < before)
        return Batch(batch.prev, before - 1, kept, batch.prev_chain, kept[-1].chain) if kept else None

    monkeypatch.setattr(hosts, "cut", cut)


def stops_with_the_old_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops at the entry before a poisoned one, but with the chain value of the batch's start."""

    def keep(batch: Batch, before: int) -> Batch | None:
        rest = fence.cut(batch, before)
        return rest and rest._replace(to_chain=batch.prev_chain)

    monkeypatch.setattr(hosts, "cut", keep)


def joins_without_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins batches and loses the chain values of the entries that end them."""

    def bare(batches: Sequence[Batch]) -> Batch:
        messages = tuple(message for batch in batches for message in batch.messages)
        first, last = batches[0], batches[-1]
        return Batch(first.prev, last.to, messages, first.prev_chain, last.to_chain)

    monkeypatch.setattr(stream, "join", bare)


def any_name_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opens for whatever name the player has in mind."""
    opening = stream.Stream._open
    monkeypatch.setattr(stream.Stream, "_open", lambda self, o: opening(self, o._replace(target="t1")))


def deaf_to_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not answer a Probe."""
    monkeypatch.setattr(stream.Stream, "_probe", lambda self: None)


def hasty_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers WaitFor at once."""
    reached = hosts.Host.reached
    monkeypatch.setattr(hosts.Host, "reached", lambda self, index: reached(self, 0))


def checks_outside_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks, then writes: an Open in between is not noticed, so its index is wrong by the time it arrives."""

    def apply(self: MemoryTarget, change: Change) -> Position:
        after = change.check(self._position)
        if change.batch is not None:
            time.sleep(0.02)
            after = fence.advance(self._position, change.batch)
        self._position = after._replace(session=max(after.session, self._position.session))
        return self._position

    monkeypatch.setattr(MemoryTarget, "apply", apply)
    monkeypatch.setattr(hosts, "ThreadPoolExecutor", lambda _, **more: ThreadPoolExecutor(4, **more))


def one_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts the connection when one of its streams has ended."""
    monkeypatch.setattr(tcp_peer.TcpPeer, "over", lambda self, number: self.cut())


def one_stream_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes every message of a connection for one of its first stream."""
    feed = Deframer.feed
    monkeypatch.setattr(
        Deframer, "feed", lambda self, data: ((number and 1, said) for number, said in feed(self, data))
    )


def opens_in_any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not look at the versions that a player speaks."""
    opening = stream.Stream._open
    monkeypatch.setattr(stream.Stream, "_open", lambda self, o: opening(self, o._replace(versions=versions.OURS)))


def answers_readers_in_any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not look at the versions that a reader speaks."""
    ask = stream.Stream._ask
    monkeypatch.setattr(stream.Stream, "_ask", lambda self, a: ask(self, a._replace(versions=versions.OURS)))


def says_the_players_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agrees to whatever is the newest version of the player."""
    monkeypatch.setattr(versions, "agreed", lambda theirs: theirs.newest)


SERVER_MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (joins_without_looking, "bad-batch-in-a-queue"),
    (joins_over_gaps, "reorder"),
    (joins_histories, "other-history-in-a-queue"),
    (stops_in_front_of_poison, "poison"),
    (stops_with_the_old_chain, "poison"),
    (joins_without_the_ends, "poison-in-a-queue"),
    (any_name_will_do, "wrong-target"),
    (deaf_to_probes, "probe"),
    (hasty_wait_for, "wait-for"),
    (checks_outside_the_transaction, "late-commit"),
    (one_ends_all, "shared-connection"),
    (one_stream_a_connection, "shared-connection"),
    (opens_in_any_version, "versions"),
    (answers_readers_in_any_version, "reader-versions"),
    (says_the_players_version, "lower-version"),
]


@pytest.mark.parametrize(("mutate", "rule"), SERVER_MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_broken_server_is_caught(
    mutate: Callable[[pytest.MonkeyPatch], None], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = MemoryTarget.apply

    def apply_slowly(self: MemoryTarget, change: Change) -> Position:
        time.sleep(0.01)  # A store of the real world: batches wait for one another.
        return apply(self, change)

    monkeypatch.setattr(MemoryTarget, "apply", apply_slowly)
    assert await failures(MemoryTarget(), only={rule}) == {}
    mutate(monkeypatch)
    assert set(await failures(MemoryTarget(), only={rule})) == {rule}


async def test_the_stores_own_fence_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server need not end fenced streams by itself: the check in the transaction is the one that counts."""
    monkeypatch.setattr(stream.Stream, "fenced", lambda self, by: None)
    assert await failures(MemoryTarget(), only={"fence", "zombie", "late-commit"}) == {}


async def test_a_verdict_says_what_was_expected_and_seen() -> None:
    caught = await failures(EmptyStays(), only={"empty-range"})
    assert "FAILED  empty-range" in caught["empty-range"]
    assert "expected Opened at index" in caught["empty-range"]
    assert "saw      Opened of" in caught["empty-range"]


async def test_the_kit_does_not_write_into_a_real_targets_data() -> None:
    target = MemoryTarget()
    target.apply(Change(Session(1, 1), log_id="orders"))
    async with serving(target) as address:
        with pytest.raises(UserError, match="holds data of log 'orders'"):
            await conform(address, "t1")
    assert target.position().session == Session(1, 1)
