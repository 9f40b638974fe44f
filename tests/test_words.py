"""The glossary, as far as a search can hold it: one word, one meaning, in what users and readers of the code see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import logplayer

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


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string of a module: docstrings, messages, and the fixed parts of f-strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def breaches(source: str) -> list[str]:
    """Line, words and their replacement, for each word that the glossary bans."""
    found = []
    for line, text in texts(ast.parse(source)):
        flat = " ".join(text.split())
        for pattern, instead in INSTEAD.items():
            found += [f"{line}: {match[0]!r}, write: {instead}" for match in re.finditer(pattern, flat)]
    return found


def test_the_products_texts_keep_to_the_glossary() -> None:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if GENERATED not in path.parents and (wrong := breaches(path.read_text())):
            found[name] = wrong
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


@pytest.mark.parametrize("text", ["it lags behind", "there is no log at x", "it is no longer ours"])
def test_what_the_glossary_allows_is_let_pass(text: str) -> None:
    assert breaches(f'"""{text}"""') == []
