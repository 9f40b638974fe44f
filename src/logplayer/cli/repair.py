"""``logplayer log repair``: bring the decisions of a log back that nobody can read any more."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from logplayer.cli.common import json_option, run_loop
from logplayer.cli.options import common_options, merge
from logplayer.cli.security import security_options
from logplayer.config import Config
from logplayer.core.control_state import ControlState
from logplayer.core.entry import HashMap, Repaired, TargetAdded
from logplayer.errors import ConfigError
from logplayer.log.open import open_log
from logplayer.log.repair import Diagnosis, again, examine
from logplayer.log.repair import repair as append_repair
from logplayer.player.maps import map_text, parse_map


@click.command()
@common_options
@click.option("--target", "targets", multiple=True, metavar="NAME=ADDRESS", help="A target, if no decision is left.")
@click.option("--map", "map_words", default="", metavar="MAP", help="hash:a,b,c, range:a<g<b or explicit.")
@click.option("--reason", default="", help="Why; recorded in the log.")
@click.option("--yes", is_flag=True, help="Append the repair; without it, only show what it would be.")
@json_option
@security_options(server=False)
def repair(
    config_path: str | None,
    log_address: str,
    targets: tuple[str, ...],
    map_words: str,
    reason: str,
    yes: bool,
    as_json: bool,
    **secure: Any,
) -> None:
    """Bring the decisions of a jammed log back: one on which no player starts and 'logplayer target' fails.

    They are taken from the newest control record that can still be read. If there is none, or it is not the right
    one, give the targets and the map with --config or with --target and --map. Exit code 1 if the log needs --yes.

    \b
    logplayer log repair --log grpc://127.0.0.1:7100
    logplayer log repair --log grpc://127.0.0.1:7100 --yes
    """
    merged = merge(config_path, log_address, targets, secure)
    given = _given(merged, map_words) if targets or config_path else None
    facts = run_loop(_repair(merged, given, reason, yes))
    click.echo(json.dumps(facts) if as_json else _text(facts))
    if facts["jam"] and not yes:
        sys.exit(1)


def _given(merged: Config, map_words: str) -> ControlState:
    """The decisions as the operator gives them, for the whole log."""
    if not merged.targets:
        raise ConfigError("no target is given; add --target NAME=ADDRESS, or [targets] to the file")
    shard_map = parse_map(map_words) if map_words else merged.map
    control = ControlState.start(shard_map or HashMap(tuple(merged.targets)))
    control.members = {name: TargetAdded(name, 0, address) for name, address in merged.targets.items()}
    return control


async def _repair(merged: Config, given: ControlState | None, reason: str, yes: bool) -> dict[str, Any]:
    await (await open_log(merged.log, readonly=True, security=merged.security)).close()  # Makes no new log.
    opened = await open_log(merged.log, security=merged.security)
    try:
        found = await examine(opened)
        if found.jam is None:
            return {"jam": "", "repaired": 0}
        record = again(given or _left(found), reason or found.jam.why)
        index = await append_repair(opened, found.sequence, record) if yes else 0
    finally:
        await opened.close()
    source = 0 if given or found.usable is None else found.usable.index
    return {"jam": found.jam.why, "repaired": index, "from": source, **_decisions(record)}


def _left(found: Diagnosis) -> ControlState:
    if found.usable is None:
        raise ConfigError(
            f"the log's decisions are jammed ({found.jam.why if found.jam else ''}), and no earlier one can be read: "
            "give the targets and the map with --config FILE, or with --target NAME=ADDRESS and --map"
        )
    return found.usable.control(None)


def _decisions(record: Repaired) -> dict[str, Any]:
    return {
        "targets": [{"target": m.target, "at": m.at, "address": m.address} for m in record.members],
        "maps": [{"after": after, "map": map_text(shard_map)} for after, shard_map in record.maps],
        "quarantined": [{"target": target, "index": index} for target, index in record.quarantined],
    }


def _text(facts: dict[str, Any]) -> str:
    if not facts["jam"]:
        return "the log's decisions can be read: nothing to repair"
    source = f"control entry {facts['from']}" if facts["from"] else "the command line"
    lines = [f"jammed: {facts['jam']}", f"the decisions of {source}:"]
    lines += [f"  target {row['target']} from {row['at']} {row['address']}" for row in facts["targets"]]
    lines += [f"  map after {row['after']} {row['map']}" for row in facts["maps"]]
    lines += [f"  {row['target']} quarantines entry {row['index']}" for row in facts["quarantined"]]
    if facts["repaired"]:
        return "\n".join([*lines, f"repaired: entry {facts['repaired']} brings them again; start the players"])
    return "\n".join([*lines, "nothing was changed; stop the players, then add --yes to put these into force again"])
