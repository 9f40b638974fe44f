"""A directory of the user's own to start programs from.

A directory with a well-known name below the temporary one will not do: whoever makes it first owns it, and can put
another program into it at any time, which then runs as us. So it lies in the user's cache directory, and it is used
only if nobody else can change it or move it away: it and all above it belong to this user or to root, and nobody else
may write there. Otherwise a fresh temporary directory serves, for as long as the process lives.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from pathlib import Path

_fresh: dict[tuple[str, ...], Path] = {}  # The temporary directories of this process, by name.


def private_directory(*names: str) -> Path:
    """``names[0]/names[1]/...`` in the user's cache, each of mode 0700; in a fresh directory if one is not private."""
    kept = _kept(names)
    if kept is not None:
        return kept
    if names not in _fresh or not is_private(_fresh[names]):
        fresh = Path(tempfile.mkdtemp(prefix="logplayer-"))
        atexit.register(shutil.rmtree, fresh, ignore_errors=True)
        made = _below(fresh, names)
        assert made is not None, "nobody else knows a directory that was made just now"
        _fresh[names] = made
    return _fresh[names]


def is_private(path: Path) -> bool:
    """Whether ``path`` is a directory or a file of this user, no link, and closed to everybody else."""
    try:
        found = path.lstat()
    except OSError:
        return False
    plain = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    return plain and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _kept(names: tuple[str, ...]) -> Path | None:
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        cache = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        cache = cache.resolve(strict=True)
    except (OSError, RuntimeError):
        return None  # No home, or one that cannot be written to.
    if not all(_is_safe(path) for path in (cache, *cache.parents)):
        return None
    return _below(cache, ("logplayer", *names))


def _below(directory: Path, names: tuple[str, ...]) -> Path | None:
    """The directory, made where it is not there yet; None if somebody else can change it or one above it."""
    for name in names:
        directory = directory / name
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            return None
        if not is_private(directory):
            return None
    return directory


def _is_safe(directory: Path) -> bool:
    """Whether nobody but this user and root can replace what is in it; in a sticky directory only owners can."""
    found = directory.stat()
    if found.st_uid not in (0, os.geteuid()):
        return False
    return not found.st_mode & 0o022 or bool(found.st_mode & stat.S_ISVTX)
