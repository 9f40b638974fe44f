"""``logplayer spec``: check the TLA+ models, and recorded traces, with TLC."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path

import click

from logplayer.errors import UserError
from logplayer.java import find_java
from logplayer.testing.spec import trace_check
from logplayer.testing.spec.models import Model, choose, load_models
from logplayer.testing.spec.tlc import Tlc, TlcResult, spec_dir


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--all", "everything", is_flag=True, help="Run the long models too.")
@click.option("--list", "listing", is_flag=True, help="Show the models and what each must do.")
@click.option("--trace", "traces", is_flag=True, help="NAMEs are trace files: check them against the protocol.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each model or trace.")
@click.option("--verbose", "-v", is_flag=True, help="Print what TLC says, counterexamples included.")
@click.option("--jobs", type=click.IntRange(min=1), default=min(2, os.cpu_count() or 1), help="Models at once.")
@click.option(
    "--spec-dir", "directory", type=click.Path(file_okay=False, path_type=Path), help="Where the modules are."
)
def spec(
    names: tuple[str, ...],
    everything: bool,
    listing: bool,
    traces: bool,
    as_json: bool,
    verbose: bool,
    jobs: int,
    directory: Path | None,
) -> None:
    """Check the TLA+ models: each must pass, or fail in the way that is written down for it.

    \b
    logplayer spec                        the models that finish within about two minutes
    logplayer spec --all                  the long ones too
    logplayer spec paper-disconnect -v    one model, with its counterexample
    logplayer spec --trace run.ndjson     is this recorded run a behaviour of the protocol?

    A trace may lie in several files: one that has no config line continues the file before it.
    """
    place = spec_dir(directory)
    if listing:
        _show(load_models(place))
        return
    if traces and not names:
        raise UserError("--trace needs at least one file")
    models = [] if traces else choose(load_models(place), names, everything)
    tlc = Tlc(find_java(), place)
    click.echo(f"spec: TLC with {tlc.java}", err=as_json)
    fine = _check_traces(tlc, names, as_json) if traces else _check_models(tlc, models, jobs, as_json, verbose)
    if not fine:
        sys.exit(1)


def _show(models: dict[str, Model]) -> None:
    for model in models.values():
        click.echo(f"{model.name:32} {model.expect:32} {'long  ' if model.long else ''}{model.why}")


# --- Models -----------------------------------------------------------------------------------------------------------


def _check_models(tlc: Tlc, models: list[Model], jobs: int, as_json: bool, verbose: bool) -> bool:
    started = time.monotonic()
    surprises = 0
    if not as_json:
        click.echo(f"{'model':32} {'states':>9} {'distinct':>9} {'depth':>5} {'seconds':>7}  verdict")
    for model, result in _run_all(tlc, models, jobs):
        surprises += result.outcome != model.expect
        click.echo(_as_json(model, result) if as_json else _as_row(model, result))
        if verbose or result.outcome != model.expect:
            click.echo(result.output, err=as_json)
    told = f"spec: {len(models)} models, {surprises} surprises, {time.monotonic() - started:.0f} s"
    click.echo(told, err=as_json)
    return surprises == 0


def _run_all(tlc: Tlc, models: list[Model], jobs: int) -> Iterator[tuple[Model, TlcResult]]:
    """Results as they come. TLC scales badly over cores, so several runs of one worker each beat the opposite."""
    progress = ProgressLine(len(models))
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(_run, tlc, model): model for model in models}
        try:
            while running:
                done, _ = wait(running, timeout=1, return_when=FIRST_COMPLETED)
                progress.erase()
                for future in done:
                    yield running.pop(future), future.result()
                progress.show(len(models) - len(running), [m.name for f, m in running.items() if f.running()])
        except BaseException:
            for future in running:
                future.cancel()
            tlc.stop()
            raise
        finally:
            progress.erase()


def _run(tlc: Tlc, model: Model) -> TlcResult:
    return tlc.run(model.run, seconds_max=7200 if model.long else 900, long=model.long)


class ProgressLine:
    """One line on a terminal's stderr that says how far we are; nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._started = time.monotonic()
        self._on = sys.stderr.isatty()

    def show(self, done: int, running: list[str]) -> None:
        if self._on:
            told = f"spec: {done} of {self._total}, {time.monotonic() - self._started:.0f} s, now {', '.join(running)}"
            click.echo(told[:100], nl=False, err=True)

    def erase(self) -> None:
        if self._on:
            click.echo("\r\033[K", nl=False, err=True)


def _as_row(model: Model, result: TlcResult) -> str:
    told = f"ok: {result.outcome}"
    if result.outcome != model.expect:
        told = f"SURPRISE: {result.outcome}, expected {model.expect}"
    return f"{model.name:32} {result.states:9} {result.distinct:9} {result.depth:5} {result.seconds:7.1f}  {told}"


def _as_json(model: Model, result: TlcResult) -> str:
    told = {
        "model": model.name,
        "ok": result.outcome == model.expect,
        "outcome": result.outcome,
        "expected": model.expect,
        "states": result.states,
        "distinct": result.distinct,
        "depth": result.depth,
        "seconds": round(result.seconds, 2),
    }
    return json.dumps(told)


# --- Traces -----------------------------------------------------------------------------------------------------------


def _check_traces(tlc: Tlc, names: tuple[str, ...], as_json: bool) -> bool:
    fine = True
    for files, lines in _traces_of(names):
        verdict = trace_check.check(lines, tlc=tlc)
        fine &= verdict.accepted
        click.echo(json.dumps({"files": files, **asdict(verdict)}) if as_json else f"{' '.join(files)}: {verdict}")
    return fine


def _traces_of(names: tuple[str, ...]) -> Iterator[tuple[list[str], list[trace_check.TraceLine]]]:
    """The traces in these files: a config line begins the next one, wherever it is."""
    files: list[str] = []
    lines: list[trace_check.TraceLine] = []
    for name in names:
        try:
            found = trace_check.read_lines(Path(name).read_text().splitlines())
        except OSError as error:
            raise UserError(f"the trace {name} cannot be read: {error.strerror}") from None
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
        for line in found:
            if line.get("ev") == "config" and lines:
                yield files, lines
                files, lines = [], []
            if name not in files:
                files.append(name)
            lines.append(line)
    if lines:
        yield files, lines
