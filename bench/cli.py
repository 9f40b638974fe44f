"""``python -m bench``: measure on this machine, and draw what came out."""

from __future__ import annotations

import difflib
import importlib.util
import json
import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from logplayer.cli.common import StoryGroup, json_option
from logplayer.errors import UserError

RESULTS = Path("bench/results")
RAW = Path(".cache/bench")
ALL, NONE = "all", "none"
EXPERIMENTS = (
    "targets",
    "size",
    "throughput",
    "players",
    "catchup",
    "frozen",
    "failover",
    "cost",
    "backlog",
    "profile",
)
_folder = click.Path(file_okay=False, path_type=Path)


@click.group(cls=StoryGroup)
def bench() -> None:
    """Measure this machine: the paper's experiments, ours beside the rivals and the limit.

    \b
    python -m bench run --quick --rivals none
    python -m bench report
    """


@bench.command()
@click.option(
    "--experiment",
    "experiments",
    multiple=True,
    metavar="NAME",
    help=f"Only this one; may be given several times: {', '.join(EXPERIMENTS)}.",
)
@click.option(
    "--quick", is_flag=True, help="Seconds in place of minutes: to see that it works. The figures mean little."
)
@click.option(
    "--rivals", default=ALL, show_default=True, metavar="A,B", help="Which rivals take part; 'none' for none of them."
)
@click.option("--only", default="", metavar="A,B", help="Only these contestants, of our own and of the rivals.")
@click.option(
    "--log", "log", default="nats", show_default=True, metavar="nats|etcd|file", help="What our player plays."
)
@click.option("--rounds", type=click.IntRange(1, 100), help="Turns of each contestant.  [default: 3; quick: 1]")
@click.option("--rate", type=click.FloatRange(1), default=100.0, show_default=True, help="Transactions per second.")
@click.option("--count", type=click.IntRange(20), default=1000, show_default=True, help="Transactions per turn.")
@click.option("--points", default="", metavar="N,N", help="Only these numbers of targets, keys or players.")
@click.option("--run", "name", default="", metavar="NAME", help="Add to this run instead of beginning a new one.")
@click.option("--out", type=_folder, default=RESULTS, show_default=True, help="Where the result goes.")
@click.option("--raw", "raw_folder", type=_folder, default=RAW, show_default=True, help="Where the raw samples go.")
@click.option("--collect/--no-collect", default=True, help="Compute the result at the end, or leave it to 'collect'.")
@json_option
def run(
    experiments: tuple[str, ...],
    quick: bool,
    rivals: str,
    only: str,
    log: str,
    rounds: int | None,
    rate: float,
    count: int,
    points: str,
    name: str,
    out: Path,
    raw_folder: Path,
    collect: bool,
    as_json: bool,
) -> None:
    """Run experiments; contestants alternate, so that noise of the machine meets all of them.

    \b
    python -m bench run --quick --experiment targets --rivals none
    python -m bench run --experiment targets --rivals kafka_eos,kafka_plain
    """
    wanted = check_names("experiment", experiments, EXPERIMENTS) or list(EXPERIMENTS)
    check_names("log", [log], ("nats", "file"))
    _require_parts(log)
    from bench import steps
    from bench.raw import Raw

    chosen = _choose(rivals, steps.known_rivals())
    names = check_names("contestant", filter(None, only.split(",")), (*steps.own_contestants(log), *chosen))
    turns = rounds or (1 if quick else 3)
    options = steps.Options(log, quick, turns, rate, count, _numbers(points), tuple(names))
    raw = Raw(raw_folder, name or time.strftime("%Y-%m-%d-%H%M%S"))
    session = steps.Bench(options, raw, chosen)
    _go(session, wanted)
    if collect:
        _conclude(raw, out, as_json)
    else:
        click.echo(json.dumps({"run": raw.run}) if as_json else f"run: {raw.run}")
    if session.failed:
        sys.exit(1)


@bench.command(name="collect")
@click.argument("name", metavar="RUN")
@click.option("--out", type=_folder, default=RESULTS, show_default=True, help="Where the result goes.")
@click.option("--raw", "raw_folder", type=_folder, default=RAW, show_default=True, help="Where the raw samples are.")
@json_option
def collect_(name: str, out: Path, raw_folder: Path, as_json: bool) -> None:
    """Compute the result of a run from its raw samples, once more.

    \b
    python -m bench collect 2026-11-16-015435
    """
    from bench.raw import Raw

    check_names("run", [name], tuple(path.name for path in raw_folder.glob("*") if path.is_dir()))
    _conclude(Raw(raw_folder, name), out, as_json)


