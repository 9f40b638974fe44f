"""``logplayer sim``: run the simulator, replay a seed, hunt the mutants."""

from __future__ import annotations

import json
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from logplayer.errors import UserError
from logplayer.testing.sim.mutants import MUTANTS, SEEDS_MAX, run_mutant
from logplayer.testing.sim.options import options_for
from logplayer.testing.sim.runner import WORLDS, Campaign, describe, run_campaign
from logplayer.testing.sim.simulation import Simulation


@click.command()
@click.argument("seed", type=click.IntRange(min=0), required=False)
@click.option("--runs", type=click.IntRange(min=1), help="How many seeds to run, from SEED (or 1) on.")
@click.option(
    "--world",
    type=click.Choice(WORLDS),
    default="small",
    show_default=True,
    help="A pipeline with little or much in it, the driver of players on Spark, or feeds (sinks, backfill).",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Processes.  [default: all cores]"
)
@click.option("--random", "fresh", is_flag=True, help="Begin at a random seed instead of 1.")
@click.option("--mutants", is_flag=True, help="Hunt the deliberate breaks of the core instead.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write the trace of SEED to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def sim(
    seed: int | None,
    runs: int | None,
    world: str,
    jobs: int,
    fresh: bool,
    mutants: bool,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Run the real core in a simulated world of crashes, cuts and takeovers, and check what arrives.

    \b
    logplayer sim --runs 20000     twenty thousand worlds
    logplayer sim 4711             replay one seed, exactly
    logplayer sim --mutants        prove that the checkers can fail
    """
    if mutants:
        _hunt(jobs, as_json)
        return
    if trace is not None:
        if world not in ("small", "large"):
            raise UserError(f"--trace writes what a pipeline does: use --world small or large, not {world}")
        _write_trace(1 if seed is None else seed, world, trace)
        return
    first = seed if seed is not None else (random.SystemRandom().randrange(1, 2**31) if fresh else 1)
    count = runs if runs is not None else (1 if seed is not None else 1000)
    _say(as_json, f"sim: seeds {first}..{first + count - 1} world={world} jobs={jobs}")
    if count == 1:
        _say(as_json, f"sim: {describe(first, world)}")
    campaign = _run(first, count, world, jobs, as_json)
    _report(campaign, world, as_json)
    if campaign.failures:
        sys.exit(1)


def _run(first: int, count: int, world: str, jobs: int, as_json: bool) -> Campaign:
    seeds = range(first, first + count)
    if as_json or not sys.stderr.isatty():
        return run_campaign(seeds, world, jobs if count > 100 else 1)
    with click.progressbar(length=count, label="sim", file=sys.stderr) as bar:
        return run_campaign(seeds, world, jobs if count > 100 else 1, bar.update)


def _report(campaign: Campaign, world: str, as_json: bool) -> None:
    if as_json:
        told = {
            "runs": campaign.runs,
            "violations": len(campaign.failures),
            "runs_per_second": round(campaign.runs_per_second, 1),
            "steps": campaign.steps,
            "faults": campaign.faults,
            "failures": [{"seed": f.seed, "violation": f.violation} for f in campaign.failures],
        }
        click.echo(json.dumps(told))
        return
    for failure in campaign.failures[:5]:
        click.echo(f"sim: seed {failure.seed}: {failure.violation}")
        click.echo(f"sim:   {describe(failure.seed, world)}")
        click.echo(f"sim:   replay with: logplayer sim {failure.seed} --world {world}")
    click.echo(
        f"sim: {campaign.runs} runs, {campaign.steps} steps, {campaign.faults} faults, "
        f"{len(campaign.failures)} violations, {campaign.runs_per_second:.0f} runs/s"
    )
    if campaign.runs == 1 and not campaign.failures:
        click.echo("sim: every promise held")


def _hunt(jobs: int, as_json: bool) -> None:
    """Run every mutant; a survivor is a failure."""
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(run_mutant, [mutant.name for mutant in MUTANTS]):
            outcomes.append(outcome)
            if not as_json:
                verdict = (
                    f"caught after {outcome.seeds:5} seeds by {outcome.caught[:70]}" if outcome.caught else "SURVIVED"
                )
                click.echo(f"{outcome.name:30} {verdict}")
    survivors = [outcome.name for outcome in outcomes if not outcome.caught]
    if as_json:
        click.echo(json.dumps({"mutants": [outcome._asdict() for outcome in outcomes], "survivors": survivors}))
    else:
        click.echo(f"sim: {len(outcomes)} mutants, {len(outcomes) - len(survivors)} caught within {SEEDS_MAX} seeds")
    if survivors:
        sys.exit(1)


def _write_trace(seed: int, world: str, path: Path) -> None:
    """Run a seed as a plain world (no membership changes, no poison) and write what each node did."""
    simulation = Simulation(options_for(seed, world=world, plain=True), trace=True)
    click.echo(f"sim: {simulation.options}")
    simulation.run()
    path.write_text("".join(json.dumps(line) + "\n" for line in simulation.trace_lines()))
    click.echo(f"sim: wrote {len(simulation.trace)} records to {path}")


def _say(as_json: bool, line: str) -> None:
    """Progress goes to stderr when stdout is for a script."""
    click.echo(line, err=as_json)
