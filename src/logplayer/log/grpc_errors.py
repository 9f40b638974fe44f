"""How the log's errors travel over gRPC: a status code for every language, and the exact class and number for ours."""

from __future__ import annotations

import json
from typing import Any

import grpc

import logplayer.errors as e
from logplayer.log.protocol import BadRequest, Locked

ERROR_KEY, VALUE_KEY = "logplayer-error", "logplayer-value"
FACTS_KEY = "logplayer-facts"  # Of those errors that have more than one: JSON by field.
LOG_ID_KEY = "logplayer-log-id"  # Which log a call is for; a server of another one refuses it.
VERSIONS_KEY = "logplayer-versions"  # Which versions of the protocol the client speaks: OLDEST-NEWEST.
ADMITTED_KEY = "logplayer-append-stream"  # Says at the beginning of a stream that its messages will be read.
MESSAGE_BYTES_MAX = 24 * 1024 * 1024  # Above the largest group with its headers; the default of 4 MiB kills the stream.

_CODES: dict[type[e.LogError], grpc.StatusCode] = {
    e.SequenceGap: grpc.StatusCode.FAILED_PRECONDITION,
    e.ProducerConflict: grpc.StatusCode.ALREADY_EXISTS,
    e.EntryTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    e.ControlRefused: grpc.StatusCode.FAILED_PRECONDITION,
    e.ControlJammed: grpc.StatusCode.FAILED_PRECONDITION,
    e.OtherLog: grpc.StatusCode.FAILED_PRECONDITION,
    e.VersionMismatch: grpc.StatusCode.FAILED_PRECONDITION,
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    e.Trimmed: grpc.StatusCode.OUT_OF_RANGE,
    e.CorruptEntry: grpc.StatusCode.DATA_LOSS,
    e.LogDiverged: grpc.StatusCode.DATA_LOSS,
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


class LogNotAdmitted(e.LogError, e.UserError):
    """The log server wants another token."""


def to_status(error: e.LogError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """(code, details, trailing metadata) of an error."""
    name, value = name_and_value(error)
    trailing: tuple[tuple[str, str], ...] = ((ERROR_KEY, name), (VALUE_KEY, str(value)))
    if facts := facts_of(error):
        trailing = (*trailing, (FACTS_KEY, facts))
    return _CODES[_BY_NAME[name]], str(error), trailing


def name_and_value(error: e.LogError) -> tuple[str, int]:
    """The class of an error, as peers know it, and its number."""
    kind = next(kind for kind in type(error).__mro__ if kind in _CODES)
    return kind.__name__, _value(error)


def facts_of(error: e.LogError) -> str:
    """The fields of an error that has several, as JSON; else nothing."""
    return json.dumps(vars(error)) if isinstance(error, e.SequenceGap | e.ProducerConflict) else ""


def _value(error: e.LogError) -> int:
    """The number that goes with an error's class."""
    match error:
        case e.Trimmed():
            return error.first
        case e.CorruptEntry() | e.LogDiverged():
            return error.index
        case e.SequenceGap():
            return error.newest
        case e.ProducerConflict():
            return error.index
        case _:
            return 0


def from_status(error: grpc.aio.AioRpcError, where: str) -> e.LogError:
    """The error that the server raised, or what became of the connection."""
    metadata: Any = error.trailing_metadata() or ()  # Pairs, whatever the stubs say.
    trailing = dict(metadata)
    name = str(trailing.get(ERROR_KEY, ""))
    details = error.details() or "no details"
    if name not in _BY_NAME:
        if error.code() in _TRANSPORT:
            return ServerUnreachable(f"the log server at {where} cannot be reached ({details}); is it running?")
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return LogNotAdmitted(f"the log server at {where} refused the token: {details}; give --token-file")
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return e.NotALog(f"the server at {where} is not a log server, maybe a target; give the log server's port")
        return e.LogError(f"the log server at {where} failed: {error.code().name} {details}")
    value, facts = int(str(trailing.get(VALUE_KEY, "0"))), str(trailing.get(FACTS_KEY, ""))
    if _BY_NAME[name] is e.VersionMismatch:
        details = f"{where}: {details}"
    return error_named(name, details, value, facts)


def is_away(error: grpc.aio.AioRpcError) -> bool:
    """Whether another server of the same log may do what this one could not: it, or its log, is away."""
    metadata: Any = error.trailing_metadata() or ()
    name = str(dict(metadata).get(ERROR_KEY, ""))
    if name not in _BY_NAME:
        return error.code() in (*_TRANSPORT, grpc.StatusCode.INTERNAL)
    return names_away(name)


def names_away(name: str) -> bool:
    """The same for the error that a server has named."""
    return issubclass(_BY_NAME.get(name, e.LogError), (e.LogUnavailable, e.Superseded))


def from_stream_status(error: grpc.aio.AioRpcError, where: str) -> e.LogError:
    """The same for a stream. Its end may meet a message on its way out, and gRPC then has no better word for it."""
    metadata: Any = error.trailing_metadata() or ()
    if error.code() is grpc.StatusCode.INTERNAL and ERROR_KEY not in dict(metadata):
        return ServerUnreachable(f"the stream to the log server at {where} broke ({error.details()})")
    return from_status(error, where)


def error_named(name: str, details: str, value: int, facts: str = "") -> e.LogError:
    """The error that a peer named; a plain ``LogError`` if the name is of a later version."""
    kind = _BY_NAME.get(name, e.LogError)
    if issubclass(kind, e.SequenceGap | e.ProducerConflict):
        return kind(details, **_facts(kind, facts))
    if issubclass(kind, e.Trimmed | e.CorruptEntry | e.LogDiverged):
        return kind(details, value)
    return kind(details)


def _facts(kind: type[e.LogError], text: str) -> dict[str, Any]:
    """What the server says of an error beside its message; it may be any program, so only what makes sense."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: found[name] for name, none in vars(kind("")).items() if type(found.get(name)) is type(none)}
