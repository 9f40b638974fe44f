"""What a target may be called: the one rule for everything that a user can name one with."""

from __future__ import annotations

import re

from logplayer.errors import ConfigError

TARGET_CHARS_MAX = 100
_TARGET = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{TARGET_CHARS_MAX - 1}}}")


def check_target(name: str, where: str = "") -> str:
    """The name itself, or ConfigError. It becomes a part of file names, schemas and keys, so it is kept plain."""
    if not _TARGET.fullmatch(name):
        raise ConfigError(
            f"{where}{name[: TARGET_CHARS_MAX + 1]!r} is not a target's name: use 1 to {TARGET_CHARS_MAX} letters, "
            "digits, '.', '_' and '-', and begin with a letter or a digit"
        )
    return name
