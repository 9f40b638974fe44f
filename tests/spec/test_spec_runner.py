"""``logplayer spec`` itself: it must be able to fail, and say why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from logplayer.cli.spec import spec
from logplayer.errors import UserError
from logplayer.testing.spec.models import load_models
from logplayer.testing.spec.tlc import Tlc, TlcRun, read_output, spec_dir

SPEC = spec_dir()

COUNTER = """---- MODULE LogPlayer ----
EXTENDS Integers
CONSTANT Last
VARIABLE n
Init == n = 0
Next == n < Last /\\ n' = n + 1
Step == n' = n + 1
Spec == Init /\\ [][Next]_n /\\ WF_n(Next)
AtMostTwo == n <= 2
AtMostNine == n <= 9
Rises == [][n' > n]_n
ByTwo == [][n' = n + 2]_n
ReachesThree == <>(n = 3)
ReachesNine == <>(n = 9)
====
"""

Specify = Callable[[str], Path]


@pytest.fixture
def specify(tmp_path: Path) -> Specify:
    """A spec directory with one small module, and these models."""

    def make(models: str) -> Path:
        (tmp_path / "LogPlayer.tla").write_text(COUNTER)
        (tmp_path / "models.toml").write_text("[modules.LogPlayer]\nconstants = { Last = '3' }\n" + models)
        return tmp_path

    return make


def model(name: str, expect: str, **asked: list[str]) -> str:
    lines = [f"{key} = {json.dumps(names)}" for key, names in asked.items()]
    return "\n".join([f"[models.{name}]", 'module = "LogPlayer"', f'expect = "{expect}"', 'why = "."', *lines, ""])


def run(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(spec, ["--spec-dir", str(directory), *arguments])


@pytest.mark.usefixtures("tlc")
def test_every_kind_of_surprise_is_found(specify: Specify) -> None:
    expectations = {
        "fails-as-expected": ("violates AtMostTwo", {"invariants": ["AtMostTwo"]}, "violates AtMostTwo"),
        "stuck-as-expected": ("stuck ReachesNine", {"properties": ["ReachesNine"]}, "stuck ReachesNine"),
        "must-pass-and-fails": ("pass", {"invariants": ["AtMostTwo"]}, "violates AtMostTwo"),
        "must-fail-and-passes": ("violates AtMostNine", {"invariants": ["AtMostNine"]}, "pass"),
        "must-be-stuck-and-is-not": ("stuck ReachesThree", {"properties": ["ReachesThree"]}, "pass"),
        "fails-by-another": (
            "violates AtMostNine",
            {"invariants": ["AtMostNine"], "properties": ["ByTwo"]},
            "violates ByTwo",
        ),
    }
    toml = "".join(model(name, expect, **asked) for name, (expect, asked, _) in expectations.items())
    result = run(specify(toml), "--json")
    assert result.exit_code == 1
    told = {row["model"]: row for row in map(json.loads, result.stdout.splitlines()) if "model" in row}
    assert {name: row["outcome"] for name, row in told.items()} == {
        name: outcome for name, (_, _, outcome) in expectations.items()
    }
    assert {name for name, row in told.items() if row["ok"]} == {"fails-as-expected", "stuck-as-expected"}


@pytest.mark.usefixtures("tlc")
def test_all_as_expected_is_success(specify: Specify) -> None:
    result = run(specify(model("fine", "pass", invariants=["AtMostNine"], properties=["Rises"])), "fine")
    assert result.exit_code == 0, result.output
    assert "fine" in result.output
    assert "ok: pass" in result.output
    assert "1 models, 0 surprises" in result.output


@pytest.mark.usefixtures("tlc")
def test_a_broken_module_is_a_surprise_and_its_error_is_shown(specify: Specify) -> None:
    directory = specify(model("broken", "violates AtMostTwo", invariants=["AtMostTwo"]))
    (directory / "LogPlayer.tla").write_text(COUNTER.replace("n < Last", "n < Lost"))
    result = run(directory)
    assert result.exit_code == 1
    assert "SURPRISE: error:" in result.output
    assert "Lost" in result.output


@pytest.mark.usefixtures("tlc")
def test_a_constant_without_a_value_is_a_surprise(specify: Specify) -> None:
    directory = specify(model("broken", "pass", invariants=["AtMostTwo"]))
    (directory / "models.toml").write_text(model("broken", "pass", invariants=["AtMostTwo"]))
    result = run(directory)
    assert result.exit_code == 1
    assert "SURPRISE: error:" in result.output


def test_a_run_that_takes_too_long_is_an_error(tlc: Tlc, specify: Specify) -> None:
    tlc = Tlc(tlc.java, specify(""))
    result = tlc.run(TlcRun("LogPlayer", "Spec", {"Last": "3"}, invariants=["AtMostNine"]), seconds_max=0.01)
    assert result.outcome.startswith("error: Error: stopped after")


def test_what_is_not_understood_is_never_a_pass() -> None:
    asked = TlcRun("LogPlayer", "Spec", invariants=["AtMostTwo"])
    assert read_output(asked, 0, "", 0).outcome.startswith("error")
    assert read_output(asked, 0, "a new way to say that all is well", 0).outcome.startswith("error")
    assert read_output(asked, 1, "Model checking completed. No error has been found.", 0).outcome.startswith("error")
    assert read_output(asked, 12, "something else is violated", 0).outcome.startswith("error")


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        (model("m", "pass"), "asks TLC for nothing"),
        (model("m", "fails", invariants=["A"]), "say pass, violates NAME or stuck NAME"),
        (model("m", "violates B", invariants=["A"]), "does not ask for B"),
        (model("m", "stuck B", properties=["A", "B"]), "must be its only property"),
        (model("m", "pass", invariant=["A"]), "has invariant; known are"),
        ("[models.m]\nmodule = 'LogPlayer'\nexpect = 'pass'\n", "lacks 'why'"),
        ("[models", "is not TOML"),
    ],
)
def test_a_contradiction_in_models_toml_is_told(specify: Specify, toml: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        load_models(specify(toml))


def test_unknown_names_and_places_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model is called nonsense"):
        CliRunner().invoke(spec, ["--spec-dir", str(SPEC), "nonsense"], catch_exceptions=False)
    with pytest.raises(UserError, match="run from a checkout, or pass --spec-dir"):
        spec_dir(tmp_path)


def test_the_list_names_every_model() -> None:
    result = run(SPEC, "--list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == list(load_models(SPEC))
