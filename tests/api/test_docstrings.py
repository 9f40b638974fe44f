"""Everything public says what it takes, what it raises, and how it is used."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import logplayer as lp
from logplayer import errors

ERRORS = set(vars(errors))

# Values without behaviour: a sentence and an example are enough.
VALUES = {
    *("BadRequest", "Change", "Config", "EndKind", "Ended", "ExplicitMap", "HashMap", "Info", "Limits", "Log"),
    *("Mutation", "NewEntry", "Newest", "Position", "RangeMap", "Record", "Row", "Security", "Target"),
}
SHORT = {
    "BlockingLog.append",
    "BlockingLog.trim",
    "BlockingLog.info",
    "BlockingLog.newest",
    "BlockingLog.close",
}


def public() -> Iterator[tuple[str, Any]]:
    blocking = {name: getattr(lp.sync, name) for name in ("open_log", "BlockingLog", "BlockingProducer", "wait_for")}
    exported = {name: getattr(lp, name) for name in lp.__all__ if name not in ("__version__", "spark", "sync")}
    for name, thing in [*exported.items(), *((f"sync.{name}", thing) for name, thing in blocking.items())]:
        if hasattr(errors, name) or name in VALUES:
            continue
        yield name, thing
        if inspect.isclass(thing) and thing.__module__.startswith(("logplayer.api", "logplayer.sync")):
            for method, function in vars(thing).items():
                if not method.startswith("_") and inspect.isfunction(function):
                    yield f"{thing.__name__}.{method}", function


@pytest.mark.parametrize(("name", "thing"), list(public()), ids=[name for name, _ in public()])
def test_docstring(name: str, thing: Any) -> None:
    doc = inspect.getdoc(thing) or ""
    assert doc
    if name in SHORT or name in ("sync.BlockingLog", "sync.BlockingProducer"):
        return
    assert "Example:" in doc, "show how it is used"
    if inspect.isfunction(thing) and set(inspect.signature(thing).parameters) - {"self"}:
        short = name in ("BlockingLog.read", "EmbeddedPlayer.retry", "sync.wait_for")
        assert "Args:" in doc or short, "say what it takes"


@pytest.mark.parametrize("name", sorted(VALUES))
def test_values_have_a_sentence_and_an_example(name: str) -> None:
    doc = inspect.getdoc(getattr(lp, name)) or ""
    assert doc
    assert "Example:" in doc or hasattr(errors, name) or name == "BadRequest"


@pytest.mark.parametrize("name", [name for name in lp.__all__ if name.endswith("Target") and name not in ERRORS])
def test_stores_say_what_they_take_and_what_their_methods_do(name: str) -> None:
    store = getattr(lp, name)
    if name == "Target":
        store = lp.Target
    else:
        assert "Args:" in store.__doc__
        assert "Raises:" in store.__doc__ or name == "MemoryTarget"
    for method in {"get", "scan", "quarantine", "close"} & set(vars(store)):
        assert getattr(store, method).__doc__, method


def test_examples_that_can_run_do() -> None:
    import doctest

    from logplayer import config
    from logplayer.api import player
    from logplayer.core import entry, fence, limits
    from logplayer.log import mutations, protocol
    from logplayer.player import ended
    from logplayer.target import protocol as target
    from logplayer.wire import entries, security

    for module in (mutations, player, config, entry, fence, limits, protocol, ended, target, entries, security):
        found = doctest.testmod(module)
        assert found.attempted
        assert not found.failed
