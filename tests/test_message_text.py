"""No decision of the product rests on the wording of a message: a reworded message must never change behaviour."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import logplayer

SOURCE = Path(logplayer.__file__).parent
# What the code calls its messages. A path, an address or a key is text too, and may be looked into.
MESSAGES = {"description", "detail", "end", "ended", "error", "how", "reason", "trouble", "what", "why"}
LOOKS = {"startswith", "endswith", "find", "index", "count", "partition", "rpartition"}
PATTERNS = {"search", "match", "fullmatch", "findall", "finditer"}

pytestmark = pytest.mark.usefixtures("no_garbage")


def test_no_branch_of_the_product_looks_into_a_message() -> None:
    found = [
        place for path in sorted(SOURCE.rglob("*.py")) if "testing" not in path.parts for place in looked_into(path)
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        'if how.startswith("stepped down"): pass',
        'if self._races > 3 and "wrong last sequence" in (why or ""): pass',
        'stop = "gone" in str(error)',
        "found = _EPOCH.search(why)",
        "found = re.search(PATTERN, beat.ended)",
        'if error.args[0].endswith("again"): pass',
        'if f"{error}".startswith("no"): pass',
    ],
)
def test_a_look_into_a_message_is_found(code: str) -> None:
    assert list(_looks(ast.parse(code)))


@pytest.mark.parametrize("code", ['if path.startswith("/"): pass', 'x = "a" in keys', 'raise Poison(f"no: {error}")'])
def test_other_text_may_be_looked_into(code: str) -> None:
    assert not list(_looks(ast.parse(code)))


def looked_into(path: Path) -> Iterator[str]:
    for node in _looks(ast.parse(path.read_text())):
        yield f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)}"


def _looks(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if (name in LOOKS and _is_message(node.func.value)) or (
                name in PATTERNS and any(_is_message(argument) for argument in node.args)
            ):
                yield node
        elif isinstance(node, ast.Compare):
            for operator, right in zip(node.ops, node.comparators, strict=True):
                if isinstance(operator, (ast.In, ast.NotIn)) and _is_message(right):
                    yield node


def _is_message(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_") in MESSAGES
        case ast.Subscript(value=ast.Attribute(attr="args")):
            return True
        case ast.Call(func=ast.Name(id="str"), args=[argument]):
            return _is_message(argument)
        case ast.BoolOp(values=values):
            return any(_is_message(value) for value in values)
        case ast.JoinedStr(values=values):
            return any(isinstance(value, ast.FormattedValue) and _is_message(value.value) for value in values)
    return False
