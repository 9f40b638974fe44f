"""Between the bytes of ``target.proto`` and ``entry.proto`` and the core's values.

Batches are in ``hot``, and acks are read and written by hand, which is cheaper. Everything else goes through the
generated code.

Every function here that reads bytes raises :class:`logplayer.errors.Malformed` for bytes that it cannot understand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from logplayer.core import digest as digests
from logplayer.core.entry import Message, Refusal, Session
from logplayer.core.fence import Batch as Batch
from logplayer.core.fence import Position as Position
from logplayer.core.fence import Refused as Refused
from logplayer.errors import Malformed, TargetError
from logplayer.wire.entries import decode_control as decode_control
from logplayer.wire.entries import decode_transaction as decode_transaction
from logplayer.wire.entries import encode_control as encode_control
from logplayer.wire.entries import encode_mutation as encode_mutation
from logplayer.wire.entries import split_transaction as split_transaction
from logplayer.wire.hot import encode_batch as encode_batch
from logplayer.wire.hot import read_batch as read_batch
from logplayer.wire.hot import read_varint
from logplayer.wire.hot import varint as varint
from logplayer.wire.logplayer.v1 import target_pb2 as pb

# The most that one message may hold, on both transports and both sides.
MESSAGE_BYTES_MAX = 64 * 1024 * 1024


class Open(NamedTuple):
    """The first message of a stream: the player asks to be the only writer of ``target``."""

    target: str
    log_id: str
    session: Session


class Probe(NamedTuple):
    """The player asks for an Ack of the durable index."""


class Auth(NamedTuple):
    """The first frame over tcp:// if the target wants a token."""

    token: str


class AskPosition(NamedTuple):
    """A reader asks where the target stands; with ``at_least`` it wants the answer once the index is reached."""

    target: str
    at_least: int = 0


class Opened(NamedTuple):
    """The session is open, and ``index`` and ``digest`` are what the target has durably."""

    index: int  # type: ignore[assignment]  # A field that hides tuple.index, on purpose.
    digest: int


class Ack(NamedTuple):
    """Everything up to ``index`` is applied and durable."""

    index: int  # type: ignore[assignment]
    digest: int


class Failed(NamedTuple):
    """The stream ends for a reason outside the protocol; ``code`` is a value of ``Failed.Code``."""

    code: int
    detail: str


INTERNAL, UNAUTHENTICATED, INVALID = 0, 1, 2  # Failed.code

ToTarget = Open | Batch | Probe | Auth | AskPosition
ToPlayer = Opened | Ack | Refused | Position | Failed

# --- Acks, and the first bytes of what ends a stream. -----------------------------------------------------

# The first byte of a ToPlayer message that is the last of its stream: ToPlayer.refused and ToPlayer.failed.
REFUSED, FAILED = b"\x1a", b"\x2a"
_DIGEST_BYTES = 16
_ACK_DIGEST = bytes((0x12, _DIGEST_BYTES))  # Ack.digest: field 2, of 16 bytes
# What stands before an index of n bytes: ToPlayer.ack (field 2, length-delimited), the length, Ack.index (field 1).
_ACK_REST = 3 + len(_ACK_DIGEST) + _DIGEST_BYTES  # All bytes of an ack but the index.
_ACK = tuple(bytes((0x12, 1 + n + len(_ACK_DIGEST) + _DIGEST_BYTES, 0x08)) for n in range(11))


# --- Player to target. ------------------------------------------------------------------------------------


def encode_open(target: str, log_id: str, session: Session) -> bytes:
    """A ``ToTarget`` that opens a session."""
    opening = pb.Open(target=target, log_id=log_id, epoch=session.epoch, term=session.term)
    return pb.ToTarget(open=opening).SerializeToString()


def encode_auth(token: str) -> bytes:
    """A ``ToTarget`` that shows the token (tcp:// only)."""
    return pb.ToTarget(auth=pb.Auth(token=token)).SerializeToString()


def encode_ask(ask: AskPosition) -> bytes:
    """A ``ToTarget`` that asks for the position (tcp:// only)."""
    if ask.at_least:
        wait_for = pb.WaitForRequest(target=ask.target, index=ask.at_least)
        return pb.ToTarget(wait_for=wait_for).SerializeToString()
    return pb.ToTarget(position=pb.PositionRequest(target=ask.target)).SerializeToString()


PROBE = pb.ToTarget(probe=pb.Probe()).SerializeToString()


def decode_to_target(data: bytes) -> ToTarget:
    """The target's side: what a player, or a reader over tcp://, sent. For batches :func:`read_batch` is quicker."""
    try:
        message = pb.ToTarget.FromString(data)
    except DecodeError as error:
        raise Malformed(f"{len(data)} bytes are not a ToTarget message: {error}") from error
    kind = message.WhichOneof("message")
    if kind == "batch":
        batch = message.batch
        return Batch(batch.prev, batch.to, tuple([Message(d.index, d.payload, d.quarantine) for d in batch.deliveries]))
    if kind == "probe":
        return Probe()
    if kind == "open":
        opening = message.open
        return Open(opening.target, opening.log_id, Session(opening.epoch, opening.term))
    if kind == "auth":
        return Auth(message.auth.token)
    if kind == "position":
        return AskPosition(message.position.target)
    if kind == "wait_for":
        return AskPosition(message.wait_for.target, message.wait_for.index)
    raise Malformed(f"a ToTarget message of {len(data)} bytes holds nothing that this version knows")


