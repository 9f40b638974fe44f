"""Reads a Markdown document: its fenced blocks, the commands in them, the paths and links that it names.

The conventions, to which CONTRIBUTING.md refers:

- In a ``console`` block a line that starts with ``$ `` is a command, ``> `` continues it, and every other line is
  output. A command succeeds, unless it ends in ``# exit code N``. Output that ends in ``^C`` means that the reader
  interrupts it.
- A ``python`` or ``toml`` block whose first line is a comment with a file's name is that file; a Python file that no
  command runs is run as it stands. All other Python blocks of a document are one session in which ``await`` works, as
  in ``python -m asyncio``; one that calls ``asyncio.run`` is a program of its own.
- What cannot run in a test is a ``text`` block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT

_FENCE = re.compile(r"^( *)```(\S*)\s*$")
_FILE = re.compile(r"^# ([\w.-]+\.(?:py|toml))$")
_EXPECTED = re.compile(r"# exit code (\d+)\s*$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FOLDERS = ("src", "docs", "tests", "tools", "spec", "bench", "examples", "deploy", ".ci")
_PATH = re.compile(r"^[\w.*/-]+$")
MADE = {"dist/", ".venv", ".venv/", "bench/results/", "site/", "spec/out/"}  # By commands; not in the repository.


@dataclass(frozen=True)
class Block:
    """A fenced block, without its fences and indentation."""

    language: str
    line: int
    text: str

    @property
    def file(self) -> str:
        """The name of the file that this block is, or empty."""
        found = _FILE.match(self.text.splitlines()[0]) if self.text else None
        return found.group(1) if found and self.language in ("python", "toml") else ""


@dataclass(frozen=True)
class Command:
    """What a reader would type, and what must come of it."""

    line: int
    text: str
    exit_code: int = 0
    interrupted: bool = False


def documents() -> list[Path]:
    """Every document that makes promises."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks, in order."""
    inside: tuple[str, str, int] | None = None
    kept: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is None:
            if fence:
                inside, kept = (fence.group(1), fence.group(2), number), []
        elif fence and not fence.group(2):
            yield Block(inside[1], inside[2], "\n".join(kept))
            inside = None
        else:
            kept.append(line.removeprefix(inside[0]))
    if inside is not None:
        raise AssertionError(f"the block that begins in line {inside[2]} does not end")


def commands(block: Block) -> list[Command]:
    """The commands of a console block."""
    found: list[tuple[int, list[str], list[str]]] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            found.append((number, [line[2:]], []))
        elif (line.startswith("> ") or line == ">") and found and not found[-1][2]:
            found[-1][1].append(line[2:])
        elif found:
            found[-1][2].append(line)
    made = []
    for number, lines, output in found:
        expected = _EXPECTED.search(lines[-1])
        interrupted = bool(output) and output[-1].strip() == "^C"
        made.append(Command(number, "\n".join(lines), int(expected.group(1)) if expected else 0, interrupted))
    return made


def prose(text: str) -> str:
    """The document without its fenced blocks."""
    return re.sub(r"(?ms)^ *```.*?^ *```\s*$", "", text)


def broken_paths(path: Path, root: Path = ROOT) -> list[str]:
    """Paths of the repository that are named in backticks and are not there."""
    return [
        code for code in _CODE.findall(prose(path.read_text())) if _is_path(code, root) and not _is_there(code, root)
    ]


def _is_path(code: str, root: Path) -> bool:
    if not _PATH.match(code) or "/" not in code or code.startswith("/"):
        return False
    first = code.split("/")[0]
    inside = (root / "src" / "logplayer" / first).is_dir() and re.search(r"\.(py|proto|toml)$|/$", code)
    return first in _FOLDERS or bool(inside)


def _is_there(code: str, root: Path) -> bool:
    bases = (root, root / "src" / "logplayer")
    return code in MADE or any(base.joinpath(code).exists() or any(base.glob(code)) for base in bases)


def broken_links(path: Path) -> list[str]:
    """Links to files or headings that are not there."""
    broken = []
    for link in _LINK.findall(prose(path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        where, _, anchor = link.partition("#")
        target = (path.parent / where).resolve() if where else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def anchors(path: Path) -> set[str]:
    """What the headings of a document are called in links."""
    found = re.findall(r"(?m)^#+ +(.*?)\s*$", prose(path.read_text()))
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text.replace("`", "")).strip().lower()) for text in found}
