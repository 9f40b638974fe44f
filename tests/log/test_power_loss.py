"""What was acknowledged survives a power failure; and the harness that says so sees it when syncs are left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import child_environment
from tests.servers import missing

CAN_MOUNT = """
import sys
from pathlib import Path
from tests.volatile_disk import NoVolatileDisk, VolatileDisk, own_mounts
try:
    own_mounts()
    disk = VolatileDisk(Path(sys.argv[1]))
except NoVolatileDisk as error:
    sys.exit(str(error))
"""
FORGETS = (
    CAN_MOUNT
    + """
import os
for name in ("kept", "lost"):
    (disk.path / name).write_text(name)
    if name == "kept":
        for path in (disk.path / name, disk.path):
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.close(file)
disk.cut()
disk.restore()
print(sorted(path.name for path in disk.path.iterdir() if path.name != "lost+found"))
disk.remove()
"""
)
pytestmark = [pytest.mark.soak]


@pytest.fixture(autouse=True)
def needs_a_volatile_disk(tmp_path: Path) -> None:
    tried = _python("-c", CAN_MOUNT + "disk.remove()", tmp_path / "try")
    if tried.returncode:
        missing(f"no disk whose power can be cut: {tried.stderr.strip()}")


def test_the_disk_forgets_what_was_not_synced(tmp_path: Path) -> None:
    assert _python("-c", FORGETS, tmp_path / "disk").stdout == "['kept']\n"


@pytest.mark.parametrize("log", ["file", "etcd", "nats"])
def test_acknowledged_entries_survive(log: str) -> None:
    done = _campaign("--log", log, "--cuts", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"lost": 0' in done.stdout


@pytest.mark.parametrize("log", ["file", "nats"])
def test_syncs_that_are_left_out_are_found_out(log: str) -> None:
    done = _campaign("--log", log, "--cuts", "4", "--lazy")
    assert done.returncode != 0, "a log without syncs came through: the campaign proves nothing"
    assert '"lost": 0' not in done.stdout


def _campaign(*options: str) -> subprocess.CompletedProcess[str]:
    return _python("-m", "tests.campaign.power", *options, "--seed", "7")


def _python(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
