"""The rules of the chain: a target has one history of the log, and says which."""

from __future__ import annotations

from logplayer.core.chain import GENESIS
from logplayer.core.entry import Refusal
from logplayer.core.fence import Batch
from logplayer.testing.conformance.client import Broken, value_at
from logplayer.testing.conformance.targets import Kit, rule


def _others(kit: Kit) -> tuple[bytes, ...]:
    """Chain values that are not the one that the target has: of another history, and none at all."""
    return (value_at(kit.index + 1_000_000), *([GENESIS] if kit.chain else []))


def _rewritten(batch: Batch, value: bytes) -> Batch:
    """The same batch as another history has it."""
    return batch._replace(prev_chain=value)


@rule("chain")
async def _chain(kit: Kit) -> None:
    """The chain value at the end of the range is stored with the index; Opened and Position tell it."""
    stream = await kit.open()
    for batches in (
        [kit.make(b"a")],
        [kit.make(b"b", b"c", prev=kit.index + 1, span=5)],  # It ends where the target has no entry.
        [kit.make(prev=kit.index + 6, span=2)],
        kit.row(3, prev=kit.index + 8),
    ):
        await kit.play(stream, *batches)
        stood = await kit.position()
        if (stood.index, stood.chain) != (kit.index, kit.chain):
            expected = f"Position to tell index {kit.index} with chain value {kit.chain.hex()}"
            raise Broken(expected, f"index {stood.index} with chain value {stood.chain.hex() or 'none'}")
    await kit.unmoved()


@rule("other-history")
async def _other_history(kit: Kit) -> None:
    """A batch that continues another chain value is refused with DIVERGED and the stored one, and leaves no trace."""
    await kit.play(await kit.open(), kit.make(b"a", b"b"))
    for value in _others(kit):
        for batch in (kit.make(b"of another history"), kit.make(span=3)):
            stream = await kit.open()
            await stream.batch(_rewritten(batch, value))
            refused = await stream.refused(Refusal.DIVERGED)
            if (refused.index, refused.chain) != (kit.index, kit.chain):
                seen = f"index {refused.index} with {refused.chain.hex() or 'none'}"
                raise Broken(f"the refusal to tell index {kit.index} with chain value {kit.chain.hex()}", seen)
    await kit.unmoved()
    await kit.play(await kit.open(), kit.make(b"of this history"))


@rule("chain-order")
async def _chain_order(kit: Kit) -> None:
    """Session and range are judged before the chain value: only a batch that fits says what history is meant."""
    old = await kit.open()
    [other, *_] = _others(kit)
    new = await kit.open()
    await old.batch(_rewritten(kit.make(b"of an older session"), other))
    await old.refused(Refusal.STALE_SESSION)
    await new.batch(_rewritten(kit.make(b"of another range", prev=kit.index + 1), other))
    await new.refused(Refusal.OUT_OF_SYNC)
    await kit.unmoved()


@rule("other-history-in-a-queue")
async def _other_history_in_a_queue(kit: Kit) -> None:
    """A batch of another history that waits with right ones is found: those before it are applied, it is not."""
    heavy = kit.heavy()
    stream = await kit.open()
    good = [heavy, *kit.row(20, prev=heavy.to)]
    bad, after = kit.row(2, prev=good[-1].to)
    await stream.batch(*good, _rewritten(bad, value_at(bad.prev + 1_000_000)), after)
    await stream.refused(Refusal.DIVERGED, acks=bad.prev)
    kit.done(*good)
    await kit.unmoved()
