"""The models that TLC checks, as ``spec/models.toml`` tells them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logplayer.errors import UserError
from logplayer.testing.spec.tlc import TlcRun

_MODULE_KEYS = {"specification", "constants", "invariants"}
_MODEL_KEYS = {"module", "constants", "replace", "invariants", "properties", "expect", "why", "long"}


@dataclass(frozen=True, slots=True)
class Model:
    """One run of TLC and what it must find."""

    name: str
    run: TlcRun
    expect: str  # "pass", "violates NAME" or "stuck NAME", as in TlcResult.outcome
    why: str
    long: bool


def load_models(directory: Path) -> dict[str, Model]:
    """Every model of ``models.toml``, in its order. Raises UserError if the file contradicts itself."""
    path = directory / "models.toml"
    try:
        told = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path} is missing: it says what TLC must check") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not TOML: {error}") from None
    modules = told.get("modules", {})
    for name, module in modules.items():
        _only(path, f"modules.{name}", module, _MODULE_KEYS)
    return {name: _model(path, name, model, modules) for name, model in told.get("models", {}).items()}


def choose(models: Mapping[str, Model], names: tuple[str, ...], everything: bool) -> list[Model]:
    """The models asked for: those named, or all, or all but the long ones."""
    unknown = [name for name in names if name not in models]
    if unknown:
        raise UserError(f"no model is called {', '.join(unknown)}; `logplayer spec --list` shows their names")
    if names:
        return [models[name] for name in names]
    return [model for model in models.values() if everything or not model.long]


def _model(path: Path, name: str, told: Mapping[str, Any], modules: Mapping[str, Any]) -> Model:
    _only(path, f"models.{name}", told, _MODEL_KEYS)
    for key in ("module", "expect", "why"):
        if key not in told:
            raise UserError(f"{path}: models.{name} lacks {key!r}")
    module = modules.get(told["module"], {})
    run = TlcRun(
        module=told["module"],
        specification=module.get("specification", "Spec"),
        constants={**module.get("constants", {}), **told.get("constants", {})},
        replacements=told.get("replace", {}),
        invariants=tuple(told.get("invariants", module.get("invariants", ()))),
        properties=tuple(told.get("properties", ())),
    )
    _check_expectation(path, name, told["expect"], run)
    return Model(name, run, told["expect"], told["why"], told.get("long", False))


def _check_expectation(path: Path, name: str, expect: str, run: TlcRun) -> None:
    verdict, _, wanted = expect.partition(" ")
    asked = [*run.invariants, *run.properties]
    if not asked:
        raise UserError(f"{path}: models.{name} asks TLC for nothing; give it invariants or properties")
    if verdict == "stuck" and list(run.properties) != [wanted]:
        raise UserError(f"{path}: models.{name} expects {expect!r}, so {wanted} must be its only property")
    if verdict == "violates" and wanted not in asked:
        raise UserError(f"{path}: models.{name} expects {expect!r} and does not ask for {wanted}")
    if verdict not in ("pass", "stuck", "violates"):
        raise UserError(f"{path}: models.{name} expects {expect!r}; say pass, violates NAME or stuck NAME")


def _only(path: Path, where: str, told: Mapping[str, Any], known: set[str]) -> None:
    unknown = set(told) - known
    if unknown:
        raise UserError(f"{path}: {where} has {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
