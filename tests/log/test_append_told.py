"""``logplayer log append`` says what is in the log: after a bad line, after a repetition, after the log went away."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logplayer.cli.append_lines import Appended, _append_group
from logplayer.errors import LogError, LogUnavailable, UserError
from logplayer.log.protocol import NewEntry
from logplayer.wording import plural

COMMAND = [sys.executable, "-m", "logplayer.cli", "log"]


def transaction(**more: object) -> str:
    return json.dumps({"mutations": [{"key": "k", "value": "v"}], **more}) + "\n"


def append(log: Path, stdin: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "append", "--log", f"file://{log}", *options]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with two entries of the producer p."""
    two = transaction(producer="p", sequence=1) + transaction(producer="p", sequence=2)
    assert append(tmp_path / "log", two).stdout == "appended 2 transactions, indexes 1 to 2\n"
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("stdin", "begins"),
    [
        (transaction() + transaction(producer="q", sequence=2) + transaction(), "line 2: producer 'q' sent sequence 2"),
        (transaction() + "oops\n" + transaction(), "line 2 is not JSON"),
    ],
    ids=["gap", "no JSON"],
)
def test_a_bad_line_in_the_middle(log: Path, stdin: str, begins: str) -> None:
    done = append(log, stdin)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"logplayer: {begins}")
    assert line.endswith("; lines 1 to 1 are in the log (indexes 3 to 3): send from line 2 on")
    assert "nothing was appended" not in line


def test_a_bad_first_line(log: Path) -> None:
    assert append(log, transaction(producer="q", sequence=2)).stderr.endswith("send 1 next; nothing was appended\n")


HALF = json.loads('"\\ud800"')  # Of a character: JSON can say it, and no text can hold it.


@pytest.mark.parametrize(
    "bad",
    [
        transaction(producer=HALF, sequence=1),
        transaction(mutations=[{"key": HALF, "value": "v"}]),
        transaction(mutations=[{"key": "k", "value": f"v{HALF}"}]),
        transaction(mutations=[{"key": "k", "value": "v", "target": HALF}]),
        transaction(headers={HALF: "v"}),
        transaction(headers=[["name", HALF]]),
        transaction(mutations=[{"table": HALF, "key": ["id"], "columns": {"id": 1}}]),
        transaction(mutations=[{"table": "t", "key": [HALF], "columns": {HALF: 1}}]),
        transaction(mutations=[{"table": "t", "key": ["id"], "columns": {"id": HALF}}]),
    ],
    ids=["producer", "key", "value", "target", "header", "header's value", "table", "column", "column's value"],
)
def test_half_a_character_is_refused(log: Path, bad: str) -> None:
    done = append(log, transaction() + bad)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("logplayer: line 2"), line
    assert "is not text that UTF-8 can write" in line
    assert line.endswith("lines 1 to 1 are in the log (indexes 3 to 3): send from line 2 on")


def test_a_line_with_a_name_that_no_producer_has_is_named(log: Path) -> None:
    done = append(log, transaction() + transaction(producer="two\nlines", sequence=1))
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("logplayer: line 2: producer 'two\\nlines' is not a name")


def test_what_was_not_appended_is_said_once(log: Path) -> None:
    other = transaction(mutations=[{"key": "k", "value": "another"}], producer="p", sequence=2)
    [line] = append(log, other).stderr.splitlines()
    assert line.count("nothing was appended") == 1, line
    [line] = append(log, transaction() + other).stderr.splitlines()
    assert "sequence 2 of producer 'p' has another payload in the log, at index 2" in line
    assert "nothing was appended" not in line
    assert line.endswith("lines 1 to 1 are in the log (indexes 3 to 3): send from line 2 on")


def test_what_was_there_already_is_not_called_appended(log: Path) -> None:
    again = transaction(producer="p", sequence=2)
    assert append(log, again).stdout == "appended 0 transactions; 1 was in the log already, at 2\n"
    both = transaction(producer="p", sequence=1) + again + transaction(producer="p", sequence=3) * 2
    told = "appended 1 transaction, indexes 3 to 3; 3 were in the log already, at 1 to 3\n"
    assert append(log, both).stdout == told
    lines = append(log, again + transaction(producer="p", sequence=4), "--json").stdout.splitlines()
    assert [(line["index"], line["repeated"]) for line in map(json.loads, lines)] == [(2, True), (4, False)]


class GoesAway:
    """A log that answers once."""

    def __init__(self) -> None:
        self.answered = False

    async def append(self, entries: list[NewEntry]) -> list[int]:
        if self.answered:
            raise LogUnavailable("the log is away")
        self.answered = True
        return list(range(1, len(entries) + 1))


@pytest.mark.asyncio
async def test_a_log_that_goes_away() -> None:
    log: Any = GoesAway()
    appended = Appended(as_json=False, last=0)
    await _append_group(log, [(1, NewEntry("p", 1, b"")), (3, NewEntry("p", 2, b""))], appended)
    with pytest.raises(LogError) as caught:
        await _append_group(log, [(4, NewEntry("p", 3, b"")), (5, NewEntry("p", 4, b""))], appended)
    assert not isinstance(caught.value, UserError)
    assert str(caught.value) == (
        "the log is away; lines 4 to 5 got no answer, they may be in the log or not; "
        "lines 1 to 3 are in the log (indexes 1 to 2)"
    )


def test_one_is_no_plural() -> None:
    assert [plural(n, "entry", "entries") for n in (0, 1, 2)] == ["0 entries", "1 entry", "2 entries"]
    assert plural(2, "file") == "2 files"
