"""Between the bytes of ``target.proto`` and ``entry.proto`` and the core's values.

Batches are in ``fastpath``, and acks are read and written by hand, which is cheaper. Everything else goes through the
generated code.

Every function here that reads bytes raises :class:`logplayer.errors.Malformed` for bytes that it cannot understand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from logplayer.core import digest as digests
from logplayer.core.chain import GENESIS, VALUE_BYTES, is_value
from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.fence import Batch as Batch
from logplayer.core.fence import Position as Position
from logplayer.core.fence import TargetRefusal as TargetRefusal
from logplayer.errors import Malformed, TargetError, UserError, VersionMismatch
from logplayer.wire import versions
from logplayer.wire.entries import decode_control as decode_control
from logplayer.wire.entries import decode_transaction as decode_transaction
from logplayer.wire.entries import encode_control as encode_control
from logplayer.wire.entries import encode_mutation as encode_mutation
from logplayer.wire.entries import split_transaction as split_transaction
from logplayer.wire.fastpath import encode_batch as encode_batch
from logplayer.wire.fastpath import read_batch as read_batch
from logplayer.wire.fastpath import read_varint
from logplayer.wire.fastpath import varint as varint
from logplayer.wire.logplayer.v1 import target_pb2 as pb
from logplayer.wire.versions import Versions

# The most that one message may hold, on both transports and both sides.
MESSAGE_BYTES_MAX = 64 * 1024 * 1024


class Open(NamedTuple):
    """The first message of a stream: the player asks to be the only writer of ``target``."""

    target: str
    log_id: str
    session: Session
    versions: Versions = versions.OURS


class Probe(NamedTuple):
    """The player asks for an Ack of the durable index."""


class Auth(NamedTuple):
    """The first frame over tcp:// if the target wants a token."""

    token: str
    versions: Versions = versions.OURS


class AskPosition(NamedTuple):
    """A reader asks for the target's position; with ``at_least`` it wants the answer once the index is reached."""

    target: str
    at_least: int = 0
    versions: Versions = versions.OURS


class SessionOpened(NamedTuple):
    """The session is open, and ``index``, ``digest`` and ``chain`` are what the target has durably."""

    index: int  # type: ignore[assignment]  # A field that hides tuple.index, on purpose.
    digest: int
    chain: bytes = GENESIS


class Ack(NamedTuple):
    """Everything up to ``index`` is applied and durable."""

    index: int  # type: ignore[assignment]
    digest: int


class Failed(NamedTuple):
    """The stream ends for a reason outside the protocol; ``code`` is a value of ``Failed.Code``."""

    code: int
    detail: str


class PositionAnswer(NamedTuple):
    """A target's answer: its position, and whether the stream of that position's session is open now."""

    position: Position
    connected: bool = False  # False also if the target cannot tell.
    quiet_ms: int = 0  # How long it has waited for a word on that stream; 0 also if it cannot tell.


INTERNAL, UNAUTHENTICATED, INVALID, EXHAUSTED, VERSION = 0, 1, 2, 3, 4  # Failed.code

ToTarget = Open | Batch | Probe | Auth | AskPosition
ToPlayer = SessionOpened | Ack | TargetRefusal | PositionAnswer | Failed

# --- Acks, and the first bytes of what ends a stream. -----------------------------------------------------

# The first byte of a ToPlayer message that is the last of its stream: ToPlayer.refused and ToPlayer.failed.
REFUSED, FAILED = b"\x1a", b"\x2a"
_DIGEST_BYTES = 16
_ACK_DIGEST = bytes((0x12, _DIGEST_BYTES))  # Ack.digest: field 2, of 16 bytes
# What precedes an index of n bytes: ToPlayer.ack (field 2, length-delimited), the length, Ack.index (field 1).
_ACK_REST = 3 + len(_ACK_DIGEST) + _DIGEST_BYTES  # All bytes of an ack but the index.
_ACK = tuple(bytes((0x12, 1 + n + len(_ACK_DIGEST) + _DIGEST_BYTES, 0x08)) for n in range(11))


# --- Player to target. ------------------------------------------------------------------------------------


def encode_open(target: str, log_id: str, session: Session, speaks: Versions | None = None) -> bytes:
    """A ``ToTarget`` that opens a session; ``speaks`` is for tests of peers that speak other versions than we do."""
    spoken = spoken_versions(speaks)
    opening = pb.Open(target=target, log_id=log_id, epoch=session.epoch, term=session.term, versions=spoken)
    return pb.ToTarget(open=opening).SerializeToString()


