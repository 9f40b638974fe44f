"""A player answers questions on a port of its own: one line of JSON in, one line of JSON out.

``{"do": "status"}`` answers with the player's status; ``{"do": "retry", "target": NAME}`` and ``{"do": "stop"}`` act.
It listens on loopback unless it is told otherwise, and then with the same TLS and token as everything else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from logplayer.errors import ConfigError, LogPlayerError, UserError
from logplayer.wire.address import parse_netloc
from logplayer.wire.security import NONE, Security, ServerContexts, client_context, require_protection

LINE_BYTES_MAX = 4 << 20

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class StatusServer:
    """Serves ``answer`` at one address."""

    def __init__(self, answer: Answer, security: Security = NONE) -> None:
        self._answer = answer
        self._security = security
        self._server: asyncio.Server | None = None

    async def start(self, listen: str) -> str:
        """Listen, and return the address that was taken."""
        host, port = parse_netloc(listen)
        require_protection(self._security, host, server=True)
        context = ServerContexts(self._security).current()
        try:
            self._server = await asyncio.start_server(self._serve, host, port, ssl=context, limit=LINE_BYTES_MAX)
        except OSError as error:
            raise UserError(
                f"cannot listen at {listen} for status: {error.strerror}; give --status HOST:PORT"
            ) from None
        taken = self._server.sockets[0].getsockname()
        return f"{taken[0]}:{taken[1]}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                question = json.loads(await reader.readline() or b"{}")
                writer.write(json.dumps(self._reply(question)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # Whoever asked is gone, or did not ask in JSON.
        finally:
            writer.close()

    def _reply(self, question: Any) -> Mapping[str, Any]:
        if not isinstance(question, dict):
            return {"error": "a question is a JSON object"}
        if not self._security.permits(str(question.get("token", ""))):
            return {"error": "the token is missing or wrong"}
        try:
            return self._answer(question)
        except LogPlayerError as error:
            return {"error": str(error)}


async def ask(address: str, question: Mapping[str, Any], security: Security = NONE, timeout: float = 5.0) -> Any:
    """Ask a player something; raises UserError if nobody answers."""
    host, port = parse_netloc(address)
    require_protection(security, host, server=False)
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=client_context(security), limit=LINE_BYTES_MAX
            )
            writer.write(json.dumps({**question, "token": security.token}).encode() + b"\n")
            answer = json.loads(await reader.readline())
            writer.close()
    except (OSError, TimeoutError, ValueError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or "it hung up"
        raise UserError(
            f"no player answers at {address} ({why}); is 'logplayer play' running, and with which --status?"
        ) from None
    if "error" in answer:
        raise ConfigError(f"the player at {address} says: {answer['error']}")
    return answer
