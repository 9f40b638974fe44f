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

from logplayer.cli.common import StoryGroup, http_option, json_option, log_format_option, serving
from logplayer.cli.security import OPTIONS, log_security_options, security_from, security_options
from logplayer.errors import UserError
from logplayer.log import control_chain
from logplayer.log.json_lines import record_to_dict, record_to_text
from logplayer.log.open import open_log, parse
from logplayer.log.protocol import Info, Log
from logplayer.log.verify import verify_log
from logplayer.observe.logs import log_to_stderr, process_is
from logplayer.player.trim_check import check_trim
from logplayer.wire.security import Security
from logplayer.wording import plural

Body = Callable[..., Coroutine[Any, Any, int | None]]


def _verb(body: Body) -> Callable[..., None]:
    """Options that every verb has, an event loop, and a quiet end when the reader of our output went away."""

    @security_options(server=body.__name__ == "serve")
    @click.option(
        "--log",
        "address",
        required=True,
        envvar="LOGPLAYER_LOG",
        help="file:///path, grpc://…, etcd://…, nats://… or kafka://…",
    )
    @json_option
    @wraps(body)
    def run(**options: Any) -> None:
        parse(options["address"])
        secure = {key: options.pop(key) for key in OPTIONS if key in options}
        security = security_from(**secure)
        try:
            code = uvloop.run(body(security=security, **options))
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
@http_option
@log_format_option
@log_security_options
@_verb
async def serve(
    address: str,
    security: Security,
    as_json: bool,
    listen: str,
    http_address: str,
    log_format: str,
    **to_log: Any,
) -> None:
    """Share a log with other processes and languages over gRPC, until SIGTERM or Ctrl-C.

    \b
    logplayer log serve --log file:///tmp/wal --listen 127.0.0.1:7100
    """
    from logplayer.admin.app import serve as serve_face
    from logplayer.admin.log_face import log_face
    from logplayer.log.server import LogServer

    log_to_stderr(log_format)
    host, found, port = listen.rpartition(":")
    if not found or not port.isdigit() or int(port) > 65535:
        raise UserError(f"--listen {listen!r} is not host:port; write for example 127.0.0.1:7100")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    opened = await open_log(address, security_from(**{key.removeprefix("log_"): to_log[key] for key in to_log}))
    try:
        info = await opened.info()
        process_is(log_id=info.log_id)
        server = LogServer(opened, security)
        bound = await server.start(host, int(port))
        async with serving(serve_face(log_face(address, opened, server), security), http_address) as http:
            said = {"address": f"grpc://{host}:{bound}", "log": address, "log_id": info.log_id, "pid": os.getpid()}
            said |= {"http": http} if http else {}
            _say(said if as_json else f"serving {address} at {said['address']} (entries {info.first} to {info.last})")
            await stop.wait()
            await server.stop()
    finally:
        await opened.close()
    if not as_json:
        _say("stopped")


@log.command()
@_verb
async def append(address: str, security: Security, as_json: bool) -> None:
    """Append one transaction per line of stdin, as JSON.

    A line may name a "producer" and a "sequence". The log takes each such pair once: the same line, sent again, gets
    the first one's index ("repeated" in JSON), and another transaction under a used pair is refused. A bad line or
    Ctrl-C ends it at once; it says what is in the log, and after a bad line from which line on to send again.

    \b
    echo '{"mutations": [{"key": "k", "value": "v"}]}' | logplayer log append --log file:///tmp/wal
    """
    from logplayer.cli.append_lines import append_lines

    opened = await open_log(address, security=security)
    try:
        await append_lines(opened, as_json)
    finally:
        await opened.close()


def _range_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--from", "first", type=int, help="The first index; default: the oldest, for tail the next."
    )(function)
    return click.option("--count", type=int, help="Stop after this many entries.")(function)


@log.command()
@_range_options
@_verb
async def tail(address: str, security: Security, as_json: bool, first: int | None, count: int | None) -> None:
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
    address: str, security: Security, as_json: bool, first: int | None, last: int | None, count: int | None
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
async def info(address: str, security: Security, as_json: bool) -> None:
    """Show what the log has: its id, the first and the last index, the newest control record, the chain values.

    "chain" is the value at the last index, "trimmed_chain" the one before the first; both are empty where there is no
    entry yet. A log that says "unfenced" cannot refuse a second writer.

    \b
    logplayer log info --log file:///tmp/wal --json
    """
    opened = await open_log(address, readonly=True, security=security)
    try:
        facts = _info_facts(await opened.info())
    finally:
        await opened.close()
    width = max(map(len, facts))
    _say(facts if as_json else "\n".join(f"{key:<{width}} {value}" for key, value in facts.items()))


def _info_facts(info: Info) -> dict[str, Any]:
    """As a command shows it: chain values in hexadecimal."""
    return info._asdict() | {"chain": info.chain.hex(), "trimmed_chain": info.trimmed_chain.hex()}


@log.command()
@click.option("--up-to", type=int, required=True, help="The last index to forget (inclusive).")
@click.option("--force", is_flag=True, help="Also what a target does not have yet; it then needs a backfill.")
@_verb
async def trim(address: str, security: Security, as_json: bool, up_to: int, force: bool) -> None:
    """Forget entries up to and including an index, once every target of the log has them.

    The newest control record is never forgotten, because players start from it: it is repeated at the end first.

    \b
    logplayer log trim --log file:///tmp/wal --up-to 1000
    """
    opened = await open_log(address, security=security)
    try:
        if not force:
            await check_trim(opened, up_to, security)
        _, repeated = await control_chain.trim(opened, up_to)
        facts = await opened.info()
    finally:
        await opened.close()
    why = f"; the newest control record was in the way and is repeated at {repeated}" if repeated else ""
    _say(_info_facts(facts) | {"repeated": repeated} if as_json else f"the first entry is now {facts.first}{why}")


@log.command()
@_verb
async def verify(address: str, security: Security, as_json: bool) -> int:
    """Check every entry's checksum, the chain from the first to the last, and the newest control record.

    Exit code 1 if something is wrong. Each damaged entry is named, and each that does not continue the one before it:
    entries are missing there, or it is of another history of the log.

    \b
    logplayer log verify --log file:///tmp/wal
    """
    opened = await open_log(address, readonly=True, security=security)
    started = time.monotonic()
    try:
        facts = await opened.info()
        with click.progressbar(length=max(0, facts.last - facts.first + 1), label="verify", file=sys.stderr) as bar:
            found = await verify_log(opened, bar.update)
    finally:
        await opened.close()
    seconds = time.monotonic() - started
    for fault in found.faults:
        click.echo(f"logplayer: {fault.why}", err=True)
    result = {
        "checked": found.checked,
        "bytes": found.bytes,
        "damaged": [fault.index for fault in found.damaged],
        "chain_breaks": [fault.index for fault in found.breaks],
        "chain": found.info.chain.hex(),
        "jam": found.jam.why if found.jam else "",
        "seconds": round(seconds, 3),
    }
    rate = found.bytes / 1e6 / seconds if seconds else 0.0
    breaks = f", the chain breaks at {', '.join(str(fault.index) for fault in found.breaks)}" if found.breaks else ""
    right = plural(found.checked, "entry is", "entries are")
    _say(result if as_json else f"{right} right, {len(found.damaged)} damaged{breaks} ({rate:.0f} MB/s)")
    return 1 if found.faults else 0


def _say(what: dict[str, Any] | str) -> None:
    """One line, at once: whoever reads it may be a program that waits for it."""
    click.echo(what if isinstance(what, str) else json.dumps(what, ensure_ascii=False))
