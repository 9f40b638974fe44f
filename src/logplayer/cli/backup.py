"""``logplayer log backup`` and ``logplayer log restore``: copy a file log while it is written, and bring it back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from logplayer.cli.common import json_option, run_loop
from logplayer.cli.options import named_targets
from logplayer.cli.security import security_from, security_options
from logplayer.core.claims import REMEDY
from logplayer.errors import UserError
from logplayer.log.file.backup import LogBackup, backup_log, restore_log
from logplayer.log.open import open_log, parse
from logplayer.player.restored import UNKNOWN, RestoredTarget, compare_targets
from logplayer.wire.security import Security
from logplayer.wording import plural

_OTHERS = {
    "grpc": "a log server does not give its files away; run this on its machine, with the file:// address of its log",
    "etcd": "the members of an etcd cluster are its copies; 'etcdctl snapshot save' copies all that the cluster holds",
    "nats": "the replicas of a NATS stream are its copies; 'nats stream backup' copies each of the log's streams",
    "kafka": "the replicas of a Kafka topic are its copies; copy the disks of stopped brokers to keep its offsets",
}
_damaged_option = click.option(
    "--damaged-too", is_flag=True, help="Also if entries are damaged or missing; they are named all the same."
)


@click.command()
@click.option("--log", "address", required=True, envvar="LOGPLAYER_LOG", help="file:///path, of this machine.")
@click.option("--to", "place", required=True, metavar="DIR", help="A new or empty directory.")
@_damaged_option
@json_option
def backup(address: str, place: str, damaged_too: bool, as_json: bool) -> None:
    """Copy a file log to a directory, while a server writes to it or not.

    The copy is consistent: it is the log as it was at one moment. Before the command says that it is done, it has read
    the copy from end to end: every checksum, and the chain. A log with a damaged entry is refused, and the entry named.

    \b
    logplayer log backup --log file:///var/lib/wal --to /backup/wal-monday
    """
    path = _path(address, "--log")
    made = run_loop(backup_log(path, place, damaged_too=damaged_too))
    _warn(made)
    if as_json:
        click.echo(json.dumps({"backup": place, **_facts(made)}))
    else:
        click.echo(f"backed up {_what(made)} to {place}; {_verified(made)}")


@click.command()
@click.argument("backup")
@click.option("--to", "address", required=True, metavar="ADDRESS", help="file:///path: a new or empty directory.")
@click.option("--target", "targets", multiple=True, metavar="NAME=ADDRESS", help="Ask it, too, or at this address.")
@_damaged_option
@json_option
@security_options(server=False)
def restore(
    backup: str, address: str, targets: tuple[str, ...], damaged_too: bool, as_json: bool, **secure: Any
) -> None:
    """Make a file log from BACKUP, and say which targets fit to it.

    The backup is checked from end to end first: every file, every checksum, the chain. A directory that holds anything
    is refused. The log is there as a whole, or not at all.

    Then every target that the log knows is asked what it has. One that has more than the log, or other entries, is
    DIVERGED: players block it, and deliver nothing to it until you have chosen what to do.

    \b
    logplayer log restore /backup/wal-monday --to file:///var/lib/wal
    """
    path, given, security = _path(address, "--to"), named_targets(targets), security_from(**secure)
    made = run_loop(restore_log(backup, path, damaged_too=damaged_too))
    _warn(made)
    answers = run_loop(_ask(address, given, security))
    if as_json:
        rows = [answer._asdict() for answer in answers]
        click.echo(json.dumps({"log": address, **_facts(made), "targets": rows}))
    else:
        click.echo(f"restored {_what(made)} to {address}; {_verified(made)}")
        for line in _lines(answers):
            click.echo(line)


def _path(address: str, option: str) -> str:
    """The directory of a file log; the engines that keep copies themselves have tools of their own."""
    parsed = parse(address)
    if parsed.scheme != "file":
        raise UserError(f"{option} {address} is not a file log: {_OTHERS[parsed.scheme]}")
    return parsed.path


async def _ask(address: str, given: dict[str, str], security: Security) -> list[RestoredTarget]:
    log = await open_log(address, readonly=True)
    try:
        return await compare_targets(log, given, security)
    finally:
        await log.close()


def _facts(made: LogBackup) -> dict[str, Any]:
    return made._asdict() | {
        "chain": made.chain.hex(),
        "trimmed_chain": made.trimmed_chain.hex(),
        "faults": [fault._asdict() for fault in made.faults],
    }


def _what(made: LogBackup) -> str:
    if made.last < made.first:
        return f"a log without entries, which goes on at {made.first}"
    return f"entries {made.first} to {made.last} (chain value {made.chain.hex()})"


def _verified(made: LogBackup) -> str:
    return f"{plural(len(made.faults), 'fault')} accepted" if made.faults else "all verified"


def _warn(made: LogBackup) -> None:
    for fault in made.faults:
        click.echo(f"logplayer: {fault.why}", err=True)


def _lines(answers: Sequence[RestoredTarget]) -> list[str]:
    """One line for each target, and what to do about those that do not fit."""
    if not answers:
        return ["the log knows no target: give --target NAME=ADDRESS to ask one"]
    lines = []
    for answer in answers:
        has = "" if answer.index is None else f"has index {answer.index}, "
        lines.append(
            f"{answer.target or 'targets'}: {has}{answer.verdict}: {answer.detail.removesuffix(f'. {REMEDY}')}"
        )
    blocked = [answer for answer in answers if answer.verdict == "DIVERGED"]
    if blocked:
        names = ", ".join(answer.target for answer in blocked)
        lines.append(
            f"{plural(len(blocked), 'target does', 'targets do')} not fit to this log ({names}): players will block "
            f"{'it' if len(blocked) == 1 else 'them'} as DIVERGED and go on with the others. {REMEDY}"
        )
    if any(answer.verdict == UNKNOWN for answer in answers):
        lines.append(
            "a player compares the targets that could not be asked when it meets them; 'logplayer status' shows it"
        )
    return lines
