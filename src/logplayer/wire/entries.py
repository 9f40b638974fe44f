"""What the log's entries hold: transactions, cut at their field boundaries, and control records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.message import DecodeError

from logplayer.core.entry import (
    Checkpoint,
    Decision,
    ExplicitMap,
    HashMap,
    MapChanged,
    Mutation,
    Quarantined,
    QuarantineRevoked,
    RangeMap,
    Repaired,
    Row,
    ShardMap,
    Takeover,
    TargetAdded,
    TargetRemoved,
)
from logplayer.core.routing import Owner, join_parts
from logplayer.errors import Malformed
from logplayer.wire import fastpath
from logplayer.wire.fastpath import varint as varint
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

_MUTATIONS = 0x0A  # Transaction.mutations: field 1, length-delimited
_HEADERS = 0x12  # Transaction.headers: field 2, length-delimited

Header = tuple[str, bytes]


def split_transaction(payload: bytes) -> tuple[Mutation, ...]:
    """The mutations of an encoded ``Transaction``, each with its slice of ``payload``.

    The slices are tagged fields: joining some of them is the encoded transaction of just these, and
    :func:`split_headers` gives the headers. A field that is neither has no destination, so the payload is refused
    instead of losing it.
    """
    mutations = fastpath.read_mutations(payload)
    if mutations is not None:
        return tuple(mutations)
    return tuple(_split_any(payload)[0])


def split_headers(payload: bytes) -> bytes:
    """The encoded headers of a ``Transaction``, to be joined to some of its mutations."""
    return _split_any(payload)[1]


def route_transaction(payload: bytes, owner: Owner) -> tuple[dict[str, bytes], int]:
    """The product's :data:`logplayer.core.routing.Cut`: what each target gets of an encoded ``Transaction``.

    The fast path cuts and routes at once, which costs half of the one after the other; it takes nearly all payloads.
    """
    routed = fastpath.read_parts(payload, owner)
    if routed is not None:
        return routed
    mutations, headers = _split_any(payload)
    return join_parts(mutations, owner, headers)


def for_target(payload: bytes, target: str) -> bytes:
    """The same transaction, all of it for this target, whatever a map says. Raises Malformed if it is none."""
    try:
        transaction = pb.Transaction.FromString(payload)
    except DecodeError as error:
        raise Malformed(f"{len(payload)} bytes are not a transaction: {error}") from error
    for mutation in transaction.mutations:
        mutation.target = target
    return transaction.SerializeToString()


def decode_transaction(payload: bytes) -> list[tuple[bytes, bytes | None]]:
    """The changes in an encoded ``Transaction``, in order: key and value; the value is None for a delete."""
    changes = fastpath.read_changes(payload)
    return changes if changes is not None else _decode_any(payload)


def read_rows(entry: int, payload: bytes) -> list[Row]:
    """The same as rows of the entry."""
    rows = fastpath.read_rows(entry, payload)
    return rows if rows is not None else [Row(entry, key, value) for key, value in _decode_any(payload)]


# --- Transactions of any form, by the generated code. -----------------------------------------------------


def _split_any(payload: bytes) -> tuple[list[Mutation], bytes]:
    """The mutations, and the encoded headers wherever they are."""
    mutations: list[Mutation] = []
    headers: list[bytes] = []
    start = 0
    while start < len(payload):
        body, stop = _field(payload, start)
        if payload[start] == _MUTATIONS:
            mutations.append(_mutation(payload, start, body, stop))
        else:
            _check_header(payload, start, body, stop)
            headers.append(payload[start:stop])
        start = stop
    return mutations, b"".join(headers)


def _check_header(payload: bytes, start: int, body: int, end: int) -> None:
    try:
        pb.Header.FromString(payload[body:end])
    except DecodeError as error:
        raise Malformed(f"the header at byte {start} of a transaction cannot be read: {error}") from error


def _field(payload: bytes, start: int) -> tuple[int, int]:
    """Where the message of the mutation or the header at ``start`` begins and ends."""
    if payload[start] not in (_MUTATIONS, _HEADERS):
        raise Malformed(f"byte {start} of a transaction does not start a mutation")
    length, body = fastpath.read_length(payload, start + 1, len(payload))
    if body < 0:
        raise Malformed(f"a length ends or is too long at byte {start + 1}")
    if body + length > len(payload):
        raise Malformed(f"a transaction ends inside the mutation or header at byte {start}")
    return body, body + length


def _mutation(payload: bytes, start: int, body: int, end: int) -> Mutation:
    """The mutation whose field is ``payload[start:end]`` and whose message begins at ``body``, whatever its shape."""
    try:
        mutation = pb.Mutation.FromString(payload[body:end])
    except DecodeError as error:
        raise Malformed(f"the mutation at byte {start} of a transaction cannot be read: {error}") from error
    return Mutation(mutation.key, payload[start:end], mutation.target)


def encode_mutation(key: bytes, value: bytes | None, target: str = "") -> Mutation:
    """A put, or with ``value`` None a delete, ready to be joined into a transaction. ``lp.put`` takes text, too.

    Args:
        key: The key.
        value: The value; None deletes the key.
        target: The target that gets it. Empty: the shard map decides by key.

    Example:
        >>> encode_mutation(b"alice", b"90").key
        b'alice'
    """
    op = pb.DELETE if value is None else pb.PUT
    body = pb.Mutation(key=key, value=value or b"", op=op, target=target).SerializeToString()
    return Mutation(key, b"\x0a" + varint(len(body)) + body, target)


def encode_headers(headers: Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]) -> bytes:
    """Headers, ready to be joined after the mutations of a transaction; a name may occur several times."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    transaction = pb.Transaction()
    for name, value in pairs:
        transaction.headers.add(name=name, value=value.encode() if isinstance(value, str) else value)
    return transaction.SerializeToString()


