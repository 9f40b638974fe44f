"""Generates the pages that follow from the code: command line, configuration, errors, status fields, state diagram.

    tools/docs            write them
    tools/docs --check    fail if one of them is not current

Texts that are not in the code (what a key is for, why a state changes) are here. A key or a transition without a text is
an error, so a change of the code cannot leave the documentation stale.
"""

# ruff: noqa: E501 - it holds lines of Markdown.
from __future__ import annotations

import dataclasses
import inspect
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from logplayer import config, errors
from logplayer.cli.main import VERBS, cli
from logplayer.cli.security import log_security_options, security_options
from logplayer.core.limits import Limits
from logplayer.core.target_queue import LEGAL, State
from logplayer.log.etcd.local_cluster import SERVER as ETCD_SERVER
from logplayer.log.kafka.link import SETTINGS as KAFKA_SETTINGS
from logplayer.observe import metrics
from logplayer.player.status import PlayerStatus, TargetStatus

API = runpy.run_path(str(Path(__file__).with_name("api_page.py")))

DOCS = Path(__file__).parents[1] / "docs"
NOTE = "<!-- Written by tools/docs from the code; change it there. -->\n"

WHY = {
    (State.SUSPENDED, State.CATCHING_UP): "the target answers Opened",
    (State.CATCHING_UP, State.LIVE): "covered up to the main stream",
    (State.CATCHING_UP, State.SUSPENDED): "session lost or refused",
    (State.LIVE, State.CATCHING_UP): "queue full, or the main stream jumped",
    (State.LIVE, State.SUSPENDED): "session lost or refused",
}

KEYS = {
    (
        "log",
        "address",
    ): "The log: `file:///path`, `grpc://host:port,...`, `etcd://host:port,.../name`, `nats://host:port,.../name` or `kafka://host:port,.../topic`.",
    ("player", "group"): "The player's group. Of two players of one group, the later one takes over.",
    ("player", "http"): "Where the player serves its status, its metrics and its page, and answers `logplayer status`.",
    ("player", "engine"): "`spark` or `in-process`.",
    ("player", "trims"): "Trim what all targets have. Only for a player that owns every member.",
    (
        "player",
        "trims_unroutable",
    ): "Also trim unroutable entries, which are then lost. Without it the first of them "
    "holds the trim point, and the log grows until the map or the members are corrected.",
    ("player", "tick_ms"): "How often the core checks deadlines. Too low wastes CPU; too high notices idle targets and "
    "deadlines late.",
    ("player", "drain_ms_max"): "How long a graceful stop waits for acks.",
    (
        "map",
        "kind",
    ): "`hash` (CRC-32 of the key), `range` (sorted bounds) or `explicit` (each mutation names its target). "
    "Default: `hash` over all targets, those of `--target` if there are any.",
    ("map", "targets"): "The owners, in order. Default: all of `[targets.*]`. The order of a hash map matters.",
    (
        "map",
        "by",
    ): "For `hash`: hash a part of the key only, so that keys that belong together live together. `tag`: what stands in the first pair of braces (`line/{7}/1`). `prefix SEP`: what stands before the first SEP (`prefix /`). A key without that part is hashed as a whole.",
    ("map", "bounds"): "For `range`: one bound less than there are targets, rising. `targets[i]` owns "
    "`[bounds[i-1], bounds[i])`.",
    (
        "targets.*",
        "address",
    ): "`grpc://host:port` or `tcp://host:port`. The section's name is the target's. In short: `NAME = \"ADDRESS\"` below `[targets]`.",
    ("security", "ca"): "Trust servers with a certificate from this CA file (`system`: the system's roots).",
    ("security", "cert"): "Show this certificate (mutual TLS).",
    ("security", "key"): "The certificate's private key.",
    ("security", "token_file"): "Show the token in this file.",
    ("security", "insecure"): "Allow plain text beyond loopback.",
    ("security", "user"): "The user of an etcd or NATS cluster that keeps the log.",
    ("security", "password_file"): "The user's password is in this file.",
    ("security", "nkey_file"): "Sign in to a NATS cluster with this `.creds` file or nkey seed.",
    ("spark", "master"): "Spark's master.",
    ("spark", "groups"): "How many resident players share the targets; 0: as many as are worth it.",
    ("tables.*", "name"): "Rename the table. The section's name is the table's in the log.",
    ("tables.*", "columns"): 'Rename columns: `{ total = "amount" }`.',
    ("tables.*", "ignore"): "Leave these columns out; `true` leaves the whole table out.",
    ("tables.*", "constants"): 'Columns that each put writes beside those of the row: `{ region = "eu" }`.',
}
DEFAULTS = {
    ("log", "address"): "",
    ("map", "kind"): "hash",
    ("map", "targets"): "all",
    ("map", "bounds"): "",
    ("map", "by"): "",
    ("targets.*", "address"): "",
    ("tables.*", "name"): "",
    ("tables.*", "columns"): "",
    ("tables.*", "ignore"): "",
    ("tables.*", "constants"): "",
    ("security", "ca"): "",
    ("security", "cert"): "",
    ("security", "key"): "",
    ("security", "token_file"): "",
    ("security", "insecure"): "false",
    ("security", "user"): "",
    ("security", "password_file"): "",
    ("security", "nkey_file"): "",
}
SECURITY = (
    "This applies to every connection that the command makes: to the log server or the cluster that keeps the log, to the targets and to a player's HTTP port. An option overrides its "
    "environment variable (`LOGPLAYER_TLS_CA`, `LOGPLAYER_TLS_CERT`, `LOGPLAYER_TLS_KEY`, `LOGPLAYER_TOKEN_FILE`, `LOGPLAYER_INSECURE`, `LOGPLAYER_USER`, `LOGPLAYER_PASSWORD_FILE`, `LOGPLAYER_NKEY_FILE`), and that overrides the file. Only the "
    "command line reads the variables: in Python, give `open_log` a `Security`.\n\n"
    "The token is read when the command starts. The other files are read again when they change, for the next connection. On Spark the token and the content of the files travel to the "
    "tasks with the configuration: executors need neither the files nor the variables. Tasks keep the certificates that they got when their job started, so restart the application before these expire."
)
TYPES = {str: "text", int: "number", bool: "true or false", list: "list of texts", dict: "table"}

