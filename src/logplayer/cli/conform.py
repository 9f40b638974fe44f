"""``logplayer conform``: does a target keep the protocol's rules?"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from logplayer.cli.common import json_option, run_loop
from logplayer.cli.security import security_from, security_options
from logplayer.errors import TargetError, UserError
from logplayer.log.json_lines import EXAMPLE, parse_line
from logplayer.testing.conformance.targets import Dump, Restart, RuleVerdict, SampleTransaction
from logplayer.testing.conformance.targets import conform as run_kit

SAMPLES_MAX = 1000  # Each is played twice before the first rule.


@click.command()
@click.argument("address")
@click.option("--id", "name", required=True, help="The target's name.")
@click.option("--restart-command", default="", metavar="CMD", help="Kills the target hard, starts it, and returns.")
@click.option("--dump-command", default="", metavar="CMD", help="Prints the data as 'logplayer target dump' does.")
@click.option(
    "--sample",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Transactions that the target accepts, as lines of 'log append'; for one that refuses others.",
)
@click.option("--rule", "rules", multiple=True, metavar="NAME", help="Check this rule only; may be given again.")
@json_option
@security_options(server=False)
def conform(
    address: str,
    name: str,
    restart_command: str,
    dump_command: str,
    sample: str | None,
    rules: tuple[str, ...],
    as_json: bool,
    **secure: Any,
) -> None:
    """Check a target, in any language, against the protocol: a verdict for each rule, exit code 1 if one fails.

    The kit WRITES into the target, under a log of its own; it refuses a target that holds another log's data.

    \b
    logplayer conform grpc://127.0.0.1:7201 --id a
    logplayer conform grpc://127.0.0.1:7201 --id orders --sample orders.jsonl
    """
    samples = read_samples(sample) if sample else ()
    restart = _restart(restart_command) if restart_command else None
    dump = _dump(dump_command) if dump_command else None
    tell: Callable[[RuleVerdict], object] = bool if as_json else lambda verdict: click.echo(str(verdict))
    verdicts = run_loop(run_kit(address, name, security_from(**secure), restart, dump, rules, tell, samples))
    _conclude(verdicts, as_json)
    if any(verdict.ok is False for verdict in verdicts):
        sys.exit(1)


def read_samples(path: str) -> list[SampleTransaction]:
    """The transactions of a file, one for each line that is not empty."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise UserError(f"--sample {path} cannot be read: {error.strerror}") from None
    named = [(f"line {number} of {path}", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not 0 < len(named) <= SAMPLES_MAX:
        raise UserError(f"--sample {path} has {len(named)} transactions; give 1 to {SAMPLES_MAX}, as {EXAMPLE}")
    return [SampleTransaction(where, parse_line(line, where).payload) for where, line in named]


def _conclude(verdicts: list[RuleVerdict], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(verdict) for verdict in verdicts], indent=1))
        return
    counts = {
        word: sum(v.ok is ok for v in verdicts) for word, ok in (("ok", True), ("failed", False), ("skipped", None))
    }
    click.echo(", ".join(f"{count} {word}" for word, count in counts.items()))


def _restart(command: str) -> Restart:
    async def restart() -> None:
        # Its output is not read: the target that it starts keeps a pipe open for as long as it runs.
        _checked(command, await asyncio.to_thread(subprocess.run, command, shell=True, stdout=subprocess.DEVNULL))

    return restart


def _dump(command: str) -> Dump:
    async def dump() -> dict[bytes, bytes]:
        done = await asyncio.to_thread(subprocess.run, command, shell=True, stdout=subprocess.PIPE)
        try:
            rows = [json.loads(line) for line in _checked(command, done).splitlines()]
            return {bytes.fromhex(row["key"]): bytes.fromhex(row["value"]) for row in rows}
        except (ValueError, KeyError, TypeError) as error:
            raise TargetError(f"the dump command printed something else than rows: {error!r}") from None

    return dump


def _checked(command: str, done: subprocess.CompletedProcess[bytes]) -> bytes:
    # From a thread, by the subprocess module: it does not fork a process in which gRPC runs, asyncio's loops do.
    if done.returncode != 0:
        raise TargetError(f"exit code {done.returncode} from the command: {command}")
    return done.stdout
