"""What every command has in common, so that the command line speaks with one voice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class StoryGroup(click.Group):
    """A group whose help lists its commands in the order in which they were added, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--json``, for a script that reads the answer."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for a script.")(command)
