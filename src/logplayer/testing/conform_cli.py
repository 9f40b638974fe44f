"""``logplayer conform``: does a target keep the protocol's rules?"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from logplayer.errors import TargetError
from logplayer.target.cli import run_loop
from logplayer.testing.conform import Dump, Restart, Verdict
from logplayer.testing.conform import conform as run_kit
from logplayer.voice import json_option
from logplayer.wire.options import security_from, security_options


@click.command()
@click.argument("address")
@click.option("--id", "name", required=True, help="The target's name.")
@click.option("--restart-command", default="", metavar="CMD", help="Kills the target hard, starts it, and returns.")
@click.option("--dump-command", default="", metavar="CMD", help="Prints the data as 'logplayer target dump' does.")
@click.option("--rule", "rules", multiple=True, metavar="NAME", help="Check this rule only; may be given again.")
@json_option
@security_options(server=False)
def conform(
    address: str,
    name: str,
    restart_command: str,
    dump_command: str,
    rules: tuple[str, ...],
    as_json: bool,
    **secure: Any,
) -> None:
    """Check a target, in any language, against the protocol: a verdict for each rule, exit code 1 if one fails.

    The kit WRITES into the target, under a log of its own; it refuses a target that holds another log's data.

    \b
    logplayer conform grpc://127.0.0.1:7201 --id a
    """
    restart = _restart(restart_command) if restart_command else None
    dump = _dump(dump_command) if dump_command else None
    tell: Callable[[Verdict], object] = bool if as_json else lambda verdict: click.echo(str(verdict))
    verdicts = run_loop(run_kit(address, name, security_from(**secure), restart, dump, rules, tell))
    _conclude(verdicts, as_json)
    if any(verdict.ok is False for verdict in verdicts):
        sys.exit(1)


def _conclude(verdicts: list[Verdict], as_json: bool) -> None:
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