def _require_parts(log: str) -> None:
    """What every run needs, before the first of many turns fails for want of it."""
    if any(importlib.util.find_spec(module) is None for module in ("pyarrow", "pyspark")):
        raise UserError("the benchmarks need pyarrow and pyspark; install them with: pip install 'logplayer[bench]'")
    if log == "nats":
        from logplayer.log.nats.local_cluster import find_server

        find_server()


def _choose(rivals: str, known: dict[str, Any]) -> dict[str, Any]:
    if rivals == ALL:
        return known
    names = [] if rivals == NONE else [part for part in rivals.split(",") if part]
    return {found: known[found] for found in check_names("rival", names, tuple(known))}


def check_names(what: str, given: Iterable[str], known: tuple[str, ...]) -> list[str]:
    """The names in the order in which they are known; a name that is not known is the user's mistake."""
    names = list(given)
    for one in names:
        if one not in known:
            near = difflib.get_close_matches(one, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known) or 'none here'}"
            raise UserError(f"no {what} is called {one!r}; {hint}")
    return [one for one in known if one in names]


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise UserError(f"--points {text!r}: write numbers with commas between them, as in 10,20") from None


def _go(session: Any, wanted: list[str]) -> None:
    """Every step of every experiment; how it went is noted at the end."""
    from bench import machine
    from bench.experiments import EXPERIMENTS as FUNCTIONS

    steps = [step for name in wanted for step in FUNCTIONS[name](session)]
    before, began, at = machine.load(), time.monotonic(), time.strftime("%Y-%m-%d %H:%M:%S%z")
    ended = False
    try:
        _walk(session, steps)
        ended = True
    finally:  # What was measured before an interrupt is in the raw material, so how it came about must be too.
        session.raw.note_piece(
            {
                "at": at,
                "seconds": round(time.monotonic() - began, 1),
                "command": shlex.join(["logplayer", *sys.argv[1:]]),
                "interrupted": not ended,
                "experiments": wanted,
                "options": vars(session.options),
                "load_before": before,
                "load_after": machine.load(),
                "guarantees": session.guarantees,
                "failed": session.failed,
                "machine": machine.machine(),
                "versions": machine.versions(),
            }
        )
        session.raw.note_missing(session.missing, session.took_part)


def _walk(session: Any, steps: list[Any]) -> None:
    told: set[str] = set()
    for done, step in enumerate(steps, 1):
        if step.contestant in session.missing:
            continue
        _progress(done, len(steps), str(step))
        session.do(step)
        for key, why in (session.missing | session.failed).items():
            if key not in told:
                told.add(key)
                kind = "is missing" if key in session.missing else "failed"
                _say(f"bench: {key} {kind}: {why}")


def _progress(done: int, count: int, label: str) -> None:
    """A bar on a terminal, in place; lines elsewhere."""
    if sys.stderr.isatty():
        filled = 30 * done // count
        end = "\n" if done == count else ""
        click.echo(
            f"\r\x1b[Kbench [{'#' * filled}{'-' * (30 - filled)}] {done}/{count} {label}{end}", nl=False, err=True
        )
    else:
        _say(f"bench: {done}/{count} {label}")


def _say(text: str) -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    click.echo(" ".join(text.split()), err=True)


def _conclude(raw: Any, out: Path, as_json: bool) -> None:
    from bench import results
    from bench.tables import result_text
    from logplayer.spark.session import make_session

    spark = make_session("bench", "local[2]", {"spark.sql.shuffle.partitions": "2"}, quiet=True)
    try:
        result = results.build(raw, spark)
    finally:
        spark.stop()
    path = results.write(result, raw, out)
    if as_json:
        ratios, missing = results.ratios_of(result)
        told = {"result": str(path), "ratios": ratios, "missing": missing, "failed": result["failed"]}
        click.echo(json.dumps(told))
    else:
        click.echo(result_text(result))
        click.echo(f"result: {path}")


@bench.command()
@click.option("--results", type=_folder, default=RESULTS, show_default=True, help="Where the result is.")
@click.option("--out", type=_folder, help="Where the page and the figures go.  [default: RESULTS/report]")
@json_option
def report(results: Path, out: Path | None, as_json: bool) -> None:
    """Draw the newest result: the paper's figures as SVG and PNG, and a page with everything.

    \b
    python -m bench report --results bench/results --out /tmp/report
    """
    from bench.report import write_report

    page = write_report(results, out or results / "report")
    click.echo(json.dumps({"page": str(page)}) if as_json else f"page: {page}")
