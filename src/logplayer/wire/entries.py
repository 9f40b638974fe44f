"""What the log's entries hold: transactions, cut at their field boundaries, and control records."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from logplayer.core.entry import (
    Checkpoint,
    ExplicitMap,
    HashMap,
    MapChanged,
    Mutation,
    Quarantined,
    RangeMap,
    Record,
    Row,
    ShardMap,
    Takeover,
    TargetAdded,
    TargetRemoved,
)
from logplayer.core.route import Owner, join_parts
from logplayer.errors import Malformed
from logplayer.wire import hot
from logplayer.wire.hot import varint as varint
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

_MUTATIONS = 0x0A  # Transaction.mutations: field 1, length-delimited


def split_transaction(payload: bytes) -> tuple[Mutation, ...]:
    """The mutations of an encoded ``Transaction``, each with its slice of ``payload``.

    The slices are tagged fields: joining some of them is the encoded transaction of just these. A field that is
    not a mutation has no destination, so the payload is refused instead of losing it.
    """
    mutations = hot.read_mutations(payload)
    if mutations is not None:
        return tuple(mutations)
    return tuple(_split_any(payload))


def route_transaction(payload: bytes, owner: Owner) -> tuple[dict[str, bytes], int]:
    """What each target gets of an encoded ``Transaction``, and how many of its mutations are for nobody.

    To split and to route at once costs half of the one after the other.
    """
    routed = hot.read_parts(payload, owner)
    return routed if routed is not None else join_parts(_split_any(payload), owner)


def decode_transaction(payload: bytes) -> list[tuple[bytes, bytes | None]]:
    """The changes in an encoded ``Transaction``, in order: key and value; the value is None for a delete."""
    changes = hot.read_changes(payload)
    return changes if changes is not None else _decode_any(payload)


def read_rows(entry: int, payload: bytes) -> list[Row]:
    """The same as rows of the entry."""
    rows = hot.read_rows(entry, payload)
    return rows if rows is not None else [Row(entry, key, value) for key, value in _decode_any(payload)]


# --- Transactions of any form, by the generated code. -----------------------------------------------------


def _split_any(payload: bytes) -> Iterator[Mutation]:
    start = 0
    while start < len(payload):
        body, stop = _field(payload, start)
        yield _mutation(payload, start, body, stop)
        start = stop


def _field(payload: bytes, start: int) -> tuple[int, int]:
    """Where the message of the mutation at ``start`` begins and ends."""
    if payload[start] != _MUTATIONS:
        raise Malformed(f"byte {start} of a transaction does not start a mutation")
    length, body = hot.read_length(payload, start + 1, len(payload))
    if body < 0:
        raise Malformed(f"a length ends or is too long at byte {start + 1}")
    if body + length > len(payload):
        raise Malformed(f"a transaction ends inside the mutation at byte {start}")
    return body, body + length


def _mutation(payload: bytes, start: int, body: int, end: int) -> Mutation:
    """The mutation whose field is ``payload[start:end]`` and whose message begins at ``body``, whatever its shape."""
    try:
        mutation = pb.Mutation.FromString(payload[body:end])
    except DecodeError as error:
        raise Malformed(f"the mutation at byte {start} of a transaction cannot be read: {error}") from error
    return Mutation(mutation.key, payload[start:end], mutation.target)


def encode_mutation(key: bytes, value: bytes | None, target: str = "") -> Mutation:
    """A put, or with ``value`` None a delete, ready to be joined into a transaction."""
    op = pb.DELETE if value is None else pb.PUT
    body = pb.Mutation(key=key, value=value or b"", op=op, target=target).SerializeToString()
    return Mutation(key, b"\x0a" + varint(len(body)) + body, target)


def _decode_any(payload: bytes) -> list[tuple[bytes, bytes | None]]:
    """The same for transactions of every form."""
    try:
        transaction = pb.Transaction.FromString(payload)
    except DecodeError as error:
        raise Malformed(f"{len(payload)} bytes are not a transaction: {error}") from error
    changes: list[tuple[bytes, bytes | None]] = []
    for mutation in transaction.mutations:
        if mutation.op == pb.PUT:
            changes.append((mutation.key, mutation.value))
        elif mutation.op == pb.DELETE:
            changes.append((mutation.key, None))
        else:
            raise Malformed(f"a mutation has operation {mutation.op}, which this version does not know")
    return changes


def encode_control(record: Record) -> bytes:
    """The payload of a CONTROL entry."""
    return control_message(record).SerializeToString()


def control_message(record: Record) -> pb.Control:
    """A control record as a message."""
    match record:
        case Takeover(group, player):
            return pb.Control(takeover=pb.Takeover(group=group, player=player))
        case TargetAdded(target, at, address):
            return pb.Control(target_added=pb.TargetAdded(target=target, at=at, address=address))
        case TargetRemoved(target):
            return pb.Control(target_removed=pb.TargetRemoved(target=target))
        case MapChanged(shard_map):
            return pb.Control(map_changed=pb.MapChanged(map=encode_map(shard_map)))
        case Quarantined(target, index, reason):
            return pb.Control(quarantined=pb.Quarantined(target=target, index=index, reason=reason))
        case Checkpoint():
            return pb.Control(checkpoint=pb.Checkpoint())


def decode_control(payload: bytes) -> Record:
    """The record in the payload of a CONTROL entry.

    An unknown record is refused, not skipped: it is a decision that every player must follow at its position.
    """
    try:
        control = pb.Control.FromString(payload)
    except DecodeError as error:
        raise Malformed(f"{len(payload)} bytes are not a control record: {error}") from error
    kind = control.WhichOneof("record")
    if kind == "takeover":
        return Takeover(control.takeover.group, control.takeover.player)
    if kind == "target_added":
        added = control.target_added
        return TargetAdded(added.target, added.at if added.HasField("at") else None, added.address)
    if kind == "target_removed":
        return TargetRemoved(control.target_removed.target)
    if kind == "map_changed":
        return MapChanged(decode_map(control.map_changed.map))
    if kind == "quarantined":
        quarantined = control.quarantined
        return Quarantined(quarantined.target, quarantined.index, quarantined.reason)
    if kind == "checkpoint":
        return Checkpoint()
    raise Malformed(f"a control record holds {kind or 'nothing'}, which this version does not know; upgrade the player")


def encode_map(shard_map: ShardMap) -> pb.ShardMap:
    """A shard map as a message."""
    match shard_map:
        case HashMap(targets):
            return pb.ShardMap(hash=pb.HashMap(targets=targets))
        case RangeMap(bounds, targets):
            return pb.ShardMap(range=pb.RangeMap(bounds=bounds, targets=targets))
        case ExplicitMap():
            return pb.ShardMap(explicit=pb.ExplicitMap())


def decode_map(shard_map: pb.ShardMap) -> ShardMap:
    """The inverse of :func:`encode_map`."""
    kind = shard_map.WhichOneof("kind")
    if kind == "hash":
        return HashMap(tuple(shard_map.hash.targets))
    if kind == "range":
        return RangeMap(tuple(shard_map.range.bounds), tuple(shard_map.range.targets))
    if kind == "explicit":
        return ExplicitMap()
    raise Malformed("a shard map has no kind that this version knows; upgrade the player")
