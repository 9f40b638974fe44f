"""How the log's errors travel over gRPC: a status code for every language, and the exact class and number for ours."""

from __future__ import annotations

from typing import Any

import grpc

import logplayer.errors as e
from logplayer.log.protocol import BadRequest, Locked

ERROR_KEY, VALUE_KEY = "logplayer-error", "logplayer-value"
MESSAGE_BYTES_MAX = 24 * 1024 * 1024  # Above the largest group with its headers; the default of 4 MiB kills the stream.

_CODES: dict[type[e.LogError], grpc.StatusCode] = {
    e.SequenceGap: grpc.StatusCode.FAILED_PRECONDITION,
    e.EntryTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    e.Trimmed: grpc.StatusCode.OUT_OF_RANGE,
    e.CorruptEntry: grpc.StatusCode.DATA_LOSS,
    e.LogFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    e.LogFormatError: grpc.StatusCode.FAILED_PRECONDITION,
    e.Superseded: grpc.StatusCode.ABORTED,
    Locked: grpc.StatusCode.UNAVAILABLE,
    e.LogUnavailable: grpc.StatusCode.UNAVAILABLE,
    e.LogError: grpc.StatusCode.INTERNAL,
}
_BY_NAME = {kind.__name__: kind for kind in _CODES}
_TRANSPORT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)

COMMON_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.ping_timeout_ms", 5_000),
]


class ServerUnreachable(e.LogUnavailable):
    """The connection to the log server failed: worth another try, which the client makes by itself."""


class NotAdmitted(e.LogError, e.UserError):
    """The log server wants another token."""


def to_status(error: e.LogError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """(code, details, trailing metadata) of an error."""
    kind = next(kind for kind in type(error).__mro__ if kind in _CODES)
    value = error.first if isinstance(error, e.Trimmed) else error.index if isinstance(error, e.CorruptEntry) else 0
    return _CODES[kind], str(error), ((ERROR_KEY, kind.__name__), (VALUE_KEY, str(value)))


def from_status(error: grpc.aio.AioRpcError, where: str) -> e.LogError:
    """The error that the server raised, or what became of the connection."""
    metadata: Any = error.trailing_metadata() or ()  # Pairs, whatever the stubs say.
    trailing = dict(metadata)
    kind = _BY_NAME.get(str(trailing.get(ERROR_KEY, "")))
    details = error.details() or "no details"
    if kind is None:
        if error.code() in _TRANSPORT:
            return ServerUnreachable(f"the log server at {where} cannot be reached ({details}); is it running?")
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return NotAdmitted(f"the log server at {where} refused the token: {details}; give --token-file")
        return e.LogError(f"the log server at {where} failed: {error.code().name} {details}")
    if issubclass(kind, e.Trimmed | e.CorruptEntry):
        return kind(details, int(str(trailing.get(VALUE_KEY, "0"))))
    return kind(details)
