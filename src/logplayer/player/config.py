"""What a player needs to know beside the log."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from logplayer.core.entry import ExplicitMap, ShardMap
from logplayer.core.limits import Limits
from logplayer.core.route import Owner
from logplayer.wire.security import NONE, Security


def player_name() -> str:
    """Host and process: what an operator sees when this player takes over."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True, slots=True)
class PlayerConfig:
    """One player: which targets it plays to, and how.

    ``targets`` (name -> address) and ``map`` become the log's first members and map if it has none yet; afterwards the
    log's own records decide, and ``targets`` only says where a member is reached.
    """

    targets: Mapping[str, str] = field(default_factory=dict)
    map: ShardMap = field(default_factory=ExplicitMap)
    owner: Owner | None = None  # A user's own pure function key -> target, in place of ``map``.
    group: str = ""
    owns: Callable[[str], bool] | None = None  # Which members this group plays to; None: all.
    player: str = field(default_factory=player_name)
    limits: Limits = field(default_factory=Limits)
    security: Security = NONE
    trims: bool = False  # Trim the log behind all targets. Only a player that owns every member may.
    archived: int | None = None  # With an archive policy: how far the archive reaches. None: no policy.
    tick_ms: int = 50  # Too low: CPU for nothing. Too high: deadlines and idle targets are noticed late.
    drain_ms_max: int = 10_000  # How long a graceful stop waits for acks.
    catch_up_readers_max: int = 2  # Readers at once. Too high: catch-up competes with the main stream.
    catch_up_bytes: int = 4 << 20  # How much of the log one catch-up read takes. Bounds its memory.
