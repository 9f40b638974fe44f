"""The rules of sessions that overlap, of poison, of readers and of restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.fence import Batch, TargetRefusal
from logplayer.errors import TargetError
from logplayer.target import client
from logplayer.testing.conformance.client import Broken, describe, message
from logplayer.testing.conformance.targets import LOG_ID, Kit, Skip, rule
from logplayer.wire import codec

STALE_OR_FENCED = (Refusal.STALE_SESSION, Refusal.FENCED)

# --- Sessions that overlap --------------------------------------------------------------------------------


async def _fences(kit: Kit, newer: Callable[[], Session]) -> None:
    old = await kit.open()
    new = await kit.open(newer())
    await kit.play(new, kit.make(b"a"))
    await old.batch(kit.make(b"from the old session"))  # Its range is right: only the session is not.
    await old.refused(*STALE_OR_FENCED)
    await kit.unmoved()


@rule("fence")
async def _fence(kit: Kit) -> None:
    """Once a newer session is open, a batch of the older one is refused, even if its range fits."""
    await _fences(kit, kit.next_term)


@rule("zombie")
async def _zombie(kit: Kit) -> None:
    """Once a newer player is there, a batch of the older one is refused, even if its range fits."""
    await _fences(kit, kit.next_epoch)


@rule("fence-order")
async def _fence_order(kit: Kit) -> None:
    """A batch of an older session is refused for its session, also if its range does not fit."""
    for newer, reason in ((kit.next_term, Refusal.STALE_SESSION), (kit.next_epoch, Refusal.FENCED)):
        old = await kit.open()
        new = await kit.open(newer())
        await kit.play(new, kit.make(b"a"))
        await old.batch(kit.make(b"from the old session", prev=kit.index + 5))
        await old.refused(reason)
    await kit.unmoved()


@rule("acked-is-durable")
async def _acked_is_durable(kit: Kit) -> None:
    """What was acked is there when the next session opens."""
    for _ in range(5):
        stream = await kit.open()
        await kit.play(stream, *kit.row(5))


@rule("cut")
async def _cut(kit: Kit) -> None:
    """A stream cut under load leaves a whole number of batches, each applied once, and the rest can follow."""
    for round_ in range(8):
        stream, _ = await kit.opened()
        sent = kit.row(30)
        await stream.batch(*sent)
        acked = 0
        if round_ % 2:  # Cut at once, or as soon as the target has acked something.
            answer = await stream.answer()
            if not isinstance(answer, codec.Ack):
                raise Broken("an Ack", describe(answer))
            acked = answer.index
        stream.cut()
        stream, opened = await kit.opened()
        rest = kit.settle(opened, sent, acked)
        if rest:
            await kit.play(stream, *rest)
        await kit.unmoved()


@rule("late-commit")
async def _late_commit(kit: Kit) -> None:
    """What the old stream still has under way when a new one opens is applied before it or never."""
    for _ in range(8):
        old, _ = await kit.opened()
        sent = [*kit.row(20), kit.make(*([b"x" * 2000] * 200), prev=kit.index + 20)]
        await old.batch(*sent)
        new, opened = await kit.opened(kit.next_term())
        rest = kit.settle(opened, sent, 0)
        await kit.play(new, *(rest or [kit.make(b"a")]))
        await kit.unmoved()


# --- Entries that cannot be applied -----------------------------------------------------------------------


@rule("quarantine")
async def _quarantine(kit: Kit) -> None:
    """An entry marked for quarantine is not applied, whatever it holds; the index and the digest pass it."""
    stream = await kit.open()
    at = kit.index
    batch = kit.covering(at, at + 3, kit.entry(at + 1, b"a"), Delivery(at + 2, b"\xff no transaction", True))
    aside = kit.covering(at + 3, at + 4, message(at + 4, b"conform/aside", b"never", quarantine=True))
    ack = await kit.play(stream, batch, aside)
    if ack.digest != kit.digest:
        raise Broken("the digest with the quarantined entries", "another digest")


async def _poisoned(kit: Kit, bad: Delivery, *batches: Batch) -> bytes | None:
    """Send batches with ``bad`` among their entries: the chain value that the refusal tells.

    None if the store takes it, which is right too.
    """
    stream = await kit.open()
    await stream.batch(*batches)
    answer = await stream.answer()
    while isinstance(answer, codec.Ack) and answer.index < batches[-1].to:
        answer = await stream.answer()
    if isinstance(answer, codec.Ack):
        return None
    if not isinstance(answer, TargetRefusal) or answer.reason is not Refusal.POISON:
        raise Broken("Refused POISON, or an Ack of the whole batch", describe(answer))
    if answer.index != bad.index:
        raise Broken(f"the refusal to tell entry {bad.index}", f"entry {answer.index}")
    return answer.chain


async def _stopped(kit: Kit, told: bytes) -> None:
    """The target has what the kit says, and the refusal has its chain value."""
    await kit.unmoved()
    if told != kit.chain:
        raise Broken(f"the refusal to tell chain value {kit.chain.hex()}", told.hex() or "none")


@rule("poison")
async def _poison(kit: Kit) -> None:
    """An entry that the store cannot take is refused with POISON and its index, after the entries before it.

    The target then has the index of its own last entry before that, with that entry's chain value. A store that takes
    any bytes acks it instead, which is right too.
    """
    at = kit.index
    first = kit.make(b"a", b"b")
    a, bad, z = kit.entry(at + 3, b"c"), Delivery(at + 6, b"\xff no transaction"), kit.entry(at + 8, b"d")
    told = await _poisoned(kit, bad, first, kit.covering(at + 2, at + 9, a, bad, z))
    if told is None:
        return
    kit.done(first, kit.covering(at + 2, at + 3, a))
    await _stopped(kit, told)
    aside = Delivery(bad.index, bad.payload, True)
    await kit.play(await kit.open(), kit.covering(at + 3, bad.index, aside))
    await kit.unmoved()


@rule("poison-first")
async def _poison_first(kit: Kit) -> None:
    """If the poisoned entry is the first of its batch, the target has the batch before, up to its end or last entry."""
    at = kit.index
    before, bad = kit.make(b"a", b"b", span=4), Delivery(at + 6, b"\xff no transaction")
    told = await _poisoned(kit, bad, before, kit.covering(at + 4, at + 7, bad))
    if told is None:
        return
    _, opened = await kit.opened()
    last = kit.covering(at, at + 2, *before.messages)  # What is left of the two if the target has joined them.
    kit.done(last if opened.index == last.to else before)
    await _stopped(kit, told)
    await kit.play(await kit.open(), kit.covering(kit.index, bad.index, Delivery(bad.index, bad.payload, True)))


@rule("poison-in-a-queue")
async def _poison_in_a_queue(kit: Kit) -> None:
    """A poisoned entry among batches that wait: the target has the entry before it, with that entry's chain value."""
    heavy = kit.heavy()
    good = [heavy, *kit.row(20, prev=heavy.to)]
    at = good[-1].to
    bad = Delivery(at + 1, b"\xff no transaction")
    told = await _poisoned(kit, bad, *good, kit.covering(at, at + 3, bad))
    if told is None:
        return
    kit.done(*good)
    await _stopped(kit, told)
    await kit.play(await kit.open(), kit.covering(at, at + 1, bad._replace(quarantine=True)))


