"""Generates what the code knows best: the command line, the configuration, errors, status fields, the state diagram.

    tools/docs            write them
    tools/docs --check    fail if one of them is not current

Texts that the code does not hold (what a key is for, why a state changes) stand here, and a key or a transition without
one is an error: so a change of the code cannot leave the documentation behind.
"""

# ruff: noqa: E501 - it holds lines of Markdown.
from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from logplayer import config, errors
from logplayer.cli import VERBS, cli
from logplayer.core.limits import Limits
from logplayer.core.queue import LEGAL, State
from logplayer.player.status import PlayerStatus, TargetStatus

DOCS = Path(__file__).parents[1] / "docs"
NOTE = "<!-- Written by tools/docs from the code; change it there. -->\n"

WHY = {
    (State.SUSPENDED, State.CATCHING_UP): "the target answers Opened",
    (State.CATCHING_UP, State.LIVE): "covered up to the main stream",
    (State.CATCHING_UP, State.SUSPENDED): "session lost or refused",
    (State.LIVE, State.CATCHING_UP): "queue full",
    (State.LIVE, State.SUSPENDED): "session lost or refused",
}

KEYS = {
    ("log", "address"): "The log: `file:///path`, `grpc://host:port` or `nats://host:port,.../name`.",
    ("player", "group"): "The player's group. Two players of one group are rivals: the later one takes over.",
    ("player", "status"): "Where the player answers `logplayer status`.",
    ("player", "engine"): "`spark` or `in-process`.",
    ("player", "trims"): "Trim the log behind all targets. Only for a player that owns every member.",
    ("player", "tick_ms"): "How often time passes for the core. Too low: CPU for nothing. Too high: idle targets and "
    "deadlines are noticed late.",
    ("player", "drain_ms_max"): "How long a graceful stop waits for acks.",
    (
        "map",
        "kind",
    ): "`hash` (CRC-32 of the key), `range` (sorted bounds) or `explicit` (each mutation names its target). "
    "Default: `hash` over all targets; `explicit` if there are none.",
    ("map", "targets"): "The owners, in order. Default: all of `[targets.*]`. The order of a hash map matters.",
    ("map", "bounds"): "For `range`: one bound less than there are targets, rising. `targets[i]` owns "
    "`[bounds[i-1], bounds[i])`.",
    ("targets.*", "address"): "`grpc://host:port` or `tcp://host:port`. The section's name is the target's.",
    ("security", "ca"): "Trust servers with a certificate from this CA file (`system`: the system's roots).",
    ("security", "cert"): "Show this certificate (mutual TLS).",
    ("security", "key"): "The certificate's private key.",
    ("security", "token_file"): "Show the token in this file.",
    ("security", "insecure"): "Allow plain text beyond loopback.",
    ("spark", "master"): "Spark's master.",
    ("spark", "groups"): "How many resident players share the targets; 0: as many as are worth it.",
}
DEFAULTS = {
    ("log", "address"): "",
    ("map", "kind"): "hash",
    ("map", "targets"): "all",
    ("map", "bounds"): "",
    ("targets.*", "address"): "",
    ("security", "ca"): "",
    ("security", "cert"): "",
    ("security", "key"): "",
    ("security", "token_file"): "",
    ("security", "insecure"): "false",
}
TYPES = {str: "text", int: "number", bool: "true or false", list: "list of texts"}

PLAYER_FIELDS = {
    "group": "Its group.",
    "player": "Host and process.",
    "epoch": "The index of its takeover record: which player is the newest.",
    "current": "The main stream has dispatched every entry up to here.",
    "log_last": "The newest index of the log that it has seen.",
    "consistent_cut": "The smallest index over all targets: everything up to it is on all of them.",
    "entries_per_second": "How fast the main stream moves, over the last few seconds.",
    "unroutable": "What is for nobody: payloads that are no transactions, unknown targets, keys without an owner. Should be 0.",
    "state": "`playing`; `stopping` while it drains; `stopped`.",
    "targets": "One object per target, below.",
}
TARGET_FIELDS = {
    "target": "Its name.",
    "address": "Where the player reaches it.",
    "session": "`epoch.term` of the stream, empty without one.",
    "queued": "Entries that wait for the stream.",
    "in_flight": "Entries that are sent and not acked.",
    "entries_per_second": "How fast its index moves.",
    "attempts": "Sessions lost since the last progress.",
    "digest": "The target's own, by its last word: what `logplayer audit` compares.",
    "error": "Why it is suspended or blocked.",
}


# --- The command line ---


