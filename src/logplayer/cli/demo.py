"""``logplayer demo``."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from logplayer.demo.page import DemoPage
from logplayer.demo.processes import FORK_SETTING, Family
from logplayer.demo.run import Demo, DemoPlan, DemoVerdict
from logplayer.demo.screen import Screen
from logplayer.demo.world import World
from logplayer.errors import UserError
from logplayer.java import find_java


@click.command()
@click.option("--shards", type=click.IntRange(2, 32), default=4, show_default=True, help="SQLite shards to start.")
@click.option("--transactions", type=click.IntRange(min=1), default=3000, show_default=True, help="Transfers to make.")
@click.option(
    "--size", type=click.IntRange(0, 100_000), default=200, show_default=True, help="Bytes of padding per row."
)
@click.option("--faults/--no-faults", default=True, help="Kill and freeze things while money moves.")
@click.option("--seconds", type=click.FloatRange(1, 600), default=20, show_default=True, help="How long money moves.")
@click.option(
    "--log", "log_kind", type=click.Choice(["file", "nats"]), default="file", show_default=True, help="The log."
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "in-process"]),
    default="spark",
    show_default=True,
    help="Where the player runs.",
)
@click.option("--page", is_flag=True, help="Show it in a browser as well, and keep the page until Ctrl-C.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Leave everything in this directory.")
@click.option("--json", "as_json", is_flag=True, help="The last line of the answer is one JSON object.")
def demo(
    shards: int,
    transactions: int,
    size: int,
    faults: bool,
    seconds: float,
    log_kind: str,
    engine: str,
    page: bool,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Move money between shards while things break, and prove that every transfer arrived exactly once.

    \b
    logplayer demo
    logplayer demo --shards 8 --engine in-process --json
    """
    plan = DemoPlan(shards, transactions, size, faults, seconds, log_kind, engine)
    if engine == "spark":
        _require_spark()
    os.environ.setdefault(FORK_SETTING, "0")
    folder = _folder(keep)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background job would ignore it.
    signal.signal(signal.SIGTERM, _end)
    try:
        verdict = _run(plan, folder, page)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    _report(verdict, keep, as_json)
    if not verdict.holds:
        sys.exit(1)


def _end(number: int, frame: object) -> None:
    """Leave as after Ctrl-C, which the event loop knows how to take: our processes end, and the directory goes."""
    signal.raise_signal(signal.SIGINT)


def _run(plan: DemoPlan, folder: Path, page: bool) -> DemoVerdict:
    screen = Screen()
    shown = DemoPage() if page else None
    say = shown.both(screen.say) if shown is not None else screen.say
    with Family(folder) as family:
        world = World(family, plan.engine)
        say(f"starting a {plan.log} log and {plan.shards} SQLite shards in {folder}")
        world.start_log(plan.log)
        world.start_shards(plan.shards)
        where = f"resident on Spark, with {find_java(17)}" if plan.engine == "spark" else "in a process of its own"
        say(f"starting the player ({where})")
        world.start_player()
        demo = Demo(plan, world, say, screen.show)
        verdict = asyncio.run(demo.run() if shown is None else shown.run(demo, screen.say))
        say("ending all processes")
        screen.end()
    return verdict


def _report(verdict: DemoVerdict, keep: Path | None, as_json: bool) -> None:
    rows = [
        ("entries appended", verdict.appended),
        ("changes delivered", verdict.delivered),
        ("lost", verdict.lost),
        ("doubled", verdict.doubled),
        ("out of order", verdict.out_of_order),
        ("digests", "match" if verdict.digests_match else "DIFFER"),
        ("money before", verdict.total_before),
        ("money after", verdict.total_after),
        ("faults", verdict.faults),
        ("append to applied, ms", _delays(verdict.calm_delay_ms or verdict.delay_ms)),
    ]
    if verdict.faults:
        rows.append(("while things broke, ms", _delays(verdict.delay_ms)))
    if verdict.audit != "not run":
        rows.append(("Spark's audit", verdict.audit))
    for name, value in rows:
        click.echo(f"  {name:24}{value}")
    if keep is not None:
        click.echo(f"  kept in {keep}")
    click.echo("PROVED: every transfer reached its shards exactly once, in order" if verdict.holds else "NOT PROVED")
    if as_json:
        click.echo(json.dumps(asdict(verdict)))


def _delays(named: dict[str, float]) -> str:
    return "  ".join(f"{name} {value}" for name, value in named.items())


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="logplayer-demo-"))
    if keep.exists() and any(keep.iterdir()):
        raise UserError(f"--keep {keep} is not empty; give a directory that is new or empty")
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--keep {keep} cannot be made: {error.strerror}") from None
    return keep.resolve()


def _require_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise UserError("Spark is not installed: pip install 'logplayer[spark]', or run with --engine in-process")
