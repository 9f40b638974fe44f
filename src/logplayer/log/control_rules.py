"""What a control entry must be, given the decisions before it: one rule for every writer and for every log.

Each control entry carries a record (one decision) and the whole state that it leads to, so that the newest one alone is
enough to start from. An entry that is wrong in either would end every player that reads it, for as long as the log
lives, because what is in a log stays there. So no log takes it: whoever writes a log keeps a ``Guard``, which knows
the newest control entry and compares each new one with what it must be on top of that.

The writer and the guard compute the state with the same function, ``state_after``. It asks ``ControlState.decide``,
which players follow, so a new kind of record is known here as soon as it is known there.

A log is *jammed* when its newest control entry cannot be read or is not the newest of its producer, as old versions
allowed. Then only a ``Repaired`` record is taken, which brings the whole state again; see ``logplayer.log.repair``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from logplayer.core.control_state import ControlState
from logplayer.core.entry import (
    Checkpoint,
    Decision,
    Entry,
    Quarantined,
    QuarantineRevoked,
    Repaired,
    ShardMap,
    TargetAdded,
    TargetRemoved,
)
from logplayer.core.routing import Owner, Router
from logplayer.errors import ControlJammed, ControlRefused, CorruptEntry, LogError, Malformed, Trimmed, UserError
from logplayer.log.protocol import CONTROL_PRODUCER, Kind, NewEntry, Record
from logplayer.wire.addresses import parse as parse_address
from logplayer.wire.entries import control_record, decode_map, encode_map
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

TARGET_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class Head:
    """The newest control entry: where it is, and the state that it carries."""

    index: int = 0
    sequence: int = 0
    state: pb.Snapshot | None = None

    def control(self, first_map: ShardMap | Owner | None, targets: tuple[str, ...] = ()) -> ControlState:
        """The decisions up to here; those of an empty log are the given map and members."""
        if self.state is None:
            return ControlState.start(first_map, targets)
        return decode_state(self.state, self.index, first_map)


def head_of(record: Record) -> Head:
    """The newest control entry, as others may build on it. Raises ``Malformed`` for one that nobody can start from."""
    if record.producer != CONTROL_PRODUCER:
        raise Malformed(f"control entry {record.index} is of producer {record.producer!r}, not {CONTROL_PRODUCER!r}")
    try:
        _, message = _parse(record.payload)
        decode_state(message.state, record.index, None)
    except (Malformed, UserError) as error:
        raise Malformed(f"control entry {record.index} cannot be followed: {error}") from None
    return Head(record.index, record.sequence, message.state)


def jammed(why: str) -> ControlJammed:
    """The one wording for a log on which no decision can follow."""
    return ControlJammed(f"the log's decisions are jammed: {why}; run 'logplayer log repair'", why)


def trimmed_away(index: int) -> ControlJammed:
    return jammed(f"its newest control entry, {index}, was trimmed")


class Guard:
    """The newest control entry that a log's writer has planned, against which it checks the next one."""

    def __init__(self, head: Head, jam: ControlJammed | None = None) -> None:
        self.head = head
        self.jam = jam

    @classmethod
    def after(cls, newest: int, sequence: int, found: Record | LogError | None) -> Guard:
        """The guard of a log whose newest control index is ``newest`` (0: none), where ``found`` was read.

        ``sequence`` is the newest one of the control producer, whatever kind of entry has it.
        """
        if not newest:
            if not sequence:
                return cls(Head())
            return cls(Head(), jammed(f"entries that are not decisions have the name {CONTROL_PRODUCER!r}"))
        try:
            if isinstance(found, LogError):
                raise found
            if found is None:
                raise jammed(f"its newest control entry, {newest}, is missing")
            head = head_of(found)
        except (Trimmed, CorruptEntry, Malformed, ControlJammed) as error:
            return cls(Head(newest, sequence), _jam_of(error, newest))
        if head.sequence != sequence:
            why = f"entry {sequence} of {CONTROL_PRODUCER!r} is not a decision, or control entry {newest} is forged"
            return cls(head, jammed(why))
        return cls(head)

    def check(self, payload: bytes) -> pb.Snapshot:
        """The state that a new control entry leads to. Raises ``ControlRefused`` if that is not the one it carries."""
        try:
            record, message = _parse(payload)
            if isinstance(record, Repaired) != (self.jam is not None):
                raise self.jam or Malformed("the log's decisions can be read: there is nothing to repair")
            _check_record(record)
            if not message.nonce:
                raise Malformed("it has no nonce, which tells it from that of another writer")
            if self.head.state is None or isinstance(record, Repaired):
                _check_first(message.state)
            if message.state != self._expected(record, message.state):
                raise Malformed("the state that it carries is not the state before it plus its decision")
        except (Malformed, UserError) as error:
            if isinstance(error, ControlJammed):
                raise
            raise ControlRefused(
                f"a control entry was refused: {error}. Decide with 'logplayer play' or 'logplayer target', "
                "of the same version as the log's (nothing was appended)"
            ) from None
        return message.state

    def _expected(self, record: Decision, state: pb.Snapshot) -> pb.Snapshot:
        """What the entry must carry. The first one of a log brings the decisions from before there was one."""
        before = self.head.state if self.head.state is not None else _without_own(state)
        index = self.head.index if self.head.state is not None else 0
        return state_after(decode_state(before, index, _first_map(state)), record)

    def advance(self, index: int, sequence: int, state: pb.Snapshot) -> None:
        """An entry that was checked has ``index`` now: the next one is built on it."""
        self.head, self.jam = Head(index, sequence, state), None

    def admit(self, index: int, entry: NewEntry) -> None:
        """Both: for logs that know the index when they plan. Raises and changes nothing if it is refused."""
        self.advance(index, entry.sequence, self.check(entry.payload))

    def trim_limit(self, up_to: int) -> int:
        """How far a trim up to ``up_to`` may go: not past the newest control entry, from which players start.

        On a jammed log nothing is trimmed: an older control entry may be what it is repaired from.
        """
        if self.jam is not None:
            raise self.jam
        return min(up_to, self.head.index - 1) if self.head.index else up_to


