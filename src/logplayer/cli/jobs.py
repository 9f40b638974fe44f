"""``logplayer archive``, ``audit`` and ``backfill``: the bulk jobs on Spark."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from logplayer.admin.http_client import ask
from logplayer.cli.common import run_loop
from logplayer.cli.options import common_options, mapping_from, merge
from logplayer.cli.security import security_options
from logplayer.errors import ConfigError, UserError
from logplayer.log.open import LogPlace
from logplayer.wording import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logplayer.spark.jobs.verdict import AuditVerdict
    from logplayer.target.stores.tables.mapping import TableMapping


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every job has: a log and how it is reached, a master, and a form for machines."""
    for option in (
        security_options(server=False),
        click.option("--json", "as_json", is_flag=True, help="Machine-readable output."),
        click.option("--master", default="", help="The Spark master; default local[*]."),
        common_options,
    ):
        command = option(command)
    return command


@contextmanager
def _session(master: str) -> Iterator[SparkSession]:
    """Spark, which takes many seconds to start: only once everything else has been found right."""
    from logplayer.spark.session import make_session

    session = make_session("logplayer", master)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def progress_bar(label: str, count: int) -> Iterator[Callable[[int], None]]:
    """The progress of a job's tasks, on a terminal."""
    with click.progressbar(length=count, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        yield bar.update


def _begin(config_path: str | None, log_address: str, master: str, secure: dict[str, Any]) -> tuple[LogPlace, str]:
    """The log and the master."""
    return _begin_with(config_path, log_address, master, secure)[:2]


def _begin_with(
    config_path: str | None, log_address: str, master: str, secure: dict[str, Any]
) -> tuple[LogPlace, str, TableMapping]:
    """The same, and how the configuration names tables. Before anything is asked over gRPC: Spark's start forks, and
    gRPC's own fork handlers crash in it."""
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    config = merge(config_path, log_address, secure=secure)
    return LogPlace(config.log, config.security), master or config.spark.master, config.tables


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
@click.option("--to", "path", required=True, help="A directory that all executors see, or s3://bucket/path.")
@click.option("--range-entries", default=10_000, show_default=True, help="Entries per file, fixed by the first run.")
@click.option("--trim", is_flag=True, help="Then trim the log up to what is archived and every target has.")
@click.option("--force", is_flag=True, help="With --trim: also what a target does not have yet; it needs a backfill.")
def archive(
    config_path: str | None,
    log_address: str,
    path: str,
    range_entries: int,
    trim: bool,
    force: bool,
    master: str,
    as_json: bool,
    **secure: Any,
) -> None:
    """Write the log into Parquet files, each range of indexes exactly once.

    \b
    logplayer archive --log file:///var/lib/wal --to /var/lib/wal-archive
    """
    if range_entries < 1:
        raise UserError(f"--range-entries {range_entries}: a file holds at least one entry")
    log, master = _begin(config_path, log_address, master, secure)
    from logplayer.spark.jobs.archive_job import fill_archive, prepare_archive

    todo = prepare_archive(log, path, range_entries)
    if todo.ranges:
        with _session(master) as session:
            done = fill_archive(session, todo, show=progress_bar)
    else:
        done = fill_archive(None, todo)
    trimmed, kept_by = _trim_archived(log, done.through, force) if trim and done.through else (0, "")
    if as_json:
        click.echo(json.dumps(done._asdict() | ({"trimmed": trimmed, "kept_by": kept_by} if trim else {})))
        return
    click.echo(
        f"archived {plural(done.entries, 'entry', 'entries')} in {plural(done.files, 'file')}; "
        f"the archive reaches to {done.through}, the log to {done.last}"
    )
    if kept_by:
        click.echo(
            f"logplayer: {f'trimmed up to {trimmed} only' if trimmed else 'nothing was trimmed'}: {kept_by}; run it "
            "again later, or give --force and backfill these targets from the archive",
            err=True,
        )


def _trim_archived(log: LogPlace, through: int, force: bool) -> tuple[int, str]:
    """Trim what is archived, as far as every target has it: how far that was, and what kept the rest."""
    from logplayer.log import control_chain
    from logplayer.player.trim_check import spared_by_all
    from logplayer.spark import event_loop

    with event_loop.opened(log, readonly=False) as opened:
        point, kept_by = (through, "") if force else event_loop.run(spared_by_all(opened, through, log.security))
        return (event_loop.run(control_chain.trim(opened, point))[0] if point else 0), kept_by


@click.command()
@spark_options
@click.option("--target", "targets", multiple=True, metavar="NAME=ADDRESS", help="Check this target's digest.")
@click.option("--store", "stores", multiple=True, metavar="NAME=sqlite:PATH", help="Check digest and content.")
@click.option("--player", default="", metavar="HOST:PORT", help="Report the verdict to this player, for its page.")
@click.option("--archive", default="", help="Where entries are that the log no longer has.")
@click.option("--map", "first_map", default="", help="The first shard map, if the log has no record of it.")
@click.option("--scratch", default="", help="Temporary files: a place that all executors reach; default: this machine.")
@click.option("--schema", default="", help="For postgres-tables: where the tables are.  [default: public]")
@click.option("--mapping", default="", metavar="FILE", help="For stores of tables: as of 'target serve'.")
def audit(
    config_path: str | None,
    log_address: str,
    targets: tuple[str, ...],
    stores: tuple[str, ...],
    player: str,
    archive: str,
    first_map: str,
    scratch: str,
    schema: str,
    mapping: str,
    master: str,
    as_json: bool,
    **secure: Any,
) -> None:
    """Recompute from the log what every target must hold, and name what differs; exit code 1 if anything does.

    \b
    logplayer audit --log file:///var/lib/wal --store a=sqlite:/var/lib/a.db --target b=grpc://127.0.0.1:7202
    logplayer audit --log file:///var/lib/wal --store shop=postgres-tables:postgresql://127.0.0.1/shop
    """
    from logplayer.spark.routes import parse_map

    wanted, named = pairs(targets, "--target"), pairs(stores, "--store")
    shard_map = parse_map(first_map) if first_map else None
    log, master, configured = _begin_with(config_path, log_address, master, secure)
    from logplayer.spark.jobs.audit import judge, prepare

    prepared = prepare(
        log.address,
        addresses=wanted,
        stores=named,
        archive=archive,
        first_map=shard_map,
        security=log.security,
        schema=schema,
        mapping=mapping_from(mapping, configured),
    )
    if prepared.stood:
        with _session(master) as session:
            verdicts = judge(session, prepared, scratch=scratch, show=progress_bar)
    else:
        verdicts = list(prepared.verdicts.values())
    for verdict in verdicts:
        click.echo(json.dumps(_facts(verdict)) if as_json else _tell(verdict))
    wrong = [verdict.target for verdict in verdicts if not verdict.right]
    if player:
        report = {"right": not wrong, "targets": len(verdicts), "wrong": wrong}
        run_loop(ask(player, "/actions/audited", report, log.security))
    if wrong:
        sys.exit(1)


def _facts(verdict: AuditVerdict) -> dict[str, Any]:
    return {
        "target": verdict.target,
        "right": verdict.right,
        "judged": verdict.judged,
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


def _tell(verdict: AuditVerdict) -> str:
    has = f"it has index {verdict.index}"
    if verdict.right:
        what = f"its digest and {verdict.keys} keys are" if verdict.content_checked else "its digest is"
        makes = plural(verdict.entries, "entry of the log makes", "entries of the log make")
        return f"{verdict.target}: right: {has}; {what} what {makes}"
    if not verdict.judged:
        return f"{verdict.target}: NOT JUDGED: {verdict.problem}"
    lines = [f"{verdict.target}: WRONG: {verdict.problem or has}"]
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
@click.option("--tasks", default=8, show_default=True, help="Read the log with at least this many tasks.")
@click.option("--scratch", default="", help="Temporary files: a place that all executors reach; default: this machine.")
@click.option("--no-register", is_flag=True, help="Fill only: do not make the targets members of the log.")
def backfill(
    config_path: str | None,
    log_address: str,
    targets: tuple[str, ...],
    stores: tuple[str, ...],
    new_map: str,
    first_map: str,
    archive: str,
    tasks: int,
    scratch: str,
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
    log, master = _begin(config_path, log_address, master, secure)
    from logplayer.spark.jobs.backfill import Fill, check_backfill
    from logplayer.spark.jobs.backfill import backfill as run
    from logplayer.spark.jobs.compare import StoreAddress

    fills = []
    for name in {**built, **served}:
        store = StoreAddress.parse(built[name]) if name in built else None
        if store is not None and store.kind != "sqlite":
            raise UserError(f"--store {name}: only sqlite files are built; fill {store.kind} through its server")
        fills.append(Fill(name, served.get(name, ""), store.place if store else ""))
    check_backfill(log.address, fills, new_map=maps[0], first_map=maps[1], archive=archive, security=log.security)
    with _session(master) as session:
        done = run(
            session,
            log.address,
            fills,
            new_map=maps[0],
            first_map=maps[1],
            archive=archive,
            register=not no_register,
            security=log.security,
            tasks=tasks,
            scratch=scratch,
            show=progress_bar,
        )
    for filled in done:
        if as_json:
            click.echo(json.dumps(filled.__dict__))
        else:
            click.echo(
                f"{filled.target}: {plural(filled.entries, 'entry', 'entries')}, handed over at index {filled.index}"
            )
