"""The whole group ``logplayer log``: what needs only the log (``logplayer.cli.log``), backup, and repair."""

from __future__ import annotations

from logplayer.cli.backup import backup, restore
from logplayer.cli.log import log
from logplayer.cli.repair import repair

for command in (backup, restore, repair):
    log.add_command(command)

__all__ = ["log"]