# --- Readers ----------------------------------------------------------------------------------------------


@rule("wait-for")
async def _wait_for(kit: Kit) -> None:
    """WaitFor answers when the index is reached, and not before."""
    stream = await kit.open()
    batch = kit.make(b"a")
    waiting = asyncio.create_task(client.wait_for(kit.address, kit.target, batch.to, security=kit.security))
    done, _ = await asyncio.wait({waiting}, timeout=0.5)
    if done:
        raise Broken(f"WaitFor to wait for {batch.to} while the index is {kit.index}", "an answer")
    await kit.play(stream, batch)
    stood = await waiting
    if stood.index < batch.to:
        raise Broken(f"WaitFor to answer with {batch.to}", f"index {stood.index}")
    await client.wait_for(kit.address, kit.target, batch.to, security=kit.security)


# --- Restarts ---------------------------------------------------------------------------------------------


async def _reachable(kit: Kit) -> None:
    for _ in range(100):
        try:
            await kit.position()
            return
        except TargetError:
            await asyncio.sleep(0.1)
    raise Broken("the target to answer after its restart", "nothing")


@rule("restart")
async def _restart(kit: Kit) -> None:
    """Index, digest, chain value and session survive a restart: an old session stays fenced."""
    if kit.restart is None:
        raise Skip("no restart command was given")
    stream = await kit.open(kit.next_epoch(term=3))
    await kit.play(stream, *kit.row(10))
    await kit.restart()
    await _reachable(kit)
    for stale, reason in ((kit.session, Refusal.STALE_SESSION), (Session(kit.session.epoch - 1, 9), Refusal.FENCED)):
        stream = await kit.connect()
        await stream.send(codec.encode_open(kit.target, LOG_ID, stale))
        await stream.refused(reason)
    await kit.unmoved()


@rule("restart-under-load")
async def _restart_under_load(kit: Kit) -> None:
    """A restart in the middle of a batch leaves a whole number of batches, at least those that were acked."""
    if kit.restart is None:
        raise Skip("no restart command was given")
    for _ in range(3):
        stream = await kit.open()
        sent = kit.row(400)
        restarting = asyncio.ensure_future(kit.restart())
        acked = await stream.flood(sent)
        await restarting
        await _reachable(kit)
        stream, opened = await kit.opened()
        rest = kit.settle(opened, sent, acked)
        if rest:
            await kit.play(stream, *rest)
        await kit.unmoved()


@rule("content")
async def _content(kit: Kit) -> None:
    """The store holds exactly what the entries say, and nothing of the quarantined ones."""
    if kit.dump is None:
        raise Skip("no dump command was given")
    stream = await kit.open()
    at = kit.index
    aside = kit.covering(at, at + 1, message(at + 1, b"conform/aside", b"never", quarantine=True))
    await kit.play(stream, aside, *kit.row(20, prev=at + 1))
    seen = await kit.dump()
    wrong = sorted(key for key in kit.content if seen.get(key) != kit.content[key])
    if wrong:
        raise Broken(f"{wrong[0]!r} to hold {kit.content[wrong[0]]!r:.60}", f"{seen.get(wrong[0])!r:.60}")
    if b"conform/aside" in seen:
        raise Broken("a quarantined entry to be kept aside", "its key among the data")
