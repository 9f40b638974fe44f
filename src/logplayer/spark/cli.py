"""``logplayer archive``, ``audit`` and ``backfill``: the bulk jobs on Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from logplayer.errors import ConfigError, UserError
from logplayer.log.address import parse
from logplayer.wire.options import security_from, security_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logplayer.spark.audit import Verdict


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every job has: a log, a master, and a form for machines."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Machine-readable output."),
        click.option("--master", default="local[*]", show_default=True, help="Spark's master."),
        click.option("--log", required=True, envvar="LOGPLAYER_LOG", help="file:///path, grpc://… or nats://…"),
    ):
        command = option(command)
    return command


def _session(log: str, master: str) -> SparkSession:
    parse(log)
    from logplayer.spark.session import make_session

    return make_session("logplayer", master)


def pairs(values: tuple[str, ...], option: str) -> dict[str, str]:
    """``NAME=PLACE`` options as a dictionary."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, place = value.partition("=")
        if not equals or not name or not place:
            raise ConfigError(f"{option} {value!r} is not NAME=PLACE")
        if name in found:
            raise ConfigError(f"{option} names {name} twice")
        found[name] = place
    return found


@click.command()
@spark_options
@click.option("--to", "path", required=True, help="The archive's directory; all executors must see it.")
@click.option("--range-entries", default=10_000, show_default=True, help="Entries per file, fixed by the first run.")
@click.option("--trim", is_flag=True, help="Then trim the log up to what is archived. Only if nobody else needs it.")
def archive(log: str, path: str, range_entries: int, trim: bool, master: str, as_json: bool) -> None:
    """Write the log into Parquet files, each range of indexes exactly once.

    \b
    logplayer archive --log file:///var/lib/wal --to /var/lib/wal-archive
    """
    if range_entries < 1:
        raise UserError(f"--range-entries {range_entries}: a file holds at least one entry")
    session = _session(log, master)
    from logplayer.spark import loop
    from logplayer.spark.archive_job import archive_log

    try:
        done = archive_log(session, log, path, range_entries)
    finally:
        session.stop()
    if trim and done.through:
        with loop.opened(log, readonly=False) as opened:
            newest = loop.run(opened.info()).control
            # Never the newest control record: it is the log's memory of its members and maps.
            up_to = min(done.through, newest - 1) if newest else done.through
            if up_to >= 1:
                loop.run(opened.trim(up_to))
    if as_json:
        click.echo(json.dumps(done._asdict()))
    else:
        click.echo(
            f"archived {done.entries} entries in {done.files} files; the archive reaches to {done.through}, "
            f"the log to {done.last}"
        )


@click.command()
@spark_options
@click.option("--target", "targets", multiple=True, metavar="NAME=ADDRESS", help="Check this target's digest.")
@click.option("--store", "stores", multiple=True, metavar="NAME=sqlite:PATH", help="Check digest and content.")
@click.option("--archive", default="", help="Where entries are that the log no longer has.")
@click.option("--map", "first_map", default="", help="The first shard map, if the log has no record of it.")
@security_options(server=False)
def audit(
    log: str,
    targets: tuple[str, ...],
    stores: tuple[str, ...],
    archive: str,
    first_map: str,
    master: str,
    as_json: bool,
    **secure: Any,
) -> None:
    """Recompute from the log what every target must hold, and name what differs; exit code 1 if anything does.

    \b
    logplayer audit --log file:///var/lib/wal --store a=sqlite:/var/lib/a.db --target b=grpc://127.0.0.1:7202
    """
    from logplayer.spark.routes import parse_map

    wanted, named = pairs(targets, "--target"), pairs(stores, "--store")
    shard_map = parse_map(first_map) if first_map else None
    session = _session(log, master)
    from logplayer.spark.audit import audit as run

    try:
        verdicts = run(
            session,
            log,
            addresses=wanted,
            stores=named,
            archive=archive,
            first_map=shard_map,
            security=security_from(**secure),
        )
    finally:
        session.stop()
    for verdict in verdicts:
        click.echo(json.dumps(_facts(verdict)) if as_json else _tell(verdict))
    if not all(verdict.right for verdict in verdicts):
        sys.exit(1)


