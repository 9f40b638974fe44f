"""Everything public says what it takes, what it raises, and how it is used."""

from __future__ import annotations

import dataclasses
import doctest
import enum
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import logplayer as lp
from logplayer.errors import LogPlayerError
from logplayer.log.mutations import Table

MODULES = {"outbox": lp.outbox.__all__, "spark": lp.spark.__all__, "sync": lp.sync.__all__}
RETURNED = {"Table": Table}  # What is public only by being returned.
NOTHING_TO_RAISE = {
    *("Change.headers", "Change.messages", "Change.quarantined", "Change.runs"),
    *("Ended.as_json", "Ended.superseded", "Player.request_stop", "Player.status", "Producer.close"),
    *("Security.client_tls", "Security.permits", "Security.server_tls", "sync.BlockingLog.producer"),
    *("TargetServer.hosts", "TargetServer.stop", "encode_mutation", "encode_position"),
}
MADE_FOR_YOU = "Made by"
HAS_A_PAGE = {"Config", "Limits"}  # Each field has a line in docs/reference/config.md, written from the code.


def public() -> Iterator[tuple[str, Any]]:
    """Every name that ``logplayer`` and its three modules export."""
    for name in lp.__all__:
        if name in MODULES:
            yield from ((f"{name}.{inside}", getattr(getattr(lp, name), inside)) for inside in MODULES[name])
        elif name != "__version__":
            yield name, getattr(lp, name)
    yield from RETURNED.items()


def is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, LogPlayerError)


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """What is public of a class and ours, from whichever base."""
    for name in sorted(dir(kind)):
        found = inspect.getattr_static(kind, name)
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if name[0] != "_" and inspect.isfunction(function) and function.__module__.startswith("logplayer"):
            yield name, found if isinstance(found, property) else function


def fields(kind: Any) -> list[str]:
    """The fields of a value, all of which it must explain."""
    if not inspect.isclass(kind):
        return []
    if issubclass(kind, enum.Enum):
        return [one.name for one in kind]
    if dataclasses.is_dataclass(kind):
        return [one.name for one in dataclasses.fields(kind) if one.name[0] != "_"]
    return list(getattr(kind, "_fields", ()))


THINGS = dict(public())
METHODS = {
    f"{name}.{method}": function
    for name, thing in THINGS.items()
    if inspect.isclass(thing) and not is_error(thing)
    for method, function in methods(thing)
}
FUNCTIONS = {**{name: thing for name, thing in THINGS.items() if inspect.isfunction(thing)}, **METHODS}
CLASSES = {name: thing for name, thing in THINGS.items() if inspect.isclass(thing)}


def section(doc: str, title: str) -> str:
    """The lines of one section."""
    _, _, rest = f"\n{doc}".partition(f"\n{title}:\n")
    return rest.partition("\n\n")[0]


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_it_has_a_sentence_and_an_example(name: str) -> None:
    thing = {**FUNCTIONS, **CLASSES}[name]
    doc = inspect.getdoc(thing) or ""
    assert doc.split("\n")[0].rstrip().endswith((".", ":")) or "\n\n" in doc
    assert isinstance(thing, property) or ">>> " in section(doc, "Example"), "show how it is used"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_takes(name: str) -> None:
    function = FUNCTIONS[name]
    if isinstance(function, property):
        return
    said = section(inspect.getdoc(function) or "", "Args")
    for parameter in inspect.signature(function).parameters:
        if parameter not in ("self", "cls") and parameter[0] != "_":
            assert f"{parameter}: " in said, parameter


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_raises(name: str) -> None:
    said = section(inspect.getdoc(FUNCTIONS[name]) or "", "Raises")
    assert bool(said) != (name in NOTHING_TO_RAISE or name.endswith(".close"))
    for line in said.splitlines():
        error = line.strip().partition(":")[0]
        if line[:5].strip():  # Not the second line of one.
            assert is_error(getattr(lp, error, None)) or error in ("Exception", "KeyError", "Rejected")


@pytest.mark.parametrize("name", [name for name, kind in CLASSES.items() if not is_error(kind)])
def test_a_class_says_what_it_is_made_of(name: str) -> None:
    kind = CLASSES[name]
    doc = inspect.getdoc(kind) or ""
    for each in [] if name in HAS_A_PAGE else fields(kind):
        assert f"{each}: " in section(doc, "Attributes"), each
    if dataclasses.is_dataclass(kind) or fields(kind) or getattr(kind, "_is_protocol", False) or MADE_FOR_YOU in doc:
        return
    said = section(doc, "Args")
    for parameter in inspect.signature(kind).parameters:
        assert f"{parameter}: " in said, parameter
    assert section(doc, "Raises") or name == "MemoryTarget"


@pytest.mark.parametrize("name", [name for name, kind in CLASSES.items() if is_error(kind)])
def test_an_error_says_what_it_carries(name: str) -> None:
    kind = CLASSES[name]
    made = inspect.signature(kind.__init__).parameters
    carried = [one for one in made if one not in ("self", "message", "args", "kwargs")]
    for each in carried:
        assert f"{each}: " in section(inspect.getdoc(kind) or "", "Attributes"), each


def test_examples_that_can_run_do() -> None:
    modules = {getattr(thing, "__module__", "") for thing in (*FUNCTIONS.values(), *CLASSES.values())} - {""}
    for name in sorted(modules):
        module = importlib.import_module(name)
        found = doctest.testmod(module, extraglobs={"lp": lp}, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
        assert not found.failed, name
