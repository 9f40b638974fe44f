"""The examples of the API run as programs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import ROOT


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
