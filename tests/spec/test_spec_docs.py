"""What is written about the models is what is checked, and generated text is current."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from logplayer.core import invariants
from logplayer.testing.spec.models import load_models
from logplayer.testing.spec.tlc import Tlc, spec_dir

SPEC = spec_dir()
DOC = SPEC.parent / "docs" / "spec.md"
PROTOCOL: tuple[str, ...] = (
    "ExactlyOnce",
    "MemoryBound",
    "QueueHoldsCoverage",
    "IndexOrder",
    "LiveCoversMain",
    "TrimSafe",
)
PROTOCOL += ("NoFalseReseed", "AckSound", "EverythingArrives", "EverythingAcked")


def table() -> str:
    """The table of docs/spec.md, from models.toml."""
    rows = ["| Model | Module | Must | What it shows |", "|---|---|---|---|"]
    for model in load_models(SPEC).values():
        must = f"{model.expect}{' (long)' if model.long else ''}"
        rows.append(f"| `{model.name}` | {model.run.module} | {must} | {model.why} |")
    return "\n".join(rows)


def test_the_table_of_models_is_current() -> None:
    written = re.search(r"<!-- models -->\n(.*?)\n<!-- /models -->", DOC.read_text(), re.DOTALL)
    assert written is not None
    assert written.group(1) == table(), "put the result of table() in this file between the marks of docs/spec.md"


def test_every_module_has_a_model_and_every_mutant_is_used() -> None:
    models = load_models(SPEC).values()
    modules = {path.stem for path in SPEC.rglob("*.tla")}
    assert modules == {model.run.module for model in models} | {"LogPlayer", "TraceLogPlayer"}
    defined: set[str] = set()
    for name in ("MCLogPlayer", "Identity", "Filter"):
        mutants = (SPEC / f"{name}.tla").read_text().partition("(* Mutants")[2]
        defined |= set(re.findall(r"^(\w+)\(.*?\)\s*==", mutants, re.MULTILINE))
    assert defined == {new for model in models for new in model.run.replacements.values()}


def test_the_names_of_the_protocol_stand_in_the_spec_and_in_the_doc() -> None:
    spec_text, doc_text = (SPEC / "LogPlayer.tla").read_text(), DOC.read_text()
    for name in PROTOCOL:
        assert re.search(rf"^{name}\s*==", spec_text, re.MULTILINE), name
        assert f"`{name}`" in doc_text, name


def test_what_the_core_asserts_under_a_name_of_the_spec_is_told_so() -> None:
    told = re.findall(r"^\| `(\w+)` \|.*\| (yes|no)[^|]*\|$", DOC.read_text(), re.MULTILINE)
    assert {name for name, core in told if core == "yes"} == set(PROTOCOL) & invariants.NAMES
    assert {name for name, _ in told} == set(PROTOCOL)


def test_the_pluscal_translation_is_current(tlc: Tlc, tmp_path: Path) -> None:
    name = "PaperQueue.tla"
    shutil.copy(SPEC / "paper" / name, tmp_path / name)
    command = [str(tlc.java.path), "-cp", str(tlc.jar), "pcal.trans", "-nocfg", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / name).read_text() == (SPEC / "paper" / name).read_text(), "run pcal.trans on it again"
