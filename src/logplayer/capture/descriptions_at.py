"""What the log's newest entries know of the tables; ``resume`` says why that may have to be guessed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from logplayer.capture import source
from logplayer.capture.descriptions import Description
from logplayer.capture.publication import Published, find_published
from logplayer.capture.resume import Resume, describe_tables, is_at, read_one, schema_of
from logplayer.capture.settings import CaptureSettings, CaptureStopped, SourceTable
from logplayer.errors import UserError
from logplayer.log.protocol import Log, NewEntry
from logplayer.wire.entries import decode_headers

Descriptions = Mapping[str, Description]


@dataclass(frozen=True, slots=True)
class Known:
    """The tables as the log has them."""

    tables: dict[str, Description] = field(default_factory=dict)
    published: dict[str, Published] = field(default_factory=dict)  # An earlier version kept none.
    is_later: bool = False  # They changed after the mark from which on entries are made again.
    is_wider: bool = False  # The log has tables that are not captured any more: left out here.


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
        headers = dict(decode_headers(record.payload))
        # An earlier version kept names and types only.
        known = {
            table: tuple((*column, None)[:3] for column in columns)
            for table, columns in json.loads(headers["pg-schema"]).items()
        }
        published = {table: Published(*oids) for table, oids in json.loads(headers.get("pg-tables", b"{}")).items()}
    elif newest.sequence:
        known, published = await _ask(log, settings, db, tables, newest.sequence)
    else:
        known, published = {}, {}
    new = [table.log_name for table in tables if known and table.log_name not in known]
    if new:
        raise UserError(
            f"--tables has {', '.join(new)}, which this capture did not begin with, so rows would be missing; "
            "capture them with a slot of their own"
        )
    captured = {table.log_name for table in tables}
    return Known(
        {table: columns for table, columns in known.items() if table in captured},
        published,
        is_later=resume.mark < newest.index and resume.sequence < resume.newest,
        is_wider=not known.keys() <= captured,
    )


async def _ask(
    log: Log, settings: CaptureSettings, db: source.Db, tables: Sequence[SourceTable], sequence: int
) -> tuple[dict[str, Description], dict[str, Published]]:
    """What was trimmed, by asking for what it may have been."""
    name = schema_of(settings.producer)
    captured = {table.log_name: await source.describe(db, table) for table in tables}
    there = await find_published(db, settings.publication)
    published = {table.log_name: oids for table, oids in there.items()}
    for guess in guesses(captured, {table.log_name: await source.describe(db, table) for table in there}):
        for oids in (published, dict[str, Published]()):
            for payload in (describe_tables(guess, oids), describe_tables(_without_modifiers(guess), oids)):
                if await is_at(log, name, sequence, payload):
                    return dict(guess), oids
    if settings.choices.schema_change == "accept":
        await log.append([NewEntry(name, sequence + 1, describe_tables(captured, published))])
        return captured, published
    raise CaptureStopped(
        "schema_change",
        f"a captured table of the source has changed, or --tables has a new one ({', '.join(captured)}); what they "
        "were was trimmed from the log. Compare the tables of the targets with those of the source, change them "
        "likewise, take out of --tables what this capture did not begin with, and go on once with --on-schema-change "
        "accept. But if one was dropped and made again, or was not in the publication for a while, rows are missing: "
        "empty the tables of the targets, and start with a new --slot",
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
