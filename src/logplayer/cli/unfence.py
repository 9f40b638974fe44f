"""``logplayer target unfence``: let players in again where an Open with a senseless epoch has locked them out."""

from __future__ import annotations

import json
from typing import Any

import click

from logplayer.cli.common import json_option, run_loop
from logplayer.cli.options import common_options, merge
from logplayer.cli.security import security_options
from logplayer.cli.target import store_options
from logplayer.config import Config
from logplayer.core.effects import LookUp
from logplayer.core.events import LookUpFailed
from logplayer.core.fence import Position
from logplayer.errors import LogUnavailable
from logplayer.log.open import open_log
from logplayer.player.look_up import look_up
from logplayer.target.stores.open import open_store
from logplayer.target.unfence import FenceEvidence, Unfence, plan


@click.command()
@common_options
@store_options
@click.option("--yes", is_flag=True, help="Do it; without this the command only shows what it would do.")
@click.option("--force", is_flag=True, help="Free the store although the log shows its session, or without a --log.")
@json_option
@security_options(server=False)
def unfence(
    config_path: str | None,
    log_address: str,
    kind: str,
    path: str,
    url: str,
    schema: str,
    mapping: str,
    name: str,
    yes: bool,
    force: bool,
    as_json: bool,
    **secure: Any,
) -> None:
    """Free a target's store from a session that no player of the log can have.

    An Open with an epoch that nobody has locks every player out (FENCED). The stored session is set back, so that the
    next player opens it; its data and its index stay. Stop the target's server first if its store is RocksDB.

    \b
    logplayer target unfence --log grpc://127.0.0.1:7100 --store sqlite --path a.db --id a --yes
    """
    merged = merge(config_path, log_address, secure=secure) if log_address or config_path or not force else None
    place: Any = {"path": path, "url": url, "schema": schema, "mapping": mapping}
    reading = open_store(kind, name, read_only=True, **place)
    try:
        seen = run_loop(_ask(merged, reading.position().session.epoch)) if merged is not None else None
        before, after, why = plan(reading, seen, force)
    finally:
        reading.close()
    if yes:
        store = open_store(kind, name, **place)
        try:
            store.apply(Unfence(before, after))
        finally:
            store.close()
    if as_json:
        click.echo(json.dumps({"target": name, "why": why, "was": _facts(before), "is": _facts(after), "done": yes}))
        return
    click.echo(f"{name}: {why}")
    click.echo(f"was: {_line(before)}")
    click.echo(f"{'is now' if yes else 'would be'}: {_line(after)}")
    if not yes:
        click.echo("nothing was changed: add --yes to do it")


async def _ask(merged: Config, epoch: int) -> FenceEvidence:
    """The log, and what it has at an epoch."""
    log = await open_log(merged.log, security=merged.security)
    try:
        answer = await look_up(log, LookUp("", epoch))
        if isinstance(answer, LookUpFailed):
            raise LogUnavailable(f"the log cannot be asked for epoch {epoch}: {answer.error}")
        return FenceEvidence(await log.info(), answer.record)
    finally:
        await log.close()


def _facts(position: Position) -> dict[str, object]:
    return {
        "index": position.index,
        "epoch": position.session.epoch,
        "term": position.session.term,
        "log_id": position.log_id,
    }


def _line(position: Position) -> str:
    return f"index {position.index}, session {position.session}, filled from {position.log_id or 'no log yet'}"
