"""``logplayer play`` and ``logplayer status``."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from logplayer.core.trace import Sink
from logplayer.errors import UserError
from logplayer.log.address import open_log
from logplayer.player.config import PlayerConfig
from logplayer.player.options import Merged, common_options, merge, player_option
from logplayer.player.shell import STEPPED_DOWN, Shell
from logplayer.player.status_server import StatusServer, ask
from logplayer.player.status_text import status_table
from logplayer.target.cli import run_loop, trace_to
from logplayer.voice import json_option
from logplayer.wire.address import parse_netloc
from logplayer.wire.options import security_from, security_options
from logplayer.wire.security import NONE


@click.command()
@common_options
@click.option("--target", "targets", multiple=True, metavar="NAME=ADDRESS", help="A target; give it once for each.")
@click.option("--group", default="", help="The player's group; two players of one group are rivals.")
@click.option("--in-process", "in_process", is_flag=True, help="Play in this process, without Spark.")
@click.option(
    "--status",
    "status_address",
    default="",
    envvar="LOGPLAYER_STATUS",
    metavar="HOST:PORT",
    help="Answer 'logplayer status' here.",
)
@click.option("--trims/--no-trims", default=None, help="Trim the log behind all targets.")
@click.option("--trace", default="", metavar="FILE", help="Append what the player decides, as lines of JSON.")
@click.option("--master", default="", help="The Spark master; default local[*].")
@click.option("--json", "as_json", is_flag=True, help="Say what happens as lines of JSON.")
@security_options(server=False)
def play(
    config_path: str | None,
    log_address: str,
    targets: tuple[str, ...],
    group: str,
    in_process: bool,
    status_address: str,
    trims: bool | None,
    trace: str,
    master: str,
    as_json: bool,
    **secure: Any,
) -> None:
    """Play the log into the targets until Ctrl-C, which drains and ends.

    \b
    logplayer play --in-process --log grpc://127.0.0.1:7100 \\
        --target a=grpc://127.0.0.1:7201 --target b=tcp://127.0.0.1:7302
    """
    merged = merge(config_path, log_address, targets, secure)
    wanted = replace(merged.file, group=group or merged.file.group, trims=merged.file.trims if trims is None else trims)
    merged = replace(merged, file=wanted)
    where = status_address or merged.file.status
    parse_netloc(where)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if not in_process and merged.file.engine == "spark":
        if trace:
            raise UserError("--trace is written by a player in this process: add --in-process")
        _play_on_spark(merged, master, where, as_json)
        return
    config = PlayerConfig(
        targets=merged.targets,
        map=merged.map,
        group=merged.file.group,
        limits=merged.file.limits,
        security=merged.security,
        trims=merged.file.trims,
        tick_ms=merged.file.tick_ms,
        drain_ms_max=merged.file.drain_ms_max,
    )
    write = trace_to(trace) if trace else None
    sink: Sink | None = (lambda line: write(dict(line))) if write else None
    how = run_loop(_play(merged.log, config, where, sink, as_json))
    if how.startswith(STEPPED_DOWN):
        sys.exit(3)


def _play_on_spark(merged: Merged, master: str, where: str, as_json: bool) -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise UserError("Spark is not installed: pip install 'logplayer[spark]', or play with --in-process")
    from logplayer.spark.resident import play_resident

    play_resident(merged, master=master or merged.file.master, status=where, as_json=as_json)


async def _play(log_address: str, config: PlayerConfig, listen: str, sink: Sink | None, as_json: bool) -> str:
    log = await open_log(log_address, security=config.security if config.security != NONE else None)
    shell = Shell(log, config, sink)
    server = StatusServer(lambda question: _answer(shell, question), config.security)
    try:
        address = await server.start(listen)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, shell.request_stop)
        _say(as_json, "playing", log=log_address, targets=len(config.targets), status=address)
        how = await shell.run()
        _say(as_json, "ended", how=how)
        return how
    finally:
        await server.stop()
        await log.close()


def _answer(shell: Shell, question: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the status port does."""
    what = question.get("do")
    if not shell.running:
        raise UserError("the player is starting or ending; ask again")
    if what == "status":
        return shell.status().as_json()
    if what == "retry":
        shell.retry(str(question.get("target", "")))
        return {"ok": True}
    if what == "stop":
        shell.request_stop()
        return {"ok": True}
    raise UserError(f"unknown question {what!r}; ask status, retry or stop")


def _say(as_json: bool, what: str, **facts: object) -> None:
    if as_json:
        click.echo(json.dumps({"event": what, **facts}))
    else:
        click.echo(f"{what}: " + ", ".join(f"{key} {value}" for key, value in facts.items()))
    sys.stdout.flush()


@click.command()
@player_option
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@json_option
@security_options(server=False)
def status(address: str, watch: bool, as_json: bool, **secure: Any) -> None:
    """Show where each target stands: state, index, lag, rate, time to catch up, last error.

    \b
    logplayer status --watch
    logplayer status --json | jq '.targets[] | select(.state != "LIVE")'
    """
    security = security_from(**secure)
    run_loop(_status(address, watch, as_json, security))


async def _status(address: str, watch: bool, as_json: bool, security: Any) -> None:
    while True:
        answer = await ask(address, {"do": "status"}, security)
        if as_json:
            click.echo(json.dumps(answer))
        else:
            if watch:
                click.clear()
            click.echo(status_table(answer))
        if not watch:
            return
        await asyncio.sleep(1)
