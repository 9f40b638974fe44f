"""What every command has in common, so that the command line speaks with one voice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from logplayer.allocator import keep_freed_memory
from logplayer.observe.logs import FORMATS
from logplayer.player.ended import Ended

if TYPE_CHECKING:
    from logplayer.admin.http_server import HttpServer


def run_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run the event loop, the fast one where it exists."""
    keep_freed_memory()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


class StoryGroup(click.Group):
    """A group whose help lists its commands in the order in which they were added, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--json``, for a script that reads the answer."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for a script.")(command)


def http_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--http`` of a server that does without it by default."""
    text = "Serve status, metrics and health here, over HTTP."
    return click.option("--http", "http_address", default="", metavar="HOST:PORT", help=text)(command)


def log_format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--log-format``, for what a server logs to stderr."""
    text = "How to log: lines for people, or an object per line with the facts as fields."
    return click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True, help=text)(
        command
    )


@asynccontextmanager
async def serving(server: HttpServer, address: str) -> AsyncIterator[str]:
    """Listen at ``address`` inside the block, and give the one that was taken; without an address, neither."""
    if not address:
        yield ""
        return
    taken = await server.start(address)
    try:
        yield taken
    finally:
        await server.stop()


def event_line(as_json: bool, what: str, facts: Mapping[str, object]) -> str:
    """What has just happened, as one line; a fact that is the only one needs no name."""
    if as_json:
        return json.dumps({"event": what, **facts})
    if len(facts) == 1:
        return f"{what}: {next(iter(facts.values()))}"
    return f"{what}: " + ", ".join(f"{key} {value}" for key, value in facts.items())


def end_line(as_json: bool, ended: Ended) -> str:
    """How a player has ended, as the last line that it prints."""
    if as_json:
        fields = ended.as_json()
        return event_line(True, "ended", {name: fields[name] for name in ("kind", "epoch", "reason")})
    return event_line(False, "ended", {"how": ended})
