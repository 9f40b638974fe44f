"""Spark against a log and targets beyond loopback: with TLS and a token, and in plain text where that is meant."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.namespaces import HOST, inside, require_namespaces
from tests.spark.standalone import prepare
from tests.spark.standalone_entries_child import CI, HOSTS


def run_child(module: str, folder: Path, *words: str, hosts: str = "") -> dict[str, str]:
    """What the child says, in a namespace of its own."""
    require_namespaces()
    names = folder / "hosts" if hosts else None
    if names is not None:
        names.write_text(hosts)
    done = subprocess.run(
        inside([sys.executable, "-m", f"tests.spark.{module}", str(folder), *words], names),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stderr[-6000:], file=sys.stderr)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(920)  # Twenty queries, jobs and applications: slow where others use the machine too.
def test_every_entry_works_with_executors_on_other_addresses(tmp_path: Path) -> None:
    """With TLS, a token and files on S3; the executors have nothing of that in their environment."""
    prepare(tmp_path)
    assert run_child("standalone_entries_child", tmp_path, hosts=HOSTS) == dict.fromkeys(CI, "right")


@pytest.mark.soak
@pytest.mark.timeout(920)
def test_the_plain_command_of_the_page(tmp_path: Path) -> None:
    prepare(tmp_path)
    step = "plain_command_of_the_page"
    assert run_child("standalone_entries_child", tmp_path, step, hosts=HOSTS) == {step: "right"}


def test_plain_text_beyond_loopback_must_be_meant(tmp_path: Path) -> None:
    found = run_child("plain_text_child", tmp_path)
    assert found["insecure"].startswith("0: "), found
    assert "stopped" in found["insecure"]
    assert found["refused"].startswith(f"2: logplayer: {HOST} is not loopback"), found
    assert "--insecure" in found["refused"]
