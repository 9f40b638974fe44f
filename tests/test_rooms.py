"""The structure: class names are unique, packages have no import cycle, tests are packages."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
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


# A connection of a database driver, in three files that know one driver each.
PRIVATE = {"Db"}


def named_types(tree: ast.Module) -> Iterator[str]:
    """What a module calls a type: its classes, nested ones too, and its aliases (``Event = Fetched | Acked``)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and re.fullmatch(r"[A-Z]\w*[a-z]\w*", target.id):
            yield target.id


def test_no_two_types_share_a_name() -> None:
    homes = defaultdict(list)
    for path, tree in modules():
        for name in named_types(tree):
            homes[name].append(str(path))
    assert {name: places for name, places in homes.items() if len(places) > 1 and name not in PRIVATE} == {}


def test_an_alias_is_a_type() -> None:
    source = "class A:\n    class Inner: pass\nAlias = A | None\nNew: type = A\nLIMIT = 3\nplain = A()\n"
    assert set(named_types(ast.parse(source))) == {"A", "Inner", "Alias", "New"}


def imported(tree: ast.Module) -> Iterator[str]:
    """Full names of what a module imports from the product, wherever in the module: lazy imports count.

    For ``from package import name`` both are returned, because only the tree of files says whether it is a module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "logplayer":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("logplayer."))


Rooms = dict[str, dict[str, set[str]]]  # folder -> a file or folder in it -> those that it imports


def rooms(trees: Mapping[str, ast.Module]) -> Rooms:
    """The imports between the rooms of each folder. ``trees``: a module's path below the product, without .py."""
    graphs: Rooms = defaultdict(lambda: defaultdict(set))
    for path, tree in trees.items():
        ours = path.split("/")
        for name in imported(tree):
            theirs = name.split(".")[1:]
            if ours[-1] == "__init__" or "/".join(theirs) not in trees:
                continue  # The names of a package come from everywhere below it; or it is no module.
            depth = next(n for n, (one, other) in enumerate(zip(ours, [*theirs, ""], strict=False)) if one != other)
            if depth < len(theirs):
                graphs["/".join(ours[:depth])][ours[depth]].add(theirs[depth])
    return graphs


def circles(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Every import from which a way leads back."""

    def reached(start: str) -> set[str]:
        seen, waiting = set[str](), [start]
        while waiting:
            for other in graph.get(waiting.pop(), set()) - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    return {(one, other) for one in graph for other in graph[one] if one in reached(other)}


def circles_of_packages(trees: Mapping[str, ast.Module]) -> dict[str, set[tuple[str, str]]]:
    """In each folder the circles in which a package takes part.

    A file counts as a room of its folder, not as the folder: ``log/open.py`` may know the engines, and the engines
    ``log/protocol.py``, as long as no engine needs ``log/open.py``. Files that need each other inside of one package
    are one thing in several files, and no circle of packages.
    """
    packages = {"/".join(path.split("/")[:depth]) for path in trees for depth in range(1, path.count("/") + 1)}
    found = {}
    for folder, graph in rooms(trees).items():
        inside = {room for room in graph if f"{folder}/{room}".lstrip("/") in packages}
        found[folder] = {pair for pair in circles(graph) if inside & set(pair)}
    return {folder: pairs for folder, pairs in found.items() if pairs}


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    trees = {path.with_suffix("").as_posix(): tree for path, tree in modules()}
    assert {"", "log", "spark", "target/stores"} <= rooms(trees).keys()
    assert circles_of_packages(trees) == {}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("from logplayer.spark.jobs.routes import Routes", "from logplayer.spark.source import plan"),
        ("def f():\n    from logplayer.spark.jobs import routes", "from logplayer.spark.source.plan import plan"),
        ("import logplayer.spark.jobs.routes", "def f():\n    import logplayer.spark.source.plan"),
    ],
)
def test_a_circle_of_subpackages_is_found(first: str, second: str) -> None:
    trees = {"spark/source/plan": ast.parse(first), "spark/jobs/routes": ast.parse(second)}
    assert circles_of_packages(trees) == {"spark": {("source", "jobs"), ("jobs", "source")}}
    assert circles_of_packages({**trees, "spark/jobs/routes": ast.parse("")}) == {}


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


def test_only_the_command_line_speaks_to_a_terminal() -> None:
    """A Python user's program has its own way to show progress and to ask."""
    found = {
        path.parts[0]
        for path, tree in modules()
        for node in ast.walk(tree)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else
                     [alias.name for alias in node.names] if isinstance(node, ast.Import) else [])
        if name.split(".")[0] == "click"
    }  # fmt: skip
    assert found == {"cli"}


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
    children = {"tests/docs/docs_snippets.py", "tests/core/test_core_imports.py", "tests/mutants/ready.py"}
    found = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py") if "sys.path" in path.read_text()}
    assert found - children - {"tests/test_rooms.py"} == set()


def test_what_is_missing_fails_in_ci() -> None:
    """pytest's own importorskip skips there too: use tests.servers.require."""
    found = {
        str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py") if "importorskip(" in path.read_text()
    }
    assert found - {"tests/test_rooms.py"} == {"tests/spark/conftest.py"}  # Which looks at CI itself, before imports.


def test_every_example_is_type_checked() -> None:
    import tomllib

    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["modules"]
    assert sorted(checked) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
