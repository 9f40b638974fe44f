"""One file for each message of each .proto, every field of it set, and what the product reads in it.

The fields are filled by their names and numbers, so a new field is in the next release's files without a line here. A
``oneof`` has a file for each of its alternatives. What a file means is kept beside it, twice: as the generated code
reads it, and as the product's own decoder does, which for some messages does not use the generated code.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from logplayer.errors import Malformed
from logplayer.log.append_codec import decode_answers, decode_calls
from logplayer.wire import codec
from logplayer.wire.entries import decode_control, decode_headers, decode_transaction
from logplayer.wire.fastpath import read_batch
from logplayer.wire.logplayer.v1 import entry_pb2, log_pb2, target_pb2
from logplayer.wire.rows import decode_row_changes

# What a reader would refuse, if it were just any value.
BYTES = {
    "digest": 16,
    "chain": 8,
    "prev_chain": 8,
    "to_chain": 8,
    "trimmed_chain": 8,
}  # Lengths of fields that hold a hash.
NUMBERS = {"version": 1, "oldest": 1, "newest": 1}
TEXTS = {"by": "tag"}
# Messages whose fields must fit together, by the name of the file.
FITTING: dict[str, dict[str, Any]] = {
    "AppendCalls": {"first": 1, "counts": [1, 1]},
    "AppendAnswers": {"first": 1, "count": 3, "indexes": [7, 8]},
    "RangeMap": {"bounds": [b"m"]},
    "Batch": {"prev": 1, "to": 100},
}
LENGTHS = {"refusals": 1}  # Of lists; others have two.
# Where a message can hold itself: what it has there, so that it ends.
INNERMOST = {"array": {"items": [{"integer": 7}, {"text": "text 1"}, {}]}}

Meaning = Callable[[bytes], Any]
# Each takes the bytes of one message as the product does.
DECODERS: dict[str, Meaning] = {
    "ToTarget": codec.decode_to_target,
    "ToPlayer": codec.decode_to_player,
    "PositionReply": codec.decode_standing,
    "Transaction": lambda data: [transaction_meaning(data), decode_headers(data)],
    "Control": decode_control,
    "AppendCalls": lambda data: decode_calls(data, 1),
    "AppendAnswers": decode_answers,
}


def transaction_meaning(data: bytes) -> Any:
    """Keys and values, or rows: a file of the time before rows has the former, a later one both kinds of fields."""
    try:
        return decode_transaction(data)
    except Malformed:
        return decode_row_changes(data)


def all_messages() -> Iterator[tuple[str, Message]]:
    """(name of the file, message): one for each kind, or for each alternative of its ``oneof``."""
    for module in (entry_pb2, log_pb2, target_pb2):
        for kind in module.DESCRIPTOR.message_types_by_name.values():
            yield from _filled(kind)
            for nested in kind.nested_types:
                yield from _filled(nested)


def meaning(name: str, data: bytes) -> dict[str, Any]:
    """What the bytes of a file mean, as JSON has it."""
    kind = name.partition(".")[0] if name.partition(".")[0] in DECODERS else name
    message = GetMessageClass(_descriptor(name)).FromString(data)
    found: dict[str, Any] = {"generated": meaning_of(message)}
    if kind in DECODERS:
        found["product"] = plain(DECODERS[kind](data))
    if name == "ToTarget.batch":
        found["fast"] = plain(read_batch(data))
    return found


def meaning_of(message: Message) -> dict[str, Any]:
    """As the generated code has it."""
    return MessageToDict(message, preserving_proto_field_name=True)


def fields_of(message: Message) -> set[str]:
    """The fields that are set, also those of the messages inside."""
    found = set()
    for each, value in message.ListFields():
        found.add(each.full_name)
        if each.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if each.is_repeated else [value]:
                found |= fields_of(inner)
    return found


def plain(value: Any) -> Any:
    """A value of the product as JSON has it. What has named fields is an object: a later release may have more."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(one) for name, one in value._asdict().items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, Message):
        return meaning_of(value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return value


def missing_from(found: Any, expected: Any, at: str = "") -> list[str]:
    """Where ``found`` does not say what ``expected`` does; what it says beside that may be new."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = expected.items()
        return list(itertools.chain(*(missing_from(found.get(key), one, f"{at}.{key}") for key, one in keys)))
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(found, expected, strict=True))
        return list(itertools.chain(*(missing_from(one, wanted, f"{at}[{n}]") for n, (one, wanted) in pairs)))
    return [] if found == expected else [f"{at}: {found!r} instead of {expected!r}"]


def _descriptor(name: str) -> Any:
    for message_name, message in all_messages():
        if message_name == name:
            return message.DESCRIPTOR
    raise LookupError(f"this release has no message {name}")


def _filled(kind: Descriptor) -> Iterator[tuple[str, Message]]:
    name = kind.full_name.removeprefix("logplayer.v1.")
    choices = [one for one in kind.oneofs if not one.name.startswith("_")]  # The others are optional fields.
    if not choices:
        yield name, fill(kind)
    for choice in choices:
        for one in choice.fields:
            yield f"{name}.{one.name}", fill(kind, one)


def fill(kind: Descriptor, chosen: FieldDescriptor | None = None) -> Message:
    """A message of a kind with every field set; of a ``oneof`` the chosen one, or its last."""
    message: Any = GetMessageClass(kind)()
    fitting = FITTING.get(kind.full_name.removeprefix("logplayer.v1."), {})
    for each in kind.fields:
        if not _is_chosen(each, chosen):
            continue
        if each.name in fitting:
            _set(message, each, fitting[each.name])
        elif each.is_repeated:
            _set(message, each, [value_of(each, n) for n in range(LENGTHS.get(each.name, 2))])
        else:
            _set(message, each, value_of(each, 0))
    return message  # type: ignore[no-any-return]


def _is_chosen(each: FieldDescriptor, chosen: FieldDescriptor | None) -> bool:
    """Whether it is set: a field of no ``oneof``, the one that was chosen, or the last."""
    choice = each.containing_oneof
    if choice is None or choice.name.startswith("_"):
        return True
    return each is (chosen if chosen is not None and chosen.containing_oneof is choice else choice.fields[-1])


def _set(message: Any, each: FieldDescriptor, value: Any) -> None:
    if each.is_repeated:
        getattr(message, each.name).extend(value)
    elif each.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(message, each.name).CopyFrom(value)
        getattr(message, each.name).SetInParent()  # One without fields is there too.
    else:
        setattr(message, each.name, value)


def value_of(each: FieldDescriptor, nth: int) -> Any:
    """A value that follows from the field: never the default, and rising in a list."""
    if each.type == FieldDescriptor.TYPE_MESSAGE:
        assert each.message_type is not None
        if each.name in INNERMOST:
            return ParseDict(INNERMOST[each.name], GetMessageClass(each.message_type)())
        return _nth(fill(each.message_type), nth)
    if each.type == FieldDescriptor.TYPE_ENUM:
        assert each.enum_type is not None
        return each.enum_type.values[1].number
    if each.type == FieldDescriptor.TYPE_STRING:
        return TEXTS.get(each.name, f"{each.name} {nth + 1}")
    if each.type == FieldDescriptor.TYPE_BYTES:
        length = BYTES.get(each.name)
        return bytes(range(1, length + 1)) if length else f"{each.name} {nth + 1}\xff".encode("latin-1")
    if each.type == FieldDescriptor.TYPE_BOOL:
        return True
    return NUMBERS.get(each.name, 10 * each.number + nth + 1)


def _nth(message: Any, nth: int) -> Any:
    """Messages of a list differ: indexes rise, and an enum takes turns."""
    for each in message.DESCRIPTOR.fields:
        if nth and each.type == FieldDescriptor.TYPE_ENUM:
            setattr(message, each.name, 0)
        if nth and each.name in ("index", "sequence", "number", "after", "at") and not each.is_repeated:
            setattr(message, each.name, getattr(message, each.name) + nth)
    return message
