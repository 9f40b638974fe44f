"""Which version two peers agree on, and what they say if there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.core.fence import Position
from logplayer.errors import LogError, Malformed, TargetError, UserError, VersionMismatch
from logplayer.wire import codec, versions
from logplayer.wire.versions import UNSAID, Versions

ranges = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda pair: Versions(min(pair), max(pair)))


@given(ranges, ranges.filter(lambda ours: ours.oldest > 0))
def test_peers_agree_on_the_newest_version_that_both_speak(theirs: Versions, ours: Versions) -> None:
    common = set(range(theirs.oldest, theirs.newest + 1)) & set(range(ours.oldest, ours.newest + 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "OURS", ours)
        assert versions.agreed(theirs) == (max(common) if common else None)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (Versions(1, 1), UNSAID, ("no protocol version", "protocol version 1", "player")),
        (Versions(3, 4), Versions(1, 2), ("protocol versions 1 to 2", "protocol versions 3 to 4", "player")),
        (Versions(1, 1), Versions(2, 2), ("protocol version 2", "protocol version 1", "target")),
    ],
)
def test_the_sentence_has_both_versions_and_what_to_upgrade(
    monkeypatch: pytest.MonkeyPatch, ours: Versions, theirs: Versions, said: tuple[str, str, str]
) -> None:
    monkeypatch.setattr(versions, "OURS", ours)
    assert versions.agreed(theirs) is None
    they_speak, we_speak, lagging = said
    sentence = f"the player speaks {they_speak}, the target speaks {we_speak}: upgrade the {lagging}"
    assert versions.conflict("player", theirs, "target") == sentence


def test_an_answer_in_a_version_that_we_do_not_speak_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "OURS", Versions(2, 3))
    for version in (2, 3):
        versions.require(version, "target", "player")
    for version, lagging in ((0, "target"), (1, "target"), (4, "player")):
        with pytest.raises(VersionMismatch, match=f"upgrade the {lagging}") as caught:
            versions.require(version, "target", "player", "tcp://127.0.0.1:1")
        assert isinstance(caught.value, LogError | TargetError | UserError)
        assert not isinstance(caught.value, Malformed)
        assert "tcp://127.0.0.1:1" in str(caught.value)


@given(ranges)
def test_ranges_as_text(spoken: Versions) -> None:
    assert versions.from_text(versions.to_text(spoken)) == spoken


@pytest.mark.parametrize("text", ["1", "1-", "-1", "a-b", "1-2-3", "-1-2", "1 - 2", "٣-٤", "9" * 30 + "-" + "9" * 30])
def test_what_is_not_a_range(text: str) -> None:
    assert versions.from_text(text) is None
    assert versions.from_text("") is UNSAID


@pytest.mark.parametrize("version", [0, 2])
def test_a_target_that_does_not_say_ours_is_found_out_by_its_answer(version: int) -> None:
    """One from before the first version looks at nothing, and answers."""
    answer = codec.answer_position("a", Position(), False, version)
    for read, data in (
        (codec.decode_to_player, codec.encode_opened(Position(), version)),
        (codec.decode_to_player, codec.encode_position_answer(answer)),
        (codec.decode_standing, answer.SerializeToString()),
    ):
        with pytest.raises(VersionMismatch, match="the target speaks"):
            read(data)
