"""``logplayer map show|set|reappend``: which target owns which key, as the log has recorded it."""

from __future__ import annotations

import json
from typing import Any

import click

from logplayer.cli.common import StoryGroup, json_option, run_loop
from logplayer.cli.options import common_options, merge
from logplayer.cli.security import security_options
from logplayer.config import Config
from logplayer.core.control_state import ControlState
from logplayer.core.entry import MapChanged
from logplayer.errors import ConfigError
from logplayer.log import control_chain as chain
from logplayer.log.open import open_log
from logplayer.player.maps import map_text, parse_map, strangers
from logplayer.player.reappend import find_lost, reappend
from logplayer.wording import plural


@click.group("map", cls=StoryGroup)
def shard_map() -> None:
    """The shard map: show which target owns which key, correct it.

    \b
    logplayer map show --log grpc://127.0.0.1:7100
    logplayer map set hash:a,b --log grpc://127.0.0.1:7100
    """


@shard_map.command()
@common_options
@json_option
@security_options(server=False)
def show(config_path: str | None, log_address: str, as_json: bool, **secure: Any) -> None:
    """Show the maps of the log, each with the index after which it is in force.

    \b
    logplayer map show --log grpc://127.0.0.1:7100 --json
    """
    control = run_loop(decided(merge(config_path, log_address, secure=secure)))
    rows = [{"after": after, "map": map_text(known)} for after, known in control.router.versions()]
    text = "\n".join(f"after {row['after']:<10} {row['map']}" for row in rows)
    click.echo(json.dumps({"maps": rows}) if as_json else text)


@shard_map.command("set")
@common_options
@click.argument("new_map", metavar="MAP")
@json_option
@security_options(server=False)
def set_map(config_path: str | None, log_address: str, new_map: str, as_json: bool, **secure: Any) -> None:
    """Put MAP into force for all later entries: hash:a,b,c, range:a<g<b or explicit.

    It moves no rows: what a target has of a key stays there. To give keys to new targets together with their rows,
    use 'logplayer backfill --map'.

    \b
    logplayer map set hash:a,b --log grpc://127.0.0.1:7100
    """
    wanted = parse_map(new_map)
    index = run_loop(_set(merge(config_path, log_address, secure=secure), MapChanged(wanted)))
    text = f"entries after {index} are routed by {map_text(wanted)}"
    click.echo(json.dumps({"index": index, "map": map_text(wanted)}) if as_json else text)


@shard_map.command("reappend")
@common_options
@click.option("--force", is_flag=True, help="Also put older values over newer ones.")
@json_option
@security_options(server=False)
def reappend_lost(config_path: str | None, log_address: str, force: bool, as_json: bool, **secure: Any) -> None:
    """Append again what reached nobody under a wrong map; the map in force routes it. Safe to run again.

    The new entries come after all that is in the log now, and hold only what nobody got. Run it right after 'map set'.

    \b
    logplayer map reappend --log grpc://127.0.0.1:7100
    """
    indexes = run_loop(_reappend(merge(config_path, log_address, secure=secure), force))
    where = f" as entries {min(indexes)} to {max(indexes)}" if indexes else ""
    facts = {"entries": len(indexes), "indexes": indexes}
    again = plural(len(indexes), "entry is", "entries are")
    click.echo(json.dumps(facts) if as_json else f"{again} in the log again{where}")


async def _reappend(merged: Config, force: bool) -> list[int]:
    log = await open_log(merged.log, security=merged.security)
    try:
        lost = await find_lost(log, (await chain.load(log)).control(merged.map))
        if lost.overtaken and not force:
            newer = plural(len(lost.overtaken), "key has a newer value", "keys have newer values")
            raise ConfigError(
                f"{newer} by now, for example {min(lost.overtaken)!r}: to append "
                "the older ones after them would put them back; --force does so"
            )
        return await reappend(log, lost.entries)
    finally:
        await log.close()


async def decided(merged: Config) -> ControlState:
    """What the log has decided, or would begin with."""
    log = await open_log(merged.log, readonly=True, security=merged.security)
    try:
        return (await chain.load(log)).control(merged.map, tuple(merged.targets))
    finally:
        await log.close()


async def _set(merged: Config, record: MapChanged) -> int:
    log = await open_log(merged.log, security=merged.security)
    try:
        configured = tuple(merged.targets.items())
        control = chain.begin(await chain.load(log), merged.map, configured)
        for name in strangers(record.map, control.members):
            raise ConfigError(
                f"{name} is not a target of this log, which has {', '.join(control.members) or 'none'}: correct "
                f"the name, or add it first with 'logplayer target add {name} ADDRESS'"
            )
        if control.router.versions()[-1][1] == record.map:
            raise ConfigError(f"{map_text(record.map)} is in force already; 'logplayer map show' lists the log's maps")
        return (await chain.append(log, record, merged.map, configured))[0]
    finally:
        await log.close()