PLAYER_FIELDS = {
    "group": "Its group.",
    "player": "Host and process.",
    "epoch": "The index of its takeover record: which player is the newest.",
    "current": "The main stream has dispatched every entry up to here.",
    "log_id": "The log that it plays; empty while it waits for it.",
    "log_first": "The oldest index of the log, asked for every few seconds.",
    "chain": "The log's chain value at `current`, in hexadecimal: which history of the log was read.",
    "log_bytes": "What the log takes on its disk, as it says; 0 if it does not know.",
    "trim_point": "Nobody in this group needs entries up to here any more.",
    "delay_p50_ms": "From commit in the log to the ack of a LIVE target, over the last two seconds: the median; 0 if nothing was acked.",
    "delay_p90_ms": "The same, the 90th percentile.",
    "delay_p99_ms": "The same, the 99th percentile.",
    "producers": "Producers that appended within the last minute, as far as they were seen at the end of a fetch.",
    "log_last": "The newest index of the log; asked for every second unless the main stream moves.",
    "consistent_cut": "The smallest index over all targets: all of them have everything up to it.",
    "entries_per_second": "How fast the main stream moves, over the last few seconds.",
    "unroutable": "Entries that reach no target, in part or as a whole: not a transaction, unknown target, no owner. Should be 0.",
    "state": "`waiting` for its log; `playing`; `stuck` while the log cannot be read; `stopping` while it drains; `stopped`.",
    "log_error": "Why it waits or is stuck: the entry that is damaged, or what the log says; empty otherwise.",
    "stuck_seconds": "For how long it has waited or been stuck.",
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
    "digest": "The target's digest, as it last reported it; `logplayer audit` compares it.",
    "error": "Why it is suspended or blocked, or why its catch-up cannot read the log.",
    "blocked": "What blocks it, or null: `kind`, `detail`, and for `POISON` the `index` of the entry.",
}


# --- The command line ---


