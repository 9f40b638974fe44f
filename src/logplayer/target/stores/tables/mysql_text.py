"""The texts of MySQL's statements: names, literals, and what is written of a form of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymysql.converters import escape_bool, escape_float, escape_string

from logplayer.wire.fastpath import RowForm
from logplayer.wire.rows import Op


def put_around(form: RowForm) -> tuple[str, str]:
    """What comes before and after the values; see the top of this file for what the key columns do in it."""
    names = ", ".join(map(identifier, form.names))
    checked = [f"{one} = IF({one} <=> VALUES({one}), {one}, NULL)" for one in map(identifier, form.key_names)]
    changed = [f"{one} = VALUES({one})" for one in map(identifier, form.other_names)]
    insert = f"INSERT INTO {identifier(form.table)} ({names}) VALUES "
    return insert, f" ON DUPLICATE KEY UPDATE {', '.join(checked + changed)}"


def change(form: RowForm) -> str:
    where = " AND ".join(f"{quoted(name)} = %s" for name in form.key_names)
    if form.op == Op.DELETE:
        return f"DELETE FROM {quoted(form.table)} WHERE {where}"
    changed = ", ".join(f"{quoted(name)} = %s" for name in form.other_names)
    return f"UPDATE {quoted(form.table)} SET {changed} WHERE {where}"


def others_first(form: RowForm, row: tuple[Any, ...]) -> tuple[Any, ...]:
    pairs = list(zip(row, form.keys, strict=True))
    return tuple(value for value, key in pairs if not key) + tuple(value for value, key in pairs if key)


def marks(count: int) -> str:
    return ", ".join(["%s"] * count)


def identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def quoted(name: str) -> str:
    """The same in a statement that has parameters."""
    return identifier(name).replace("%", "%%")


def text_literal(value: str) -> str:
    return f"'{escape_string(value)}'"  # _SESSION leaves backslashes their meaning.


# The literals of the usual types, as the driver writes them.
LITERALS: dict[type, Callable[[Any], str]] = {
    int: str,
    str: text_literal,
    float: escape_float,
    bool: escape_bool,
    type(None): lambda _: "NULL",
}