# --- Target to player. ------------------------------------------------------------------------------------


def encode_opened(position: Position) -> bytes:
    """A ``ToPlayer`` that says the session is open."""
    opened = pb.Opened(index=position.index, digest=digests.to_bytes(position.digest))
    return pb.ToPlayer(opened=opened).SerializeToString()


def encode_ack(position: Position) -> bytes:
    """A ``ToPlayer`` that acks the durable position."""
    index = varint(position.index)
    return b"".join((_ACK[len(index)], index, _ACK_DIGEST, digests.to_bytes(position.digest)))


def encode_refused(refused: Refused) -> bytes:
    """A ``ToPlayer`` that says no; the last message of its stream."""
    reason: Any = refused.reason.value  # The generated types want their own enum; the runtime takes its number.
    message = pb.Refused(reason=reason, detail=_text(refused.detail), index=refused.index, epoch=refused.epoch)
    return pb.ToPlayer(refused=message).SerializeToString()


def encode_failed(code: Any, detail: str) -> bytes:
    """A ``ToPlayer`` that ends a tcp:// stream as a status ends a gRPC stream."""
    return pb.ToPlayer(failed=pb.Failed(code=code, detail=_text(detail))).SerializeToString()


def _text(detail: str) -> str:
    """What protobuf can carry of it: a store's own words may hold halves of characters."""
    return detail.encode("utf-8", "replace").decode()


def decode_to_player(data: bytes) -> ToPlayer:
    """The player's side: what a target sent."""
    size = len(data) - _ACK_REST
    if 0 < size < 10 and data[:3] == _ACK[size] and data[3 + size : 5 + size] == _ACK_DIGEST:
        index, end = read_varint(data, 3, len(data))
        if end == 3 + size:
            return Ack(index, digests.from_bytes(data[end + 2 :]))
    try:
        message = pb.ToPlayer.FromString(data)
    except DecodeError as error:
        raise Malformed(f"{len(data)} bytes are not a ToPlayer message: {error}") from error
    kind = message.WhichOneof("message")
    if kind == "ack":
        return Ack(message.ack.index, _digest(message.ack.digest))
    if kind == "opened":
        return Opened(message.opened.index, _digest(message.opened.digest))
    if kind == "refused":
        refused = message.refused
        return Refused(_reason(refused.reason), refused.detail, refused.index, refused.epoch)
    if kind == "position":
        return _position(message.position)
    if kind == "failed":
        return Failed(message.failed.code, message.failed.detail)
    raise Malformed(f"a ToPlayer message of {len(data)} bytes holds nothing that this version knows")


def failure(address: str, data: bytes) -> TargetError:
    """What a ``ToPlayer`` message that holds Failed means, in one line."""
    try:
        failed = pb.ToPlayer.FromString(data).failed
    except DecodeError as error:
        return TargetError(f"{address} does not speak this protocol: {error}")
    if failed.code == UNAUTHENTICATED:
        return TargetError(f"{address} refused the token: {failed.detail}")
    return TargetError(f"the stream to {address} ended: {failed.detail}")


# --- The position: on the wire beside a stream, and in stores that keep it as one value. -------------------


def position_reply(target: str, position: Position) -> pb.PositionReply:
    """The position as a message."""
    return pb.PositionReply(
        target=target,
        log_id=position.log_id,
        index=position.index,
        digest=digests.to_bytes(position.digest),
        epoch=position.session.epoch,
        term=position.session.term,
    )


def encode_position(target: str, position: Position) -> bytes:
    """The position as an encoded ``PositionReply``."""
    return position_reply(target, position).SerializeToString()


def encode_position_answer(target: str, position: Position) -> bytes:
    """A ``ToPlayer`` with the position (tcp:// only)."""
    return pb.ToPlayer(position=position_reply(target, position)).SerializeToString()


def decode_position(data: bytes) -> Position:
    """The inverse of :func:`encode_position`."""
    try:
        return _position(pb.PositionReply.FromString(data))
    except DecodeError as error:
        raise Malformed(f"{len(data)} bytes are not a position: {error}") from error


def _position(reply: pb.PositionReply) -> Position:
    return Position(reply.index, Session(reply.epoch, reply.term), _digest(reply.digest), reply.log_id)


def _digest(encoded: bytes) -> int:
    if len(encoded) not in (0, 16):
        raise Malformed(f"a digest is 16 bytes, this one has {len(encoded)}")
    return digests.from_bytes(encoded)


def _reason(value: int) -> Refusal:
    try:
        return Refusal(value)
    except ValueError:
        raise Malformed(f"the target refused for reason {value}, which this version does not know") from None
