"""The ``logplayer`` command. Each verb lives beside the code that it runs and is imported only when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from logplayer import __version__
from logplayer.errors import LogPlayerError, UserError

# verb -> module:attribute, in the order in which the help tells the story.
VERBS = {
    "demo": "logplayer.demo.cli:demo",
    "log": "logplayer.log.cli:log",
    "cluster": "logplayer.log.cluster_cli:cluster",
    "target": "logplayer.player.members_cli:target",
    "conform": "logplayer.testing.conform_cli:conform",
    "play": "logplayer.player.cli:play",
    "status": "logplayer.player.cli:status",
    "sim": "logplayer.testing.sim_cli:sim",
    "spec": "logplayer.testing.spec_cli:spec",
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


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="logplayer")
def cli() -> None:
    """Play a write-ahead log into many shards: each entry reaches each of its shards exactly once, in order."""


def main() -> NoReturn:
    """Run the command; a user's mistake is one clear line and exit code 2, never a traceback."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # A peer that goes away is our business, not the user's screen's.
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except UserError as error:
        click.echo(f"logplayer: {error}", err=True)
        sys.exit(2)
    except LogPlayerError as error:
        click.echo(f"logplayer: {error}", err=True)
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
