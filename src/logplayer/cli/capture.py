"""``logplayer capture``: a database's committed transactions into the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import uvloop

from logplayer.cli.common import StoryGroup, event_line, http_option, json_option, log_format_option, serving
from logplayer.cli.options import parse_places, place_option
from logplayer.cli.security import OPTIONS, security_from, security_options
from logplayer.errors import ConfigError, UserError
from logplayer.log.open import open_log, parse
from logplayer.observe.instruments import CaptureCounts
from logplayer.observe.logs import log_to_stderr
from logplayer.player.maps import parse_map
from logplayer.wire.security import Security

if TYPE_CHECKING:
    from logplayer.capture.settings import CaptureSettings

LINE_SECONDS = 5.0  # Between two lines of progress where no terminal is.


@click.group(cls=StoryGroup)
def capture() -> None:
    """Turn the transactions of a database that applications write to into entries of the log.

    \b
    logplayer capture postgres --url postgresql://me@db/shop --tables orders,lines --log grpc://127.0.0.1:7100
    """


@capture.command()
@click.option("--url", required=True, envvar="LOGPLAYER_SOURCE", help="postgresql://USER@HOST:PORT/DATABASE")
@click.option("--tables", required=True, metavar="NAME,NAME", help="What to capture: NAME, or SCHEMA.NAME.")
@click.option("--slot", default="logplayer", show_default=True, help="Replication slot; the producer is capture/SLOT.")
@click.option("--publication", default="", help="Has the tables, and is made if need be.  [default: the slot's name]")
@click.option(
    "--log",
    "address",
    required=True,
    envvar="LOGPLAYER_LOG",
    help="file:///path, grpc://…, etcd://…, nats://… or kafka://…",
)
@place_option
@click.option(
    "--map",
    "shard_map",
    default="",
    metavar="MAP",
    help="Warn of foreign keys that this map tears, while the log has no map of its own.",
)
@click.option("--no-snapshot", is_flag=True, help="Do not copy the rows that are there; begin at the slot's position.")
@click.option(
    "--on-schema-change",
    type=click.Choice(["stop", "ddl", "accept"]),
    default="stop",
    show_default=True,
    help="A captured table changes: stop; append ALTER TABLE for a new column; or go on, the targets have it.",
)
@click.option(
    "--on-truncate",
    type=click.Choice(["stop", "ddl"]),
    default="stop",
    show_default=True,
    help="TRUNCATE: stop, or append DELETE FROM.",
)
@click.option("--ddl-targets", default="", metavar="NAME,NAME", help="The targets that such a statement is for.")
@click.option(
    "--unfit",
    type=click.Choice(["stop", "text"]),
    default="stop",
    show_default=True,
    help="A value that no type of the log holds (infinity as a date): stop, or send it as text.",
)
@click.option(
    "--on-bad-message",
    type=click.Choice(["stop", "drop"]),
    default="stop",
    show_default=True,
    help="An outbox message that cannot be understood: stop, or leave it out.",
)
@click.option("--split-large", is_flag=True, help="Cut transactions over the entry limit into several entries.")
@click.option("--until-now", is_flag=True, help="End when all that was committed at the start is in the log.")
@http_option
@click.option(
    "--linger",
    default=0.0,
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="After a stop that waits for you, answer at --http for so long, so that metrics show the reason.",
)
@log_format_option
@json_option
@security_options(server=False)
def postgres(**options: Any) -> None:
    """Capture a PostgreSQL by logical replication, until SIGTERM or Ctrl-C.

    One transaction of the source becomes one entry, in commit order, exactly once: after any crash it goes on from the
    log's own newest entry. It begins with a snapshot of the tables. PostgreSQL needs wal_level = logical, the role
    REPLICATION, each table a primary key.

    \b
    logplayer capture postgres --url postgresql://me@db/shop --tables orders,lines --log grpc://127.0.0.1:7100
    """
    parse(options["address"])
    security = security_from(**{key: options.pop(key) for key in OPTIONS if key in options})
    log_to_stderr(options.pop("log_format"))
    address, as_json, until_now = (options.pop(name) for name in ("address", "as_json", "until_now"))
    http = _Http(options.pop("http_address"), options.pop("linger"))
    uvloop.run(_run(_settings(**options), address, security, as_json, until_now, http))


def _settings(
    url: str,
    tables: str,
    slot: str,
    publication: str,
    place: tuple[str, ...],
    no_snapshot: bool,
    ddl_targets: str,
    split_large: bool,
    unfit: str,
    shard_map: str,
    **on: str,
) -> CaptureSettings:
    from logplayer.capture.settings import CaptureSettings, Choices

    return CaptureSettings(
        url,
        slot,
        publication or slot,
        _names("--tables", tables),
        parse_places(place),
        not no_snapshot,
        Choices(
            schema_change=on["on_schema_change"],
            truncate=on["on_truncate"],
            unfit=unfit,
            bad_message=on["on_bad_message"],
            split_large=split_large,
            ddl_targets=_names("--ddl-targets", ddl_targets) if ddl_targets else (),
        ),
        parse_map(shard_map) if shard_map else None,
    )


def _names(option: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise ConfigError(f"{option} {text!r} has an empty name, or one twice; write NAME,NAME")
    return names


class _Http(NamedTuple):
    address: str
    linger_seconds: float


async def _run(
    settings: CaptureSettings, address: str, security: Security, as_json: bool, until_now: bool, http: _Http
) -> None:
    try:
        from logplayer.capture.postgres import capture_postgres
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("logplayer"):
            raise
        raise ConfigError(f"capture needs {error.name}: pip install 'logplayer[capture]'") from None

    def say(what: str, facts: Mapping[str, object]) -> None:
        click.echo(event_line(as_json, what, facts))
        sys.stdout.flush()

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    from logplayer.admin.app import serve as serve_face
    from logplayer.admin.capture_face import capture_face

    counts = CaptureCounts()
    face = capture_face(settings.slot, settings.producer, settings.tables, counts)
    log = await open_log(address, security)
    progress = _Progress(as_json)
    try:
        async with serving(serve_face(face, security), http.address) as taken:
            if taken:
                say("serving", {"http": taken})
            told, shown = progress.around(say), progress
            try:
                entries = await capture_postgres(
                    log, settings, stop=stop, until_now=until_now, say=told, progress=shown, counts=counts
                )
            except UserError as error:
                if taken and http.linger_seconds:
                    await _linger(str(error), stop, http.linger_seconds)
                raise
    finally:
        progress.end()
        await log.close()
    say("stopped", {"entries": entries})


async def _linger(why: str, stop: asyncio.Event, seconds: float) -> None:
    """Leave the last word of status and metrics to be read."""
    logging.getLogger("logplayer.capture").error("stopped, and answering over HTTP for %g s: %s", seconds, why)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


class _Progress:
    """A bar for each table on a terminal, a line now and then elsewhere."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        self._said = time.monotonic()
        if sys.stdout.isatty() and not as_json:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            shown = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
            self._bars = Progress(*shown)

    def __call__(self, table: str, rows: int, about: int) -> None:
        if self._bars is None:
            if rows == about or time.monotonic() - self._said >= LINE_SECONDS:
                self._said = time.monotonic()
                facts = {"table": table, "rows": rows, "of_about": about}
                click.echo(event_line(self._as_json, "snapshot", facts))
                sys.stdout.flush()
            return
        if not self._tasks:
            self._bars.start()
        if table not in self._tasks:
            self._tasks[table] = self._bars.add_task(table, total=about)
        self._bars.update(self._tasks[table], completed=rows, total=about)

    def around(self, say: Any) -> Any:
        """Lines come after the bars, not into them."""

        def after(what: str, facts: Mapping[str, object]) -> None:
            self.end()
            say(what, facts)

        return after

    def end(self) -> None:
        if self._bars is not None and self._tasks:
            self._bars.stop()
            self._tasks.clear()