def cli_page() -> str:
    lines = ["# Command line", "", NOTE, "```text", _help(cli, "logplayer"), "```", ""]
    lines += [
        "A mistake is one line on stderr and exit code 2, never a traceback. `--json` gives a script one JSON object (or one "
        "per line); everything that is not the answer goes to stderr then. With `NO_COLOR` set nothing is drawn in place.",
        "",
        "| Variable | Stands for |",
        "|---|---|",
        "| `LOGPLAYER_LOG` | `--log` |",
        "| `LOGPLAYER_STATUS` | `--status` of `play`, `--player` of `status` and `target retry` |",
        "",
        "## Completion",
        "",
        "For bash; zsh and fish work the same with their own names in place of `bash`:",
        "",
        "```console",
        "$ _LOGPLAYER_COMPLETE=bash_source logplayer > ~/.logplayer-complete.bash",
        "$ source ~/.logplayer-complete.bash",
        "```",
        "",
        "The first line is done once, the second belongs into `~/.bashrc`.",
        "",
    ]
    context = click.Context(cli, info_name="logplayer")
    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        lines += _section(command, f"logplayer {verb}", 2)
    return "\n".join(lines).rstrip() + "\n"


def _section(command: click.Command, path: str, depth: int) -> Iterator[str]:
    yield from (f"{'#' * depth} {path}", "", "```text", _help(command, path), "```", "")
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None
            yield from _section(below, f"{path} {name}", depth + 1)


def _help(command: click.Command, path: str) -> str:
    settings = {"help_option_names": ["-h", "--help"], "terminal_width": 100, "max_content_width": 100}
    text = command.get_help(click.Context(command, info_name=path, **settings))
    # What depends on the machine is told by its name.
    return re.sub(re.escape(str(Path.home())), "~", text)


# --- The configuration ---


def config_page() -> str:
    lines = [
        "# logplayer.toml",
        "",
        NOTE,
        "One file says where the log and the targets are and how a player works. The commands take `--config FILE`, or find "
        "`logplayer.toml` in the current directory. Options on the command line win. An unknown key, a wrong type and two "
        "values that do not fit each other are refused with a line that says what to change.",
        "",
        "```toml",
        "# logplayer.toml",
        "[log]",
        'address = "grpc://127.0.0.1:7100"',
        "",
        "[player]",
        'engine = "in-process"',
        "trims = true",
        "",
        "[targets.a]",
        'address = "grpc://127.0.0.1:7201"',
        "",
        "[targets.b]",
        'address = "tcp://127.0.0.1:7202"',
        "",
        "[map]",
        'kind = "range"',
        'targets = ["a", "b"]',
        'bounds = ["m"]    # a owns the keys below m, b the others',
        "",
        "[limits]",
        "queue_bytes_max = 16777216",
        "```",
        "",
    ]
    for section, keys in config.SCHEMA.items():
        lines += [f"## [{section.replace('.*', '.NAME')}]", "", "| Key | Type | Default | |", "|---|---|---|---|"]
        for key, kind in keys.items():
            if section != "limits" and (section, key) not in KEYS:
                raise SystemExit(f"docs: [{section}] {key} is described nowhere; do it in KEYS")
            default, text = _limit(key) if section == "limits" else (_default(section, key), KEYS[section, key])
            lines.append(f"| `{key}` | {TYPES[kind]} | {default} | {text} |")
        lines.append("")
    unused = [key for key in KEYS if key[1] not in config.SCHEMA.get(key[0], {})]
    if unused:
        raise SystemExit(f"docs: these keys are described and not in config.SCHEMA: {unused}")
    return "\n".join(lines).rstrip() + "\n"