def decode_headers(payload: bytes) -> tuple[Header, ...]:
    """The headers of an encoded ``Transaction``, or of one target's part of it, in order."""
    try:
        headers = pb.Transaction.FromString(payload).headers
    except DecodeError as error:
        raise Malformed(f"{len(payload)} bytes are not a transaction: {error}") from error
    return tuple((header.name, header.value) for header in headers)


def _decode_any(payload: bytes) -> list[tuple[bytes, bytes | None]]:
    """The same for transactions of every form."""
    try:
        transaction = pb.Transaction.FromString(payload)
    except DecodeError as error:
        raise Malformed(f"{len(payload)} bytes are not a transaction: {error}") from error
    changes: list[tuple[bytes, bytes | None]] = []
    for mutation in transaction.mutations:
        if mutation.table or mutation.columns or mutation.op in (pb.PATCH, pb.DDL):
            raise Malformed(_needs_tables(mutation))
        if mutation.op == pb.PUT:
            changes.append((mutation.key, mutation.value))
        elif mutation.op == pb.DELETE:
            changes.append((mutation.key, None))
        else:
            raise Malformed(f"a mutation has operation {mutation.op}, which this version does not know")
    return changes


def _needs_tables(mutation: pb.Mutation) -> str:
    what = f"a row of table {mutation.table!r}" if mutation.table else "a statement or a part of a row"
    remedy = "serve the target with a store of tables (--store sqlite-tables, postgres-tables or mysql-tables)"
    return f"it has {what}, and this store has keys and values only; {remedy}, or quarantine the entry"


def encode_control(record: Decision) -> bytes:
    """The payload of a CONTROL entry."""
    return control_message(record).SerializeToString()


def control_message(record: Decision) -> pb.Control:
    """A control record as a message."""
    match record:
        case Takeover(group, player, application):
            return pb.Control(takeover=pb.Takeover(group=group, player=player, application=application))
        case TargetAdded(target, at, address):
            return pb.Control(target_added=pb.TargetAdded(target=target, at=at, address=address))
        case TargetRemoved(target):
            return pb.Control(target_removed=pb.TargetRemoved(target=target))
        case MapChanged(shard_map):
            return pb.Control(map_changed=pb.MapChanged(map=encode_map(shard_map)))
        case Quarantined(target, index, reason):
            return pb.Control(quarantined=pb.Quarantined(target=target, index=index, reason=reason))
        case QuarantineRevoked(target, index, reason):
            return pb.Control(quarantine_revoked=pb.QuarantineRevoked(target=target, index=index, reason=reason))
        case Checkpoint():
            return pb.Control(checkpoint=pb.Checkpoint())
        case Repaired(members, maps, quarantined, reason):
            message = pb.Control(repaired=pb.Repaired(reason=reason))
            for member in members:
                message.state.members.add(target=member.target, at=member.at, address=member.address)
            for after, shard_map in maps:
                message.state.maps.add(after=after, map=encode_map(shard_map))
            for target, index in quarantined:
                message.state.quarantined.add(target=target, index=index)
            return message


def decode_control(payload: bytes) -> Decision:
    """The record in the payload of a CONTROL entry.

    An unknown record is refused, not skipped: it is a decision that every player must follow at its position.
    """
    try:
        return control_record(pb.Control.FromString(payload))
    except DecodeError as error:
        raise Malformed(f"{len(payload)} bytes are not a control record: {error}") from error


def control_record(control: pb.Control) -> Decision:
    """The record in a decoded payload."""
    kind = control.WhichOneof("record")
    if kind == "takeover":
        taken = control.takeover
        return Takeover(taken.group, taken.player, taken.application)
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
    if kind == "quarantine_revoked":
        revoked = control.quarantine_revoked
        return QuarantineRevoked(revoked.target, revoked.index, revoked.reason)
    if kind == "checkpoint":
        return Checkpoint()
    if kind == "repaired":
        return _repaired(control)
    raise Malformed(f"a control record holds {kind or 'nothing'}, which this version does not know; upgrade the player")


def _repaired(control: pb.Control) -> Repaired:
    state = control.state
    if any(not member.HasField("at") for member in state.members) or any(not m.HasField("after") for m in state.maps):
        raise Malformed("a repair leaves an index open: it must name all of them")
    return Repaired(
        tuple(TargetAdded(member.target, member.at, member.address) for member in state.members),
        tuple((item.after, decode_map(item.map)) for item in state.maps),
        tuple((item.target, item.index) for item in state.quarantined),
        control.repaired.reason,
    )


def encode_map(shard_map: ShardMap) -> pb.ShardMap:
    """A shard map as a message."""
    match shard_map:
        case HashMap(targets, ""):
            return pb.ShardMap(hash=pb.HashMap(targets=targets))
        case HashMap(targets, by):
            return pb.ShardMap(part_hash=pb.PartHashMap(targets=targets, by=by))
        case RangeMap(bounds, targets):
            return pb.ShardMap(range=pb.RangeMap(bounds=bounds, targets=targets))
        case ExplicitMap():
            return pb.ShardMap(explicit=pb.ExplicitMap())


def decode_map(shard_map: pb.ShardMap) -> ShardMap:
    """The inverse of :func:`encode_map`."""
    kind = shard_map.WhichOneof("kind")
    if kind == "hash":
        return HashMap(tuple(shard_map.hash.targets))
    if kind == "part_hash":
        return HashMap(tuple(shard_map.part_hash.targets), shard_map.part_hash.by)
    if kind == "range":
        return RangeMap(tuple(shard_map.range.bounds), tuple(shard_map.range.targets))
    if kind == "explicit":
        return ExplicitMap()
    raise Malformed("a shard map has no kind that this version knows; upgrade the player")
