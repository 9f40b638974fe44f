"""Which versions of etcd may hold a log."""

from __future__ import annotations

from logplayer.errors import UserError

SAFE = {(3, 4): 22, (3, 5): 6}
"""The first good release of those lines; those before could lose or mix up data when a member was killed. Older lines
are not maintained, and all releases of newer ones are good."""


class OldEtcd(UserError):
    """A server of a version that may lose what it acknowledged."""


def version_of(text: str) -> tuple[int, ...]:
    """3.5.6-rc.1 -> (3, 5, 6)."""
    return tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit())


def refuse_old(server: str, version: str) -> None:
    """Raise ``OldEtcd`` for a version below 3.4.22, or of the line 3.5 below 3.5.6."""
    found = version_of(version)
    line, release = found[:2], found[2] if len(found) > 2 else 0
    if line > max(SAFE) or (line in SAFE and release >= SAFE[line]):
        return
    raise OldEtcd(
        f"{server} is version {version or 'unknown'}, which may lose or mix up entries when a server is killed; "
        "use at least 3.4.22 or 3.5.6"
    )
