"""``logplayer map check``: which transactions a map tears apart. With it the group ``map`` is whole."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from logplayer.cli.common import json_option
from logplayer.cli.map import decided, shard_map
from logplayer.cli.options import common_options, merge
from logplayer.cli.security import security_options
from logplayer.cli.target import run_loop
from logplayer.config import Config
from logplayer.errors import ConfigError
from logplayer.log.open import open_log
from logplayer.log.protocol import Kind
from logplayer.player.map_check import MapReport, check_map
from logplayer.player.maps import parse_map
from logplayer.wording import plural

_SHOWN = 10
__all__ = ["check", "report_text", "shard_map"]


@shard_map.command("check")
@common_options
@click.option("--map", "other", default="", metavar="MAP", help="Judge this map; without it, the one in force.")
@click.option("--last", default=10_000, show_default=True, type=click.IntRange(1), help="How many entries to look at.")
@json_option
@security_options(server=False)
def check(config_path: str | None, log_address: str, other: str, last: int, as_json: bool, **secure: Any) -> None:
    """Show which of the log's newest transactions a map splits over several targets. Changes nothing.

    A transaction reaches each of its targets exactly once, split or not. But no store can check a foreign key between
    rows of two shards, and a reader of one shard sees a part: keys that belong together need a map that keeps them
    together.

    \b
    logplayer map check --log grpc://127.0.0.1:7100
    logplayer map check --log grpc://127.0.0.1:7100 --map 'hash[prefix /]:a,b'
    """
    wanted = parse_map(other) if other else None
    merged = merge(config_path, log_address, secure=secure)
    report = run_loop(_check(merged, wanted, last))
    click.echo(json.dumps(asdict(report)) if as_json else report_text(report))


async def _check(merged: Config, wanted: Any, count: int) -> MapReport:
    if wanted is None:
        wanted = (await decided(merged)).router.versions()[-1][1]
    if wanted is None:
        raise ConfigError("this log has no map yet; give one with --map, for example --map hash:a,b")
    log = await open_log(merged.log, readonly=True, security=merged.security)
    try:
        info = await log.info()
        first = max(info.first, info.last - count + 1)
        payloads: list[bytes] = []
        if info.last >= first:
            async for records in log.read(first, info.last):
                payloads += [record.payload for record in records if record.kind is Kind.DATA]
        return check_map(payloads, wanted)
    finally:
        await log.close()


def report_text(report: MapReport) -> str:
    """For people."""
    looked = plural(report.transactions, "transaction", "transactions")
    lines = [f"{report.map} splits {report.split} of {looked}; {report.unroutable} not routable"]
    for one in report.together[:_SHOWN]:
        lines.append(f"  {one.split} of {one.transactions} with the keys {one.shapes}")
        lines.append("    " + ", ".join(f"{key} is on {target}" for key, target in one.example))
    if len(report.together) > _SHOWN:
        lines.append(f"  and {len(report.together) - _SHOWN} more kinds, which --json shows")
    if report.split:
        lines.append("warning: a foreign key between such rows cannot be kept, and a reader of one shard sees a part")
    lines += [f"{text} would split {count}" for text, count in report.instead.items()]
    return "\n".join(lines)
