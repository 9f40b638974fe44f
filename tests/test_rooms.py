"""The structure: class names are unique, packages have no import cycle, tests are packages."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import logplayer
from tests import ROOT

SOURCE = Path(logplayer.__file__).parent
GENERATED = SOURCE / "wire" / "logplayer"

pytestmark = pytest.mark.usefixtures("no_garbage")


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if GENERATED not in path.parents:
            yield path.relative_to(SOURCE), ast.parse(path.read_text())


def test_no_two_classes_share_a_name() -> None:
    homes = defaultdict(list)
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def imported(tree: ast.Module) -> Iterator[str]:
    """Full names of what a module imports from the product, wherever in the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "logplayer":
            yield from (f"logplayer.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("logplayer."):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("logplayer."))


def imports_of_packages() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = defaultdict(set)
    for path, tree in modules():
        package = path.parts[0].removesuffix(".py")
        if package != "__init__":  # The public names come from everywhere.
            graph[package] |= {name.split(".")[1] for name in imported(tree)} - {package}
    return graph


def circles(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Every import between packages from which a way leads back."""

    def reached(start: str) -> set[str]:
        seen, waiting = set[str](), [start]
        while waiting:
            for other in graph.get(waiting.pop(), set()) - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    return {(one, other) for one in graph for other in graph[one] if one in reached(other)}


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    assert circles(imports_of_packages()) == set()


def test_an_engine_of_the_log_is_known_only_where_addresses_are_opened() -> None:
    """What the engines share is beside them and knows none of them; log/open.py picks one by its address."""
    engines = {path.parent.name for path in (SOURCE / "log").glob("*/log.py")}
    found = {
        str(path)
        for path, tree in modules()
        if path.parent == Path("log")
        for name in imported(tree)
        if name.startswith(tuple(f"logplayer.log.{engine}." for engine in engines))
    }
    assert len(engines) >= 4
    assert found == {"log/open.py"}


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {("a", "b"), ("b", "c"), ("c", "a")}


def test_one_place_repeats_the_decision_that_a_trim_meets() -> None:
    """Where the newest control record is in the way of a trim, each caller would decide differently what to do."""
    homes = {
        str(path)
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Checkpoint"
    }
    decodes = {"wire/entries.py"}
    assert {home for home in homes if not home.startswith("testing/")} - decodes == {"log/control_chain.py"}


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("folder", ["src", "tests", "bench"])
def test_nobody_puts_folders_on_the_path(folder: str) -> None:
    allowed = {"tests/docs/docs_snippets.py", "tests/core/test_core_imports.py", "tests/test_rooms.py"}  # For children.
    found = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py") if "sys.path" in path.read_text()}
    assert found - allowed == set()


def test_every_example_is_type_checked() -> None:
    import tomllib

    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["modules"]
    assert sorted(checked) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
