"""At the start of a capture: does the log's map keep the foreign keys of the captured tables?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from logplayer.capture.settings import CaptureSettings, SourceTable
from logplayer.core.entry import ShardMap
from logplayer.log import control_chain
from logplayer.log.protocol import Log
from logplayer.player.foreign_keys import KeyVerdict, RowShape, check_foreign_keys, verdict_lines
from logplayer.player.maps import map_text
from logplayer.target.stores.tables.foreign_keys import open_postgres

_log = logging.getLogger("logplayer.capture")


async def torn_keys(
    log: Log, settings: CaptureSettings, tables: Sequence[SourceTable]
) -> tuple[ShardMap | None, list[KeyVerdict]]:
    """The map in force, or the given one while the log has none, and the foreign keys that it tears."""
    recorded = (await control_chain.load(log)).control(None).router.versions()[-1][1]
    shard_map = recorded or settings.first_map
    if shard_map is None:
        return None, []
    shapes = {table.log_name: RowShape(table.key, table.place) for table in tables}
    verdicts = await asyncio.to_thread(_judge, settings.url, shard_map, shapes)
    return shard_map, [verdict for verdict in verdicts if verdict.kept is False]


async def warn_of_torn_keys(log: Log, settings: CaptureSettings, tables: Sequence[SourceTable]) -> int:
    """Log a warning for each foreign key whose rows would not be with their parents; returns how many there are."""
    shard_map, torn = await torn_keys(log, settings, tables)
    for verdict in torn:
        told = " ".join(line.strip() for line in verdict_lines(verdict))
        _log.warning(
            "the map %s tears a foreign key, and a target with that key refuses such rows: %s",
            map_text(shard_map),
            told,
        )
    return len(torn)


def _judge(url: str, shard_map: ShardMap, shapes: dict[str, RowShape]) -> list[KeyVerdict]:
    reader = open_postgres(url, "public", "--url")
    try:
        return check_foreign_keys(reader, shard_map, place={}, logged=shapes, tables=shapes)
    finally:
        reader.close()
