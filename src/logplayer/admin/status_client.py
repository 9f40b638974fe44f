"""The status of a player, asked over HTTP by whatever shows it.

Every process of ours has a status, and each kind has its own fields. So what answers is looked at first: that it is a
player, or something that shows one, and that this release knows the version of its status.
"""

from __future__ import annotations

from typing import Any

from logplayer.admin.http_client import another, ask
from logplayer.errors import AddressError, VersionMismatch
from logplayer.wire.security import NONE, Security

VERSION = 1  # Of /status.
PLAYERS = ("player", "spark", "dashboard")
OTHERS = {"log": "log server", "target": "target server", "capture": "capture"}


async def ask_status(address: str, security: Security = NONE) -> dict[str, Any]:
    """The status of the player at ``address``. Raises as ``ask`` does, and UserError if it is of another process."""
    status = await ask(address, "/status", security=security)
    kind, version = (status.get("kind"), status.get("version")) if isinstance(status, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(version, int):
        raise another(address)
    if version != VERSION:
        older = "logplayer here" if version > VERSION else "the player"
        raise VersionMismatch(
            f"{address} gives its status in version {version}, and this release reads version {VERSION}: "
            f"upgrade {older}"
        )
    if kind in OTHERS:
        raise AddressError(
            f"{address} is the HTTP port of a {OTHERS[kind]}, not of a player; give the address of 'play --http'"
        )
    if kind not in PLAYERS:
        raise another(address)
    found: dict[str, Any] = status
    return found
