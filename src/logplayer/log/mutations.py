"""What a transaction is made of, as an application writes it: puts and deletes, with text or bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from logplayer.core.entry import Mutation
from logplayer.log.protocol import BadRequest
from logplayer.wire.entries import encode_headers, encode_mutation


def put(key: str | bytes, value: str | bytes, target: str = "") -> Mutation:
    """Write ``value`` under ``key``.

    Args:
        key: Text (stored as UTF-8) or bytes.
        value: Text (stored as UTF-8) or bytes; for anything else see :func:`json_value`.
        target: The target that gets it. Empty: the shard map decides by key.

    Raises:
        BadRequest: The key or the value is neither text nor bytes.

    Example:
        >>> put("alice", "90").key
        b'alice'
    """
    return encode_mutation(_bytes("key", key), _bytes("value", value), target)


def delete(key: str | bytes, target: str = "") -> Mutation:
    """Remove ``key``. Removing a key that does not exist is allowed.

    Args:
        key: Text (stored as UTF-8) or bytes.
        target: The target that has it. Empty: the shard map decides by key.

    Raises:
        BadRequest: The key is neither text nor bytes.

    Example:
        >>> delete("alice").key
        b'alice'
    """
    return encode_mutation(_bytes("key", key), None, target)


def json_value(value: Any) -> bytes:
    """``value`` as compact JSON, with the keys sorted: the same value is always the same bytes.

    Args:
        value: Anything that :func:`json.dumps` takes.

    Raises:
        BadRequest: JSON has no form for it.

    Example:
        >>> json_value({"balance": 90, "name": "Zoë"}).decode()
        '{"balance":90,"name":"Zoë"}'
    """
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BadRequest(f"JSON has no form for {value!r:.60}: {error}") from None


Headers = Mapping[str, str | bytes] | Sequence[tuple[str, str | bytes]]


def transaction(mutations: Sequence[Mutation], headers: Headers = ()) -> bytes:
    """The payload of one entry."""
    if not mutations:
        raise BadRequest("a transaction needs at least one mutation; give lp.put(key, value) or lp.delete(key)")
    for mutation in mutations:
        if not isinstance(mutation, Mutation):
            raise BadRequest(f"{mutation!r:.60} is not a mutation; give lp.put(key, value) or lp.delete(key)")
    encoded = [mutation.encoded for mutation in mutations]
    if headers:
        encoded.append(encode_headers(_header_pairs(headers)))
    return b"".join(encoded)


def _header_pairs(headers: Headers) -> list[tuple[str, bytes]]:
    try:
        pairs = [(name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers)]
    except (TypeError, ValueError):
        raise BadRequest(
            f"headers are names and values, not {headers!r:.60}; give headers={{'trace': '...'}}"
        ) from None
    for name, _ in pairs:
        if not isinstance(name, str):
            raise BadRequest(f"the name of a header is text, not {type(name).__name__} ({name!r:.40})")
    return [(name, _bytes("header's value", value)) for name, value in pairs]


def _bytes(what: str, value: str | bytes) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise BadRequest(f"a {what} is text or bytes, not {type(value).__name__} ({value!r:.40}); see lp.json_value")
