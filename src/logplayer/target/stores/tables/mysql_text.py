"""The texts of MySQL's statements: names, literals, and what is written of a form of rows.

``types`` has the types of a table's columns, as the database names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pymysql.converters import escape_bool, escape_float, escape_string

from logplayer.wire.fastpath import RowForm
from logplayer.wire.rows import Op

Types = Mapping[str, str]
_TEXT_TYPES = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}


def put_around(form: RowForm, types: Types) -> tuple[str, str]:
    """What comes before and after the values; see the top of mysql.py for what the key columns do in it."""
    names = ", ".join(map(identifier, form.names))
    checked = []
    for name in form.key_names:
        one, kind = identifier(name), types[name]
        same = f"{compared(one, kind)} <=> {compared(f'VALUES({one})', kind)}"
        checked.append(f"{one} = IF({same}, {one}, NULL)")
    changed = [f"{one} = VALUES({one})" for one in map(identifier, form.other_names)]
    insert = f"INSERT INTO {identifier(form.table)} ({names}) VALUES "
    return insert, f" ON DUPLICATE KEY UPDATE {', '.join(checked + changed)}"


def change(form: RowForm, types: Types) -> str:
    """An UPDATE or a DELETE of one row."""
    if form.op == Op.DELETE:
        return f"DELETE FROM {quoted(form.table)} WHERE {where_key(form, types)}"
    changed = ", ".join(f"{quoted(name)} = %s" for name in form.other_names)
    return f"UPDATE {quoted(form.table)} SET {changed} WHERE {where_key(form, types)}"


def change_values(form: RowForm, types: Types, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What :func:`change` takes of a row."""
    others = tuple(value for value, key in zip(row, form.keys, strict=True) if not key)
    return others + key_values(form, types, row)


def delete_many(table: str, name: str, kind: str, count: int) -> str:
    """A DELETE of rows whose key is one column; it takes the values, and again if they are texts."""
    sql = f"DELETE FROM {quoted(table)} WHERE {quoted(name)} IN ({marks(count)})"
    if is_text(kind):
        sql += f" AND {compared(quoted(name), kind)} IN ({', '.join([compared('%s', kind)] * count)})"
    return sql


def where_key(form: RowForm, types: Types, *, exactly: bool = True) -> str:
    """The row with this key: found by the index, which knows the collation only, and then compared."""
    found = [f"{quoted(name)} = %s" for name in form.key_names]
    for name in _texts(form, types) if exactly else ():
        found.append(f"{compared(quoted(name), types[name])} = {compared('%s', types[name])}")
    return " AND ".join(found)


def key_values(form: RowForm, types: Types, row: tuple[Any, ...], *, exactly: bool = True) -> tuple[Any, ...]:
    """What :func:`where_key` takes of a row."""
    values = {name: value for name, key, value in zip(form.names, form.keys, row, strict=True) if key}
    texts = _texts(form, types) if exactly else ()
    return (*values.values(), *(values[name] for name in texts))


def compared(text: str, kind: str) -> str:
    """How a column of this type, or a value for it, is compared: texts to the byte.

    A collation may take 'Alice' for 'alice', and most take 'a ' for 'a'. Those are two rows in the log. The trailing
    blanks of a ``char`` do not belong to its value.
    """
    if not is_text(kind):
        return text
    text = f"CONVERT({text} USING utf8mb4)"
    return f"{text} COLLATE utf8mb4_bin" if kind.startswith("char") else f"CAST({text} AS BINARY)"


def is_text(kind: str) -> bool:
    """Whether a type has a collation that decides what is the same. A value of an ``enum`` has one form only."""
    return kind.partition("(")[0].split()[0] in _TEXT_TYPES


def _texts(form: RowForm, types: Types) -> list[str]:
    return [name for name in form.key_names if is_text(types[name])]


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
