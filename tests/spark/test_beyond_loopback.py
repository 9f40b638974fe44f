"""Spark against a log and targets beyond loopback: with TLS and a token, and in plain text where that is meant."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.namespaces import HOST, inside, require_namespaces
from tests.servers import Authority
from tests.spark.beyond_loopback_child import STEPS, TOKEN


def run_child(module: str, folder: Path) -> dict[str, str]:
    """What the child says, in a namespace of its own."""
    require_namespaces()
    done = subprocess.run(
        inside([sys.executable, "-m", f"tests.spark.{module}", str(folder)]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stderr[-6000:], file=sys.stderr)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(600)  # Nine queries and jobs in one new JVM: slow where others use the machine too.
def test_every_entry_works_with_tls_and_a_token_beyond_loopback(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", f"IP:{HOST}")
    authority.issue("client", f"IP:{HOST}")
    (tmp_path / "token").write_text(TOKEN + "\n")
    found = run_child("beyond_loopback_child", tmp_path)
    assert found == {step.__name__: "right" for step in STEPS}


def test_plain_text_beyond_loopback_must_be_meant(tmp_path: Path) -> None:
    found = run_child("plain_text_child", tmp_path)
    assert found["insecure"].startswith("0: "), found
    assert "stopped" in found["insecure"]
    assert found["refused"].startswith(f"2: logplayer: {HOST} is not loopback"), found
    assert "--insecure" in found["refused"]
