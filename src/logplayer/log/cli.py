"""``logplayer log``: serve, append, tail, dump, info, verify and trim any log by its address."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import click
import uvloop

from logplayer.errors import CorruptEntry, UserError
from logplayer.log.address import open_log, parse
from logplayer.log.protocol import Log
from logplayer.log.text import record_to_dict, record_to_text
from logplayer.voice import StoryGroup, json_option
from logplayer.wire.options import security_from, security_options
from logplayer.wire.security import NONE, Security

Body = Callable[..., Coroutine[Any, Any, int | None]]


def _verb(body: Body) -> Callable[..., None]:
    """Options that every verb has, an event loop, and a quiet end when the reader of our output went away."""

    @security_options(server=body.__name__ == "serve")
    @click.option("--log", "address", required=True, envvar="LOGPLAYER_LOG", help="file:///path, grpc://… or nats://…")
    @json_option
    @wraps(body)
    def run(**options: Any) -> None:
        parse(options["address"])
        secure = {key: options.pop(key) for key in ("tls_ca", "tls_cert", "tls_key", "token_file", "insecure")}
        security = security_from(**secure)
        try:
            code = uvloop.run(body(security=None if security == NONE else security, **options))
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Or Python complains at exit.
            code = 0
        if code:
            sys.exit(code)

    return run


@click.group(cls=StoryGroup)
def log() -> None:
    """The log: serve it, append to it, read it, check it, trim it.

    \b
    logplayer log info --log file:///tmp/wal
    LOGPLAYER_LOG=grpc://127.0.0.1:7100 logplayer log tail
    """


@log.command()
@click.option("--listen", default="127.0.0.1:7100", show_default=True, help="host:port; port 0 takes a free one.")
@_verb
async def serve(address: str, security: Security | None, as_json: bool, listen: str) -> None:
    """Share a log with other processes and languages over gRPC, until SIGTERM or Ctrl-C.

    \b
    logplayer log serve --log file:///tmp/wal --listen 127.0.0.1:7100
    """
    from logplayer.log.server import LogServer

    host, found, port = listen.rpartition(":")
    if not found or not port.isdigit() or int(port) > 65535:
        raise UserError(f"--listen {listen!r} is no host:port; write for example 127.0.0.1:7100")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    opened = await open_log(address)
    try:
        server = LogServer(opened, security or NONE)
        bound = await server.start(host, int(port))
        info = await opened.info()
        said = {"address": f"grpc://{host}:{bound}", "log": address, "log_id": info.log_id, "pid": os.getpid()}
        _say(said if as_json else f"serving {address} at {said['address']} (entries {info.first} to {info.last})")
        await stop.wait()
        await server.stop()
    finally:
        await opened.close()
    if not as_json:
        _say("stopped")


@log.command()
@_verb
async def append(address: str, security: Security | None, as_json: bool) -> None:
    """Append one transaction per line of stdin, as JSON.

    A line may name a "producer" and a "sequence"; then the same line, sent again, is not appended again.

    \b
    echo '{"mutations": [{"key": "k", "value": "v"}]}' | logplayer log append --log file:///tmp/wal
    """
    from logplayer.log.append_lines import append_lines

    opened = await open_log(address, security=security)
    try:
        await append_lines(opened, as_json)
    finally:
        await opened.close()


def _range_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--from", "first", type=int, help="The first index; default: the oldest, for tail the next."
    )(function)
    return click.option("--count", type=int, help="Stop after so many entries.")(function)


@log.command()
@_range_options
@_verb
async def tail(address: str, security: Security | None, as_json: bool, first: int | None, count: int | None) -> None:
    """Show new entries as they come, until Ctrl-C.

    \b
    logplayer log tail --log grpc://127.0.0.1:7100 --json
    """
    opened = await open_log(address, readonly=True, security=security)
    try:
        start = first if first is not None else (await opened.info()).last + 1
        await _show(opened, start, None, count, as_json)
    finally:
        await opened.close()


@log.command()
@_range_options
@click.option("--to", "last", type=int, help="The last index; by default the newest.")
@_verb
async def dump(
    address: str, security: Security | None, as_json: bool, first: int | None, last: int | None, count: int | None
) -> None:
    """Show the entries that are there.

    \b
    logplayer log dump --log file:///tmp/wal --from 100 --count 10
    """
    opened = await open_log(address, readonly=True, security=security)
    try:
        info = await opened.info()
        start, end = info.first if first is None else first, info.last if last is None else min(last, info.last)
        if start <= end:
            await _show(opened, start, end, count, as_json)
    finally:
        await opened.close()


async def _show(opened: Log, first: int, last: int | None, count: int | None, as_json: bool) -> None:
    shown = 0
    async for records in opened.read(first, last):
        for record in records:
            _say(record_to_dict(record) if as_json else record_to_text(record))
            shown += 1
            if count is not None and shown >= count:
                return


@log.command()
@_verb
async def info(address: str, security: Security | None, as_json: bool) -> None:
    """Show where the log stands: its id, the first and the last index, the newest control record.

    \b
    logplayer log info --log file:///tmp/wal --json
    """
    opened = await open_log(address, readonly=True, security=security)
    try:
        facts = (await opened.info())._asdict()
    finally:
        await opened.close()
    _say(facts if as_json else "\n".join(f"{key:<8} {value}" for key, value in facts.items()))


@log.command()
@click.option("--up-to", type=int, required=True, help="The last index to forget (inclusive).")
@_verb
async def trim(address: str, security: Security | None, as_json: bool, up_to: int) -> None:
    """Forget entries up to and including an index. It asks no target whether it needs them; a player with --trims does.

    \b
    logplayer log trim --log file:///tmp/wal --up-to 1000
    """
    opened = await open_log(address, security=security)
    try:
        await opened.trim(up_to)
        facts = await opened.info()
    finally:
        await opened.close()
    _say(facts._asdict() if as_json else f"the first entry is now {facts.first}")


@log.command()
@_verb
async def verify(address: str, security: Security | None, as_json: bool) -> int:
    """Check every entry's checksum and that none is missing; exit code 1 if one is damaged.

    \b
    logplayer log verify --log file:///tmp/wal
    """
    opened = await open_log(address, readonly=True, security=security)
    started, checked, payload_bytes = time.monotonic(), 0, 0
    damaged: list[int] = []
    try:
        facts = await opened.info()
        at = facts.first
        with click.progressbar(length=max(0, facts.last - facts.first + 1), label="verify", file=sys.stderr) as bar:
            while at <= facts.last:
                try:
                    async for records in opened.read(at, facts.last):
                        checked += len(records)
                        payload_bytes += sum(len(record.payload) for record in records)
                        bar.update(records[-1].index + 1 - at)
                        at = records[-1].index + 1
                    break
                except CorruptEntry as error:
                    damaged.append(error.index)
                    click.echo(f"logplayer: {error}", err=True)
                    bar.update(error.index + 1 - at)
                    at = error.index + 1
    finally:
        await opened.close()
    seconds = time.monotonic() - started
    result = {"checked": checked, "bytes": payload_bytes, "damaged": damaged, "seconds": round(seconds, 3)}
    rate = payload_bytes / 1e6 / seconds if seconds else 0.0
    _say(result if as_json else f"{checked} entries are right, {len(damaged)} damaged ({rate:.0f} MB/s)")
    return 1 if damaged else 0


def _say(what: dict[str, Any] | str) -> None:
    """One line, at once: whoever reads it may be a program that waits for it."""
    click.echo(what if isinstance(what, str) else json.dumps(what, ensure_ascii=False))
