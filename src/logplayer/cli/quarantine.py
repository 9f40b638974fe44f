"""``logplayer target quarantine|unquarantine|redrive``: let a target pass an entry that it refuses, take that back, or
apply the entry later.

An entry that is quarantined is missing at its target from then on, so the decision is made about the entry that blocks
the target right now, as its player says. Anything else needs ``--force``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from logplayer.admin.status_client import ask_status
from logplayer.cli.common import json_option, run_loop
from logplayer.cli.members import decide
from logplayer.cli.options import common_options, merge, player_option
from logplayer.cli.security import security_options
from logplayer.cli.target import place_options
from logplayer.config import Config
from logplayer.core.entry import Quarantined, QuarantineRevoked
from logplayer.errors import ConfigError, LogPlayerError
from logplayer.log import control_chain as chain
from logplayer.log.open import open_log
from logplayer.player.decisions import Kept
from logplayer.player.decisions import redrive as append_again
from logplayer.player.quarantine_rules import QuarantineFacts, check_quarantine, check_revocation
from logplayer.target import client
from logplayer.target.stores.open import open_store

POSITION_SECONDS = 3.0


async def look(merged: Config, name: str, player: str) -> QuarantineFacts:
    """Ask the log, the player and the target itself about ``name``."""
    log = await open_log(merged.log, readonly=True, security=merged.security)
    try:
        control = (await chain.load(log)).control(merged.map)
        info = await log.info()
    finally:
        await log.close()
    if name not in control.members:
        raise ConfigError(f"{name} is not a member; the log knows {', '.join(control.members) or 'none'}")
    found: Mapping[str, Any] | None = None
    why_not = f"the player at {player} does not play to {name}"
    try:
        status = await ask_status(player, merged.security)
    except LogPlayerError as error:
        why_not = str(error)
    else:
        _require_same_log(status, info.log_id, player)
        found = next((item for item in status["targets"] if item["target"] == name), None)
    address = (found or {}).get("address") or merged.targets.get(name) or control.members[name].address
    own = await _own_index(merged, name, str(address))
    return QuarantineFacts(
        info.last, control, found, max(own, found["index"] if found else -1), "" if found else why_not
    )


def _require_same_log(status: Mapping[str, Any], log_id: str, player: str) -> None:
    """What a player says of a target is about the log that it plays, and that must be the one that is decided on."""
    if status["log_id"] and status["log_id"] != log_id:
        raise ConfigError(
            f"the player at {player} plays log {status['log_id']}, not this one ({log_id}): give --player of the "
            "player that plays this log, or --log of the log that it plays"
        )


async def _own_index(merged: Config, name: str, address: str) -> int:
    """What the target itself says, which is newer than what its player knows; -1 if it does not answer."""
    if not address:
        return -1
    try:
        found = await client.position(address, name, timeout=POSITION_SECONDS, security=merged.security)
    except LogPlayerError:
        return -1
    return found.index


def _index_option(command: Any) -> Any:
    return click.option(
        "--index", "indexes", required=True, multiple=True, type=click.IntRange(min=1), help="The entry; repeatable."
    )(command)


@click.command()
@common_options
@player_option
@click.argument("name")
@_index_option
@click.option("--reason", default="", help="Why; recorded in the log.")
@click.option("--force", is_flag=True, help="Also an entry that does not block NAME: it will be missing there.")
@json_option
@security_options(server=False)
def quarantine(
    config_path: str | None,
    log_address: str,
    address: str,
    name: str,
    indexes: tuple[int, ...],
    reason: str,
    force: bool,
    as_json: bool,
    **secure: Any,
) -> None:
    """Move NAME past the poisoned entry that blocks it; NAME keeps the entry in its quarantine.

    The player at --player must say that NAME is blocked by POISON at exactly this entry. With --force any entry
    that NAME does not have yet can be quarantined: it will be missing there.

    \b
    logplayer target quarantine shard2 --index 4711 --reason "no such column"
    """
    merged = merge(config_path, log_address, secure=secure)
    decided, warnings = run_loop(_quarantine(merged, address, name, indexes, reason, force))
    for warning in warnings:
        click.echo(warning, err=True)
    _tell(as_json, decided, f"{name} quarantines {_entries(indexes)}")


async def _quarantine(
    merged: Config, player: str, name: str, indexes: Sequence[int], reason: str, force: bool
) -> tuple[list[int], list[str]]:
    seen = await look(merged, name, player)
    warnings = [check_quarantine(name, index, seen, force) for index in indexes]
    decided = [await decide(merged, Quarantined(name, index, reason)) for index in indexes]
    return decided, [warning for warning in warnings if warning]


@click.command()
@common_options
@player_option
@click.argument("name")
@_index_option
@click.option("--reason", default="", help="Why; recorded in the log.")
@click.option("--force", is_flag=True, help="Also if nobody can tell which index NAME has.")
@json_option
@security_options(server=False)
def unquarantine(
    config_path: str | None,
    log_address: str,
    address: str,
    name: str,
    indexes: tuple[int, ...],
    reason: str,
    force: bool,
    as_json: bool,
    **secure: Any,
) -> None:
    """Take back the decision to quarantine an entry, before NAME gets there: it is then delivered as any other.

    What is on its way to NAME while you decide may still be quarantined; the player's log then says so.

    \b
    logplayer target unquarantine shard2 --index 4712
    """
    merged = merge(config_path, log_address, secure=secure)
    decided = run_loop(_unquarantine(merged, address, name, indexes, reason, force))
    _tell(as_json, decided, f"{name} gets {_entries(indexes)} as any other")


async def _unquarantine(
    merged: Config, player: str, name: str, indexes: Sequence[int], reason: str, force: bool
) -> list[int]:
    seen = await look(merged, name, player)
    for index in indexes:
        check_revocation(name, index, seen, force)
    return [await decide(merged, QuarantineRevoked(name, index, reason)) for index in indexes]


@click.command()
@common_options
@click.argument("name")
@click.option("--index", required=True, type=click.IntRange(min=1), help="The entry.")
@functools.partial(place_options, required=False)
@json_option
@security_options(server=False)
def redrive(
    config_path: str | None,
    log_address: str,
    name: str,
    index: int,
    kind: str | None,
    path: str,
    url: str,
    schema: str,
    mapping: str,
    as_json: bool,
    **secure: Any,
) -> None:
    """Apply a quarantined entry at NAME after all, once what refused it is repaired.

    What NAME was to get of the entry is appended as a new one, so it is applied after all that came since. The log
    takes it once: to call this again changes nothing. If the log has trimmed the entry, NAME still has it: give its
    store, as 'logplayer target serve' has it.

    \b
    logplayer target redrive shard2 --index 4711
    logplayer target redrive shard2 --index 4711 --store sqlite --path shard2.db
    """
    merged = merge(config_path, log_address, secure=secure)
    if kind is None and (path or url or schema or mapping):
        raise ConfigError("--path, --url, --schema and --mapping say where a store is; give --store with them")
    place = {"path": path, "url": url, "schema": schema, "mapping": mapping}
    kept = _kept(kind, name, index, place) if kind else None
    appended, repeated = run_loop(_redrive(merged, name, index, kept))
    facts = {"index": appended, "of": index, "target": name, "repeated": repeated}
    text = f"entry {index} was redriven already, as" if repeated else f"{name} gets entry {index} again, as"
    click.echo(json.dumps(facts) if as_json else f"{text} entry {appended}")


def _kept(kind: str, name: str, index: int, place: Mapping[str, Any]) -> Kept:
    """The entry as the target's own store keeps it."""
    store = open_store(kind, name, read_only=True, **place)
    try:
        found = dict(store.quarantine())
        log_id = store.position().log_id
    finally:
        store.close()
    if index not in found:
        listed = f"only {', '.join(map(str, sorted(found)))}" if found else "and no other"
        raise ConfigError(f"the quarantine of {name} has no entry {index}, {listed}; check --index and --store")
    return Kept(log_id, found[index])


async def _redrive(merged: Config, name: str, index: int, kept: Kept | None) -> tuple[int, bool]:
    log = await open_log(merged.log, security=merged.security)
    try:
        control = (await chain.load(log)).control(merged.map)
        if name not in control.members:
            raise ConfigError(f"{name} is not a member; the log knows {', '.join(control.members) or 'none'}")
        before = (await log.info()).last
        appended = await append_again(log, control, name, index, kept)
        return appended, appended <= before
    finally:
        await log.close()


def _entries(indexes: Sequence[int]) -> str:
    listed = ", ".join(str(index) for index in indexes)
    return f"{'entry' if len(indexes) == 1 else 'entries'} {listed}"


def _tell(as_json: bool, decided: list[int], text: str) -> None:
    facts = {"index": decided[-1], "indexes": decided}
    click.echo(json.dumps(facts) if as_json else text)
