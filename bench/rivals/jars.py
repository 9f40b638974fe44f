"""Fetches the rivals' jars, and those of an example, through Maven, once, into a folder that ``make clean`` removes."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logplayer.errors import UserError
from logplayer.java import find_java

POMS = {
    "kafka": "kafka-pom.xml",
    "flink": "flink-pom.xml",
    "delta": "../../examples/delta-pom.xml",
    "spark-kafka": "spark-kafka-pom.xml",
}
FETCH_SECONDS_MAX = 600
JAVA_MIN = 17
HINT = "run `make rivals` (or `tools/rivals fetch`) first"


def home() -> Path:
    """Where everything of the rivals lives: ``LOGPLAYER_RIVALS``, or ``.cache/rivals`` here."""
    return Path(os.environ.get("LOGPLAYER_RIVALS") or ".cache/rivals").absolute()


def fetched(rival: str) -> bool:
    """Whether the jars that the rival's list names now are here."""
    stamp = _stamp(rival)
    return stamp.exists() and stamp.read_bytes() == _pom(rival).read_bytes()


def class_path(rival: str) -> str:
    """Java's class path of a fetched rival; says what to do when it was not fetched."""
    if not fetched(rival):
        raise UserError(f"the jars of {rival} are not in {home()}; {HINT}")
    return f"{home() / rival / 'lib'}/*"


def fetch(rival: str) -> Path:
    """Have Maven copy the jars; nothing is done if they are here. Safe to call from several processes."""
    folder = home() / rival
    with _one_at_a_time(folder):
        if not fetched(rival):
            _copy(rival, folder / "lib.new")
            shutil.rmtree(folder / "lib", ignore_errors=True)
            (folder / "lib.new").rename(folder / "lib")
            shutil.copy(_pom(rival), _stamp(rival))  # Last: only now it is all here.
    return folder / "lib"


def _copy(rival: str, into: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise UserError(
            f"Maven fetches {rival} and is not installed; install it (Debian: `apt-get install maven`) and {HINT}"
        )
    java = find_java(JAVA_MIN)
    shutil.rmtree(into, ignore_errors=True)
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={into}", "-DincludeScope=runtime"]
    command = [maven, "-q", "-B", "-f", str(_pom(rival)), *goal]
    environment = {**os.environ, "JAVA_HOME": str(java.home)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"Maven did not fetch {rival} within {FETCH_SECONDS_MAX} s; try again") from None
    if done.returncode or not list(into.glob("*.jar")):
        said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line][:3]
        raise UserError(f"Maven could not fetch {rival}: {' '.join(said) or 'it said nothing'}")


def _pom(rival: str) -> Path:
    return Path(__file__).parent / POMS[rival]


def _stamp(rival: str) -> Path:
    return home() / rival / "fetched.xml"


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "LOCK", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
