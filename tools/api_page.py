"""Writes docs/reference/api.md from the docstrings of everything that ``logplayer`` exports."""

# ruff: noqa: E501 - it holds lines of Markdown.
from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import logplayer
from logplayer import errors
from logplayer.log.mutations import Table
from logplayer.target.protocol import Store, Target

TITLES = {"Args": "Arguments", "Raises": "Raises", "Returns": "Returns", "Attributes": "Attributes"}
BLOCKING = ("open_log", "BlockingLog", "BlockingProducer", "BlockingReceipt", "wait_for", "consistent_cut")
OURS = (
    *("logplayer.api", "logplayer.sync", "logplayer.log.producer", "logplayer.log.mutations", "logplayer.log.protocol"),
    *("logplayer.target.server", "logplayer.target.protocol", "logplayer.player.ended"),
)
ROLE = re.compile(r":\w+:`~?([^`]+)`")
SECTION = re.compile(r"^(\w+):$")
QUOTED = re.compile(r"(: |\| |-> |\[)'([^']+)'")  # Annotations are text in the code; defaults keep their quotes.
SECURITY = re.compile(r"= Security\([^)]*\)")


def api_page() -> str:
    """The whole page."""
    names = [
        name
        for name in logplayer.__all__
        if name not in ("BadRequest", "__version__", "outbox", "spark", "sync") and not hasattr(errors, name)
    ]
    parts = [
        "# The Python API, name by name\n",
        "<!-- Written by tools/docs from the code; change it there. -->\n",
        "[The page about the API](../api.md) shows how they belong together; the errors have [a page](errors.md) of their own. `await` what says `async`.\n",
    ]
    for name in sorted(names, key=str.lower):
        parts += _entry(f"lp.{name}", getattr(logplayer, name), 2)
        if name == "table":
            parts += _entry("Table", Table, 3)
    parts += [
        "## The methods of every store\n",
        text_of(inspect.getdoc(Store) or ""),
        *_methods(Store),
        *_methods(Target),
    ]
    parts += ["## lp.outbox\n", text_of(inspect.getdoc(logplayer.outbox) or "")]
    for name in logplayer.outbox.__all__:
        parts += _entry(f"lp.outbox.{name}", getattr(logplayer.outbox, name), 3)
    parts += _entry("lp.spark.once", logplayer.spark.once, 2)
    parts += _entry("lp.spark.realtime", logplayer.spark.realtime, 2)
    parts += ["## lp.sync\n", text_of(inspect.getdoc(logplayer.sync) or "")]
    for name in BLOCKING:
        parts += _entry(f"lp.sync.{name}", getattr(logplayer.sync, name), 3)
    return "\n".join(parts)


def error_details() -> Iterator[str]:
    """What each public error carries, and how it is met or handled."""
    for name in logplayer.__all__:
        thing = getattr(logplayer, name) if name not in ("outbox", "spark", "sync") else None
        if inspect.isclass(thing) and issubclass(thing, errors.LogPlayerError):
            yield f"## lp.{name}\n"
            yield text_of(inspect.getdoc(thing) or "")


def _entry(name: str, thing: Any, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {name}\n"
    yield f"```text\n{_signature(name, thing)}\n```\n"
    yield text_of(inspect.getdoc(thing) or "")
    if inspect.isclass(thing) and thing.__module__.startswith(OURS):
        yield from _methods(thing)


def _methods(kind: type) -> Iterator[str]:
    for method, found in vars(kind).items():
        function = getattr(found, "__func__", found)
        if not method.startswith("_") and inspect.isfunction(function):
            yield f"**{method}**\n"
            yield f"```text\n{_signature(method, function)}\n```\n"
            yield text_of(inspect.getdoc(function) or "")


def _signature(name: str, thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return f"class {name}"
    hidden = {"self", "cls"}
    parameters = [value for key, value in signature.parameters.items() if key not in hidden and key[0] != "_"]
    signature = signature.replace(parameters=parameters)
    word = "async def" if inspect.iscoroutinefunction(thing) else "def"
    if inspect.isclass(thing):
        word, signature = "class", signature.replace(return_annotation=inspect.Signature.empty)
    return SECURITY.sub("= NONE", QUOTED.sub(r"\1\2", f"{word} {name}{signature}"))


def text_of(doc: str) -> str:
    """The docstring as Markdown: its sections as lists, its example as a block."""
    out: list[str] = []
    section = ""
    for line in doc.splitlines():
        found = SECTION.match(line)
        if found and (found[1] in TITLES or found[1] == "Example"):
            section = found[1]
            out.append("```text" if section == "Example" else f"{TITLES[section]}:\n")
        elif section == "Example" and (not line.strip() or not line.startswith(" ")):
            out += ["```", line]
            section = ""
        elif section == "Example":
            out.append(line[4:].replace("  # doctest: +SKIP", ""))
        elif section and line.startswith("    ") and not line.startswith("     "):
            name, colon, rest = _plain(line.strip()).partition(": ")
            out.append(f"- `{name}`: {rest}" if colon and section != "Returns" else f"- {_plain(line.strip())}")
        elif section and line.strip():
            out.append(f"  {_plain(line.strip())}" if line.startswith(" ") else _plain(line))
        else:
            out.append(_plain(line))
    if section == "Example":
        out.append("```")
    return "\n".join(out).strip() + "\n"


def _plain(line: str) -> str:
    return ROLE.sub(r"`\1`", line).replace("``", "`")
