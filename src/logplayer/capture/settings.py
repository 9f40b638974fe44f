"""What a capture is asked to do, and what it does where PostgreSQL's stream leaves a choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from logplayer.core.entry import ShardMap
from logplayer.errors import ConfigError, EntryTooLarge, LogError, Unavailable, UserError
from logplayer.log.protocol import ENTRY_BYTES_MAX, GROUP_BYTES_MAX

HEADER_BYTES = 192
"""Room for a capture's own headers in an entry: the longest names of a schema and a table fit."""


class CaptureStopped(UserError):
    """A capture cannot go on by itself; the message says what to do.

    Attributes:
        reason: One word for it, such as ``slot_gone``; metrics count stops by it.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


STOP_REASONS = (
    *("bad_message", "diverged", "identity", "other_source", "publication", "schema_change", "slot_gone", "slot_lost"),
    *("slot_moved", "truncate", "unfit", "too_large", "log_refuses", "unavailable", "not_possible"),
)
"""All that :func:`stop_reason` can say."""


def stop_reason(error: Exception) -> str:
    """One word for why a capture ended: what metrics count it under."""
    if isinstance(error, CaptureStopped):
        return error.reason
    for kind, reason in ((EntryTooLarge, "too_large"), (LogError, "log_refuses"), (Unavailable, "unavailable")):
        if isinstance(error, kind):
            return reason
    return "not_possible"


class SourceTable(NamedTuple):
    """A captured table."""

    schema: str
    name: str
    key: tuple[str, ...]  # The primary key's columns, in its order.
    place: str = ""

    @property
    def log_name(self) -> str:
        """Its name in the log: without the schema if that is ``public``."""
        return self.name if self.schema == "public" else f"{self.schema}.{self.name}"

    @property
    def sql_name(self) -> str:
        """The same in a statement: tables of ``public`` are found where a target has its tables."""
        parts = (self.name,) if self.schema == "public" else (self.schema, self.name)
        return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


@dataclass(frozen=True, slots=True)
class Choices:
    """What to do with what has no one right answer. The default of each is to stop with a sentence.

    Attributes:
        schema_change: ``stop``; ``ddl``: an added column becomes an ALTER TABLE entry, everything else stops;
            ``accept``: the targets have the change already, so go on with the new columns.
        truncate: ``stop``; ``ddl``: a TRUNCATE that is alone in its transaction becomes DELETE FROM entries.
        unfit: ``stop``; ``text``: a value that the log's types do not hold (infinity as a time) is sent as text.
        bad_message: ``stop``; ``drop``: an outbox message that cannot be understood is left out, with a warning.
        split_large: Cut a transaction that is over the limit of an entry into several entries. All of it is held in
            memory until its commit.
        ddl_targets: The targets that a DDL entry names.
        entry_bytes: The most bytes of one entry.
    """

    schema_change: str = "stop"
    truncate: str = "stop"
    unfit: str = "stop"
    bad_message: str = "stop"
    split_large: bool = False
    ddl_targets: tuple[str, ...] = ()
    entry_bytes: int = ENTRY_BYTES_MAX

    def __post_init__(self) -> None:
        if "ddl" in (self.schema_change, self.truncate) and not self.ddl_targets:
            raise ConfigError(
                "--on-schema-change ddl and --on-truncate ddl need the targets that run the statement; "
                "add --ddl-targets NAME,NAME"
            )


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """One capture.

    Attributes:
        url: The source.
        slot: The replication slot; the producer's name in the log is ``capture/SLOT``.
        publication: It has the tables; it is made if it does not exist.
        tables: ``name`` or ``schema.name``.
        place: Key column that decides where a row lives, by table; the table ``""`` stands for all.
        snapshot: Copy the tables first. Without, the stream begins at the slot's position.
        choices: What to do where there is a choice.
        first_map: The map by which foreign keys are judged while the log has none.
    """

    url: str
    slot: str
    publication: str
    tables: tuple[str, ...]
    place: Mapping[str, str] = field(default_factory=dict)
    snapshot: bool = True
    choices: Choices = Choices()
    first_map: ShardMap | None = None
    unanswered_bytes_max: int = GROUP_BYTES_MAX  # Sent to the log and not durable there: then the stream waits.

    @property
    def producer(self) -> str:
        return f"capture/{self.slot}"
