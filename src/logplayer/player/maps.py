"""Shard maps as text, and whether a map and the members of a log fit together."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

from logplayer.core.control_state import ControlState
from logplayer.core.entry import ExplicitMap, HashMap, RangeMap, ShardMap
from logplayer.core.routing import owner_of
from logplayer.errors import ConfigError
from logplayer.observe.logs import about

logger = logging.getLogger("logplayer.player")
_PART = re.compile(r"^hash\[(.+)\]:(.*)$", re.DOTALL)


def parse_map(text: str) -> ShardMap:
    """``explicit``, ``hash:a,b,c``, or ``range:a<g<b<t<c`` (a owns the keys below g, b from g on, c from t on).

    ``hash[tag]:a,b`` and ``hash[prefix /]:a,b`` hash a part of the key only: see ``HashMap``.
    """
    part = _PART.match(text)
    if part:
        kind, by, rest = "hash", part[1], part[2]
    else:
        (kind, _, rest), by = text.partition(":"), ""
    if kind == "explicit" and not rest:
        return ExplicitMap()
    shard_map: HashMap | RangeMap | None = None
    if kind == "hash" and rest:
        shard_map = HashMap(tuple(name.strip() for name in rest.split(",")), by)
    elif kind == "range" and rest:
        parts = [part.strip() for part in rest.split("<")]
        shard_map = RangeMap(tuple(bound.encode() for bound in parts[1::2]), tuple(parts[0::2]))
    if shard_map is None or not all(shard_map.targets):
        raise ConfigError(
            f"{text!r} is not a shard map; write explicit, hash:a,b,c, hash[tag]:a,b,c or range:a<g<b<t<c"
        )
    owner_of(shard_map)  # It says what is wrong with the bounds.
    return shard_map


def map_text(shard_map: ShardMap | None) -> str:
    """The map in the words that :func:`parse_map` reads."""
    if shard_map is None:
        return "none"
    if isinstance(shard_map, ExplicitMap):
        return "explicit"
    if isinstance(shard_map, HashMap):
        by = f"[{shard_map.by}]" if shard_map.by else ""
        return f"hash{by}:{','.join(shard_map.targets)}"
    bounds = [bound.decode(errors="backslashreplace") for bound in shard_map.bounds]
    pairs = [f"{bound}<{name}" for bound, name in zip(bounds, shard_map.targets[1:], strict=True)]
    return f"range:{'<'.join([shard_map.targets[0], *pairs])}"


def strangers(shard_map: ShardMap | None, members: Collection[str]) -> list[str]:
    """The names in the map that are not members: what is for them is unroutable."""
    if shard_map is None or isinstance(shard_map, ExplicitMap):
        return []
    return [name for name in shard_map.targets if name not in members]


def check_start(control: ControlState, given: ShardMap | None, targets: Collection[str], begun: bool) -> None:
    """Refuse to take over where nothing would arrive, and say what will not.

    ``control`` is what the log has decided (``begun``) or will begin with; ``given`` and ``targets`` are what the
    player was given. A newer map may name targets that a backfill is still filling: that is an error line, and the
    entries wait in the log. A map that has been the log's only one and names nobody is a mistake.
    """
    if not control.members:
        raise ConfigError(
            "there is no target to play to: give --target NAME=ADDRESS, or add one with "
            "'logplayer target add NAME ADDRESS'"
        )
    versions = control.router.versions()
    recorded = versions[-1][1]
    missing = strangers(recorded, control.members)
    only = len(versions) == 1 and recorded is not None
    if missing and only and len(missing) == len(getattr(recorded, "targets", ())):
        raise ConfigError(
            f"the map {map_text(recorded)} names {', '.join(missing)}, which this log does not have as a target: what "
            "is for it would be unroutable. Add it with 'logplayer target add NAME ADDRESS', or correct the map with "
            f"'logplayer map set hash:{','.join(control.members)}'"
        )
    for name in missing:
        logger.error(
            "%s is not a target of this log, but the map %s names it: what is for it waits in the log until it is "
            "added with 'logplayer target add %s ADDRESS --at INDEX'",
            name, map_text(recorded), name,
            extra=about(target=name),
        )  # fmt: skip
    if given is None and isinstance(recorded, ExplicitMap) and targets:
        given = HashMap(tuple(targets))  # What a player without a map means.
    if begun and recorded is not None and given is not None and given != recorded:
        logger.warning(
            "the map that this log has recorded is in force: %s, not the given one: %s; to change it, run "
            "'logplayer map set %s'",
            map_text(recorded), map_text(given), map_text(given),
        )  # fmt: skip
