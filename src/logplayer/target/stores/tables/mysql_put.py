"""One row put into a table of MySQL: by UPDATE, or by INSERT if the key is not there.

No other unique key can be taken for the row's own then. And where a collation takes the key for that of another row,
this says so: the INSERT would be refused, but only as a duplicate of a value that the log does not have twice.
"""

from __future__ import annotations

from typing import Any

from logplayer.target.stores.tables.mysql_text import (
    Types,
    change,
    change_values,
    is_text,
    key_values,
    marks,
    quoted,
    where_key,
)
from logplayer.target.stores.tables.runs import RowRefused
from logplayer.wire.fastpath import RowForm


def put_row(cursor: Any, form: RowForm, types: Types, row: tuple[Any, ...], key: bytes) -> int:
    """Write one row; 1. Raises RowRefused if another row has its key by the collation."""
    if form.other_names and cursor.execute(change(form, types), change_values(form, types, row)):
        return 1
    there = f"SELECT 1 FROM {quoted(form.table)} WHERE {where_key(form, types)} FOR UPDATE"
    if cursor.execute(there, key_values(form, types, row)):
        return 1
    _refuse_another(cursor, form, types, row, key)
    names = ", ".join(map(quoted, form.names))
    return int(cursor.execute(f"INSERT INTO {quoted(form.table)} ({names}) VALUES ({marks(len(row))})", row))


def _refuse_another(cursor: Any, form: RowForm, types: Types, row: tuple[Any, ...], key: bytes) -> None:
    names = ", ".join(map(quoted, form.key_names))
    where = where_key(form, types, exactly=False)
    values = key_values(form, types, row, exactly=False)
    if not cursor.execute(f"SELECT {names} FROM {quoted(form.table)} WHERE {where} FOR UPDATE", values):
        return
    for name, new, old in zip(form.key_names, values, cursor.fetchone(), strict=True):
        if is_text(types[name]) and new != old:
            collation = "nopad_bin" if "MariaDB" in cursor.connection.get_server_info() else "0900_bin"
            raise RowRefused(
                f"row {key.decode(errors='replace')}: column {name!r} ({types[name]}) takes {new!r} for {old!r}, which "
                f"is another row; give it a collation that compares bytes (ALTER TABLE {form.table} MODIFY {name} "
                f"{types[name]} CHARACTER SET utf8mb4 COLLATE utf8mb4_{collation} NOT NULL), or quarantine the entry"
            )
