"""``logplayer target``: serve a target, and ask one for its index."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from logplayer import config
from logplayer.cli.common import StoryGroup, http_option, json_option, log_format_option, run_loop, serving
from logplayer.cli.options import mapping_from
from logplayer.cli.security import security_from, security_options
from logplayer.core import digest as digests
from logplayer.core.fence import Position
from logplayer.errors import UserError
from logplayer.log.json_lines import payload_to_dict, readable
from logplayer.names import check_target
from logplayer.observe.logs import log_to_stderr, process_is
from logplayer.target import client
from logplayer.target.host import TraceSink
from logplayer.target.places import path_for, read_url
from logplayer.target.protocol import Store, Target
from logplayer.target.server import TargetServer
from logplayer.target.stores.open import STORES, TABLE_STORES, open_store
from logplayer.target.stores.own import open_own
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping

if TYPE_CHECKING:
    from logplayer.admin.http_server import HttpServer


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which store, whose, and where."""
    return place_options(
        click.option("--id", "name", required=True, help="The target's name, as players know it.")(command)
    )


class StoreKind(click.Choice[str]):
    """A store that comes with LogPlayer, or a class of the user's own."""

    name = "store"

    def __init__(self) -> None:
        super().__init__(list(STORES))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(STORES)}|MODULE:CLASS]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value if ":" in str(value) else super().convert(value, param, ctx)


def place_options(
    command: Callable[..., Any], kinds: click.ParamType[Any] | None = None, *, required: bool = True
) -> Callable[..., Any]:
    """Which store, and where."""
    command = click.option("--url", default="", callback=_url, help="Where the server is (postgres, redis, mysql).")(
        command
    )
    command = click.option(
        "--url-file",
        default="",
        metavar="FILE",
        is_eager=True,
        help="Read --url from this file: others can see a password on a command line.",
    )(command)
    command = click.option("--path", default="", help="Where the data is: a file (sqlite), a directory (rocksdb).")(
        command
    )
    command = click.option(
        "--mapping",
        default="",
        metavar="FILE",
        help="For stores of tables: the file whose [tables] renames and ignores tables and columns.",
    )(command)
    command = click.option(
        "--schema", default="", help="For postgres-tables: where the tables are.  [default: public]"
    )(command)
    known = kinds or click.Choice(list(STORES))
    return click.option("--store", "kind", type=known, required=required, help="The kind of store.")(command)


def _url(context: click.Context, _: click.Parameter, url: str) -> str:
    """What --url or the file says; --url-file is not an argument of the command itself."""
    file = context.params.pop("url_file", "")
    if file and url:
        raise UserError("--url and --url-file say the same thing; give one of them")
    return read_url(file) if file else url


