"""Which of a client's appends leave next, which are under way, and which must leave again. Pure.

Appends travel on one stream, so they arrive in the order in which they were made: a producer may have many under way,
and none of them can overtake another. What waits when the stream can take more is joined into one message of up to
``TOGETHER_BYTES_MAX``, and so nobody waits for a timer: a lone append leaves at once, and a hundred leave together.

The server answers in the same order. When the stream breaks, everything that it has not answered is ambiguous: it may
be in the log or not. All of it moves back to the head of the queue, in its order, and leaves again on the next stream;
an entry that is in the log already gets its first index.

The same happens when the server answers that it cannot reach the log, if another server may. That answer and all after
it are set aside: a call after it may have been refused only because of the one that did not get in.

A call over ``CALL_BYTES_MAX`` does not fit into a message of the stream. It travels by itself, when everything before
it is answered and before anything after it leaves: rare enough to be slow, and in order all the same.

A caller that is cancelled leaves its entries in the queue: they are appended all the same, as in a file log. To take
them out would make a gap for whoever comes after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from logplayer.errors import LogError
from logplayer.log.answer import GroupAnswer
from logplayer.log.append_codec import CALLS_COUNT_MAX, Answers, encode_entries
from logplayer.log.protocol import NewEntry

TOGETHER_BYTES_MAX = 511 * 1024
"""Calls share a message up to here. gRPC costs as much for each message as for half a megabyte of it, and what is a
little less than the window of a stream need not wait until the server begins to read it."""
CALL_BYTES_MAX = 1024 * 1024 - 64
"""The largest call that may travel on the stream; it then has a message of its own."""
UNDER_WAY_BYTES_MAX = 4 * 1024 * 1024


class AppendCall:
    """One call of ``append``: its entries, encoded, and who waits for the answer."""

    __slots__ = ("answer", "began", "bytes", "entries", "parts")

    def __init__(self, entries: Sequence[NewEntry], answer: GroupAnswer, began: float) -> None:
        self.entries = entries
        self.answer = answer
        self.began = began
        self.parts = encode_entries(entries)
        self.bytes = sum(map(len, self.parts)) + 3 * len(entries)  # With the counts after them.

    def appended(self, indexes: list[int]) -> None:
        if not self.answer.done():
            self.answer.set_result(indexes)

    def failed(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class AppendQueue:
    """The calls that are not answered, in the order in which they were made.

    Invariant: every call under way was made before every call that waits. ``first`` is the number of the oldest one
    under way, ``first + len(under way)`` that of the next one to leave.
    """

    def __init__(self) -> None:
        self._waiting: deque[AppendCall] = deque()
        self._under_way: deque[AppendCall] = deque()
        self._bytes = 0  # Under way.
        self._first = 1

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    def add(self, call: AppendCall) -> None:
        self._waiting.append(call)

    def take(self) -> tuple[int, list[AppendCall]]:
        """The next message: the number of its first call, and its calls; none if nothing may leave now."""
        first, taken, together = self._first + len(self._under_way), list[AppendCall](), 0
        waiting = self._waiting
        while waiting and len(taken) < CALLS_COUNT_MAX and self._bytes < UNDER_WAY_BYTES_MAX:
            call = waiting[0]
            if call.bytes > CALL_BYTES_MAX or (taken and together + call.bytes > TOGETHER_BYTES_MAX):
                break
            taken.append(waiting.popleft())
            together += call.bytes
            self._bytes += call.bytes
        self._under_way += taken
        return first, taken

    def alone(self) -> AppendCall | None:
        """The next call, if it is too large for the stream and everything before it is answered."""
        if self._waiting and not self._under_way and self._waiting[0].bytes > CALL_BYTES_MAX:
            return self._waiting[0]
        return None

    def leave(self, call: AppendCall) -> None:
        """The call that ``alone`` named has its answer."""
        if self._waiting and self._waiting[0] is call:
            self._waiting.popleft()

    def answered(
        self,
        answers: Answers,
        refusal: Callable[[str, str, int, str], LogError],
        is_for_another: Callable[[str], bool] | None = None,
    ) -> LogError | None:
        """Hand out the answers; ValueError if they do not fit the calls under way.

        The first refusal that ``is_for_another`` names is returned instead: its call, and all after it, stay under way.
        """
        first, count, indexes, refusals = answers
        if first != self._first or not 0 < count <= len(self._under_way):
            raise ValueError(f"answers to calls {first} to {first + count - 1}, where {self._first} is the next")
        calls = [self._under_way[nth] for nth in range(count)]
        if sum(len(c.entries) for n, c in enumerate(calls, first) if n not in refusals) != len(indexes):
            raise ValueError(f"{len(indexes)} indexes, which is not one for each entry")
        at = 0
        for number, call in enumerate(calls, first):
            told = refusals.get(number)
            if told is not None and is_for_another is not None and is_for_another(told.error):
                return refusal(told.error, told.message, told.value, told.facts)
            self._under_way.popleft()
            self._bytes -= call.bytes
            self._first += 1
            if told is not None:
                call.failed(refusal(told.error, told.message, told.value, told.facts))
            else:
                call.appended(indexes[at : at + len(call.entries)])
                at += len(call.entries)
        return None

    def broke(self) -> None:
        """The stream is gone: what it has not answered leaves again, before everything else. Numbers start again."""
        self._waiting.extendleft(reversed(self._under_way))
        self._under_way.clear()
        self._bytes, self._first = 0, 1

    def give_up(self, before: float, error: LogError) -> None:
        """Fail the calls that were made up to ``before``. Only while no stream is open."""
        while self._waiting and self._waiting[0].began <= before:
            self._waiting.popleft().failed(error)

    def fail_all(self, under_way: Exception, waiting: Exception) -> None:
        """Nothing more will be sent for these calls."""
        for call in self._under_way:
            call.failed(under_way)
        for call in self._waiting:
            call.failed(waiting)
        self._waiting.clear()
        self._under_way.clear()
        self._bytes, self._first = 0, 1
