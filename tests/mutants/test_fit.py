"""Every mutant still finds what it breaks: the hunt itself takes minutes, and a change should know at once."""

from __future__ import annotations

from tests.mutants.test_mutants import MUTANTS, SOURCE


def test_every_edit_finds_its_text_once() -> None:
    lost = [
        f"{mutant.name}: {edit.file}"
        for mutant in MUTANTS
        for edit in mutant.edits
        if (SOURCE / "logplayer" / edit.file).read_text().count(edit.old) != 1
    ]
    assert lost == []


def test_no_name_is_used_twice() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)
