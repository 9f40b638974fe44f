"""Which appends of a client leave next, and which leave again: the queue by itself, and the messages that it fills."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.errors import LogError, LogFull, LogUnavailable, SequenceGap
from logplayer.log import append_queue
from logplayer.log.append_codec import decode_answers, decode_calls, encode_answers, encode_calls, encode_entries
from logplayer.log.append_queue import AppendCall, AppendQueue
from logplayer.log.grpc_errors import error_named, names_away
from logplayer.log.protocol import BadRequest, Kind, NewEntry
from logplayer.testing.conformance.log_check import entry
from logplayer.wire.logplayer.v1 import log_pb2 as pb


class Waits:
    """Keeps the answer of a call."""

    def __init__(self) -> None:
        self.told: list[list[int] | Exception] = []

    def done(self) -> bool:
        return bool(self.told)

    def set_result(self, result: list[int], /) -> None:
        self.told.append(result)

    def set_exception(self, exception: Exception, /) -> None:
        self.told.append(exception)


def add(queue: AppendQueue, *entries: NewEntry, began: float = 0) -> Waits:
    waits = Waits()
    queue.add(AppendCall(entries, waits, began))
    return waits


def sequences(calls: list[AppendCall]) -> list[int]:
    return [made.sequence for call in calls for made in call.entries]


def answer(queue: AppendQueue, first: int, *outcomes: list[int] | LogError) -> None:
    queue.answered(decode_answers(encode_answers(first, outcomes)), error_named)


def test_what_waits_leaves_together_and_a_second_message_does_not_wait_for_the_first() -> None:
    queue = AppendQueue()
    first = [add(queue, entry("p", sequence)) for sequence in (1, 2)]
    number, taken = queue.take()
    assert (number, sequences(taken)) == (1, [1, 2])
    second = [add(queue, entry("p", 3), entry("p", 4)), add(queue, entry("q", 1))]
    number, taken = queue.take()
    assert (number, sequences(taken)) == (3, [3, 4, 1])
    assert queue.take() == (5, [])
    answer(queue, 1, [10], [11], [12, 13])
    answer(queue, 4, [14])
    assert [waits.told for waits in (*first, *second)] == [[[10]], [[11]], [[12, 13]], [[14]]]
    assert len(queue) == 0


def test_one_refused_call_costs_the_others_nothing() -> None:
    queue = AppendQueue()
    calls = [add(queue, entry("p", sequence)) for sequence in (1, 2, 9, 3)]
    queue.take()
    answer(queue, 1, [1], LogFull("no room"), SequenceGap("send 2 next", 1), [2])
    assert calls[0].told + calls[3].told == [[1], [2]]
    [full], [gap] = calls[1].told, calls[2].told
    assert isinstance(full, LogFull)
    assert isinstance(gap, SequenceGap)
    assert gap.newest == 1


def test_what_a_broken_stream_has_not_answered_leaves_again_first_and_in_order() -> None:
    queue = AppendQueue()
    calls = [add(queue, entry("p", sequence)) for sequence in (1, 2, 3)]
    queue.take()
    answer(queue, 1, [1])
    calls.append(add(queue, entry("p", 4)))
    queue.broke()
    number, taken = queue.take()
    assert (number, sequences(taken)) == (1, [2, 3, 4]), "the numbers of a stream start at 1"
    answer(queue, 1, [2], [3], [4])
    assert [waits.told for waits in calls] == [[[1]], [[2]], [[3]], [[4]]]


def test_what_another_server_may_do_leaves_again_with_all_after_it() -> None:
    """The calls after it may have been refused, or taken, only because of it: nothing of that is handed out."""
    queue = AppendQueue()
    calls = [add(queue, entry("p", sequence)) for sequence in (1, 2, 3, 4)]
    queue.take()
    answers = encode_answers(1, [[1], LogUnavailable("no cluster"), SequenceGap("send 2 next", 1), [9]])
    trouble = queue.answered(decode_answers(answers), error_named, names_away)
    assert isinstance(trouble, LogUnavailable)
    assert str(trouble) == "no cluster"
    assert [waits.told for waits in calls] == [[[1]], [], [], []]
    queue.broke()
    number, taken = queue.take()
    assert (number, sequences(taken)) == (1, [2, 3, 4])
    answer(queue, 1, [2], LogUnavailable("no other server"), [4])
    assert [waits.told for waits in calls[1::2]] == [[[2]], [[4]]]
    assert isinstance(calls[2].told[0], LogUnavailable)


def test_messages_are_bounded_in_bytes_and_count_and_so_is_what_is_under_way() -> None:
    queue = AppendQueue()
    for sequence in range(1, 101):
        add(queue, NewEntry("p", sequence, bytes(100_000)))
    messages = []
    while taken := queue.take()[1]:
        messages.append(sequences(taken))
    assert messages == [[*range(n, n + 5)] for n in range(1, 41, 5)] + [[41, 42]], "511 KB each, 4 MB under way"
    answer(queue, 1, [1], [2])
    assert sequences(queue.take()[1]) == [43, 44]
    many = AppendQueue()
    for sequence in range(1, 1502):
        add(many, entry("p", sequence, 10))
    assert [len(many.take()[1]), len(many.take()[1])] == [1000, 501]


def test_a_large_call_travels_alone_after_all_before_it_and_before_all_after_it() -> None:
    queue = AppendQueue()
    add(queue, entry("p", 1))
    add(queue, NewEntry("p", 2, bytes(append_queue.CALL_BYTES_MAX)))
    add(queue, entry("p", 3))
    assert sequences(queue.take()[1]) == [1]
    assert queue.take() == (2, [])
    assert queue.alone() is None, "the call before it is not answered"
    answer(queue, 1, [1])
    large = queue.alone()
    assert large is not None
    assert sequences([large]) == [2]
    assert queue.take() == (2, []), "the call after it does not overtake"
    queue.leave(large)
    assert sequences(queue.take()[1]) == [3]


def test_those_who_have_waited_long_enough_are_told() -> None:
    queue = AppendQueue()
    old, young = add(queue, entry("p", 1), began=1), add(queue, entry("p", 2), began=2)
    queue.take()
    queue.broke()
    queue.give_up(1.5, LogUnavailable("away"))
    assert isinstance(old.told[0], LogUnavailable)
    assert not young.told
    assert sequences(queue.take()[1]) == [2]


def test_a_caller_that_gave_up_is_left_alone_and_its_entry_stays() -> None:
    queue = AppendQueue()
    gone, other = add(queue, entry("p", 1)), add(queue, entry("p", 2))
    gone.told.append([])  # As a cancelled future is done.
    assert sequences(queue.take()[1]) == [1, 2]
    answer(queue, 1, [1], [2])
    assert (gone.told, other.told) == ([[]], [[2]])


@pytest.mark.parametrize(
    "answers",
    [
        pb.AppendAnswers(first=2, count=1, indexes=[1]),
        pb.AppendAnswers(first=1, count=3, indexes=[1, 2, 3]),
        pb.AppendAnswers(first=1, count=0),
        pb.AppendAnswers(first=1, count=2, indexes=[1]),
        pb.AppendAnswers(first=1, count=1, indexes=[1, 2]),
    ],
)
def test_answers_that_do_not_fit_are_not_believed(answers: pb.AppendAnswers) -> None:
    queue = AppendQueue()
    calls = [add(queue, entry("p", 1)), add(queue, entry("p", 2))]
    queue.take()
    with pytest.raises(ValueError, match=r"answers to calls|indexes, which"):
        queue.answered(decode_answers(answers.SerializeToString()), error_named)
    assert not any(waits.told for waits in calls)


ENTRIES = st.builds(
    NewEntry,
    st.sampled_from(["p", "a producer", "ö"]),
    st.integers(1, 2**63 - 1),
    st.binary(max_size=300),
    st.sampled_from(Kind),
)


@given(st.lists(st.lists(ENTRIES, min_size=1, max_size=4), max_size=6), st.integers(1, 2**63))
def test_calls_survive_the_wire(calls: list[list[NewEntry]], first: int) -> None:
    data = encode_calls(first, [encode_entries(call) for call in calls], [len(call) for call in calls])
    assert decode_calls(data, first) == calls
    message = pb.AppendCalls.FromString(data)
    assert [made.payload for made in message.entries] == [made.payload for call in calls for made in call]


@pytest.mark.parametrize(
    "message",
    [
        pb.AppendCalls(first=2),
        pb.AppendCalls(first=1, entries=[pb.NewEntry(producer="p", sequence=1)], counts=[2]),
        pb.AppendCalls(first=1, counts=[0]),
        pb.AppendCalls(first=1, entries=[pb.NewEntry()] * 1001),
        pb.AppendCalls(first=1, entries=[pb.NewEntry(producer="p", sequence=1, kind=2)]),  # type: ignore[arg-type]
        pb.AppendCalls(first=1, entries=[pb.NewEntry(producer="p", sequence=1, kind=-1)]),  # type: ignore[arg-type]
    ],
    ids=["number", "counts", "empty call", "too many", "kind", "negative kind"],
)
def test_calls_that_cannot_be_right_are_refused(message: pb.AppendCalls) -> None:
    with pytest.raises(BadRequest):
        decode_calls(message.SerializeToString(), 1)


def test_an_error_of_a_later_version_is_an_error_all_the_same() -> None:
    assert type(error_named("NotYetThoughtOf", "why", 7)) is LogError
