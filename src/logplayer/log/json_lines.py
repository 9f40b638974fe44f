"""Transactions and records as JSON, for the command line: one per line.

Keys and values are text; bytes that are not UTF-8 are written, and may be given, as ``{"base64": "..."}``. Rows of
tables are in :mod:`logplayer.log.json_rows`.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from logplayer.errors import UserError
from logplayer.log.json_rows import FIELDS, parse_row, row_to_dict
from logplayer.log.protocol import Kind, Record
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

EXAMPLE = '{"mutations": [{"key": "k", "value": "v"}]}'
_OPS = {"put": pb.PUT, "delete": pb.DELETE}


class Line(NamedTuple):
    """A transaction as a line gave it; no producer means that the command makes its own."""

    producer: str | None
    sequence: int
    payload: bytes


def parse_line(text: str | bytes, where: str) -> Line:
    """Understand one line or say what is wrong with it."""
    try:
        return _line(text, where)
    except UnicodeEncodeError as error:  # JSON can say half a character: "\ud800".
        raise UserError(
            f'{where}: {error.object[:40]!r} is not text that UTF-8 can write; give bytes as {{"base64": "..."}}'
        ) from None


def _line(text: str | bytes, where: str) -> Line:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON ({error}); write one transaction per line, as in {EXAMPLE}") from None
    if not isinstance(value, dict) or not isinstance(value.get("mutations"), list):
        raise UserError(f"{where} has no list of mutations; write for example {EXAMPLE}")
    _refuse_unknown(value, {"producer", "sequence", "mutations", "headers"}, where)
    producer, sequence = value.get("producer"), value.get("sequence")
    if (producer is None) != (sequence is None):
        raise UserError(f"{where} has only one of producer and sequence; give both or neither")
    if producer is not None and (not isinstance(producer, str) or type(sequence) is not int):
        raise UserError(f"{where}: producer must be text and sequence a whole number")
    if producer is not None:
        producer.encode()  # Here, where the line is known.
    if not value["mutations"]:
        raise UserError(f"{where} has an empty list of mutations, which changes nothing; write for example {EXAMPLE}")
    transaction = pb.Transaction()
    for nth, mutation in enumerate(value["mutations"], 1):
        transaction.mutations.append(_mutation(mutation, f"{where}, mutation {nth}"))
    for name, content in _headers(value.get("headers", {}), where):
        transaction.headers.add(name=name, value=content)
    return Line(producer, sequence or 0, transaction.SerializeToString())


def _headers(value: Any, where: str) -> list[tuple[str, bytes]]:
    """An object of names and values, or a list of pairs where a name occurs several times."""
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or any(
        not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs
    ):
        raise UserError(f'{where}: headers must be an object, as in {{"content-type": "text/plain"}}')
    return [(name, _bytes(content, f"{where}, header {name!r}")) for name, content in pairs]


def _mutation(value: Any, where: str) -> pb.Mutation:
    if isinstance(value, dict) and "table" in value:
        _refuse_unknown(value, FIELDS, where)
        return parse_row(value, where)
    if not isinstance(value, dict) or "key" not in value:
        raise UserError(f"{where} has no key; write for example {EXAMPLE}")
    _refuse_unknown(value, {"key", "value", "op", "target"}, where)
    op = value.get("op", "put")
    if op not in _OPS:
        raise UserError(f"{where} has op {op!r}; it must be put or delete")
    if op == "put" and "value" not in value:
        raise UserError(f"{where} has no value; a put needs one")
    target = value.get("target", "")
    if not isinstance(target, str):
        raise UserError(f"{where}: target must be text")
    return pb.Mutation(
        key=_bytes(value["key"], where), value=_bytes(value.get("value", ""), where), op=_OPS[op], target=target
    )


def _refuse_unknown(value: dict[str, Any], known: set[str], where: str) -> None:
    for key in value:
        if key not in known:
            raise UserError(f"{where} has the unknown field {key!r}; known are {', '.join(sorted(known))}")


def _bytes(value: Any, where: str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"]:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise UserError(f"{where} has bad base64") from None
    raise UserError(f'{where}: key and value must be text or {{"base64": "..."}}')


def readable(value: bytes) -> Any:
    """Bytes as JSON shows them: text, or base64 where they are none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def record_to_dict(record: Record) -> dict[str, Any]:
    """A record with its payload decoded; a payload that is not a Transaction is shown as bytes."""
    out: dict[str, Any] = {
        "index": record.index,
        "kind": record.kind.name.lower(),
        "producer": record.producer,
        "sequence": record.sequence,
        "committed_at_us": record.committed_at_us,
        "crc": f"{record.crc:08x}",
    }
    try:
        if record.kind == Kind.CONTROL:
            from google.protobuf.json_format import MessageToDict  # Slow to load, and few records need it.

            return out | {"control": MessageToDict(pb.Control.FromString(record.payload))}
    except DecodeError:
        return out | {"payload": readable(record.payload)}
    return out | payload_to_dict(record.payload)


def payload_to_dict(payload: bytes) -> dict[str, Any]:
    """The mutations and headers of an encoded transaction; what is not a transaction is shown as bytes."""
    try:
        transaction = pb.Transaction.FromString(payload)
    except DecodeError:
        return {"payload": readable(payload)}
    shown: dict[str, Any] = {"mutations": [_mutation_to_dict(mutation) for mutation in transaction.mutations]}
    pairs = [(header.name, readable(header.value)) for header in transaction.headers]
    if pairs:
        named = dict(pairs)
        shown["headers"] = named if len(named) == len(pairs) else pairs
    return shown


def _mutation_to_dict(mutation: pb.Mutation) -> dict[str, Any]:
    if mutation.table or mutation.op > pb.DELETE:
        row = row_to_dict(mutation)
        if row is not None:
            return row
    out: dict[str, Any] = {"key": readable(mutation.key)}
    if mutation.op == pb.DELETE:
        out["op"] = "delete"
    else:
        out["value"] = readable(mutation.value)
    if mutation.target:
        out["target"] = mutation.target
    return out


def record_to_text(record: Record, width: int = 160) -> str:
    """A record as one line for people."""
    shown = record_to_dict(record)
    body = shown.get("mutations", shown.get("control", shown.get("payload")))
    text = json.dumps(body, ensure_ascii=False)
    text = text if len(text) <= width else f"{text[: width - 1]}…"
    return f"{record.index:>10}  {record.kind.name.lower():<7}  {record.producer}/{record.sequence}  {text}"
