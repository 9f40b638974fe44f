"""The rules of opening, playing and ranges. The first line of a docstring is what the verdict prints."""

from __future__ import annotations

import asyncio
import itertools

from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.fence import Batch
from logplayer.errors import VersionMismatch
from logplayer.target import client
from logplayer.testing.conformance.client import ANSWER_SECONDS, Broken, StreamEnded, describe, encode
from logplayer.testing.conformance.targets import LOG_ID, Kit, rule
from logplayer.wire import codec, versions
from logplayer.wire.connections import Connections
from logplayer.wire.entries import encode_headers

_FAR = versions.Versions(1_000_000, 1_000_000)  # Of a release that nobody has yet.

# --- Opening ----------------------------------------------------------------------------------------------


@rule("open")
async def _open(kit: Kit) -> None:
    """Open is answered with Opened, and index, digest and chain value are those that Position tells."""
    _, opened = await kit.opened()
    stood = await kit.position()
    if (stood.index, stood.digest, stood.chain) != opened:
        seen = f"index {stood.index}, chain value {stood.chain.hex() or 'none'}"
        raise Broken(f"Position to tell {describe(opened)}, and its digest", seen)
    if stood.session != kit.session or stood.log_id != LOG_ID:
        seen = f"session {stood.session} of log {stood.log_id!r}"
        raise Broken(f"Position to tell session {kit.session} of log {LOG_ID!r}", seen)


@rule("open-comes-first")
async def _open_comes_first(kit: Kit) -> None:
    """A stream whose first message is not Open is ended, and nothing of it is applied."""
    for first in (codec.PROBE, encode(kit.make(span=1))):
        stream = await kit.connect()
        await stream.send(first)
        await stream.ends()
    await kit.unmoved()


@rule("one-open")
async def _one_open(kit: Kit) -> None:
    """A second Open on a stream ends it."""
    stream = await kit.open()
    await stream.send(codec.encode_open(kit.target, LOG_ID, kit.next_term()))
    await stream.ends()


@rule("versions")
async def _versions(kit: Kit) -> None:
    """An Open in versions that the target does not speak, or in none, fails with VERSION and fences nobody."""
    stream = await kit.open()
    for speaks in (versions.UNSAID, _FAR):
        later = Session(kit.session.epoch + 1, 1)
        answer = await (await kit.connect()).open(kit.target, LOG_ID, later, speaks)
        if not (isinstance(answer, StreamEnded) and isinstance(answer.error, VersionMismatch)):
            raise Broken(f"Failed VERSION for {speaks}", describe(answer))
    await kit.play(stream, kit.make(b"a"))


@rule("lower-version")
async def _lower_version(kit: Kit) -> None:
    """To a player that speaks newer versions too, the target says in Opened the newest that both speak."""
    both = versions.Versions(versions.OURS.oldest, _FAR.newest)
    answer = await (await kit.connect()).open(kit.target, LOG_ID, kit.next_term(), both)
    if not isinstance(answer, codec.SessionOpened):
        raise Broken(f"Opened in {versions.OURS}", describe(answer))


@rule("reader-versions")
async def _reader_versions(kit: Kit) -> None:
    """Position and WaitFor in versions that the target does not speak, or in none, fail with VERSION."""
    await kit.play(await kit.open(), kit.make(b"a"))
    for speaks, at_least in itertools.product((versions.UNSAID, _FAR), (0, kit.index)):
        ask = codec.AskPosition(kit.target, at_least, speaks)
        try:
            answer = await client.ask_position(kit.address, ask, ANSWER_SECONDS, kit.security)
        except VersionMismatch:
            continue
        raise Broken(f"{'WaitFor' if at_least else 'Position'} to fail with VERSION for {speaks}", str(answer))


@rule("wrong-target")
async def _wrong_target(kit: Kit) -> None:
    """An Open for another target's name is refused with WRONG_TARGET."""
    stream = await kit.connect()
    await stream.send(codec.encode_open(f"not-{kit.target}", LOG_ID, kit.next_term()))
    await stream.refused(Refusal.WRONG_TARGET)
    await kit.unmoved()


@rule("wrong-log")
async def _wrong_log(kit: Kit) -> None:
    """An Open for another log than the one that filled the target is refused with WRONG_LOG, even in a new epoch."""
    stream = await kit.connect()
    await stream.send(codec.encode_open(kit.target, "another-log", kit.next_epoch()))
    await stream.refused(Refusal.WRONG_LOG)
    await kit.unmoved()


@rule("lower-epoch")
async def _lower_epoch(kit: Kit) -> None:
    """An Open of a lower epoch is refused with FENCED and tells the stored epoch, whatever its term."""
    await kit.open(kit.next_epoch())
    stream = await kit.connect()
    await stream.send(codec.encode_open(kit.target, LOG_ID, Session(kit.session.epoch - 1, kit.session.term + 9)))
    refused = await stream.refused(Refusal.FENCED)
    if refused.epoch != kit.session.epoch:
        raise Broken(f"the refusal to tell epoch {kit.session.epoch}", f"epoch {refused.epoch}")


