"""What the log's entries hold: transactions, cut at their field boundaries, and control records."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

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
    ShardMap,
    Takeover,
    TargetAdded,
    TargetRemoved,
)
from logplayer.errors import Malformed
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

_MUTATIONS = 0x0A  # Transaction.mutations: field 1, length-delimited
_HEAD_BYTES = 5  # Up to the length of the key, if the length before it has two bytes.


# Two bytes hold 14 bits: a table makes the usual lengths and indexes cheap.
_SHORT = tuple(bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(1 << 14))
_MORE = tuple(bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(1 << 14))
_new_tuple = tuple.__new__


def varint(value: int) -> bytes:
    """``value`` in protobuf's base-128 encoding."""
    if value < 0x4000:
        return _SHORT[value]
    if value < 0x1000_0000:
        return _MORE[value & 0x3FFF] + _SHORT[value >> 14]
    return _MORE[value & 0x3FFF] + varint(value >> 14)


class Shape(NamedTuple):
    """Where the parts of a mutation lie, counted from its first byte. ``between`` are the bytes from key to value."""

    key: int
    key_end: int
    value: int
    length: int
    between: bytes


@functools.lru_cache(4096)
def usual_shape(head: bytes) -> Shape | None:
    """What follows from the first bytes of a mutation, if it is as most are: a short key, a value, and no more.

    Whether it is so, ``between`` tells. None if these bytes begin something else.
    """
    if len(head) < _HEAD_BYTES or head[0] != _MUTATIONS:
        return None
    try:
        length, body = read_varint(head, 1)
    except Malformed:
        return None
    if body > 3 or head[body] != 0x0A or head[body + 1] >= 0x80:  # Mutation.key: field 1, length-delimited.
        return None
    key_end = body + 2 + head[body + 1]
    rest = body + length - key_end
    count = 2 if rest <= 0x81 else 3  # Of the bytes in front of the value: Mutation.value is field 2.
    size = rest - count
    between = b"\x12" + varint(size) if 0 < size < 0x4000 else b""
    if len(between) != count:
        return None
    return Shape(body + 2, key_end, key_end + count, body + length, between)


def split_transaction(payload: bytes) -> tuple[Mutation, ...]:
    """The mutations of an encoded ``Transaction``, each with its slice of ``payload``.

    The slices are tagged fields: joining some of them is the encoded transaction of just these. A field that is
    not a mutation has no destination, so the payload is refused instead of losing it.
    """
    mutations: list[Mutation] = []
    start, end = 0, len(payload)
    while start < end:
        shape = usual_shape(payload[start : start + _HEAD_BYTES])
        if shape is not None:
            key, key_end, value, length, between = shape
            stop = start + length
            if payload[start + key_end : start + value] == between and stop <= end:
                cut = (payload[start + key : start + key_end], payload[start:stop], "")
                mutations.append(_new_tuple(Mutation, cut))
                start = stop
                continue
        body, stop = _field(payload, start)
        mutations.append(_mutation(payload, start, body, stop))
        start = stop
    return tuple(mutations)


def route_transaction(payload: bytes, owner: Callable[[bytes], str]) -> dict[str, list[bytes]]:
    """The same mutations, by the target that each names or that ``owner`` gives for its key, in the order of the first.

    To split and to route at once costs two thirds of the one after the other. "" collects what has no owner.
    """
    pieces: dict[str, list[bytes]] = {}
    start, end = 0, len(payload)
    while start < end:
        shape = usual_shape(payload[start : start + _HEAD_BYTES])
        usual = False
        if shape is not None:
            key, key_end, value, length, between = shape
            stop = start + length
            usual = payload[start + key_end : start + value] == between and stop <= end
        if usual:
            target = owner(payload[start + key : start + key_end])
        else:
            body, stop = _field(payload, start)
            mutation = _mutation(payload, start, body, stop)
            target = mutation.target or owner(mutation.key)
        if target in pieces:
            pieces[target].append(payload[start:stop])
        else:
            pieces[target] = [payload[start:stop]]
        start = stop
    return pieces


def _field(payload: bytes, start: int) -> tuple[int, int]:
    """Where the message of the mutation at ``start`` begins and ends."""
    if payload[start] != _MUTATIONS:
        raise Malformed(f"byte {start} of a transaction does not start a mutation")
    length, body = read_varint(payload, start + 1)
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


def decode_transaction(payload: bytes) -> list[tuple[bytes, bytes | None]]:
    """The changes in an encoded ``Transaction``, in order: key and value; the value is None for a delete."""
    changes: list[tuple[bytes, bytes | None]] = []
    start, end = 0, len(payload)
    while start < end:
        shape = usual_shape(payload[start : start + _HEAD_BYTES])
        if shape is None:
            return _decode_any(payload)
        key, key_end, value, length, between = shape
        stop = start + length
        if payload[start + key_end : start + value] != between or stop > end:
            return _decode_any(payload)
        changes.append((payload[start + key : start + key_end], payload[start + value : stop]))
        start = stop
    return changes


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


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at ``position`` and the position behind it."""
    try:
        value = data[position]
        if value < 0x80:
            return value, position + 1
        more = data[position + 1]
        if more < 0x80:
            return value + (more << 7) - 0x80, position + 2
        most = data[position + 2]
        if most < 0x80:
            return value + (more << 7) + (most << 14) - 0x4080, position + 3
        value = shift = 0
        while shift < 70:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
    except IndexError:
        pass  # The data ends inside the number.
    raise Malformed(f"a length ends or is too long at byte {position}")
