"""The chain of control records: the log's own memory of members, shard maps and quarantined entries.

All control records have one producer, and each carries the whole state that it leads to. Reading the newest is enough
to start. Extending the chain is a compare-and-set that every log can do: the writer takes the next sequence of that
producer, and an idempotent append gives the sequence to exactly one of two rivals. The other finds the rival's record
at the index that it got back, and tries again on top of it.
"""

from __future__ import annotations

import uuid
from contextlib import aclosing
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from logplayer.core.entry import Entry, Record, ShardMap, TargetAdded
from logplayer.core.membership import Control
from logplayer.core.route import Owner, Router
from logplayer.errors import LogError, Malformed, Trimmed
from logplayer.log.protocol import Kind, Log, NewEntry
from logplayer.log.protocol import Record as LogRecord
from logplayer.wire.entries import control_message, decode_map, encode_map
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

PRODUCER = "logplayer.control"
ATTEMPTS_MAX = 100


@dataclass(frozen=True, slots=True)
class Head:
    """The newest control record: where it stands, and the state that it carries."""

    index: int = 0
    sequence: int = 0
    state: pb.Snapshot | None = None

    def control(self, first_map: ShardMap | Owner, targets: tuple[str, ...] = ()) -> Control:
        """The decisions up to here; those of an empty log are the given map and members."""
        if self.state is None:
            return Control.start(first_map, targets)
        return _decode_state(self.state, self.index, first_map)


async def load(log: Log) -> Head:
    """The newest control record of the log."""
    record = await _read_newest(log)
    if record is None:
        return Head()
    try:
        message = pb.Control.FromString(record.payload)
    except DecodeError as error:
        raise Malformed(f"control entry {record.index} cannot be read: {error}") from None
    return Head(record.index, record.sequence, message.state if message.HasField("state") else None)


async def append(
    log: Log, record: Record, first_map: ShardMap, targets: tuple[tuple[str, str], ...] = ()
) -> tuple[int, Control]:
    """Append a decision on top of all others. Returns its index and the state that it leads to.

    ``first_map`` and ``targets`` (name, address) become the log's first state if it has none yet.
    """
    for _ in range(ATTEMPTS_MAX):
        head = await load(log)
        control = head.control(first_map, tuple(name for name, _ in targets))
        if head.state is None:
            control.members.update({name: TargetAdded(name, 0, address) for name, address in targets})
        message = control_message(record)
        message.nonce = uuid.uuid4().hex
        message.state.CopyFrom(_state_after(control, record))
        payload = message.SerializeToString()
        [index] = await log.append([NewEntry(PRODUCER, head.sequence + 1, payload, Kind.CONTROL)])
        if await _holds(log, index, payload):
            control.decide(Entry(index, (), record))
            return index, control
    raise LogError(f"a decision could not be appended in {ATTEMPTS_MAX} attempts: rivals were faster each time")


def _state_after(control: Control, record: Record) -> pb.Snapshot:
    """The state once ``record`` is in; its own index is not known yet, and stays open."""
    trial = Control(
        _copy(control.router),
        dict(control.members),
        {name: set(indexes) for name, indexes in control.quarantined.items()},
        control.through,
    )
    own = 1 + max(control.through, *(after for after, _ in trial.router.versions()), 0)
    trial.decide(Entry(own, (), record))
    state = pb.Snapshot()
    for member in trial.members.values():
        at = None if record == TargetAdded(member.target, None, member.address) and member.at == own else member.at
        state.members.add(target=member.target, at=at, address=member.address)
    for after, shard_map in trial.router.versions():
        if shard_map is not None:
            state.maps.add(after=None if after == own else after, map=encode_map(shard_map))
    for name, indexes in trial.quarantined.items():
        for index in sorted(indexes):
            state.quarantined.add(target=name, index=index)
    return state


def _decode_state(state: pb.Snapshot, index: int, first_map: ShardMap | Owner) -> Control:
    maps = [(item.after if item.HasField("after") else index, decode_map(item.map)) for item in state.maps]
    router = Router(maps[0][1] if maps and maps[0][0] == 0 else first_map)
    for after, shard_map in maps:
        router.change(after, shard_map)
    control = Control(router, through=index)
    for member in state.members:
        at = member.at if member.HasField("at") else index
        control.members[member.target] = TargetAdded(member.target, at, member.address)
    for item in state.quarantined:
        control.quarantined.setdefault(item.target, set()).add(item.index)
    return control


def _copy(router: Router) -> Router:
    versions = router.versions()
    copy = Router(versions[0][1] or (lambda key: ""))
    for after, shard_map in versions[1:]:
        if shard_map is not None:
            copy.change(after, shard_map)
    return copy


async def _read_newest(log: Log) -> LogRecord | None:
    """The newest control record, or None. A rival may repeat and trim it while we look, so look again."""
    for _ in range(ATTEMPTS_MAX):
        newest = (await log.info()).control
        if not newest:
            return None
        try:
            return await _read_one(log, newest)
        except Trimmed:
            continue
    raise LogError(f"the newest control entry was trimmed each of {ATTEMPTS_MAX} times before it could be read")


async def _holds(log: Log, index: int, payload: bytes) -> bool:
    """Whether our record is at ``index``. One that is trimmed by now was a rival's: it had been there for long."""
    try:
        return (await _read_one(log, index)).payload == payload
    except Trimmed:
        return False


async def _read_one(log: Log, index: int) -> LogRecord:
    return await first_record(log, index, index)


async def first_record(log: Log, first: int, last: int) -> LogRecord:
    """The first record of ``[first, last]``; an index need not hold one."""
    async with aclosing(log.read(first, last)) as batches:  # type: ignore[type-var]  # Logs give generators.
        async for records in batches:
            return records[0]
    raise LogError(f"there is no entry in [{first}, {last}]; it was trimmed or lost")
