"""``logplayer dashboard``: the page of a player, served from here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import signal
import sys
import webbrowser
from typing import Any

import click

from logplayer.admin.app import serve
from logplayer.admin.relay import Relay, following
from logplayer.admin.status_client import ask_status
from logplayer.cli.common import json_option, run_loop, serving
from logplayer.cli.options import player_option
from logplayer.cli.security import security_from, security_options
from logplayer.wire.security import Security

HERE = "127.0.0.1:7280"


@click.command()
@player_option
@click.option("--http", "http_address", default=HERE, show_default=True, metavar="HOST:PORT", help="Serve here.")
@click.option("--open/--no-open", "opens", default=True, help="Open it in a browser.")
@json_option
@security_options(server=False)
def dashboard(address: str, http_address: str, opens: bool, as_json: bool, **secure: Any) -> None:
    """Show a player in a browser, until Ctrl-C.

    A player serves the same page itself, at / of its --http address. This one reaches the player with your certificate
    and token, which a browser may not have. Anyone who opens the address that it prints may act with them.

    \b
    logplayer dashboard --player 127.0.0.1:7200
    """
    run_loop(_dashboard(address, http_address, opens, as_json, security_from(**secure)))


async def _dashboard(player: str, listen: str, opens: bool, as_json: bool, security: Security) -> None:
    await ask_status(player, security)  # A typo is an error now, not a page that waits for ever.
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    token = secrets.token_urlsafe(16)
    relay = Relay(player, security)
    served = serve(relay.face(), Security(token=token))
    async with following(relay), serving(served, listen) as taken:
        url = f"http://{taken}/#token={token}"
        click.echo(json.dumps({"url": url, "player": player}) if as_json else f"the page of {player}: {url}")
        sys.stdout.flush()
        if opens:
            with contextlib.suppress(webbrowser.Error):
                await asyncio.to_thread(webbrowser.open, url)
        await stop.wait()
