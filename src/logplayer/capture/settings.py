"""What a capture is asked to do, and what it does where PostgreSQL's stream leaves a choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from logplayer.errors import ConfigError
from logplayer.log.protocol import ENTRY_BYTES_MAX, GROUP_BYTES_MAX

HEADER_BYTES = 1024
"""Room for a capture's own headers in an entry."""


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


@dataclass(frozen=True, slots=True)
class Choices:
    """What to do with what has no one right answer. The default of each is to stop with a sentence.

    Attributes:
        schema_change: ``stop``; ``ddl``: an added column becomes an ALTER TABLE entry, everything else stops;
            ``accept``: the targets have the change already, so go on with the new columns.
        truncate: ``stop``; ``ddl``: a TRUNCATE that is alone in its transaction becomes DELETE FROM entries.
        unfit: ``stop``; ``text``: a value that the log's types do not hold (infinity as a time) is sent as text.
        bad_message: ``stop``; ``drop``: an outbox message that cannot be understood is left out, with a warning.
        split_large: Cut a transaction that is over the limit of an entry into several entries.
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
    """

    url: str
    slot: str
    publication: str
    tables: tuple[str, ...]
    place: Mapping[str, str] = field(default_factory=dict)
    snapshot: bool = True
    choices: Choices = Choices()
    unanswered_bytes_max: int = GROUP_BYTES_MAX  # Sent to the log and not durable there: then the stream waits.

    @property
    def producer(self) -> str:
        return f"capture/{self.slot}"
