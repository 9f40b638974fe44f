"""``logplayer play`` on Spark: a driver of resident players, its HTTP port, and the signals that end it.

Python users call :class:`logplayer.spark.resident.driver.Resident` in the same way.
"""

from __future__ import annotations

import signal

import click

from logplayer.admin.app import serve
from logplayer.cli.common import end_line, event_line
from logplayer.config import Config
from logplayer.player.ended import STOPPED
from logplayer.spark import event_loop
from logplayer.spark.resident.driver import Resident
from logplayer.spark.session import make_session


def play_resident(config: Config, *, as_json: bool) -> None:
    """Play until Ctrl-C or SIGTERM, which drain and end."""
    session = make_session("logplayer play", config.spark.master)
    resident = Resident(session, config)
    server = serve(resident.face(), config.security, config.operator_token)
    try:
        address = event_loop.run(server.start(config.http))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: resident.request_stop())
        ended = STOPPED
        if resident.start():
            facts = {"log": resident.log_address, "groups": resident.plan.groups, "targets": resident.targets}
            click.echo(event_line(as_json, "playing", {**facts, "http": address}))
            while not resident.wait(0.2):
                pass
            ended = resident.stop()
        event_loop.run(server.stop())
        click.echo(end_line(as_json, ended))
    finally:
        session.stop()
    if ended.superseded:
        raise SystemExit(3)
