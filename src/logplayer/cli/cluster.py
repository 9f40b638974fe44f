"""``logplayer cluster``: three etcd or NATS servers on this machine for the replicated log."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from logplayer.cli.common import StoryGroup, json_option
from logplayer.log.etcd.local_cluster import EtcdCluster
from logplayer.log.local_cluster import LocalCluster, NodeStatus, read_kept
from logplayer.log.nats.local_cluster import Cluster

ENGINES: dict[str, type[LocalCluster]] = {"nats": Cluster, "etcd": EtcdCluster}


def _common(function: Callable[..., Any]) -> Callable[..., Any]:
    folder = click.Path(file_okay=False, path_type=Path)
    function = json_option(function)
    return click.option(
        "--dir",
        "directory",
        type=folder,
        default=Path.home() / ".logplayer" / "cluster",
        show_default="~/.logplayer/cluster",
        help="Where configuration, data and logs are.",
    )(function)


@click.group(cls=StoryGroup)
def cluster() -> None:
    """Three etcd or NATS servers on this machine for the replicated log: for trying it, and for tests.

    \b
    logplayer cluster up --engine etcd
    logplayer cluster down
    """


@cluster.command()
@_common
@click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    default="nats",
    show_default=True,
    help="Which servers; docs/log.md says which to choose when.",
)
@click.option(
    "--port",
    type=click.IntRange(1024, 60000),
    show_default="the engine's own: 4222, 2379",
    help="The first server's; the next two follow.",
)
@click.option("--name", default="wal", show_default=True, help="The log's name in the address that is shown.")
@click.option("--foreground", is_flag=True, help="Stay, and stop the servers at SIGTERM or Ctrl-C.")
def up(directory: Path, as_json: bool, engine: str, port: int | None, name: str, foreground: bool) -> None:
    """Start the servers, or those that do not run, and wait until they take writes.

    \b
    logplayer cluster up --engine nats --dir /tmp/nats --port 4222
    """
    stop = threading.Event()
    if foreground:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    made = ENGINES[engine](directory, port or 0, attached=foreground)
    try:
        _show(made.up(lambda line: click.echo(line, err=True)), as_json, made.address(name))
        if foreground:
            sys.stdout.flush()
            stop.wait()
    finally:
        if foreground:
            made.down()


@cluster.command()
@_common
def down(directory: Path, as_json: bool) -> None:
    """Stop the servers; their data stays.

    \b
    logplayer cluster down --dir /tmp/nats
    """
    stopped = _find(directory).down()
    click.echo(
        json.dumps({"stopped": stopped}) if as_json else f"stopped {stopped} servers; the data stays in {directory}"
    )


@cluster.command()
@_common
@click.option("--name", default="wal", show_default=True, help="The log's name in the address that is shown.")
def status(directory: Path, as_json: bool, name: str) -> None:
    """Show each server: its port and process, and whether it syncs before it answers.

    \b
    logplayer cluster status --json
    """
    found = _find(directory)
    _show(found.status(), as_json, found.address(name))


def _find(directory: Path) -> LocalCluster:
    engine, port = read_kept(directory)
    return ENGINES[engine](directory, port)


def _show(nodes: list[NodeStatus], as_json: bool, address: str) -> None:
    if as_json:
        click.echo(json.dumps({"address": address, "nodes": [node._asdict() for node in nodes]}))
        return
    sync = {True: "syncs always", False: "SYNCS LAZILY", None: "sync unknown"}
    for node in nodes:
        state = "ready" if node.ready else "starting" if node.pid else "down"
        click.echo(f"{node.name}  port {node.port}  pid {node.pid or '-'}  {state}  {sync[node.syncs]}  {node.version}")
    click.echo(f"address: {address}")
