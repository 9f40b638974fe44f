"""``logplayer play`` on Spark: a driver of resident players, its HTTP port, and the signals that end it.

Python users call :class:`logplayer.spark.resident.driver.Resident` in the same way.
"""

from __future__ import annotations

import contextlib
import signal
import sys

import click

from logplayer.admin.app import serve
from logplayer.cli.common import end_line, event_line
from logplayer.config import Config
from logplayer.core.standby import Standby
from logplayer.player.ended import STOPPED, Ended
from logplayer.spark import event_loop
from logplayer.spark.resident.driver import Resident
from logplayer.spark.session import PLAY_SETTINGS, make_session


def play_resident(config: Config, *, as_json: bool) -> None:
    """Play until Ctrl-C or SIGTERM, which drain and end. A standby that is superseded stands by again."""
    session = make_session("logplayer play", config.spark.master, PLAY_SETTINGS)
    memory = Standby()
    try:
        while True:
            resident = Resident(session, config, memory)
            ended = _play_once(resident, config, as_json)
            if not (config.standby and ended.superseded) or resident.stop_requested:
                break
            _say(as_json, "superseded", {"epoch": ended.epoch})
        click.echo(end_line(as_json, ended))
    finally:
        with contextlib.suppress(Exception):  # If its JVM has died, there is nothing to stop.
            session.stop()
    if ended.superseded:
        raise SystemExit(3)


def _play_once(resident: Resident, config: Config, as_json: bool) -> Ended:
    """One application, from its start to its end."""
    server = serve(resident.face(), config.security, config.operator_token)
    address = event_loop.run(server.start(config.http))
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: resident.request_stop())
        if not resident.start():
            return STOPPED
        facts = {"log": resident.log_address, "groups": resident.plan.groups, "targets": resident.targets}
        said: set[str] = set()
        while not resident.wait(0.1):
            now = "playing" if resident.playing else "standby" if config.standby and resident.warm else ""
            if now and now not in said:
                said.add(now)
                _say(as_json, now, {**facts, "http": address})
        return resident.stop()
    finally:
        event_loop.run(server.stop())


def _say(as_json: bool, what: str, facts: dict[str, object]) -> None:
    click.echo(event_line(as_json, what, facts))
    sys.stdout.flush()
