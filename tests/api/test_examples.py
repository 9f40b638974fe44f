"""The examples of the API run as programs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import ROOT


def test_the_first_example_takes_at_most_ten_lines_to_a_delivered_row() -> None:
    """From the import to the wait for the row; the page itself runs in tests/docs."""
    first = (ROOT / "docs" / "api.md").read_text().partition("```python\n")[2].partition("```")[0]
    lines = [line.strip() for line in first.splitlines() if line.strip()]
    [delivered] = [nth for nth, line in enumerate(lines, 1) if line == "await receipt.applied()"]
    assert lines[0].startswith("import")
    assert "import logplayer as lp" in lines[:delivered]
    assert delivered <= 10
    assert lines[delivered].startswith("print(shard.get("), "it shows the row"


@pytest.mark.parametrize(
    ("name", "words", "shown"),
    [
        (
            "order_service",
            ["--orders", "120"],
            ["exit code 9", "120 orders in the log, 120 different; 120 in"],
        ),
        ("web_handler", [], ["160 writes, each read back; 160 transactions in the log"]),
    ],
)
def test_example(name: str, words: list[str], shown: list[str]) -> None:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    for line in shown:
        assert line in done.stdout, done.stdout