def encode_auth(token: str, speaks: Versions | None = None) -> bytes:
    """A ``ToTarget`` that shows the token (tcp:// only)."""
    return pb.ToTarget(auth=pb.Auth(token=token, versions=spoken_versions(speaks))).SerializeToString()


def encode_ask(ask: AskPosition) -> bytes:
    """A ``ToTarget`` that asks for the position (tcp:// only)."""
    request = position_request(ask)
    if isinstance(request, pb.WaitForRequest):
        return pb.ToTarget(wait_for=request).SerializeToString()
    return pb.ToTarget(position=request).SerializeToString()


def position_request(ask: AskPosition) -> pb.PositionRequest | pb.WaitForRequest:
    """The question as a message, which is a call over grpc://."""
    spoken = spoken_versions(ask.versions)
    if ask.at_least:
        return pb.WaitForRequest(target=ask.target, index=ask.at_least, versions=spoken)
    return pb.PositionRequest(target=ask.target, versions=spoken)


def spoken_versions(speaks: Versions | None = None) -> pb.Versions:
    """As a message; without ``speaks``, those of this release."""
    oldest, newest = versions.OURS if speaks is None else speaks
    return pb.Versions(oldest=oldest, newest=newest)


def versions_of(message: pb.Versions) -> Versions:
    """Those that a peer says it speaks: ``UNSAID`` if it says nothing."""
    return Versions(message.oldest, message.newest)


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
        deliveries = tuple([Delivery(d.index, d.payload, d.quarantine, _chain(d.chain)) for d in batch.deliveries])
        return Batch(batch.prev, batch.to, deliveries, _chain(batch.prev_chain), _chain(batch.to_chain))
    if kind == "probe":
        return Probe()
    if kind == "open":
        opening = message.open
        session, spoken = Session(opening.epoch, opening.term), versions_of(opening.versions)
        return Open(opening.target, opening.log_id, session, spoken)
    if kind == "auth":
        return Auth(message.auth.token, versions_of(message.auth.versions))
    if kind == "position":
        return AskPosition(message.position.target, 0, versions_of(message.position.versions))
    if kind == "wait_for":
        wait_for = message.wait_for
        return AskPosition(wait_for.target, wait_for.index, versions_of(wait_for.versions))
    raise Malformed(f"a ToTarget message of {len(data)} bytes holds nothing that this version knows")


# --- Target to player. ------------------------------------------------------------------------------------


def encode_opened(position: Position, version: int) -> bytes:
    """A ``ToPlayer`` that says the session is open, and in which version of the protocol."""
    digest = digests.to_bytes(position.digest)
    opened = pb.Opened(index=position.index, digest=digest, chain=position.chain, version=version)
    return pb.ToPlayer(opened=opened).SerializeToString()


def encode_ack(position: Position) -> bytes:
    """A ``ToPlayer`` that acks the durable position."""
    index = varint(position.index)
    return b"".join((_ACK[len(index)], index, _ACK_DIGEST, digests.to_bytes(position.digest)))


def encode_refused(refused: TargetRefusal) -> bytes:
    """A ``ToPlayer`` that says no; the last message of its stream."""
    reason: Any = refused.reason.value  # The generated types want their own enum; the runtime takes its number.
    message = pb.Refused(
        reason=reason, detail=sayable(refused.detail), index=refused.index, epoch=refused.epoch, chain=refused.chain
    )
    return pb.ToPlayer(refused=message).SerializeToString()


def encode_failed(code: Any, detail: str) -> bytes:
    """A ``ToPlayer`` that ends a tcp:// stream as a status ends a gRPC stream."""
    return pb.ToPlayer(failed=pb.Failed(code=code, detail=sayable(detail))).SerializeToString()


def sayable(detail: str) -> str:
    """What protobuf and logs can carry of it: a store's own words may hold halves of characters."""
    return detail.encode("utf-8", "replace").decode()


def decode_to_player(data: bytes) -> ToPlayer:
    """The player's side: what a target sent. Raises VersionMismatch if the target opened in a version not ours."""
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
        opened = message.opened
        versions.require(opened.version, "target", "player")
        return SessionOpened(opened.index, _digest(opened.digest), _chain(opened.chain))
    if kind == "refused":
        refused = message.refused
        told = refused.detail, refused.index, refused.epoch, _chain(refused.chain)
        return TargetRefusal(_reason(refused.reason), *told)
    if kind == "position":
        versions.require(message.position.version, "target", "reader")
        return _standing(message.position)
    if kind == "failed":
        return Failed(message.failed.code, message.failed.detail)
    raise Malformed(f"a ToPlayer message of {len(data)} bytes holds nothing that this version knows")


