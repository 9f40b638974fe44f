"""What the log's newest entries know of the tables; ``resume`` says why that may have to be guessed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from logplayer.capture import source
from logplayer.capture.descriptions import Description
from logplayer.capture.resume import Resume, describe_tables, is_at, read_one, schema_of
from logplayer.capture.settings import CaptureSettings, CaptureStopped, SourceTable
from logplayer.errors import UserError
from logplayer.log.protocol import Log, NewEntry
from logplayer.wire.entries import decode_headers

Descriptions = Mapping[str, Description]


class Known(NamedTuple):
    """The tables as the log has them."""

    tables: dict[str, Description]
    is_later: bool = False  # They changed after the mark from which on entries are made again.


async def find_known(
    log: Log, settings: CaptureSettings, db: source.Db, tables: Sequence[SourceTable], resume: Resume
) -> Known:
    """Each table's description as of the log's newest entry; nothing if the log never had any.

    Raises:
        CaptureStopped: It was trimmed, and is not what the source has now, or a table is not in it.
    """
    name = schema_of(settings.producer)
    newest = await log.newest(name)
    record = await read_one(log, newest.index)
    if record is not None:
        written = json.loads(dict(decode_headers(record.payload))["pg-schema"])
        # An earlier version kept names and types only.
        known = {table: tuple((*column, None)[:3] for column in columns) for table, columns in written.items()}
    elif newest.sequence:
        known = await _ask(log, settings, db, tables, newest.sequence)
    else:
        known = {}
    new = [table.log_name for table in tables if known and table.log_name not in known]
    if new:
        raise UserError(
            f"--tables has {', '.join(new)}, which this capture did not begin with, so rows would be missing; "
            "capture them with a slot of their own"
        )
    return Known(known, resume.mark < newest.index and resume.sequence < resume.newest)


async def _ask(
    log: Log, settings: CaptureSettings, db: source.Db, tables: Sequence[SourceTable], sequence: int
) -> dict[str, Description]:
    """What was trimmed, by asking for what it may have been."""
    name = schema_of(settings.producer)
    captured = {table.log_name: await source.describe(db, table) for table in tables}
    published = await source.published_tables(db, settings.publication)
    for guess in guesses(captured, {table.log_name: await source.describe(db, table) for table in published}):
        for payload in (describe_tables(guess), describe_tables(_without_modifiers(guess))):
            if await is_at(log, name, sequence, payload):
                return dict(guess)
    if settings.choices.schema_change == "accept":
        await log.append([NewEntry(name, sequence + 1, describe_tables(captured))])
        return captured
    raise CaptureStopped(
        "schema_change",
        f"a captured table of the source has changed, or --tables has a new one ({', '.join(captured)}); what they "
        "were was trimmed from the log. Compare the tables of the targets with those of the source, change them "
        "likewise, take out of --tables what this capture did not begin with, and go on once with --on-schema-change "
        "accept",
    )


def guesses(captured: Descriptions, published: Descriptions) -> Iterator[Descriptions]:
    """What the log may have, by what the source has now."""
    yield captured
    yield {**captured, **published}  # A table was left out of --tables.
    for new in captured:
        yield {name: columns for name, columns in captured.items() if name != new}
    for name, columns in captured.items():
        for count in range(len(columns) - 1, 0, -1):  # The others are new.
            yield {**captured, name: columns[:count]}


def _without_modifiers(tables: Descriptions) -> Descriptions:
    """As an earlier version has kept them."""
    return {name: tuple(column[:2] for column in columns) for name, columns in tables.items()}  # type: ignore[misc]
