"""The wheel and the sdist as a stranger gets them: complete, typed, and the same command in an empty environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from logplayer import __version__
from tests import ROOT
from tests.servers import missing

INSIDE = [
    "logplayer/py.typed",
    "logplayer/wire/logplayer/v1/target.proto",
    "logplayer/wire/logplayer/v1/entry.proto",
    "logplayer/wire/logplayer/v1/log.proto",
    "logplayer/wire/logplayer/v1/target_pb2.pyi",
    "logplayer/testing/sim/mutants.toml",
    "logplayer/spark/conf/log4j2.properties",
    "logplayer/admin/page/index.html",
    "logplayer/admin/page/page.js",
    "pyspark_logplayer/__init__.py",
]
OUTSIDE = ("/bench/", "/rivals/", "/parts/", "campaign", "soak")


JAR = "logplayer/spark/real_time/logplayer-realtime.jar"  # Of `make jvm`, which `make wheel` needs.


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make wheel`` makes, from a copy: a build writes into the tree, where others may build at the same time."""
    folder, tree = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("tree")
    if shutil.which("mvn") is not None:
        subprocess.run([ROOT / "tools" / "jvm"], check=True, capture_output=True)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "*.so"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    build(tree, folder)
    return folder


def build(tree: Path, folder: Path, *options: str, **environment: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(folder), str(tree)]
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [found] = built.glob(f"logplayer-{__version__}-*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist's tree."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built / f"logplayer-{__version__}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"logplayer-{__version__}"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """An environment with the wheel; the packages it needs are lent by the one that runs the tests."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    install = ["-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([sys.executable, *install, str(wheel)], check=True, timeout=300)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def run(empty: Path, *command: str) -> subprocess.CompletedProcess[str]:
    [program, *arguments] = command
    return subprocess.run(
        [str(empty / "bin" / program), *arguments], capture_output=True, text=True, timeout=120, cwd=empty
    )


def test_the_wheel_has_the_product_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names if name.endswith(".py")} == {"logplayer", "pyspark_logplayer"}
    assert [name for name in names if any(part in name for part in OUTSIDE)] == []


def test_everything_is_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith("dist-info/METADATA")]
        text = archive.read(metadata).decode()
    assert [name for name in INSIDE if name not in names] == []
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]
    assert "License-Expression: Apache-2.0" in text
    assert f"Version: {__version__}" in text
    for extra in ("nats-server", "spark", "postgres"):
        assert f"Provides-Extra: {extra}" in text


def test_the_connector_for_real_time_is_inside(wheel: Path) -> None:
    if shutil.which("mvn") is None:
        missing("Maven is not installed")
    with zipfile.ZipFile(wheel) as archive:
        assert JAR in archive.namelist()


def compiled_parts(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if name.endswith(".so")]


def test_the_hot_path_is_compiled(wheel: Path, empty: Path) -> None:
    if not compiled_parts(wheel):
        missing("the wheel has no compiled part: there is no C compiler here, or no headers of Python")
    assert "none-any" not in wheel.name
    where = run(empty, "python", "-c", "from logplayer.wire import fastpath; print(fastpath.__file__)")
    assert where.stdout.startswith(str(empty))
    assert where.stdout.endswith(".so\n")


def test_a_wheel_for_any_python_and_any_machine(unpacked: Path, tmp_path: Path) -> None:
    build(unpacked, tmp_path, "--wheel", LOGPLAYER_PURE="1")
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name == f"logplayer-{__version__}-py3-none-any.whl"
    assert compiled_parts(wheel) == []


def test_a_compiler_that_fails_costs_only_the_speed(unpacked: Path, tmp_path: Path) -> None:
    """It fails at one of two files: the other one alone would hide the source and could not be imported."""
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *"-c "*__native*) exit 1;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    build(unpacked, tmp_path / "dist", "--wheel", CC=str(compiler))
    [wheel] = (tmp_path / "dist").glob("*.whl")
    assert compiled_parts(wheel) == []
    with zipfile.ZipFile(wheel) as archive:
        assert "logplayer/wire/fastpath.py" in archive.namelist()


def test_the_sdist_can_be_built_again(unpacked: Path) -> None:
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src/logplayer/py.typed"):
        assert (unpacked / name).exists()


def test_the_command_works_in_an_empty_environment(empty: Path) -> None:
    where = run(empty, "python", "-c", "import logplayer; print(logplayer.__file__)")
    assert where.stdout.startswith(str(empty)), "the installed package runs, not the one of the repository"
    assert run(empty, "logplayer", "--version").stdout == f"logplayer, version {__version__}\n"
    assert "serve" in run(empty, "logplayer", "log", "--help").stdout
    simulated = run(empty, "logplayer", "sim", "1")
    assert simulated.returncode == 0, simulated.stderr
    assert "every promise held" in simulated.stdout


def test_it_is_typed_for_its_users(empty: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "from logplayer.log.protocol import NewEntry\nfrom logplayer.core.fence import Position\n"
        "entry = NewEntry('p', 'one', b'')\nindex: str = Position().index\n"
    )
    command = [sys.executable, "-m", "mypy", "--python-executable", str(empty / "bin" / "python"), "user.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert 'Argument 2 to "NewEntry" has incompatible type' in done.stdout
    assert "Incompatible types in assignment" in done.stdout
    assert "missing library stubs or py.typed" not in done.stdout


def test_the_examples_are_typed_against_the_wheel(empty: Path, tmp_path: Path) -> None:
    """Strictly, and by the installed package: a name that it exports without a type, or not at all, is found."""
    for example in sorted((ROOT / "examples").glob("*.py")):
        shutil.copy(example, tmp_path)
    (tmp_path / "wrong.py").write_text("import logplayer as lp\n\nkey: int = lp.put('k', 'v').key\nlp.puts('k', 'v')\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(empty / "bin" / "python"), "."]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    found = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [line for line in found if not line.startswith("wrong.py:")] == []
    assert len(found) == 2, done.stdout


def test_models_that_are_not_installed_are_told(empty: Path) -> None:
    done = run(empty, "logplayer", "spec")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "--spec-dir" in done.stderr
