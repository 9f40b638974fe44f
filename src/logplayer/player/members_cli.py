"""``logplayer target add|remove|list|quarantine|retry``: decisions about members, as records in the log.

The group itself, and what needs no log, stand in ``logplayer.target.cli``.
"""

from __future__ import annotations

import json
from typing import Any

import click

from logplayer.core.entry import Quarantined, Record, TargetAdded, TargetRemoved
from logplayer.core.membership import Control
from logplayer.errors import ConfigError
from logplayer.log.address import open_log
from logplayer.player import control as chain
from logplayer.player.options import Merged, common_options, merge, player_option
from logplayer.player.status_server import ask
from logplayer.target.cli import run_loop, target
from logplayer.voice import json_option
from logplayer.wire.address import parse as parse_target
from logplayer.wire.options import security_from, security_options


async def decide(merged: Merged, record: Record) -> int:
    """Append a decision to the log; returns its index, from which on every player follows it."""
    log = await open_log(merged.log, security=merged.log_security)
    try:
        _check(record, (await chain.load(log)).control(merged.map))
        index, _ = await chain.append(log, record, merged.map, tuple(merged.targets.items()))
        return index
    finally:
        await log.close()


def _check(record: Record, control: Control) -> None:
    """Refuse a decision about a target that is not there, or that is there already."""
    if isinstance(record, TargetAdded) and record.target in control.members:
        raise ConfigError(f"{record.target} is a member already; remove it first, or choose another name")
    if isinstance(record, (TargetRemoved, Quarantined)) and record.target not in control.members:
        raise ConfigError(f"{record.target} is not a member; the log knows {', '.join(control.members) or 'none'}")


@click.command()
@common_options
@click.argument("name")
@click.argument("address")
@click.option("--at", type=click.IntRange(min=0), help="The index its content begins behind; default: this record's.")
@json_option
@security_options(server=False)
def add(
    config_path: str | None, log_address: str, name: str, address: str, at: int | None, as_json: bool, **secure: Any
) -> None:
    """Make NAME at ADDRESS a member. Players connect to it once they read the record.

    \b
    logplayer target add shard5 grpc://127.0.0.1:7205 --at 0
    """
    parse_target(address)
    merged = merge(config_path, log_address, secure=secure)
    record = TargetAdded(name, at, address)
    index = run_loop(decide(merged, record))
    begins = index if at is None else at
    _tell(
        as_json,
        {"index": index, "at": begins},
        f"{name} is a member from index {index} on; it must hold all up to {begins}",
    )


@click.command()
@common_options
@click.argument("name")
@json_option
@security_options(server=False)
def remove(config_path: str | None, log_address: str, name: str, as_json: bool, **secure: Any) -> None:
    """Remove the member NAME. What it has not applied by then it will not get; it no longer holds the trim point.

    \b
    logplayer target remove shard5 --log grpc://127.0.0.1:7100
    """
    merged = merge(config_path, log_address, secure=secure)
    index = run_loop(decide(merged, TargetRemoved(name)))
    _tell(as_json, {"index": index}, f"{name} is no member from index {index} on")


@click.command()
@common_options
@click.argument("name")
@click.option("--index", required=True, type=click.IntRange(min=1), help="The poisoned entry.")
@click.option("--reason", default="", help="For whoever reads the log later.")
@json_option
@security_options(server=False)
def quarantine(
    config_path: str | None, log_address: str, name: str, index: int, reason: str, as_json: bool, **secure: Any
) -> None:
    """Move NAME past the poisoned entry INDEX, which it keeps in its quarantine.

    \b
    logplayer target quarantine shard2 --index 4711 --reason "no such column"
    """
    merged = merge(config_path, log_address, secure=secure)
    decided = run_loop(decide(merged, Quarantined(name, index, reason)))
    _tell(as_json, {"index": decided}, f"{name} puts entry {index} aside and goes on")


@click.command("list")
@common_options
@json_option
@security_options(server=False)
def list_members(config_path: str | None, log_address: str, as_json: bool, **secure: Any) -> None:
    """List the members, as the log's records have decided.

    \b
    logplayer target list --log grpc://127.0.0.1:7100 --json
    """
    merged = merge(config_path, log_address, secure=secure)
    control = run_loop(_members(merged))
    rows = [{"target": m.target, "at": m.at, "address": m.address} for m in control.members.values()]
    _tell(as_json, {"members": rows}, "\n".join(f"{r['target']:20} from {r['at']:<10} {r['address']}" for r in rows))


async def _members(merged: Merged) -> Control:
    log = await open_log(merged.log, readonly=True, security=merged.log_security)
    try:
        return (await chain.load(log)).control(merged.map, tuple(merged.targets))
    finally:
        await log.close()


@click.command()
@click.argument("name")
@player_option
@security_options(server=False)
def retry(name: str, address: str, **secure: Any) -> None:
    """Ask the player to try NAME again at once, instead of after its back-off.

    \b
    logplayer target retry shard2
    """
    run_loop(ask(address, {"do": "retry", "target": name}, security_from(**secure)))
    click.echo(f"{name} is being tried")


def _tell(as_json: bool, facts: dict[str, object], text: str) -> None:
    click.echo(json.dumps(facts) if as_json else text)


for command in (add, remove, list_members, quarantine, retry):
    target.add_command(command)

__all__ = ["target"]