def cli_page() -> str:
    lines = ["# Command line", "", NOTE, "```text", _help(cli, "logplayer"), "```", ""]
    lines += [
        "A mistake gives one line on stderr and exit code 2, never a traceback. If something is unreachable or busy (a server, a port, a store that another process has open), that is one line and exit code 1: retrying may help. `--json` prints one JSON object (or one "
        "per line) for scripts; everything else goes to stderr then. With `NO_COLOR` set, nothing is redrawn in place.",
        "",
        "| Variable | Stands for |",
        "|---|---|",
        "| `LOGPLAYER_LOG` | `--log` |",
        "| `LOGPLAYER_SOURCE` | `capture postgres --url` |",
        "| `LOGPLAYER_HTTP` | `--http` of `play`, `--player` of `status`, `dashboard`, `target quarantine`, `target unquarantine` and `target retry` |",
        *(
            f"| `{variable}` | `{option}` of every command that connects to a server (not of `log serve` and `target serve`) |"
            for variable, option in security_variables()
        ),
        *(f"| `{variable}` | `{option}` of `log serve` |" for variable, option in cluster_variables()),
        f"| `{KAFKA_SETTINGS}` | a file with further settings of the Kafka client ([Kafka](../log.md#kafka-a-kafka-topic)) |",
        f"| `{ETCD_SERVER}` | the program that `cluster up --engine etcd` starts; default: `etcd` on the `PATH` |",
        "",
        "## Completion",
        "",
        "For bash (for zsh and fish, replace `bash` by their name):",
        "",
        "```console",
        "$ _LOGPLAYER_COMPLETE=bash_source logplayer > ~/.logplayer-complete.bash",
        "$ source ~/.logplayer-complete.bash",
        "```",
        "",
        "Run the first line once, and put the second into `~/.bashrc`.",
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
    # What depends on the machine is replaced by its name.
    return re.sub(re.escape(str(Path.home())), "~", text)


def cluster_variables() -> Iterator[tuple[str, str]]:
    """Those of ``log serve`` for the cluster that keeps its log."""

    @log_security_options
    def command() -> None: ...

    for option in click.command()(command).params:
        yield str(option.envvar), option.opts[0]


def security_variables() -> list[tuple[str, str]]:
    """(variable, option) of what a client shows."""

    @security_options(server=False)
    def nothing() -> None:
        """The options are looked at, not the command."""

    options = reversed(nothing.__click_params__)  # type: ignore[attr-defined]
    return [(option.envvar, option.opts[0]) for option in options]


# --- The configuration ---


def config_page() -> str:
    lines = [
        "# logplayer.toml",
        "",
        NOTE,
        "One file says where the log and the targets are and how a player works. Commands take `--config FILE`, or read "
        "`logplayer.toml` in the current directory. Options on the command line override it. Servers differ: "
        "`logplayer log serve` has options only, and `logplayer target serve` reads `[tables]` of the file that `--config` "
        "names, and no other. An unknown key, a wrong type and contradicting values are refused with a line that says what "
        "to change.",
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
        "[targets]",
        'a = "grpc://127.0.0.1:7201"',
        'b = "tcp://127.0.0.1:7202"',
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
        if section == "security":
            lines += [SECURITY, ""]
    unused = [key for key in KEYS if key[1] not in config.SCHEMA.get(key[0], {})]
    if unused:
        raise SystemExit(f"docs: these keys are described and not in config.SCHEMA: {unused}")
    return "\n".join(lines).rstrip() + "\n"


def _default(section: str, key: str) -> str:
    if (section, key) in DEFAULTS:
        value: Any = DEFAULTS[section, key]
    else:
        value = getattr(config.Config().spark if section == "spark" else config.Config(), key)
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
        "`InvariantViolation` (`src/logplayer/core/invariants.py`) is not in the tree: it means that the player's own state is "
        "wrong. It is a `BaseException`, ends the process, and carries the facts; please report it. Nothing is lost: the "
        "durable state is at the targets and in the log.",
        "",
        "The log's errors and what to do about each: [the log](../log.md#what-every-log-guarantees). Exit codes: "
        "[the command line](cli.md).",
        "",
    ]
    return "\n".join([*lines, *API["error_details"]()])


def _metrics(title: str, specs: tuple[metrics.MetricSpec, ...]) -> Iterator[str]:
    yield from (f"### {title}", "", "| Metric | Kind | Unit | Labels | |", "|---|---|---|---|---|")
    for spec in specs:
        name = f"{spec.name}_total" if spec.kind is metrics.MetricKind.COUNTER else spec.name
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        unit = spec.unit.replace("_per_", "/").replace("/second", "/s")
        yield f"| `{name}` | {spec.kind.value} | {unit} | {labels} | {spec.help} |"
    yield ""


def metrics_page() -> str:
    lines = [
        "# Status and metrics",
        "",
        NOTE,
        "A player reports its status: run `logplayer status --json`, or `GET /status` at its `--http` address. The answer "
        "has two more fields: `version` (of this format, now 1) and `kind` (`player`, `spark` for all resident players and for a query in real time, or `dashboard`; a `log`, a `target` and a `capture` have other fields).",
        "",
        "## The player",
        "",
        *_fields(PlayerStatus, PLAYER_FIELDS),
        "",
        "## Each target",
        "",
        *_fields(TargetStatus, TARGET_FIELDS),
        "",
        "On Spark the answer covers all resident players, and has three more fields: `groups` (the state of each group, which worker plays it, and the age of its last heartbeat), `slots` (of the executors that Spark has) and `notes` (the driver's last decisions). A query in real time has `groups` and `notes`, too, and `reason`, `starts`, `rows_in` and `rows_out`.",
        "",
        "## Metrics",
        "",
        "`GET /metrics` answers in Prometheus' text format. Beside these there are the process's own, `process_*` and `python_*`.",
        "A histogram has `_bucket`, `_sum` and `_count`.",
        "",
        *_metrics("A log server", metrics.LOG),
        *_metrics("A player", metrics.PLAYER),
        *_metrics("A player, for each of its targets", metrics.TARGETS),
        *_metrics("A Spark application, beside what its players' status says", metrics.SPARK),
        *_metrics("A target server", metrics.STORE),
        *_metrics("A capture", metrics.CAPTURE),
        "What to watch and when to act: [operations](../operations.md), and [see it](../observe.md).",
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
    """The same as a table, for readers of the text."""
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
    "reference/api.md": API["api_page"],
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