def makes_room(entries: Sequence[NewEntry]) -> bool:
    """Whether a trim waits for this group: a log with a reserve takes it even if its disk is full.

    Other decisions wait for room as transactions do. Players that start again and again must not use the reserve up.
    """
    if len(entries) != 1 or entries[0].kind != Kind.CONTROL:
        return False
    try:
        record, _ = _parse(entries[0].payload)
    except Malformed:
        return False
    return isinstance(record, (Checkpoint, Repaired))


def _jam_of(error: Exception, newest: int) -> ControlJammed:
    if isinstance(error, ControlJammed):
        return error
    return trimmed_away(newest) if isinstance(error, Trimmed) else jammed(str(error))


def _parse(payload: bytes) -> tuple[Decision, pb.Control]:
    try:
        message = pb.Control.FromString(payload)
    except DecodeError as error:
        raise Malformed(f"{len(payload)} bytes are not a control record: {error}") from None
    record = control_record(message)
    if not message.HasField("state"):
        raise Malformed("it carries no state")
    return record, message


def _check_record(record: Decision) -> None:
    if isinstance(record, TargetAdded):
        _check_member(record.target, record.address)
    elif isinstance(record, (TargetRemoved, Quarantined, QuarantineRevoked)):
        _check_member(record.target)


def _check_member(name: str, address: str = "") -> None:
    if not name or not name.isprintable() or len(name.encode()) > TARGET_BYTES_MAX:
        raise Malformed(f"{name[:40]!r} is not a target's name: use 1 to {TARGET_BYTES_MAX} printable bytes of text")
    if address:
        parse_address(address)


def _check_first(state: pb.Snapshot) -> None:
    for member in state.members:
        _check_member(member.target, member.address)


def _first_map(state: pb.Snapshot) -> ShardMap | None:
    """The map from index 0 on. A writer may name it where the state before did not."""
    if state.maps and state.maps[0].HasField("after") and state.maps[0].after == 0:
        return decode_map(state.maps[0].map)
    return None


def _without_own(state: pb.Snapshot) -> pb.Snapshot:
    """The state without what is in force from its own index on: that must come from its record."""
    before = pb.Snapshot()
    before.members.extend(member for member in state.members if member.HasField("at"))
    before.maps.extend(item for item in state.maps if item.HasField("after"))
    before.quarantined.extend(state.quarantined)
    return before


def state_after(control: ControlState, record: Decision) -> pb.Snapshot:
    """The state once ``record`` is in; its own index is not known yet, and stays open."""
    trial = ControlState(
        _copy(control.router),
        dict(control.members),
        {name: set(indexes) for name, indexes in control.quarantined.items()},
        control.through,
    )
    own = 1 + max(control.through, *(after for after, _ in trial.router.versions()), 0)
    trial.decide(Entry(own, record=record))
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


def decode_state(state: pb.Snapshot, index: int, first_map: ShardMap | Owner | None) -> ControlState:
    """The decisions that the control entry at ``index`` carries. Raises for a map that no key can be routed by."""
    maps = [(item.after if item.HasField("after") else index, decode_map(item.map)) for item in state.maps]
    router = Router(maps[0][1] if maps and maps[0][0] == 0 else first_map)
    for after, shard_map in maps:
        router.change(after, shard_map)
    control = ControlState(router, through=index)
    for member in state.members:
        at = member.at if member.HasField("at") else index
        control.members[member.target] = TargetAdded(member.target, at, member.address)
    for item in state.quarantined:
        control.quarantined.setdefault(item.target, set()).add(item.index)
    return control


def _copy(router: Router) -> Router:
    versions = router.versions()
    copy = Router(versions[0][1])
    for after, shard_map in versions[1:]:
        if shard_map is not None:
            copy.change(after, shard_map)
    return copy