@click.group(cls=StoryGroup)
def target() -> None:
    """Targets: serve one, show its index, read its store; add, remove and mend the log's members.

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
@functools.partial(place_options, kinds=StoreKind())
@click.option("--config", "config_path", default="", metavar="FILE", help="Read [tables] of this logplayer.toml.")
@click.option("--listen", default="", metavar="HOST:PORT", help="Listen here for grpc:// players.")
@click.option("--listen-tcp", default="", metavar="HOST:PORT", help="Listen here for tcp:// players.")
@http_option
@click.option("--trace", default="", metavar="FILE", help="Append what the target decides, as lines of JSON.")
@log_format_option
@json_option
@security_options(server=True)
def serve(
    kind: str,
    path: str,
    url: str,
    schema: str,
    mapping: str,
    config_path: str,
    names: tuple[str, ...],
    listen: str,
    listen_tcp: str,
    http_address: str,
    trace: str,
    log_format: str,
    as_json: bool,
    **secure: Any,
) -> None:
    """Serve a target, or several in one process, until SIGTERM or Ctrl-C.

    \b
    logplayer target serve --store sqlite --path a.db --id a --listen 127.0.0.1:7201
    logplayer target serve --store postgres --url postgresql://127.0.0.1/shop --id b --listen-tcp 127.0.0.1:7202
    logplayer target serve --store sqlite --path '{id}.db' --id c --id d --listen-tcp 127.0.0.1:7203
    logplayer target serve --store postgres-tables --url postgresql://127.0.0.1/shop --id f --listen 127.0.0.1:7205
    logplayer target serve --store inventory.py:Inventory --path stock.db --id e --listen 127.0.0.1:7204

    A store of your own is named by its class, in a module that Python finds or in a file. It is made with two
    arguments: what --path or --url says, and the target's name.
    """
    from logplayer.admin.app import serve as serve_face
    from logplayer.admin.target_face import target_face

    if not listen and not listen_tcp:
        raise UserError("a target needs somewhere to listen: give --listen HOST:PORT, --listen-tcp HOST:PORT, or both")
    log_to_stderr(log_format)  # Stores have something to say when they are opened.
    if len(names) == 1:
        process_is(target=names[0])
    security = security_from(**secure)
    named = mapping_from(mapping, config.load(config_path).tables if config_path else NO_MAPPING)
    stores = _stores(kind, names, path, url, schema=schema, mapping=named if kind in TABLE_STORES else mapping)
    server = TargetServer(stores, security, trace_to(trace) if trace else None)
    http = serve_face(target_face(server), security)
    run_loop(_serve(server, names, {"grpc": listen, "tcp": listen_tcp}, (http, http_address), as_json))


def _stores(
    kind: str, names: Sequence[str], path: str, url: str, schema: str = "", mapping: str | TableMapping = ""
) -> dict[str, Target]:
    """A store for each name; those that were opened are closed if one cannot be."""
    for name in names:
        check_target(name, "--id ")
    if len(set(names)) < len(names):
        raise UserError(f"--id {max(names, key=names.count)} is given twice")
    if len(names) > 1 and path and "{id}" not in path:
        raise UserError(f"--path {path} is one place for {len(names)} targets: write {{id}} where the name belongs")
    if ":" in kind:
        if schema or mapping:
            raise UserError("--schema and --mapping are for the stores of tables that come with LogPlayer")
        return {name: open_own(kind, name, path_for(path, name) or url) for name in names}
    stores: dict[str, Store] = {}
    try:
        for name in names:
            stores[name] = open_store(kind, name, path=path_for(path, name), url=url, schema=schema, mapping=mapping)
    except BaseException:
        for store in stores.values():
            store.close()
        raise
    return dict(stores)


async def _serve(
    server: TargetServer, names: Sequence[str], listen: dict[str, str], http: tuple[HttpServer, str], as_json: bool
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    addresses = await server.start(**listen)
    try:
        async with serving(*http) as http_address:
            for name in names:
                index = server.position(name).index
                facts = {"target": name, "addresses": addresses, "index": index, "pid": os.getpid()}
                facts |= {"http": http_address} if http_address else {}
                text = f"target {name} listens at {' and '.join(addresses)}, index {index}"
                click.echo(json.dumps(facts) if as_json else text)
            sys.stdout.flush()
            await stop.wait()
    finally:
        await server.stop()
    for name in names if not as_json else ():
        click.echo(f"target {name} stopped at index {server.position(name).index}")


def trace_to(path: str) -> TraceSink:
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


_timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0), default=10.0, show_default=True, help="Seconds."
)


@target.command("position")
@click.argument("address")
@click.option("--id", "name", default="", help="The target's name, if several are at the address.")
@_timeout_option
@json_option
@security_options(server=False)
def tell_position(address: str, name: str, timeout: float, as_json: bool, **secure: Any) -> None:
    """Show the index that a target has.

    \b
    logplayer target position grpc://127.0.0.1:7201
    """
    found = run_loop(client.position(address, name, timeout=timeout, security=security_from(**secure)))
    _tell(found, as_json)


@target.command()
@click.argument("address")
@click.option("--index", required=True, type=click.IntRange(min=0), help="The index to wait for.")
@click.option("--id", "name", default="", help="The target's name, if several are at the address.")
@_timeout_option
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
@json_option
def get(kind: str, name: str, key: str, as_json: bool, **place: str) -> None:
    """Print the value of a key, read from the store itself; exit code 1 if there is none.

    \b
    logplayer target get --store sqlite --path a.db --id a alice
    """
    with _Reading(kind, name, place) as store:
        value = store.get(key.encode())
    if as_json:
        click.echo(json.dumps({"key": key, "value": None if value is None else readable(value)}, ensure_ascii=False))
    elif value is not None:
        click.echo(value)
    if value is None:
        sys.exit(1)


@target.command()
@store_options
@click.option("--quarantine", is_flag=True, help="Print the quarantined entries instead of the data.")
def dump(kind: str, name: str, quarantine: bool, **place: str) -> None:
    """Print everything in the store as lines of JSON, with keys and values in hexadecimal.

    With --quarantine, print the quarantined entries as 'logplayer log dump' does: their mutations, with keys and values
    as text, or as {"base64": "..."} where they are not UTF-8.

    \b
    logplayer target dump --store sqlite --path a.db --id a
    logplayer target dump --store sqlite --path a.db --id a --quarantine
    """
    with _Reading(kind, name, place) as store:
        if quarantine:
            for index, payload in store.quarantine():
                click.echo(json.dumps({"index": index, **payload_to_dict(payload)}, ensure_ascii=False))
        else:
            for key, value in store.scan():
                click.echo(json.dumps({"key": key.hex(), "value": value.hex()}))


class _Reading:
    """A store that is read while a server may have it open."""

    def __init__(self, kind: str, name: str, place: dict[str, str]) -> None:
        self._store = open_store(kind, name, read_only=True, **place)

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
