"""How a table's columns are described, and what is different between two descriptions. Pure."""

from __future__ import annotations

from typing import NamedTuple

from logplayer.capture.pg_values import type_text
from logplayer.capture.settings import CaptureStopped, SourceTable

Description = tuple[tuple[str, int, int | None], ...]
"""A table as rows carry it: each column's name, type, and type modifier (its length, say; None: not known)."""


class SchemaChange(NamedTuple):
    """The stream describes a table otherwise than before."""

    table: SourceTable
    before: Description
    after: Description

    @property
    def added(self) -> tuple[str, ...]:
        """The names of new columns if that is all that changed, else nothing."""
        if self.after[: len(self.before)] != self.before:
            return ()
        return tuple(name for name, *_ in self.after[len(self.before) :])


def completed(before: Description, now: Description) -> Description:
    """An earlier version kept no modifiers: those of columns that have the same type are taken as they are now."""
    modifiers = {(name, oid): modifier for name, oid, modifier in now}
    return tuple(
        (name, oid, modifiers.get((name, oid)) if modifier is None else modifier) for name, oid, modifier in before
    )


def renamed(table: SourceTable, schema: str, name: str) -> CaptureStopped:
    """A captured table has another name, or another schema."""
    return CaptureStopped(
        "schema_change",
        f"table {table.log_name} of the source is called {schema}.{name} now (everything before is in the log). Give "
        "it back its name and schema (ALTER TABLE ... RENAME TO, SET SCHEMA) and go on once with --on-schema-change "
        f"accept, which takes what changed under the other name for changes of {table.log_name}; or capture it under "
        "its new name with a new --slot, into empty tables",
    )


def replaced(table: SourceTable) -> CaptureStopped:
    """Another table has the name of a captured one."""
    return CaptureStopped(
        "schema_change",
        f"table {table.log_name} of the source is another one now: the captured one was dropped or renamed, and one "
        "made under its name, so which rows the log lacks is not known. Give the captured one back its name if it is "
        "still there; or empty the tables of the targets, and start with a new --slot, which takes a new snapshot",
    )


def difference(change: SchemaChange) -> str:
    before = {name: (oid, modifier) for name, oid, modifier in change.before}
    after = {name: (oid, modifier) for name, oid, modifier in change.after}
    said = [f"column {name} is new" for name in after if name not in before]
    said += [f"column {name} is gone" for name in before if name not in after]
    for name in after:
        if name in before and before[name] != after[name]:
            what = "type" if before[name][0] != after[name][0] else "length"
            was, now = (type_text(*one) for one in (before[name], after[name]))
            said.append(f"column {name} has another {what}: {was} is {now} now")
    return ", ".join(said) or "the order of its columns differs"
