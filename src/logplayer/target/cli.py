"""``logplayer target``: serve a target, and ask one where it stands."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import click

from logplayer.core import digest as digests
from logplayer.core.fence import Position
from logplayer.errors import UserError
from logplayer.target import client
from logplayer.target.host import Trace
from logplayer.target.protocol import Store
from logplayer.target.server import TargetServer
from logplayer.target.stores import STORES, open_store
from logplayer.voice import StoryGroup, json_option
from logplayer.wire.options import security_from, security_options


def run_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run the event loop, the fast one where it exists."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which store, whose, and where."""
    return place_options(
        click.option("--id", "name", required=True, help="The target's name, as players know it.")(command)
    )


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which store, and where."""
    command = click.option("--url", default="", help="Where the server is (postgres, redis).")(command)
    command = click.option("--path", default="", help="Where the data is: a file (sqlite), a directory (rocksdb).")(
        command
    )
    return click.option("--store", "kind", type=click.Choice(list(STORES)), required=True, help="The kind of store.")(
        command
    )


@click.group(cls=StoryGroup)
def target() -> None:
    """Targets: serve one, ask where it stands, read its store; add, remove and mend the log's members.

    \b
    logplayer target serve --store sqlite --path a.db --id a --listen 127.0.0.1:7201
    logplayer target list --log grpc://127.0.0.1:7100
    """


@target.command()
@click.option(
    "--id",
    "names",
    required=True,
    multiple=True,
    help="The target's name, as players know it; may be given several times, with {id} in --path.",
)
@place_options
@click.option("--listen", default="", metavar="HOST:PORT", help="Listen here for grpc:// players.")
@click.option("--listen-tcp", default="", metavar="HOST:PORT", help="Listen here for tcp:// players.")
@click.option("--trace", default="", metavar="FILE", help="Append what the target decides, as lines of JSON.")
@json_option
@security_options(server=True)
def serve(
    kind: str,
    path: str,
    url: str,
    names: tuple[str, ...],
    listen: str,
    listen_tcp: str,
    trace: str,
    as_json: bool,
    **secure: Any,
) -> None:
    """Serve a target, or several in one process, until SIGTERM or Ctrl-C.

    \b
    logplayer target serve --store sqlite --path a.db --id a --listen 127.0.0.1:7201
    logplayer target serve --store postgres --url postgresql://127.0.0.1/shop --id b --listen-tcp 127.0.0.1:7202
    logplayer target serve --store sqlite --path '{id}.db' --id c --id d --listen-tcp 127.0.0.1:7203
    """
    if not listen and not listen_tcp:
        raise UserError("a target needs somewhere to listen: give --listen HOST:PORT, --listen-tcp HOST:PORT, or both")
    security = security_from(**secure)
    server = TargetServer(_stores(kind, names, path, url), security, trace_to(trace) if trace else None)
    run_loop(_serve(server, names, listen, listen_tcp, as_json))


def _stores(kind: str, names: Sequence[str], path: str, url: str) -> dict[str, Store]:
    """A store for each name; those that were opened are closed if one cannot be."""
    if len(set(names)) < len(names):
        raise UserError(f"--id {max(names, key=names.count)} is given twice")
    if len(names) > 1 and path and "{id}" not in path:
        raise UserError(f"--path {path} is one place for {len(names)} targets: write {{id}} where the name belongs")
    stores: dict[str, Store] = {}
    try:
        for name in names:
            stores[name] = open_store(kind, name, path=path.replace("{id}", name), url=url)
    except BaseException:
        for store in stores.values():
            store.close()
        raise
    return stores


async def _serve(server: TargetServer, names: Sequence[str], listen: str, listen_tcp: str, as_json: bool) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    addresses = await server.start(grpc=listen, tcp=listen_tcp)
    for name in names:
        index = server.position(name).index
        facts = {"target": name, "addresses": addresses, "index": index, "pid": os.getpid()}
        text = f"target {name} listens at {' and '.join(addresses)}, index {index}"
        click.echo(json.dumps(facts) if as_json else text)
    sys.stdout.flush()
    await stop.wait()
    await server.stop()
    for name in names if not as_json else ():
        click.echo(f"target {name} stopped at index {server.position(name).index}")


def trace_to(path: str) -> Trace:
    """A trace sink that appends to a file; each line is whole even if the process is killed after it."""
    try:
        file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - it lives as long as the process.
    except OSError as error:
        raise UserError(f"the trace file {path} cannot be written: {error.strerror}") from None
    lock = threading.Lock()  # Several targets in one server trace from several threads.

    def write(line: dict[str, object]) -> None:
        with lock:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

    return write


@target.command("position")
@click.argument("address")
@click.option("--id", "name", default="", help="The target's name, if several are at the address.")
@click.option("--timeout", default=10.0, show_default=True, help="Seconds.")
@json_option
@security_options(server=False)
def tell_position(address: str, name: str, timeout: float, as_json: bool, **secure: Any) -> None:
    """Tell where a target stands.

    \b
    logplayer target position grpc://127.0.0.1:7201
    """
    found = run_loop(client.position(address, name, timeout=timeout, security=security_from(**secure)))
    _tell(found, as_json)


@target.command()
@click.argument("address")
@click.option("--index", required=True, type=click.IntRange(min=0), help="The index to wait for.")
@click.option("--id", "name", default="", help="The target's name, if several are at the address.")
@click.option("--timeout", default=10.0, show_default=True, help="Seconds.")
@json_option
@security_options(server=False)
def wait(address: str, index: int, name: str, timeout: float, as_json: bool, **secure: Any) -> None:
    """Wait until a target has everything up to an index; exit code 1 if it has not in time.

    \b
    logplayer target wait grpc://127.0.0.1:7201 --index 42 --timeout 30
    """
    found = run_loop(client.wait_for(address, name, index, timeout, security_from(**secure)))
    _tell(found, as_json)


@target.command()
@store_options
@click.argument("key")
def get(kind: str, path: str, url: str, name: str, key: str) -> None:
    """Print the value of a key, read from the store itself; exit code 1 if there is none.

    \b
    logplayer target get --store sqlite --path a.db --id a alice
    """
    with _Reading(kind, path, url, name) as store:
        value = store.get(key.encode())
    if value is None:
        sys.exit(1)
    click.echo(value)


@target.command()
@store_options
@click.option("--quarantine", is_flag=True, help="What was kept aside, instead of the data.")
def dump(kind: str, path: str, url: str, name: str, quarantine: bool) -> None:
    """Print everything in the store as lines of JSON, with keys and values in hexadecimal.

    \b
    logplayer target dump --store sqlite --path a.db --id a
    """
    with _Reading(kind, path, url, name) as store:
        if quarantine:
            for index, payload in store.quarantine():
                click.echo(json.dumps({"index": index, "payload": payload.hex()}))
        else:
            for key, value in store.scan():
                click.echo(json.dumps({"key": key.hex(), "value": value.hex()}))


class _Reading:
    """A store that is read while a server may have it open."""

    def __init__(self, kind: str, path: str, url: str, name: str) -> None:
        self._store = open_store(kind, name, path=path, url=url, read_only=True)

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *_: object) -> None:
        self._store.close()


def _tell(found: Position, as_json: bool) -> None:
    facts = {
        "index": found.index,
        "digest": digests.to_bytes(found.digest).hex(),
        "epoch": found.session.epoch,
        "term": found.session.term,
        "log_id": found.log_id,
    }
    if as_json:
        click.echo(json.dumps(facts))
    else:
        log = found.log_id or "no log yet"
        click.echo(f"index {found.index}, session {found.session}, digest {facts['digest']}, filled from {log}")
