"""``logplayer map check``: which transactions and foreign keys a map tears. With it the group ``map`` is whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from logplayer.cli.common import json_option, run_loop
from logplayer.cli.map import decided, shard_map
from logplayer.cli.options import common_options, merge, parse_places, place_option
from logplayer.cli.security import security_options
from logplayer.config import Config
from logplayer.errors import ConfigError
from logplayer.log.open import open_log
from logplayer.log.protocol import Kind
from logplayer.player.foreign_keys import KeyVerdict, RowShape, check_foreign_keys, shapes_in, verdict_lines
from logplayer.player.map_check import MapReport, check_map
from logplayer.player.maps import parse_map
from logplayer.target.stores.tables.foreign_keys import open_schema
from logplayer.wording import plural

_SHOWN = 10
__all__ = ["check", "keys_text", "report_text", "shard_map"]


@shard_map.command("check")
@common_options
@click.option("--map", "other", default="", metavar="MAP", help="Judge this map; without it, the one in force.")
@click.option("--last", default=10_000, show_default=True, type=click.IntRange(1), help="How many entries to look at.")
@click.option(
    "--database",
    default="",
    metavar="URL|FILE",
    help="Judge the foreign keys of this one too: postgresql://…, mysql://…, or an SQLite file.",
)
@click.option("--schema", default="public", show_default=True, help="PostgreSQL's schema with the tables of the log.")
@place_option
@json_option
@security_options(server=False)
def check(
    config_path: str | None,
    log_address: str,
    other: str,
    last: int,
    database: str,
    schema: str,
    place: tuple[str, ...],
    as_json: bool,
    **secure: Any,
) -> None:
    """Show which of the log's newest transactions a map splits over several targets. Changes nothing.

    With --database it shows for each foreign key whether the map keeps a row with its parent. How rows are placed is
    what the log's rows say, or --place.

    A transaction reaches each of its targets exactly once, split or not. But no store can check a foreign key between
    rows of two shards, and a reader of one shard sees a part: keys that belong together need a map that keeps them
    together.

    \b
    logplayer map check --log grpc://127.0.0.1:7100
    logplayer map check --log grpc://127.0.0.1:7100 --map 'hash[prefix /]:a,b'
    logplayer map check --log grpc://127.0.0.1:7100 --database postgresql://me@db/shop --map 'hash[tag]:a,b'
    """
    wanted = parse_map(other) if other else None
    places = parse_places(place)
    if places and not database:
        raise ConfigError("--place says how the tables of --database are placed; give that too")
    merged = merge(config_path, log_address, secure=secure)
    report, verdicts = run_loop(_check(merged, wanted, last, database, schema, places))
    if as_json:
        found = {"foreign_keys": [asdict(verdict) for verdict in verdicts]} if database else {}
        click.echo(json.dumps(asdict(report) | found))
        return
    click.echo(report_text(report))
    if database:
        click.echo(keys_text(verdicts))


async def _check(
    merged: Config, wanted: Any, count: int, database: str, schema: str, places: Mapping[str, str]
) -> tuple[MapReport, list[KeyVerdict]]:
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
        if not database:
            return check_map(payloads, wanted), []
        verdicts = await asyncio.to_thread(_judge, database, schema, wanted, places, shapes_in(payloads))
        return check_map(payloads, wanted), verdicts
    finally:
        await log.close()


def _judge(
    database: str, schema: str, wanted: Any, places: Mapping[str, str], logged: Mapping[str, RowShape]
) -> list[KeyVerdict]:
    reader = open_schema(database, schema)
    try:
        return check_foreign_keys(reader, wanted, place=places, logged=logged)
    finally:
        reader.close()


def keys_text(verdicts: Sequence[KeyVerdict]) -> str:
    """For people."""
    torn = sum(verdict.kept is False for verdict in verdicts)
    lines = [f"{torn} of {plural(len(verdicts), 'foreign key', 'foreign keys')} torn"]
    lines += [f"  {line}" for verdict in verdicts for line in verdict_lines(verdict)]
    if torn:
        lines.append("warning: the target of a torn row refuses it, because its parent is on another one")
    return "\n".join(lines)


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
