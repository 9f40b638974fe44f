"""What README and docs say is true: every command and snippet in them runs, every path and link leads somewhere."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from logplayer.errors import UserError
from logplayer.log.etcd.local_cluster import EtcdCluster
from tests import ROOT
from tests.docs.docs_document import Block, blocks, broken_links, broken_paths, commands, documents
from tests.docs.docs_session import Result, run
from tests.servers import IN_CI, find_postgres, missing

DOCUMENTS = documents()
RUNS = "test_what_it_tells_to_type_works"
SIDE_BY_SIDE = 3  # Most of a document's time is spent waiting for processes to start.


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def runs(path: Path) -> bool:
    return any(block.language in ("console", "python") for block in blocks(path.read_text()))


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Iterator[Callable[[Path], Result]]:
    """The documents that are asked for run side by side, and each test waits for its own."""
    named = [item for item in request.session.items if isinstance(item, pytest.Function)]
    wanted: list[Any] = [item.callspec.params["path"] for item in named if item.originalname == RUNS]
    postgres = ""
    if any(map(needs_postgres, wanted)) and (find_postgres() or IN_CI):
        postgres = str(urlsplit(request.getfixturevalue("postgres_url")).port)
    folder = Path(tempfile.mkdtemp(prefix="lp-docs-"))
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        running: dict[Path, Future[Result]] = {}

        def start(path: Path) -> Future[Result]:
            if path not in running:
                running[path] = pool.submit(_run_one, path, folder / name_of(path).replace("/", "-"), postgres)
            return running[path]

        for path in wanted:
            if (postgres or not needs_postgres(path)) and not lacks_etcd(path):
                start(path)
        yield lambda path: start(path).result()
    shutil.rmtree(folder, ignore_errors=True)


def needs_postgres(path: Path) -> bool:
    return any(block.language == "console" and ":5432/" in block.text for block in blocks(path.read_text()))


def lacks_etcd(path: Path) -> str:
    """Why the document's etcd cannot be started, or nothing."""
    if not any(block.language == "console" and "--engine etcd" in block.text for block in blocks(path.read_text())):
        return ""
    try:
        EtcdCluster.find_server()
    except UserError as error:
        return str(error)
    return ""


def _run_one(path: Path, folder: Path, postgres: str) -> Result:
    folder.mkdir(parents=True)
    return run(path, folder, postgres)


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if runs(path)], ids=name_of)
def test_what_it_tells_to_type_works(path: Path, results: Callable[[Path], Result]) -> None:
    if needs_postgres(path) and not find_postgres():
        missing("PostgreSQL is not installed")
    if why := lacks_etcd(path):
        missing(why)
    result = results(path)
    assert not result.failed, f"{name_of(path)}, {result.failed}\n{result.output}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_what_it_names_is_there(path: Path) -> None:
    assert broken_paths(path) == []
    assert broken_links(path) == []


def test_make_lines_name_targets() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    for path in DOCUMENTS:
        named: set[str] = set()
        for block in blocks(path.read_text()):
            if block.language in ("console", "text"):
                for command in commands(block):
                    found = re.match(r"make((?: [\w=\"'.-]+)*)", command.text)
                    named |= {
                        word for word in (found.group(1).split() if found else []) if re.fullmatch("[a-z-]+", word)
                    }
        text = path.read_text()
        named |= set(re.findall(r"`make ([a-z-]+)`", text))
        assert named <= targets, f"{name_of(path)} names {named - targets}"


def test_every_block_says_its_language() -> None:
    """A bare fence is a drawing; whatever looks like a command in it would not be run."""
    for path in DOCUMENTS:
        for block in blocks(path.read_text()):
            if not block.language or block.language in ("sh", "bash", "shell"):
                assert not commands(block), f"{name_of(path)}, line {block.line}: use console, or text with a reason"


# --- The checker itself can fail ---


def judged(tmp_path: Path, text: str) -> Result:
    document, folder = tmp_path / "page.md", tmp_path / "home"
    document.write_text(text)
    folder.mkdir()
    return run(document, folder)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```console\n$ logplayer nonsense\n```\n", "line 2: exit code 2 instead of 0"),
        ("```console\n$ true\n$ false\n```\n", "line 3: exit code 1 instead of 0"),
        ("```console\n$ true  # exit code 1\n```\n", "line 2: exit code 0 instead of 1"),
        ("```console\n$ cat <<END > f\n> word\n> END\n$ grep other f\n```\n", "line 5: exit code 1 instead of 0"),
        ("Text.\n\n```python\nimport logplayer.nonsense\n```\n", "line 3: exit code 1 instead of 0"),
    ],
)
def test_a_broken_document_is_found(tmp_path: Path, text: str, why: str) -> None:
    assert judged(tmp_path, text).failed == why


def test_a_right_document_is_right(tmp_path: Path) -> None:
    text = """
```python
# here.py
print("it ran at 127.0.0.1:7100")
```
```console
$ mkdir -p /tmp/shop && cd /tmp/shop
$ python ~/here.py > said
$ sleep 1000 &
$ grep -q 'it ran' said
$ sleep 1000
^C
$ false  # exit code 1
```
```python
import asyncio
value = await asyncio.sleep(0, 42)
```
```python
assert value == 42, "snippets of one document share their names"
```
"""
    result = judged(tmp_path, text)
    assert (result.failed, result.ran) == ("", 8)
    said = (tmp_path / "home" / "shop" / "said").read_text()
    assert "127.0.0.1:7100" not in said, "fixed ports are replaced, in files too"


def test_broken_names_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Head\n`src/logplayer/cli/main.py` `core/trim.py` `src/nowhere.py` [a](page.md#head) [b](no.md) [c](#no)"
    )
    assert broken_paths(page) == ["src/nowhere.py"]
    assert broken_links(page) == ["no.md", "#no"]


def test_an_unfinished_block_is_found() -> None:
    with pytest.raises(AssertionError, match="line 1"):
        list(blocks("```console\n$ true\n"))
    assert commands(Block("console", 1, "output only")) == []
