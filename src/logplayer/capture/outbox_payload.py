"""What an outbox message holds: a transaction of the log, encoded or as a line of JSON. Pure."""

from __future__ import annotations

from logplayer.errors import UserError
from logplayer.log.json_lines import parse_line
from logplayer.wire.entries import decode_headers, split_transaction
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

_JSON = b"{"  # Neither field of an encoded transaction begins so.
OWN = "pg-"
"""Headers that begin so are the capture's."""


def decode_outbox(content: bytes) -> tuple[list[bytes], list[tuple[str, bytes]]]:
    """Mutations, encoded as a transaction joins them, and headers. An empty message has neither.

    Raises:
        UserError: The JSON is not a transaction, or it uses a name that belongs to the capture.
        Malformed: The bytes are not a transaction.

    Example:
        >>> mutations, headers = decode_outbox(b'{"mutations": [{"key": "k", "value": "v"}]}')
        >>> len(mutations), headers
        (1, [])
    """
    if content.startswith(_JSON):
        line = parse_line(content, "the message")
        if line.producer is not None:
            raise UserError("the message names a producer; leave it out, since the capture is the producer")
        content = line.payload
    headers = list(decode_headers(content))
    if any(mutation.op == pb.DDL for mutation in pb.Transaction.FromString(content).mutations):
        raise UserError("the message has a statement (lp.ddl), which must be an entry of its own; append it to the log")
    for name, _ in headers:
        if name.startswith(OWN):
            raise UserError(f"the header {name!r} belongs to the capture; choose a name that does not begin with {OWN}")
    return [mutation.encoded for mutation in split_transaction(content)], headers
