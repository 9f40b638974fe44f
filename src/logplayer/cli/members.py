"""``logplayer target add|remove|list|retry``: decisions about members, as records in the log."""

from __future__ import annotations

import json
from typing import Any

import click

from logplayer.admin.http_client import ask
from logplayer.cli.common import json_option, run_loop
from logplayer.cli.options import common_options, merge, player_option
from logplayer.cli.security import security_from, security_options
from logplayer.config import Config
from logplayer.core.control_state import ControlState
from logplayer.core.entry import Decision, TargetAdded, TargetRemoved
from logplayer.log import control_chain as chain
from logplayer.log.open import open_log
from logplayer.names import check_target
from logplayer.player.decisions import decide_on
from logplayer.wire.addresses import parse as parse_target


async def decide(merged: Config, record: Decision, *, force: bool = False) -> int:
    """Append a decision to the log; returns its index, from which on every player follows it.

    With ``force`` also one after which some keys have no owner.
    """
    log = await open_log(merged.log, security=merged.security)
    try:
        return await decide_on(log, record, merged.map, merged.targets, force=force)
    finally:
        await log.close()


@click.command()
@common_options
@click.argument("name")
@click.argument("address")
@click.option("--at", type=click.IntRange(min=0), help="The index that its content has; default: this record's.")
@json_option
@security_options(server=False)
def add(
    config_path: str | None, log_address: str, name: str, address: str, at: int | None, as_json: bool, **secure: Any
) -> None:
    """Make NAME at ADDRESS a member. Players connect to it once they read the record.

    \b
    logplayer target add shard5 grpc://127.0.0.1:7205 --at 0
    """
    check_target(name)
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
@click.option("--force", is_flag=True, help="Also if the map in force gives keys to it, which are unroutable then.")
@json_option
@security_options(server=False)
def remove(config_path: str | None, log_address: str, name: str, force: bool, as_json: bool, **secure: Any) -> None:
    """Remove the member NAME. What it has not applied by then it will not get; it no longer holds the trim point.

    \b
    logplayer target remove shard5 --log grpc://127.0.0.1:7100
    """
    merged = merge(config_path, log_address, secure=secure)
    index = run_loop(decide(merged, TargetRemoved(name), force=force))
    _tell(as_json, {"index": index}, f"{name} is not a member from index {index} on")


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


async def _members(merged: Config) -> ControlState:
    log = await open_log(merged.log, readonly=True, security=merged.security)
    try:
        return (await chain.load(log)).control(merged.map, tuple(merged.targets))
    finally:
        await log.close()


@click.command()
@click.argument("name")
@player_option
@json_option
@security_options(server=False)
def retry(name: str, address: str, as_json: bool, **secure: Any) -> None:
    """Ask the player to try NAME again at once, instead of after its back-off.

    \b
    logplayer target retry shard2
    """
    run_loop(ask(address, "/actions/retry", {"target": name}, security_from(**secure)))
    _tell(as_json, {"target": name, "tried": True}, f"{name} is being tried")


def _tell(as_json: bool, facts: dict[str, object], text: str) -> None:
    click.echo(json.dumps(facts) if as_json else text)
