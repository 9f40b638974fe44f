"""One question over HTTP to a process of ours, and its answer, which is JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import h11

from logplayer.errors import AddressError, ConfigError, Unavailable
from logplayer.wire.addresses import netloc, parse_netloc
from logplayer.wire.recognise import PeerKind, mixed_up, recognise
from logplayer.wire.security import NONE, Security, client_context, require_protection

ANSWER_BYTES_MAX = 16 << 20
CHUNK_BYTES = 64 << 10
_AWAY = 503


async def ask(
    address: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    security: Security = NONE,
    timeout: float = 5.0,
) -> Any:
    """GET ``path``, or POST ``body`` to it. Raises Unavailable if nobody answers, ConfigError if it is refused."""
    try:
        async with asyncio.timeout(timeout), _exchange(address, path, body, security) as (status, chunks):
            data = b"".join([chunk async for chunk in chunks])
    except (OSError, TimeoutError) as error:
        raise _nobody(address, "no answer in time" if isinstance(error, TimeoutError) else str(error)) from None
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        raise another(address) from None
    if status < 400:
        return answer
    if not isinstance(answer, dict) or "error" not in answer:
        raise another(address)
    kind = Unavailable if status == _AWAY else ConfigError
    raise kind(f"the player at {address} says: {answer['error']}")


async def follow(address: str, path: str, security: Security = NONE) -> AsyncIterator[tuple[str, Any]]:
    """The events of a stream, as (name, data), until it ends. Raises as ``ask`` does."""
    try:
        async with _exchange(address, path, None, security) as (status, chunks):
            if status >= 400:
                raise ConfigError(f"{address} does not give its events (HTTP {status}); check the token")
            rest = b""
            async for chunk in chunks:
                *whole, rest = (rest + chunk).split(b"\n\n")
                for block in whole:
                    fields = dict(line.partition(b": ")[::2] for line in block.split(b"\n"))
                    if b"data" in fields:
                        yield fields.get(b"event", b"message").decode(), json.loads(fields[b"data"])
    except (OSError, TimeoutError) as error:
        raise _nobody(address, str(error)) from None


@asynccontextmanager
async def _exchange(
    address: str, path: str, body: Mapping[str, Any] | None, security: Security
) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
    """Send the question; the answer's status, and its body as it comes."""
    host, port = parse_netloc(address)
    require_protection(security, host, server=False)
    reader, writer = await asyncio.open_connection(host, port, ssl=client_context(security))
    try:
        conversation = h11.Connection(h11.CLIENT)
        writer.write(_question(conversation, netloc(host, port), path, body, security))
        async with aclosing(_answer(conversation, reader, address)) as events:
            head = await anext(events)
            assert isinstance(head, h11.Response)
            yield head.status_code, _data(events)
    finally:
        writer.close()


def _question(
    conversation: h11.Connection, host: str, path: str, body: Mapping[str, Any] | None, security: Security
) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    headers = [("host", host), ("connection", "close")]
    if security.token:
        headers.append(("authorization", f"Bearer {security.token}"))
    if body is not None:
        headers += [("content-type", "application/json"), ("content-length", str(len(content)))]
    parts = [
        conversation.send(h11.Request(method="GET" if body is None else "POST", target=path, headers=headers)),
        conversation.send(h11.Data(data=content)) if content else b"",
        conversation.send(h11.EndOfMessage()),
    ]
    return b"".join(part or b"" for part in parts)


async def _answer(
    conversation: h11.Connection, reader: asyncio.StreamReader, address: str
) -> AsyncGenerator[h11.Event, None]:
    """The response, then its data; ends with the message."""
    begun, count = b"", 0
    while True:
        try:
            event = conversation.next_event()
        except h11.RemoteProtocolError:
            if not begun:
                raise _nobody(address, "it hung up; give --tls-ca if it speaks TLS") from None
            raise another(address, recognise(begun)) from None
        if event is h11.NEED_DATA:
            data = await reader.read(CHUNK_BYTES)
            begun = begun or data
            conversation.receive_data(data)
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
            return
        elif isinstance(event, (h11.Response, h11.Data)):
            count += len(event.data) if isinstance(event, h11.Data) else 0
            if count > ANSWER_BYTES_MAX and conversation.their_state is not h11.DONE:
                raise another(address)
            yield event


async def _data(events: AsyncIterator[h11.Event]) -> AsyncIterator[bytes]:
    async for event in events:
        if isinstance(event, h11.Data):
            yield bytes(event.data)


def _nobody(address: str, why: str) -> Unavailable:
    return Unavailable(
        f"no player answers at {address} ({why or 'it hung up'}); is 'logplayer play' running, and with which --http?"
    )


def another(address: str, found: PeerKind | None = None) -> AddressError:
    """Another server's port that was given by mistake is said as such."""
    if found is PeerKind.TLS:
        return AddressError(mixed_up(address, address, PeerKind.TLS))
    return AddressError(f"{address} is not a player's HTTP port, another server answers there; see 'play --http'")
