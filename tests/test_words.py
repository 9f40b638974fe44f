"""The glossary, as far as a search can hold it: one word, one meaning, in what users and readers of the code see."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import logplayer
from tests import ROOT

SOURCE = Path(logplayer.__file__).parent
GENERATED = SOURCE / "wire" / "logplayer"
# What is not written, and what is written in its place.
INSTEAD = {
    r"(?<!lag )(?<!lags )(?<!fell )(?<!is )(?<!are )(?<!falls )\bbehind\b": "after (behind: lag)",
    r"\b(?:stands|stood) (?:at|where)\b|\bwhere \S+ (?:\S+ )?stands?\b": "has index n",
    r"\btold\b": "says, reports, is known",
    r"\banew\b": "again",
    r"\bso much\b": "a count with its unit",
    r"\bfor want of\b": "because there is none",
    r"\bin front of\b": "before",
    r"\b(?:homeless|ownerless)\b": "unroutable, without an owner",
    r"\brivals?\b": "newer player, another writer (rival: a competing product in bench/)",
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b|more\b)": "is not a",
    r"\bfor nobody\b|\bgo(?:es)? nowhere\b": "unroutable",
    r"(?:^|[.:;] )[Ww]ho (?!is\b|are\b|may\b)": "the thing that does it",
}


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Every string of a module (docstrings, messages, the fixed parts of f-strings), and every comment."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    yield from comments(source)


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments on lines that follow each other are one text."""
    found: list[tuple[int, str]] = []
    newest = -1  # The line of the last comment.
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        text = token.string.lstrip("#: ")
        if line == newest + 1 and not token.line[:column].strip():
            line, before = found.pop()
            text = f"{before} {text}"
        found.append((line, text))
        newest = token.start[0]
    yield from found


def prose(text: str) -> Iterator[str]:
    """What is wrong in a text that is no Python."""
    flat = " ".join(text.split())
    for pattern, instead in INSTEAD.items():
        yield from (f"{match[0]!r}, write: {instead}" for match in re.finditer(pattern, flat))


def breaches(source: str) -> list[str]:
    """Line, words and their replacement, for each word that the glossary bans."""
    found = []
    for line, text in texts(source):
        found += [f"{line}: {what}" for what in prose(text)]
    return found


def test_the_products_texts_keep_to_the_glossary() -> None:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if GENERATED not in path.parents and (wrong := breaches(path.read_text())):
            found[name] = wrong
    assert found == {}


@pytest.mark.parametrize("pattern", ["spec/*.tla", "spec/*.toml", "tests/scenarios/*.txt", "docs/spec.md"])
def test_models_and_stories_keep_the_word_for_lag(pattern: str) -> None:
    """As far as they are prose: LeftBehind and is_behind are names."""
    behind = next(rule for rule in INSTEAD if "behind" in rule)
    found = {
        str(path.relative_to(ROOT)): [text[max(0, match.start() - 40) : match.end()] for match in matches]
        for path in ROOT.glob(pattern)
        if (matches := list(re.finditer(behind, text := " ".join(path.read_text().split()))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "go on behind the trim point",
        "ask where it stands",
        "orders stands at 42",
        "nobody was told",
        "fill it anew",
        "for want of room",
        "a rival writer holds the log",
        "x is no log",
        "the entry goes nowhere",
        "3 entries are for nobody",
        "Nothing. Who asks again gets it",
    ],
)
def test_a_banned_word_is_found(text: str) -> None:
    assert len(breaches(f'"""{text}"""')) == 1
    assert len(breaches(f'raise ValueError(f"{{x}}: {text}")')) == 1
    assert len(breaches(f"x = 1  # {text}")) == 1
    first, _, second = text.rpartition(" ")
    assert len(breaches(f"# {first}\n# {second}")) == 1


@pytest.mark.parametrize("text", ["it lags behind", "there is no log at x", "it is no longer ours"])
def test_what_the_glossary_allows_is_let_pass(text: str) -> None:
    assert breaches(f'"""{text}"""') == []
