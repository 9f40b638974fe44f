"""Where stores are, as users write it: a path with the target's name in it, a URL that may hold a password.

A password is in no message, whatever is wrong with the URL. Drivers quote what they cannot parse, so what they would
misread is refused here, before they see it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from logplayer.errors import UserError

NAME = "{id}"


def path_for(template: str, name: str) -> str:
    """``template`` with the target's name in place of ``{id}``; a name that would lead elsewhere is refused."""
    if NAME in template and (name in ("", ".", "..") or os.sep in name or "\0" in name):
        raise UserError(f"--id {name!r} cannot be used in --path {template}: it would lead to another directory")
    return template.replace(NAME, name)


def read_url(path: str) -> str:
    """The URL in the first line of a file: unlike a command line, others cannot read it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the URL file {path} cannot be read: {getattr(error, 'strerror', error)}") from None
    url = text.strip()
    if not url or "\n" in url:
        raise UserError(f"the URL file {path} must hold one line, the URL of the store")
    return url


def check_url(url: str) -> None:
    """Refuse a URL whose password would be taken for something else, and quoted in an error."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return  # A connection string of PostgreSQL; what cannot be parsed is refused there.
    hosts = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    for host in re.sub(r"\[[^]]*\]", "", hosts).split(","):
        port = host.partition(":")[2]
        if port and not port.isdigit():
            raise UserError(
                f"the URL {scheme}://... has a port that is not a number; in a user or a password write "
                f"/ as %2F, ? as %3F, # as %23, @ as %40 and : as %3A"
            )


def without_secrets(url: str) -> str:
    """What may be printed of a URL: its scheme and its host."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "the given place"
    return f"{scheme}://{re.split('[/?#]', rest.rpartition('@')[2], maxsplit=1)[0]}"