class NotAdmitted(TargetError, UserError):
    """The target wants another token. A player tries again all the same: the target may get another."""


def not_admitted(address: str, detail: str | None) -> NotAdmitted:
    """The one wording of a refused token, whichever transport brings it."""
    return NotAdmitted(f"{address} refused the token: {detail}; give --token-file")


def failure(address: str, data: bytes) -> TargetError:
    """What a ``ToPlayer`` message that holds Failed means, in one line."""
    try:
        failed = pb.ToPlayer.FromString(data).failed
    except DecodeError as error:
        return TargetError(f"{address} does not speak this protocol: {error}")
    if failed.code == UNAUTHENTICATED:
        return not_admitted(address, failed.detail)
    if failed.code == VERSION:
        return VersionMismatch(f"{address}: {failed.detail}")
    return TargetError(f"the stream to {address} ended: {failed.detail}")


# --- The position: on the wire beside a stream, and in stores that keep it as one value. -------------------


def position_reply(target: str, position: Position, connected: bool = False) -> pb.PositionReply:
    """The position as a message."""
    return pb.PositionReply(
        target=target,
        log_id=position.log_id,
        index=position.index,
        digest=digests.to_bytes(position.digest),
        epoch=position.session.epoch,
        term=position.session.term,
        connected=connected,
        chain=position.chain,
    )


def encode_position(target: str, position: Position, connected: bool = False) -> bytes:
    """The position as bytes that a store can keep beside its data.

    Args:
        target: The target's name.
        position: What ``change.check`` returned.
        connected: Whether a player feeds it now, for an answer to a reader; a store leaves it out.

    Example:
        >>> stored = encode_position("a", Position(index=7))  # doctest: +SKIP
    """
    return position_reply(target, position, connected).SerializeToString()


def answer_position(
    target: str, position: Position, connected: bool, version: int, quiet_ms: int = 0
) -> pb.PositionReply:
    """The position as the answer to a question, in the version that both speak."""
    reply = position_reply(target, position, connected)
    reply.version = version
    reply.quiet_ms = quiet_ms
    return reply


def encode_position_answer(answer: pb.PositionReply) -> bytes:
    """A ``ToPlayer`` with the position (tcp:// only)."""
    return pb.ToPlayer(position=answer).SerializeToString()


def decode_standing(data: bytes) -> PositionAnswer:
    """A ``PositionReply`` as the answer to a question. Raises VersionMismatch if it is in a version not ours."""
    try:
        reply = pb.PositionReply.FromString(data)
    except DecodeError as error:
        raise Malformed(f"{len(data)} bytes are not a position: {error}") from error
    versions.require(reply.version, "target", "reader")
    return _standing(reply)


def _standing(reply: pb.PositionReply) -> PositionAnswer:
    return PositionAnswer(_position(reply), reply.connected, reply.quiet_ms)


def decode_position(data: bytes) -> Position:
    """The position that a store has kept: the inverse of :func:`encode_position`.

    Args:
        data: What ``encode_position`` made.

    Raises:
        Malformed: The bytes are something else.

    Example:
        >>> decode_position(encode_position("a", Position(index=7))).index  # doctest: +SKIP
        7
    """
    try:
        return _position(pb.PositionReply.FromString(data))
    except DecodeError as error:
        raise Malformed(f"{len(data)} bytes are not a position: {error}") from error


def _position(reply: pb.PositionReply) -> Position:
    session = Session(reply.epoch, reply.term)
    return Position(reply.index, session, _digest(reply.digest), reply.log_id, _chain(reply.chain))


def _digest(encoded: bytes) -> int:
    if len(encoded) not in (0, 16):
        raise Malformed(f"a digest is 16 bytes, this one has {len(encoded)}")
    return digests.from_bytes(encoded)


def _chain(value: bytes) -> bytes:
    if not is_value(value):
        raise Malformed(f"a chain value is {VALUE_BYTES} bytes, this one has {len(value)}")
    return value


def _reason(value: int) -> Refusal:
    try:
        return Refusal(value)
    except ValueError:
        raise Malformed(f"the target refused for reason {value}, which this version does not know") from None
