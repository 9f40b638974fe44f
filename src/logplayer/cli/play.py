"""``logplayer play``."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import click

from logplayer.admin.app import serve
from logplayer.admin.http_server import HttpServer
from logplayer.admin.player_face import Stage
from logplayer.admin.status_client import ask_status
from logplayer.cli.common import end_line, event_line, log_format_option, run_loop
from logplayer.cli.options import common_options, merge, operator_option
from logplayer.cli.security import security_options
from logplayer.cli.target import trace_to
from logplayer.config import Config
from logplayer.core.trace import Sink
from logplayer.errors import ConfigError, LogPlayerError, Unavailable, UserError
from logplayer.log.open import check_protection
from logplayer.log.protocol import Log
from logplayer.observe.logs import log_to_stderr, process_is
from logplayer.player.ended import STOPPED, Ended
from logplayer.player.shell import Shell
from logplayer.player.standby import StandbyWatch
from logplayer.player.start import Waiting, open_patiently
from logplayer.wire.addresses import parse_netloc
from logplayer.wire.security import read_token


@click.command()
@common_options
@click.option("--target", "targets", multiple=True, metavar="NAME=ADDRESS", help="A target; give it once for each.")
@click.option("--group", default="", help="The player's group; the newer of two players of one group ends the older.")
@click.option("--in-process", "in_process", is_flag=True, help="Play in this process, without Spark.")
@click.option(
    "--http",
    "http_address",
    default="",
    envvar="LOGPLAYER_HTTP",
    metavar="HOST:PORT",
    help="Serve status, metrics and the page here.",
)
@operator_option
@click.option("--trims/--no-trims", default=None, help="Trim what all targets have from the log.")
@click.option(
    "--trims-unroutable/--no-trims-unroutable",
    default=None,
    help="Trim also entries that reached nobody; they are gone then.",
)
@click.option(
    "--take-over", is_flag=True, help="Replace a player that plays to the targets now; else it is left alone."
)
@click.option(
    "--standby",
    is_flag=True,
    help="Wait until nobody plays to the targets, then take over; stand by again when another player takes over.",
)
@click.option("--trace", default="", metavar="FILE", help="Append what the player decides, as lines of JSON.")
@log_format_option
@click.option("--master", default="", help="The Spark master; default local[*].")
@click.option("--json", "as_json", is_flag=True, help="Say what happens as lines of JSON.")
@security_options(server=False)
def play(
    config_path: str | None,
    log_address: str,
    targets: tuple[str, ...],
    group: str,
    in_process: bool,
    http_address: str,
    operator_token_file: str,
    trims: bool | None,
    trims_unroutable: bool | None,
    take_over: bool,
    standby: bool,
    trace: str,
    log_format: str,
    master: str,
    as_json: bool,
    **secure: Any,
) -> None:
    """Play the log into the targets until Ctrl-C, which drains and ends.

    \b
    logplayer play --in-process --log grpc://127.0.0.1:7100 \\
        --target a=grpc://127.0.0.1:7201 --target b=tcp://127.0.0.1:7302
    """
    config = _chosen(
        merge(config_path, log_address, targets, secure),
        group=group,
        trims=trims,
        trims_unroutable=trims_unroutable,
        http=http_address,
        master=master,
    )
    if take_over and standby:
        raise UserError("--standby waits for the player that --take-over replaces: give one of the two")
    config = replace(config, take_over=take_over or standby, standby=standby)
    if operator_token_file:
        config = replace(config, operator_token=read_token(operator_token_file))
    parse_netloc(config.http)
    log_to_stderr(log_format)
    if not in_process and config.engine == "spark":
        if trace:
            raise UserError("--trace is written by a player in this process: add --in-process")
        _play_on_spark(config, as_json)
        return
    write = trace_to(trace) if trace else None
    sink: Sink | None = (lambda line: write(dict(line))) if write else None
    ended = run_loop(_play(config, sink, as_json))
    if ended.superseded:
        sys.exit(3)


def _chosen(config: Config, *, master: str, **options: Any) -> Config:
    """The configuration with the options that were given: an empty text or None leaves the file's value."""
    given = {name: value for name, value in options.items() if value not in ("", None)}
    spark = replace(config.spark, master=master or config.spark.master)
    return replace(config, spark=spark, **given)


def _play_on_spark(config: Config, as_json: bool) -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise UserError("Spark is not installed: pip install 'logplayer[spark]', or play with --in-process")
    check_protection(config.log, config.security)  # Spark takes many seconds to start: refuse before it does.
    from logplayer.cli.play_resident import play_resident

    play_resident(config, as_json=as_json)


async def _play(config: Config, sink: Sink | None, as_json: bool) -> Ended:
    """Open the HTTP port first, so that a player that waits for its log can say so."""
    stage = Stage(Waiting(config.player, config.group, config.log), config)
    server = serve(stage.face(), config.security, config.operator_token)
    address = await _listen(server, config)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stage.request_stop)
    try:
        log = await open_patiently(config.log, config.security, stage.stop, stage.waiting.note, locked=config.standby)
        ended = STOPPED
        if log is not None:
            try:
                ended = await _play_turns(
                    log, config, stage, sink, _Says(as_json, {"log": config.log, "http": address})
                )
            finally:
                await log.close()
        click.echo(end_line(as_json, ended))
        return ended
    finally:
        await server.stop()


async def _play_turns(log: Log, config: Config, stage: Stage, sink: Sink | None, says: _Says) -> Ended:
    """Play once; a standby plays whenever nobody else does, until it is stopped."""
    watch = StandbyWatch(log, config)
    while True:
        if config.standby:
            stage.shell = None
            stage.waiting.stands_by(True)
            says("standby")
            if not await watch.until_gone(stage.stop.is_set):
                return STOPPED
            stage.waiting.stands_by(False)
        shell = stage.shell = Shell(log, config, sink, stage.timeline)
        shell.waiting = stage.waiting
        shell.on_started = lambda: _started(shell, says)  # noqa: B023
        ended = await shell.run()
        if not (config.standby and ended.superseded) or stage.stop.is_set():
            return ended
        says("superseded", epoch=ended.epoch)


def _started(shell: Shell, says: _Says) -> None:
    process_is(log_id=shell.log_id, group=shell.core.group, epoch=shell.core.epoch)
    says("playing", targets=len(shell.core.queues))


async def _listen(server: HttpServer, config: Config) -> str:
    """Open the HTTP port. If a player has it already, the same command was probably typed twice: say which."""
    try:
        return await server.start(config.http)
    except Unavailable as error:
        try:
            found = await ask_status(config.http, config.security)
        except LogPlayerError:
            raise error from None
    raise ConfigError(
        f"the player {found['player']} (epoch {found['epoch']}) has the HTTP port {config.http} and goes on "
        "undisturbed. To play another log or group beside it, give --http another port; to replace it, stop it, or "
        "give --http another port and --take-over"
    )


class _Says(NamedTuple):
    """Says what happens, with the facts that belong to every line."""

    as_json: bool
    facts: Mapping[str, object]

    def __call__(self, what: str, **facts: object) -> None:
        click.echo(event_line(self.as_json, what, {**facts, **self.facts}))
        sys.stdout.flush()
