"""The lakehouse example, as its page says to run it, and its tables judged by code that shares nothing with it.

On the PySpark that the page names, beside the locked one: Delta Lake has no build for that.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from logplayer.wire.entries import decode_transaction
from tests import ROOT
from tests.servers import IN_CI, missing
from tests.spark.spark_support import FileWal, transaction
from tests.spark.test_sinks import forget_last_commit

PAGE = ROOT / "docs" / "how-to" / "lakehouse.md"
EXAMPLE = ROOT / "examples" / "spark_lakehouse.py"


@pytest.fixture
def jars() -> Path:
    """A folder with Delta Lake's jars."""
    from bench.rivals import jars

    if not jars.fetched("delta"):
        if not IN_CI:
            missing("Delta Lake's jars are not fetched; `tools/rivals fetch` does it")
        jars.fetch("delta")
    return jars.home() / "delta" / "lib"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with that PySpark."""
    [version] = re.findall(r'pip install "(pyspark==[\d.]+)"', PAGE.read_text())
    folder = tmp_path_factory.mktemp("pyspark")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), version]
    subprocess.run(install, check=True, timeout=900)
    return folder


def run(older: Path, *words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(older)},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def tables(folder: Path) -> tuple[set[tuple[str, str, int]], set[tuple[str, str, int, int | None]]]:
    """The rows of the two tables: from Delta's own log which files count, and from Arrow what is in them."""
    import pyarrow.parquet as pq

    found = []
    for name in ("current", "history"):
        files: dict[str, bool] = {}
        for step in sorted((folder / name / "_delta_log").glob("*.json")):
            for action in map(json.loads, step.read_text().splitlines()):
                if "add" in action:
                    assert "deletionVector" not in action["add"]
                    files[action["add"]["path"]] = True
                if "remove" in action:
                    files.pop(action["remove"]["path"], None)
        found.append([row for file in files for row in pq.read_table(folder / name / file).to_pylist()])
    current = [(row["key"].decode(), row["value"].decode(), row["log_index"]) for row in found[0]]
    history = [(row["key"].decode(), row["value"].decode(), row["from_index"], row["to_index"]) for row in found[1]]
    assert len(set(current)) == len(current)
    assert len(set(history)) == len(history)
    return set(current), set(history)


def expected(wal: FileWal) -> tuple[set[tuple[str, str, int]], set[tuple[str, str, int, int | None]]]:
    """By brute force: all changes of a key side by side."""
    changes: dict[str, list[tuple[int, str | None]]] = {}
    for record in wal.records():
        last = {key.decode(): value for key, value in decode_transaction(record.payload)}
        for key, value in last.items():
            changes.setdefault(key, []).append((record.index, None if value is None else value.decode()))
    current = {(key, value, index) for key, all_ in changes.items() for index, value in all_[-1:] if value is not None}
    history = {
        (key, value, index, following[0] if following else None)
        for key, all_ in changes.items()
        for (index, value), following in zip(all_, [*all_[1:], None], strict=True)
        if value is not None
    }
    return current, history


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_tables_follow_the_log_by_merge(jars: Path, older: Path, wal: FileWal, tmp_path: Path) -> None:
    """Run three times: a beginning, a batch more, and the last batch once more with nothing committed."""
    folder = tmp_path / "lake"
    words: list[str | Path] = [EXAMPLE, "--jars", jars, "--log", wal.serve(), "--to", folder]
    for nth in range(3):
        if nth < 2:
            some = range(nth * 60, nth * 60 + 60)
            wal.append(
                [
                    transaction((b"k%d" % (i % 9), b"v%d" % i, "all"), (b"k%d" % (i * 7 % 11), None, "all"))
                    if i % 4 == 0
                    else transaction((b"k%d" % (i % 9), b"x", "all"), (b"k%d" % (i % 9), b"v%d" % i, "all"))
                    for i in some
                ]
            )
        else:
            forget_last_commit(folder / "checkpoint")
        said = run(older, *words)
        assert "current: right" in said
        assert "history: right" in said
        assert tables(folder) == expected(wal)


def test_the_page_has_the_statements_of_the_example() -> None:
    text, code = PAGE.read_text(), EXAMPLE.read_text()
    statements = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    assert len(statements) == 4
    for statement in statements:
        assert statement in code


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_commands_of_the_page(jars: Path, older: Path) -> None:
    [command] = re.findall(r"^python (examples/.*)$", PAGE.read_text(), re.MULTILINE)
    said = run(older, *command.replace("/tmp/delta-jars", str(jars)).split())
    [shown] = re.findall(r"```text\n(current: .*?)```", PAGE.read_text(), re.DOTALL)
    assert said.splitlines()[-2:] == shown.splitlines()