def _facts(verdict: Verdict) -> dict[str, Any]:
    return {
        "target": verdict.target,
        "right": verdict.right,
        "index": verdict.index,
        "entries": verdict.entries,
        "keys": verdict.keys if verdict.content_checked else None,
        "digest": f"{verdict.digest:032x}",
        "expected": f"{verdict.expected:032x}",
        "differing": verdict.differing,
        "first": verdict.first,
        "differences": [
            {"index": d.index, "key": d.key.decode(errors="backslashreplace"), "what": d.what}
            for d in verdict.differences
        ],
        "notes": verdict.notes,
        "problem": verdict.problem,
    }


def _tell(verdict: Verdict) -> str:
    if verdict.right:
        what = f"digest and {verdict.keys} keys are" if verdict.content_checked else "digest is"
        return f"{verdict.target}: right up to {verdict.index}: {what} as {verdict.entries} entries of the log say"
    lines = [f"{verdict.target}: WRONG at {verdict.index}" + (f": {verdict.problem}" if verdict.problem else "")]
    if verdict.first is not None:
        lines.append(f"  the first entry that differs is {verdict.first}")
    lines += [f"  entry {d.index}: {'key ' + repr(d.key) + ' ' if d.key else ''}{d.what}" for d in verdict.differences]
    if verdict.differing > len(verdict.differences):
        lines.append(f"  and {verdict.differing - len(verdict.differences)} more")
    return "\n".join(lines + [f"  {note}" for note in verdict.notes])


@click.command()
@spark_options
@click.option("--target", "targets", multiple=True, metavar="NAME=ADDRESS", help="Fill this target through its server.")
@click.option("--store", "stores", multiple=True, metavar="NAME=sqlite:PATH", help="Build this file; nobody serves it.")
@click.option("--map", "new_map", default="", help="Put this shard map into force: hash:a,b,c or range:a<g<b.")
@click.option("--first-map", default="", help="The first shard map, if the log has no record of it.")
@click.option("--archive", default="", help="Where entries are that the log no longer has.")
@click.option("--tasks", default=8, show_default=True, help="Read the log with at least so many tasks.")
@click.option("--no-register", is_flag=True, help="Fill only: do not make the targets members of the log.")
@security_options(server=False)
def backfill(
    log: str,
    targets: tuple[str, ...],
    stores: tuple[str, ...],
    new_map: str,
    first_map: str,
    archive: str,
    tasks: int,
    no_register: bool,
    master: str,
    as_json: bool,
    **secure: Any,
) -> None:
    """Fill new targets, or those of a new shard map, and hand them over to the player at an exact index.

    \b
    logplayer backfill --log grpc://127.0.0.1:7100 --target c=grpc://127.0.0.1:7203 --target d=grpc://127.0.0.1:7204 \\
        --map hash:c,d
    """
    from logplayer.spark.routes import parse_map

    served, built = pairs(targets, "--target"), pairs(stores, "--store")
    maps = [parse_map(text) if text else None for text in (new_map, first_map)]
    session = _session(log, master)
    from logplayer.spark.audit import StoreAddress
    from logplayer.spark.backfill import Fill
    from logplayer.spark.backfill import backfill as run

    fills = []
    for name in {**built, **served}:
        store = StoreAddress.parse(built[name]) if name in built else None
        if store is not None and store.kind != "sqlite":
            raise UserError(f"--store {name}: only sqlite files are built; fill {store.kind} through its server")
        fills.append(Fill(name, served.get(name, ""), store.place if store else ""))
    try:
        done = run(
            session,
            log,
            fills,
            new_map=maps[0],
            first_map=maps[1],
            archive=archive,
            register=not no_register,
            security=security_from(**secure),
            tasks=tasks,
        )
    finally:
        session.stop()
    for filled in done:
        if as_json:
            click.echo(json.dumps(filled.__dict__))
        else:
            click.echo(f"{filled.target}: {filled.entries} entries, handed over at index {filled.index}")
