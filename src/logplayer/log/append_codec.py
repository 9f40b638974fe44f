"""The messages of an append stream: calls on their way to the server, answers on their way back.

A payload is copied once on each side: the client joins it into the message as it is, after a few bytes of header, and
the server cuts it out. The bytes in between are those of ``logplayer.v1.AppendCalls``, which any language can write.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from logplayer.errors import LogError
from logplayer.log.answer import GroupOutcome
from logplayer.log.frame import KINDS
from logplayer.log.grpc_errors import facts_of, name_and_value
from logplayer.log.protocol import BadRequest, NewEntry
from logplayer.wire.entries import varint
from logplayer.wire.logplayer.v1 import log_pb2 as pb

CALLS_COUNT_MAX = 1000
"""What a message may hold, so that the refusal of all of them is not a long message either."""
_new_tuple = tuple.__new__  # A third of the time that the class itself takes.
_KINDS = dict(enumerate(KINDS))  # Not by position: -1 is not a kind.


@functools.lru_cache(4096)
def _who(producer: str) -> bytes:
    """The producer's field and the tag of the sequence, the same for all entries of a producer."""
    name = producer.encode()
    return b"\x0a" + varint(len(name)) + name + b"\x10"


def encode_entries(entries: Sequence[NewEntry]) -> list[bytes]:
    """The entries as fields of ``AppendCalls``, in parts to be joined; payloads are not copied."""
    parts: list[bytes] = []
    for producer, sequence, payload, kind in entries:
        head = _who(producer) + varint(sequence) + b"\x1a" + varint(len(payload))
        tail = b"\x20" + varint(kind) if kind else b""
        parts += (b"\x12" + varint(len(head) + len(payload) + len(tail)) + head, payload, tail)
    return parts


def encode_calls(first: int, calls: Sequence[list[bytes]], counts: Sequence[int]) -> bytes:
    """One message: calls from number ``first`` on, as ``encode_entries`` made them, and how many entries each has."""
    parts = [b"\x08" + varint(first)]
    for call in calls:
        parts += call
    if any(count != 1 for count in counts):
        packed = b"".join([varint(count) for count in counts])
        parts.append(b"\x1a" + varint(len(packed)) + packed)
    return b"".join(parts)


def decode_calls(data: bytes, first: int) -> list[list[NewEntry]]:
    """The calls of a message whose first must have number ``first``."""
    try:
        message = pb.AppendCalls.FromString(data)
    except DecodeError as error:
        raise BadRequest(f"the message is not a {pb.AppendCalls.DESCRIPTOR.full_name}: {error}") from None
    if message.first != first:
        raise BadRequest(f"the message begins with call {message.first} where call {first} must follow")
    counts = message.counts
    if len(counts or message.entries) > CALLS_COUNT_MAX:
        raise BadRequest(f"a message has {len(counts or message.entries)} calls; the limit is {CALLS_COUNT_MAX}")
    try:
        entries: list[NewEntry] = [
            _new_tuple(NewEntry, (m.producer, m.sequence, m.payload, _KINDS[m.kind])) for m in message.entries
        ]
    except KeyError:
        raise BadRequest("an entry's kind must be DATA or CONTROL") from None
    if not counts:
        return [[entry] for entry in entries]
    if sum(counts) != len(entries) or not all(counts):
        raise BadRequest(f"a message has {len(entries)} entries for calls of {list(counts)[:10]}")
    calls, at = [], 0
    for count in counts:
        calls.append(entries[at : at + count])
        at += count
    return calls


def encode_answers(first: int, outcomes: Sequence[GroupOutcome]) -> bytes:
    """One message: the answers to the calls from number ``first`` on."""
    message = pb.AppendAnswers(first=first, count=len(outcomes))
    indexes: list[int] = []
    for number, outcome in enumerate(outcomes, first):
        if isinstance(outcome, LogError):
            error, value = name_and_value(outcome)
            message.refusals.add(number=number, error=error, message=str(outcome), value=value, facts=facts_of(outcome))
        else:
            indexes += outcome
    message.indexes.extend(indexes)
    return message.SerializeToString()


class Answers(NamedTuple):
    """A decoded message of answers: to calls number ``first`` to ``first + calls - 1``."""

    first: int
    calls: int
    indexes: list[int]
    refusals: dict[int, pb.AppendRefusal]


def decode_answers(data: bytes) -> Answers:
    """Raises ValueError for bytes that are not a message of ours."""
    try:
        message = pb.AppendAnswers.FromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    return Answers(message.first, message.count, list(message.indexes), {r.number: r for r in message.refusals})
