"""``logplayer status``: a player's targets as a table, as JSON, or live in the terminal."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import click

from logplayer.admin.http_client import ask
from logplayer.admin.status_client import ask_status
from logplayer.cli.common import json_option, run_loop
from logplayer.cli.options import player_option
from logplayer.cli.security import security_from, security_options
from logplayer.errors import Unavailable
from logplayer.player.status_table import status_table
from logplayer.wire.security import Security

EVERY_SECONDS = 1.0


@click.command()
@player_option
@click.option("--watch", is_flag=True, help="Show it live, until Ctrl-C; once a second if it is not a terminal.")
@json_option
@security_options(server=False)
def status(address: str, watch: bool, as_json: bool, **secure: Any) -> None:
    """Show each target: state, index, lag, rate, time to catch up, why it lags.

    \b
    logplayer status --watch
    logplayer status --json | jq '.targets[] | select(.state != "LIVE")'
    """
    security = security_from(**secure)
    run_loop(_watch(address, as_json, security) if watch else _once(address, as_json, security))


async def _once(address: str, as_json: bool, security: Security) -> None:
    answer = await ask_status(address, security)
    click.echo(json.dumps(answer) if as_json else status_table(answer))


async def _watch(address: str, as_json: bool, security: Security) -> None:
    await ask_status(address, security)  # A typo ends it; a player that goes away later does not.
    if as_json or not sys.stdout.isatty():
        while True:
            try:
                await _once(address, as_json, security)
                sys.stdout.flush()
            except Unavailable as error:
                click.echo(f"{error}; trying again", err=True)
            await asyncio.sleep(EVERY_SECONDS)
    from rich.live import Live

    from logplayer.cli.watch_view import view

    timeline: list[dict[str, Any]] = []
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            try:
                answer = await ask_status(address, security)
                timeline = (await ask(address, "/timeline", security=security))["items"]
                live.update(view(answer, timeline), refresh=True)
            except Unavailable as error:
                live.update(f"{error}; trying again", refresh=True)
            await asyncio.sleep(EVERY_SECONDS)