@rule("stale-term")
async def _stale_term(kit: Kit) -> None:
    """An Open of the stored session, or of a lower term of its epoch, is refused with STALE_SESSION."""
    await kit.open(kit.next_epoch(term=5))
    for term in (5, 4):
        stream = await kit.connect()
        await stream.send(codec.encode_open(kit.target, LOG_ID, Session(kit.session.epoch, term)))
        await stream.refused(Refusal.STALE_SESSION)


@rule("new-epoch")
async def _new_epoch(kit: Kit) -> None:
    """A higher epoch opens with any term, lower than the stored one too."""
    await kit.open(kit.next_epoch(term=5))
    stream = await kit.open(kit.next_epoch(term=1))
    await kit.play(stream, kit.make(b"a"))


@rule("shared-connection")
async def _shared_connection(kit: Kit) -> None:
    """Streams that share a connection know nothing of each other: one that is refused, fenced or cut ends alone."""
    sharing = Connections(kit.security)
    fenced = await kit.open(sharing=sharing)
    await kit.play(fenced, kit.make(b"a"))
    playing = await kit.open(sharing=sharing)
    await fenced.batch(kit.make(b"late"))
    await fenced.refused(Refusal.STALE_SESSION, acks=kit.index)
    await kit.play(playing, kit.make(b"b"))
    refused = await kit.connect(sharing)
    await refused.send(codec.PROBE)
    await refused.ends()
    await kit.play(playing, kit.make(b"c"))
    cut = await kit.connect(sharing)
    await cut.send(codec.encode_open(f"not-{kit.target}", LOG_ID, kit.session))
    cut.cut()
    await kit.play(playing, kit.make(b"d"), kit.make(b"e", prev=kit.index + 1))


# --- Playing ----------------------------------------------------------------------------------------------


@rule("apply")
async def _apply(kit: Kit) -> None:
    """A batch that starts at the index is applied and acked with the end of its range."""
    stream = await kit.open()
    await kit.play(stream, kit.make(b"a"))
    await kit.play(stream, kit.make(b"b", b"c"))
    await kit.unmoved_index()


@rule("range-beyond-entries")
async def _range_beyond_entries(kit: Kit) -> None:
    """The range may reach beyond the batch's last entry: the end of the range is what counts."""
    stream = await kit.open()
    await kit.play(stream, kit.make(b"a", span=10))
    await kit.play(stream, kit.make(b"b", span=3))
    await kit.unmoved_index()


@rule("empty-range")
async def _empty_range(kit: Kit) -> None:
    """A batch without entries moves the index."""
    stream = await kit.open()
    await kit.play(stream, kit.make(span=7))
    await kit.unmoved_index()


@rule("digest")
async def _digest(kit: Kit) -> None:
    """Acks, Opened and Position carry the digest of exactly the entries that were applied."""
    stream = await kit.open()
    ack = await kit.play(stream, kit.make(b"a", b"b", span=5), kit.make(b"c", prev=kit.index + 5))
    if ack.digest != kit.digest:
        raise Broken("the ack to carry the digest of three entries", "another digest")
    ack = await kit.play(stream, kit.make(span=2))
    if ack.digest != kit.digest:
        raise Broken("an empty batch to leave the digest as it is", "another digest")
    stood = await kit.position()
    if stood.digest != kit.digest:
        raise Broken("Position to tell the digest", "another digest")
    await kit.unmoved()


@rule("headers")
async def _headers(kit: Kit) -> None:
    """Headers of a transaction change nothing but its bytes: it is applied as one without them."""
    batch = kit.make(b"a", b"b")
    headers = encode_headers({"trace": b"\x00\xff", "content-type": b"text/plain"})
    entries = tuple(entry._replace(payload=entry.payload + headers) for entry in batch.messages)
    ack = await kit.play(await kit.open(), batch._replace(messages=entries))
    if ack.digest != kit.digest:
        raise Broken("the digest of the entries with their headers", "another digest")
    await kit.unmoved()


@rule("probe")
async def _probe(kit: Kit) -> None:
    """A Probe is answered with an Ack of the durable index, before and after a batch."""
    stream = await kit.open()
    await stream.send(codec.PROBE)
    await stream.acked(kit.index)
    await kit.play(stream, kit.make(b"a"))
    await stream.send(codec.PROBE)
    await stream.acked(kit.index)


@rule("frozen-player")
async def _frozen_player(kit: Kit) -> None:
    """A session that was silent for a while goes on where it stopped."""
    stream = await kit.open()
    await kit.play(stream, kit.make(b"a"))
    await asyncio.sleep(1)
    await kit.play(stream, kit.make(b"b"))


