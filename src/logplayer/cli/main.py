"""The ``logplayer`` command. Each verb has a file beside this one, which is imported only when it is used."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys
from typing import NoReturn

import click

from logplayer import __version__
from logplayer.errors import LogPlayerError, UserError

# verb -> module:attribute, in the order in which the help tells the story.
VERBS = {
    "log": "logplayer.cli.log_group:log",
    "target": "logplayer.cli.target_group:target",
    "play": "logplayer.cli.play:play",
    "status": "logplayer.cli.status:status",
    "capture": "logplayer.cli.capture:capture",
    "dashboard": "logplayer.cli.dashboard:dashboard",
    "table": "logplayer.cli.table:table",
    "map": "logplayer.cli.map_check:shard_map",
    "audit": "logplayer.cli.jobs:audit",
    "backfill": "logplayer.cli.jobs:backfill",
    "archive": "logplayer.cli.jobs:archive",
    "cluster": "logplayer.cli.cluster:cluster",
    "conform": "logplayer.cli.conform:conform",
    "sim": "logplayer.cli.sim:sim",
    "spec": "logplayer.cli.spec:spec",
    "demo": "logplayer.cli.demo:demo",
}
# Their lines in the help: known without importing anything.
LINES = {
    "log": "Serve a log, append to it, read it, check it, trim it, back it up.",
    "target": "Serve a shard, show its index, add or remove members.",
    "play": "Play the log into the targets.",
    "status": "Show each target's state, index and lag.",
    "capture": "Turn a PostgreSQL's transactions into entries of the log.",
    "dashboard": "Show a player in a browser, live.",
    "table": "Change the schema of targets that have tables.",
    "map": "Show which target owns which key, correct it.",
    "audit": "Recompute every target's digest from the log, and compare.",
    "backfill": "Fill a new target from the log, and hand it to the player.",
    "archive": "Copy the log to Parquet, so that it can be trimmed.",
    "cluster": "Run three etcd or NATS servers on this machine, for the replicated log.",
    "conform": "Check a target, in any language, against the protocol.",
    "sim": "Run the real core through simulated faults.",
    "spec": "Check the TLA+ models, or a recorded run, with TLC.",
    "demo": "See it all at work: money moves while things break.",
}

# What the system may have again later: no mistake of the user's, so a supervisor tries again.
_PASSING = {
    errno.ENOSPC: ("make room", 1),
    errno.EDQUOT: ("make room", 1),
    errno.EMFILE: ("raise the limit of open files (ulimit -n)", 1),
    errno.ENFILE: ("raise the limit of open files of the system", 1),
    errno.EIO: ("look at the disk", 1),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use, so that ``logplayer --help`` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, _, attribute = VERBS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = difflib.get_close_matches(args[0], VERBS, n=1)
        if args[0] not in VERBS and not args[0].startswith("-") and near:
            ctx.fail(f"there is no command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, LINES.get(name, "")) for name in VERBS])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="logplayer")
def cli() -> None:
    """Play a write-ahead log into many shards: each entry reaches each of its shards exactly once, in order.

    \b
    logplayer log serve --log file:///tmp/wal &
    logplayer target serve --store sqlite --path a.db --id a --listen 127.0.0.1:7201 &
    logplayer play --in-process --log grpc://127.0.0.1:7100 --target a=grpc://127.0.0.1:7201 &
    logplayer status

    \b
    Exit codes: 0 it is done; 1 it failed, something is away or busy, or what was
    checked does not hold; 2 the command or its input was wrong, and trying again
    does not help; 3 a newer player took over; 130 Ctrl-C.
    """


def main() -> NoReturn:
    """The ``logplayer`` command."""
    run(cli, "logplayer")


def run(command: click.Command, name: str) -> NoReturn:
    """Run the command; a user's mistake is one clear line and exit code 2, never a traceback."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # A peer that goes away is our business, not the user's screen's.
    try:
        command.main(prog_name=name, standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _complain(error)
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except LogPlayerError as error:
        _tell(str(error))
        sys.exit(2 if isinstance(error, UserError) else 1)
    except OSError as error:
        if error.filename is None:
            raise
        hint, code = _PASSING.get(error.errno or 0, ("check the path and its permissions", 2))
        _tell(f"{os.fsdecode(error.filename)}: {error.strerror}; {hint}")
        sys.exit(code)
    sys.exit(0)


def _tell(text: str) -> None:
    """One line on stderr, also if a library's own words in it had several."""
    click.echo(f"logplayer: {' '.join(text.split())}", err=True)


def _complain(error: click.ClickException) -> None:
    """One line in our own voice, with the way to the help of the command that was meant."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    help_ = f" (see '{context.command_path} --help')" if context else ""
    text = error.format_message().rstrip(".")
    _tell(f"{text[:1].lower()}{text[1:]}{help_}")


if __name__ == "__main__":
    main()