def _default(section: str, key: str) -> str:
    if (section, key) in DEFAULTS:
        value: Any = DEFAULTS[section, key]
    else:
        value = getattr(config.Config(), key)
    value = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{value}`" if value else ""


def _limit(key: str) -> tuple[str, str]:
    """Default and comment of a field of Limits, from its source."""
    found = re.search(rf"(?m)^    {key}: int = (.*?)\s+# (.*)$", inspect.getsource(Limits))
    if not found:
        raise SystemExit(f"docs: {key} in core/limits.py has no comment that says what a wrong value costs")
    return f"`{getattr(Limits(), key)}`", found.group(2)


# --- Errors and status ---


def errors_page() -> str:
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")
    lines = ["# Errors", "", NOTE, tree[0], "", "```text", inspect.cleandoc(tree[1]), "```", ""]
    lines += ["| Class | Meaning | Exit code |", "|---|---|---|"]
    for name, item in vars(errors).items():
        if inspect.isclass(item) and issubclass(item, errors.LogPlayerError):
            code = 2 if issubclass(item, errors.UserError) else 1
            lines.append(f"| `{name}` | {inspect.cleandoc(item.__doc__ or '').splitlines()[0]} | {code} |")
    lines += [
        "",
        "Every message says what happened, where, and what to do next. In Python, `except LogPlayerError` catches all of them.",
        "",
        "`InvariantViolation` (`src/logplayer/core/invariant.py`) is not in the tree: it says that the player's own state is "
        "wrong. It is no `Exception`, ends the process, and carries the facts; please report it. Nothing is lost by it: what "
        "matters is at the targets and in the log.",
        "",
        "The log's own errors and what to do about each: [the log](../log.md#what-every-log-promises). Exit codes: "
        "[the command line](cli.md).",
    ]
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    lines = [
        "# Status and metrics",
        "",
        NOTE,
        'A player tells where it stands: `logplayer status --json`, or one line of JSON `{"do": "status"}` to its status '
        "port, answered by one line. There is no other metrics endpoint: a scraper turns these fields into gauges.",
        "",
        "## The player",
        "",
        *_fields(PlayerStatus, PLAYER_FIELDS),
        "",
        "## Each target",
        "",
        *_fields(TargetStatus, TARGET_FIELDS),
        "",
        "On Spark the answer is that of all resident players together, with `groups` (which worker plays which group, and how long ago it was heard) and `notes` (the driver's last decisions) beside it.",
        "",
        "What to watch and when to act: [operations](../operations.md).",
    ]
    return "\n".join(lines) + "\n"


def _fields(kind: type[Any], texts: dict[str, str]) -> Iterator[str]:
    """The fields of a status, each with the comment in its source or the text from here."""
    source = inspect.getsource(kind)
    yield from ("| Field | |", "|---|---|")
    for field in dataclasses.fields(kind):
        found = re.search(rf"(?m)^    {field.name}: .*?# (.*)$", source)
        text = texts.get(field.name) or (found.group(1) if found else "")
        if not text:
            raise SystemExit(f"docs: {kind.__name__}.{field.name} is described nowhere")
        yield f"| `{field.name}` | {text} |"


# --- The state diagram ---

_LEFT, _STEP, _MIDDLE, _BOX = 90, 250, 110, (150, 44)


def diagram() -> str:
    """The states in a row; forward transitions above, backward ones below."""
    edges = [(a, b) for a, to in LEGAL.items() for b in sorted(to, key=list(LEGAL).index)]
    if set(edges) != set(WHY):
        raise SystemExit(f"docs: transitions without a reason, or reasons without one: {set(edges) ^ set(WHY)}")
    place = {state: _LEFT + i * _STEP for i, state in enumerate(LEGAL)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _LEFT + _STEP * (len(LEGAL) - 1)} 260" '
        'font-family="sans-serif" font-size="13" text-anchor="middle">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>',
    ]
    for a, b in edges:
        start, end = place[a], place[b]
        up = -1 if end > start else 1
        span = abs(end - start) // _STEP
        bend = _MIDDLE + up * (_BOX[1] // 2 + 46 * span)
        edge = _MIDDLE + up * _BOX[1] // 2
        shift = 20 if end > start else -20
        parts.append(
            f'<path d="M{start + shift} {edge} C{start + shift * 2} {bend} {end - shift * 2} {bend} {end - shift} {edge}" '
            'fill="none" stroke="#333" marker-end="url(#tip)"/>'
        )
        parts.append(
            f'<text x="{(start + end) // 2}" y="{_MIDDLE + up * (_BOX[1] // 2 + 36 * span) + (14 if up > 0 else -4)}">{WHY[a, b]}</text>'
        )
    for state, x in place.items():
        left, top = x - _BOX[0] // 2, _MIDDLE - _BOX[1] // 2
        parts.append(
            f'<rect x="{left}" y="{top}" width="{_BOX[0]}" height="{_BOX[1]}" rx="8" fill="#eef" stroke="#333"/>'
        )
        parts.append(f'<text x="{x}" y="{_MIDDLE + 5}" font-weight="bold">{state.value}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def transitions() -> str:
    """The same as a table, for whoever reads the text."""
    rows = ["| From | To | When |", "|---|---|---|"]
    for (a, b), why in WHY.items():
        rows.append(f"| `{a.value}` | `{b.value}` | {why} |")
    return "\n".join(rows)


def concepts_page() -> str:
    """The written page with its table of transitions brought up to date."""
    return _between_marks("concepts.md", "states", transitions())


def decisions_page() -> str:
    """The written page with the list of all records: their headings are what was decided."""
    records = []
    for path in sorted((DOCS / "decisions").glob("*.md")):
        if path.name != "README.md":
            heading = path.read_text().splitlines()[0].removeprefix("# ")
            records.append(f"- [{heading}]({path.name})")
    return _between_marks("decisions/README.md", "records", "\n".join(records))


def _between_marks(page: str, name: str, made: str) -> str:
    text = (DOCS / page).read_text()
    begin, end = f"<!-- {name}: written by tools/docs -->", f"<!-- end of {name} -->"
    if begin not in text or end not in text:
        raise SystemExit(f"docs: {page} has lost its marks for the {name}")
    return text[: text.index(begin) + len(begin)] + f"\n\n{made}\n\n" + text[text.index(end) :]


PAGES = {
    "reference/cli.md": cli_page,
    "reference/config.md": config_page,
    "reference/errors.md": errors_page,
    "reference/metrics.md": metrics_page,
    "states.svg": diagram,
    "concepts.md": concepts_page,
    "decisions/README.md": decisions_page,
}


def main() -> None:
    stale = []
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale and "--check" in sys.argv:
        sys.exit(f"docs: {', '.join(stale)} not current; run tools/docs and commit the result")
    print(f"docs: {len(PAGES)} generated parts are current" if not stale else f"docs: wrote {', '.join(stale)}")


if __name__ == "__main__":
    main()
