"""No decision of the product rests on the wording of a message: a reworded message must never change behaviour."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import logplayer

SOURCE = Path(logplayer.__file__).parent
# What the code calls its messages. A path, an address or a key is text too, and may be looked into.
MESSAGES = {"description", "detail", "details", "end", "ended", "error", "how", "reason", "trouble", "what", "why"}
ERRORS = {"cause", "e", "err", "error", "exc", "exception", "failure", "fault", "trouble"}  # Messages as str(it).
ANSWERS = {"debug_error_string", "details", "getMessage"}  # Methods that return a message.
# Methods that return a part of the message, or the same in other letters.
PARTS = {"casefold", "lower", "lstrip", "removeprefix", "replace", "rstrip", "split", "splitlines", "strip", "upper"}
LOOKS = {"startswith", "endswith", "find", "index", "count", "partition", "rpartition"}
PATTERNS = {"search", "match", "fullmatch", "findall", "finditer"}
ALLOWED = {
    "log/etcd/api.py: details == DENIED": (
        "etcd 3.4 refuses maintenance calls with the code UNKNOWN, which an expired token and a full disk get as well"
    ),
    "log/etcd/api.py: details == OLD_TOKEN": (
        "etcd refuses a signed token with the code INVALID_ARGUMENT after a change of users, as it does wrong requests"
    ),
    "target/stores/tables/postgres.py: name not in said": "the next message names the constraint once; no branch else",
    "wire/recognise.py: error.reason == 'WRONG_VERSION_NUMBER'": "OpenSSL's name of the error, which is no wording",
}

pytestmark = pytest.mark.usefixtures("no_garbage")


def test_no_branch_of_the_product_looks_into_a_message() -> None:
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if "testing" not in path.parts]
    found = [place for path in paths for place in looked_into(path)]
    assert [f"{path}:{line}: {code}" for path, line, code in found if f"{path}: {code}" not in ALLOWED] == []
    assert sorted(f"{path}: {code}" for path, _, code in found) == sorted(ALLOWED), "each is allowed once, and is there"


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
        "if details == DENIED: pass",
        "if details == api.DENIED: pass",
        'if "gone" != self._details: pass',
        'if error.args[0] == "gone": pass',
        'if str(error) in ("gone", "away"): pass',
        'match str(error):\n    case "gone": pass',
        'match why:\n    case "gone" | "away": pass',
        'text = str(error)\nif text.startswith("no"): pass',
        'def f(error):\n    code, text = error.code(), error.details()\n    return "no" in text',
        'if (text := str(error)).startswith("no"): pass',
        'if str(failure).startswith("no"): pass',
        'try: pass\nexcept OSError as gone:\n    if "no" in str(gone): pass',
        'if "x" in call.details(): pass',
        'if "x" in (await call.details()): pass',
        'if error.details().startswith("x"): pass',
        "found = re.search(P, str(e))",
        'if str(error).lower().strip() == "gone": pass',
        'if str(error).splitlines()[0] == "gone": pass',
    ],
)
def test_a_look_into_a_message_is_found(code: str) -> None:
    assert list(_looks(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        'if path.startswith("/"): pass',
        'x = "a" in keys',
        'raise Poison(f"no: {error}")',
        "if how == STOPPED: pass\nSTOPPED = 7",
        'if why == "": pass',
        "if str(error) != self._said: pass",
        "if error.args[0] in REFUSED: pass",
        "if fact.reason in (Refusal.STALE_SESSION, Refusal.OUT_OF_SYNC): pass",
        "if fact.reason == Refusal.STALE_SESSION: pass",
        "match error:\n    case OSError(): pass",
        'def f(text):\n    return text.startswith("/")\ndef g(error):\n    text = str(error)\n    return text',
    ],
)
def test_other_text_may_be_looked_into(code: str) -> None:
    assert not list(_looks(ast.parse(code)))


def looked_into(path: Path) -> Iterator[tuple[Path, int, str]]:
    for node in _looks(ast.parse(path.read_text())):
        yield path.relative_to(SOURCE), node.lineno, ast.unparse(node)


def _looks(tree: ast.Module) -> Iterator[ast.expr]:
    """Each scope by itself: in the next function the same name may be a path."""
    values = _constants(tree)
    scopes = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module))]
    for scope in scopes:
        nodes = list(_within(scope))
        names = _Names(nodes)
        yield from (look for node in nodes if (look := _look(node, names, values)) is not None)


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child
            yield from _within(child)


def _constants(tree: ast.Module) -> Mapping[str, object]:
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _look(node: ast.AST, names: _Names, values: Mapping[str, object]) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Attribute(value=text, attr=name), args=given):
            looks = name in LOOKS and names.is_message(text)
            return node if looks or (name in PATTERNS and any(map(names.is_message, given))) else None
        case ast.Compare(left=left, ops=operators, comparators=others):
            pairs = zip(operators, [left, *others], others, strict=False)
            return node if any(_compares(*pair, names, values) for pair in pairs) else None
        case ast.Match(subject=subject, cases=cases):
            worded = any(isinstance(part, ast.MatchValue) for case in cases for part in ast.walk(case.pattern))
            return subject if worded and names.is_message(subject) else None
    return None


def _compares(
    operator: ast.cmpop, left: ast.expr, right: ast.expr, names: _Names, values: Mapping[str, object]
) -> bool:
    """Whether a message is compared with a wording. With another message it may be: to say the same only once."""
    if isinstance(operator, (ast.In, ast.NotIn)):
        listed = isinstance(right, (ast.Tuple, ast.List, ast.Set)) and any(
            _is_wording(one, values) for one in right.elts
        )
        return names.is_message(right) or (listed and names.is_message(left))
    if not isinstance(operator, (ast.Eq, ast.NotEq)):
        return False
    return any(names.is_message(one) and _is_wording(two, values) for one, two in ((left, right), (right, left)))


def _is_wording(node: ast.expr, values: Mapping[str, object]) -> bool:
    """Text in quotes, or a constant that is text as far as is known here."""
    match node:
        case ast.Constant(value=str(text)):
            return bool(text)
        case ast.Name(id=name):
            return name.isupper() and isinstance(values.get(name, ""), str)
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return name.isupper() and module.islower()  # Else it is a member of an enum.
    return False


class _Names:
    """What the names in one scope are."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self._errors = ERRORS | {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
        self._messages = set(MESSAGES)
        for node in nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assigned(target, node.value)

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Tuple(elts=targets), ast.Tuple(elts=parts):
                for one, part in zip(targets, parts, strict=False):
                    self._assigned(one, part)
            case ast.Name(id=name), _ if self.is_message(value) and not isinstance(value, (ast.Name, ast.Attribute)):
                self._messages.add(name)

    def is_message(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name.lstrip("_") in self._messages
            case ast.Subscript(value=ast.Attribute(attr="args")):
                return True
            case ast.Call(func=ast.Name(id="str" | "repr"), args=[argument]):
                return self._is_error(argument) or self.is_message(argument)
            case ast.Call(func=ast.Attribute(value=text, attr=name)):
                return name in ANSWERS or (name in PARTS and self.is_message(text))
            case ast.BoolOp(values=values):
                return any(map(self.is_message, values))
            case ast.Subscript(value=text) | ast.NamedExpr(value=text) | ast.Await(value=text):
                return self.is_message(text)
            case ast.JoinedStr(values=values):
                shown = [value.value for value in values if isinstance(value, ast.FormattedValue)]
                return any(self._is_error(value) or self.is_message(value) for value in shown)
        return False

    def _is_error(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name.lstrip("_") in self._errors
        return False
