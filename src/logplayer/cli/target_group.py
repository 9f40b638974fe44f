"""The whole group ``logplayer target``: what needs no log (``logplayer.cli.target``), and decisions about members."""

from __future__ import annotations

from logplayer.cli.members import add, list_members, remove, retry
from logplayer.cli.quarantine import quarantine, redrive, unquarantine
from logplayer.cli.target import target
from logplayer.cli.unfence import unfence

for command in (add, remove, list_members, quarantine, unquarantine, redrive, retry, unfence):
    target.add_command(command)

__all__ = ["target"]