@rule("pipeline")
async def _pipeline(kit: Kit) -> None:
    """Hundreds of small batches sent without waiting are all applied, in order, and the last is acked."""
    stream = await kit.open()
    ack = await kit.play(stream, *kit.row(500))
    if ack.digest != kit.digest:
        raise Broken("the digest of 500 entries", "another digest")


@rule("large")
async def _large(kit: Kit) -> None:
    """Entries of several megabytes arrive whole."""
    stream = await kit.open()
    ack = await kit.play(stream, kit.make(bytes(6 * 1024 * 1024), b"small"))
    if ack.digest != kit.digest:
        raise Broken("the digest of the large entry", "another digest")


# --- Wrong ranges -----------------------------------------------------------------------------------------


async def _refuses(kit: Kit, reason: Refusal, *batches: Batch) -> None:
    """None of ``batches``, each on a stream of its own, may be applied."""
    for batch in batches:
        stream = await kit.open()
        await stream.batch(batch)
        await stream.refused(reason)
    await kit.unmoved()


@rule("repeat")
async def _repeat(kit: Kit) -> None:
    """A batch that is sent twice is applied once; the second is refused with OUT_OF_SYNC."""
    stream = await kit.open()
    batch = kit.make(b"a", b"b")
    await kit.play(stream, batch)
    await stream.batch(batch)
    await stream.refused(Refusal.OUT_OF_SYNC)
    await _refuses(kit, Refusal.OUT_OF_SYNC, batch)


@rule("gap")
async def _gap(kit: Kit) -> None:
    """A batch that starts beyond the index is refused with OUT_OF_SYNC."""
    await _refuses(kit, Refusal.OUT_OF_SYNC, kit.make(b"a", prev=kit.index + 1), kit.make(prev=kit.index + 5, span=1))


@rule("overlap")
async def _overlap(kit: Kit) -> None:
    """A batch that starts before the index and ends beyond it is refused with OUT_OF_SYNC."""
    stream = await kit.open()
    await kit.play(stream, kit.make(b"a", b"b"))
    await _refuses(kit, Refusal.OUT_OF_SYNC, kit.make(b"b", b"c", prev=kit.index - 1))


@rule("reorder")
async def _reorder(kit: Kit) -> None:
    """Two batches in the wrong order: the first to come is refused with OUT_OF_SYNC, and neither is applied."""
    for heavy in ([], [kit.heavy()]):  # A heavy batch first makes the two wait together, where a target may join them.
        stream = await kit.open()
        first, second = kit.row(2, prev=kit.index + sum(batch.to - batch.prev for batch in heavy))
        await stream.batch(*heavy, second, first)
        await stream.refused(Refusal.OUT_OF_SYNC, acks=first.prev)
        if heavy:
            kit.done(*heavy)
        await kit.unmoved()


@rule("backwards")
async def _backwards(kit: Kit) -> None:
    """A range that does not move forward is refused with BAD_BATCH."""
    stream = await kit.open()
    await kit.play(stream, kit.make(b"a", b"b"))
    await _refuses(kit, Refusal.BAD_BATCH, kit.covering(kit.index, kit.index), kit.covering(kit.index, kit.index - 1))


@rule("bad-batch")
async def _bad_batch(kit: Kit) -> None:
    """Entries that do not rise strictly within the range are refused with BAD_BATCH, and nothing is applied."""
    at = kit.index
    one, two, three = (kit.entry(at + i, b"bad") for i in (1, 2, 3))
    await _refuses(
        kit,
        Refusal.BAD_BATCH,
        kit.covering(at, at + 3, two, one),
        kit.covering(at, at + 3, one, one),
        kit.covering(at, at + 2, one, three),
        kit.covering(at, at + 2, Delivery(at, one.payload), two),
    )


@rule("bad-batch-in-a-queue")
async def _bad_batch_in_a_queue(kit: Kit) -> None:
    """A bad batch between good ones is found: an entry of its neighbour's range does not make it right."""
    stream = await kit.open()
    heavy = kit.heavy()
    good = [heavy, *kit.row(20, prev=heavy.to)]
    at = good[-1].to
    bad = kit.covering(at, at + 1, kit.entry(at + 2, b"belongs to the next range"))
    await stream.batch(*good, bad, kit.covering(at + 1, at + 3, kit.entry(at + 3, b"c")))
    await stream.refused(Refusal.BAD_BATCH, acks=at)
    kit.done(*good)
    await kit.unmoved()


@rule("malformed")
async def _malformed(kit: Kit) -> None:
    """Bytes that are not a message end the stream and nothing else."""
    stream = await kit.open()
    await stream.send(b"\xff\xff\xff\xff\xff")
    await stream.ends()
    await kit.unmoved()
