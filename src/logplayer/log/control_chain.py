"""The chain of control records: the log's own memory of members, shard maps and quarantined entries.

All control records have one producer, and each carries the whole state that it leads to. Reading the newest is enough
to start. Extending the chain is a compare-and-set that every log can do: the writer takes the next sequence of that
producer, and an idempotent append gives the sequence to exactly one of two writers. The other one's payload, which has
another nonce, is refused as a ``ProducerConflict``, and it tries again on top of the first one's record. What a log
takes as the next record: ``control_rules``.
"""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import aclosing

from logplayer.core.control_state import ControlState
from logplayer.core.entry import Checkpoint, Decision, Entry, HashMap, ShardMap, Takeover, TargetAdded
from logplayer.errors import CorruptEntry, LogError, Malformed, ProducerConflict, Trimmed
from logplayer.log.control_rules import Head, head_of, jammed, state_after, trimmed_away
from logplayer.log.protocol import CONTROL_PRODUCER, History, Kind, Log, NewEntry, Record
from logplayer.wire.entries import control_message

PRODUCER = CONTROL_PRODUCER
ATTEMPTS_MAX = 100
SAME_MAX = 10
CHECKPOINT_ENTRIES = 1_000  # How old a record in the way of a trim that comes again must be: see trim().


async def load(log: Log) -> Head:
    """The newest control record of the log. Raises ``ControlJammed`` if nobody can start from it."""
    try:
        record = await _read_newest(log)
        return Head() if record is None else head_of(record)
    except (Malformed, CorruptEntry) as error:
        raise jammed(str(error)) from None


def begin(head: Head, first_map: ShardMap | None, targets: tuple[tuple[str, str], ...]) -> ControlState:
    """The decisions so far; a log without any begins with this map and these members (name, address)."""
    control = head.control(first_map, tuple(name for name, _ in targets))
    if head.state is None:
        control.members.update({name: TargetAdded(name, 0, address) for name, address in targets})
    return control


async def append(
    log: Log, record: Decision, first_map: ShardMap | None, targets: tuple[tuple[str, str], ...] = ()
) -> tuple[int, ControlState]:
    """Append a decision on top of all others. Returns its index and the state that it leads to.

    ``first_map`` and ``targets`` (name, address) become the log's first state if it has none yet. Without
    ``first_map`` nothing is decided about a map until the first takeover, which hashes over the members of that time.
    """
    lost = Counter[int]()
    for _ in range(ATTEMPTS_MAX):
        head = await load(log)
        control = begin(head, first_map, targets)
        if isinstance(record, Takeover) and control.members:
            control.router.begin_with(HashMap(tuple(control.members)))
        payload = encode(record, control)
        try:
            [index] = await log.append([NewEntry(PRODUCER, head.sequence + 1, payload, Kind.CONTROL)])
            ours = await _holds(log, index, payload)
        except ProducerConflict as conflict:
            index, ours = conflict.index, False
        if ours:
            control.decide(Entry(index, record=record))
            return index, control
        lost[index] += 1
        if lost[index] >= SAME_MAX:  # Whoever reads the newest record must find it, if it is one.
            raise jammed(f"entry {index} has the place of the next decision, and is none")
    raise LogError(f"a decision could not be appended in {ATTEMPTS_MAX} attempts: another writer was faster each time")


def encode(record: Decision, control: ControlState) -> bytes:
    """The payload of a control entry that adds ``record`` to the decisions of ``control``."""
    message = control_message(record)
    message.nonce = uuid.uuid4().hex
    message.state.CopyFrom(state_after(control, record))
    return message.SerializeToString()


async def trim(
    log: Log,
    up_to: int,
    history: History | None = None,
    *,
    first_map: ShardMap | None = None,
    repeat_after: int = 0,
) -> tuple[int, int]:
    """Trim up to ``up_to``. If the newest control record is in the way, repeat it at the end and go on.

    Every trim of the product comes through here: by hand, of a player, of the Spark driver. The first wants it all at
    once. The others come back soon, so they leave a record in the way until ``repeat_after`` entries follow it: else
    each of their trims would cost the log an entry.

    Returns the last index that is forgotten now, and the index of the repetition, 0 if there was no need for it.
    """
    trimmed = await log.trim(up_to, history)  # First of all: on a full disk this makes the room for the record.
    if trimmed >= up_to:
        return trimmed, 0
    info = await log.info()
    if not trimmed < info.control <= up_to or info.last - info.control < repeat_after:
        return trimmed, 0
    repeated, _ = await append(log, Checkpoint(), first_map)
    return await log.trim(up_to, history), repeated


async def _read_newest(log: Log) -> Record | None:
    """The newest control record, or None. Another writer may repeat and trim it while we look, so look again."""
    newest = (await log.info()).control
    for _ in range(ATTEMPTS_MAX):
        if not newest:
            return None
        try:
            return await _read_one(log, newest)
        except Trimmed:
            before, newest = newest, (await log.info()).control
            if newest == before:  # No log trims its newest one, but old versions did.
                raise trimmed_away(newest) from None
    raise LogError(f"the newest control entry was trimmed each of {ATTEMPTS_MAX} times before it could be read")


async def _holds(log: Log, index: int, payload: bytes) -> bool:
    """Whether our record is at ``index``. One that is trimmed by now was another writer's and older."""
    try:
        return (await _read_one(log, index)).payload == payload
    except Trimmed:
        return False


async def _read_one(log: Log, index: int) -> Record:
    return await first_record(log, index, index)


async def first_record(log: Log, first: int, last: int) -> Record:
    """The first record of ``[first, last]``; an index need not hold one."""
    async with aclosing(log.read(first, last)) as batches:  # type: ignore[type-var]  # Logs give generators.
        async for records in batches:
            return records[0]
    raise LogError(f"there is no entry in [{first}, {last}]; it was trimmed or lost")
