"""How tables and columns of the log are named in a target's own schema: ``[tables]`` of logplayer.toml.

[tables.orders]
name = "shop_orders"             # Rename the table; in PostgreSQL also schema.table.
columns = { total = "amount" }   # Rename columns.
ignore = ["internal_note"]       # Leave columns out.
constants = { region = "eu" }    # Columns that each put writes beside those of the row.

[tables.audit_trail]
ignore = true                    # Leave the whole table out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from logplayer.errors import ConfigError

if TYPE_CHECKING:
    from logplayer.wire.rows import RowChange

_FIELDS = {"name", "columns", "ignore", "constants"}


@dataclass(frozen=True)
class MappedTable:
    """What becomes of one table."""

    name: str
    columns: Mapping[str, str] = field(default_factory=dict)
    ignore: frozenset[str] | None = frozenset()  # None: the whole table.
    constants: Mapping[str, Any] = field(default_factory=dict)


class TableMapping:
    """What becomes of the rows' tables and columns; a table that is not named stays as it is."""

    def __init__(self, tables: Mapping[str, MappedTable] | None = None, schema: str = "") -> None:
        self._tables = dict(tables or {})
        self.schema = schema  # Where the tables are, if that is known and the database has schemas.

    def in_schema(self, schema: str) -> TableMapping:
        """The same, for tables that are there."""
        return TableMapping(self._tables, schema)

    def __repr__(self) -> str:
        return f"TableMapping({', '.join(self._tables)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableMapping) and (self._tables, self.schema) == (other._tables, other.schema)

    def __hash__(self) -> int:
        return hash(tuple(self._tables))

    def __bool__(self) -> bool:
        return bool(self._tables)

    def name_here(self, table: str) -> str:
        """A table's name in the target; empty if the whole table is left out."""
        mapped = self._tables.get(table)
        return table if mapped is None else "" if mapped.ignore is None else mapped.name

    def apply(self, change: RowChange) -> RowChange | None:
        """The change as the target gets it; None if nothing of it is left."""
        mapped = self._tables.get(change.table)
        if mapped is None:
            return change
        if mapped.ignore is None:
            return None
        from logplayer.wire.rows import Column, Op  # Whoever only reads a configuration needs no protobuf.

        columns = [
            Column(mapped.columns.get(name, name), value, key)
            for name, value, key in change.columns
            if name not in mapped.ignore
        ]
        if change.op == Op.PATCH and all(column.key for column in columns):
            return None
        if change.op == Op.PUT:
            columns += [Column(name, value) for name, value in mapped.constants.items()]
        return change._replace(table=mapped.name, columns=tuple(columns))


NO_MAPPING = TableMapping()


def read_mapping(path: str) -> TableMapping:
    """The mapping in ``[tables]`` of a configuration file. Raises ConfigError for what is wrong with it."""
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file).get("tables", {})
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    return mapping_of(found, path)


def mapping_of(found: Any, where: str) -> TableMapping:
    """The mapping in a table of TOML."""
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: tables must be sections, as in [tables.orders]")
    return TableMapping({name: _mapped(name, settings, where) for name, settings in found.items()})


def _mapped(table: str, settings: Any, where: str) -> MappedTable:
    at = f"{where}: [tables.{table}]"
    if not isinstance(settings, dict) or not set(settings) <= _FIELDS:
        raise ConfigError(f"{at} may have {', '.join(sorted(_FIELDS))}, and nothing else")
    name, columns = settings.get("name", table), settings.get("columns", {})
    ignore, constants = settings.get("ignore", []), settings.get("constants", {})
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{at}: name must be the name of a table")
    if not isinstance(columns, dict) or not all(isinstance(new, str) and new for new in columns.values()):
        raise ConfigError(f'{at}: columns must give new names, as in {{ total = "amount" }}')
    if ignore is not True and not (isinstance(ignore, list) and all(isinstance(one, str) for one in ignore)):
        raise ConfigError(f'{at}: ignore must be a list of columns, as in ["note"], or true for the whole table')
    if not isinstance(constants, dict) or any(isinstance(one, dict | list) for one in constants.values()):
        raise ConfigError(f'{at}: constants must be plain values, as in {{ region = "eu" }}')
    return MappedTable(name, columns, None if ignore is True else frozenset(ignore), constants)
