"""The options of ``format("logplayer")``, understood once and with an error that says what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from logplayer.core.entry import ShardMap
from logplayer.errors import ConfigError
from logplayer.log.address import parse
from logplayer.spark.routes import parse_map

KNOWN = {
    "log": "the log's address",
    "raw": "true: one row per entry, with its payload",
    "startingindex": "earliest, latest or an index",
    "endingindex": "latest or an index (batch only)",
    "archive": "where archived entries are",
    "map": "the first shard map, if the log has none",
    "targets": "only rows for these, separated by commas",
    "maxentriespertrigger": "the most entries of one micro-batch",
    "bytespertask": "about how much one task reads",
    "tasks": "at least so many tasks, if there are entries for them",
    "pollms": "how long a micro-batch waits for news",
    "failondataloss": "false: go on behind what was trimmed",
    "mode": "read, or play",
    "groups": "how many players (mode=play)",
    "leaseseconds": "how long one micro-batch plays (mode=play)",
    "staging": "where the sink keeps its state (default: in the checkpoint)",
    "producer": "the name of the sink's entries in the log",
    "addresses": "targets to deliver to: a=grpc://host:port,b=...",
    "to": "log or targets (sink)",
    "path": "not used",
    "checkpointlocation": "Spark's",
    "queryname": "Spark's",
}


@dataclass(frozen=True)
class Options:
    """See :data:`KNOWN`."""

    log: str = ""
    raw: bool = False
    starting: str = "earliest"
    ending: str = "latest"
    archive: str = ""
    first_map: ShardMap | None = None
    targets: tuple[str, ...] = ()
    entries_max: int = 0  # 0: no limit.
    task_bytes: int = 32 << 20
    tasks: int = 4
    poll_ms: int = 50
    fail_on_data_loss: bool = True
    mode: str = "read"
    groups: int = 1
    lease_seconds: float = 20.0
    staging: str = ""
    producer: str = "spark"
    addresses: tuple[tuple[str, str], ...] = ()
    to: str = "log"


def parse_options(given: Mapping[str, str]) -> Options:
    """Understand the options; a word that is not known is a typing error and not ignored."""
    low = {key.lower(): value for key, value in given.items()}
    for key in low:
        if key not in KNOWN:
            raise ConfigError(f"format logplayer has no option {key!r}; it has {', '.join(KNOWN)}")
    addresses = parse_addresses(low.get("addresses", ""))
    if low.get("log"):
        parse(low["log"])
    checkpoint = low.get("checkpointlocation", "")
    return Options(
        log=low.get("log", ""),
        raw=_flag(low, "raw", False),
        starting=_index(low, "startingindex", "earliest", ("earliest", "latest")),
        ending=_index(low, "endingindex", "latest", ("latest",)),
        archive=low.get("archive", ""),
        first_map=parse_map(low["map"]) if low.get("map") else None,
        targets=tuple(name.strip() for name in low.get("targets", "").split(",") if name.strip()),
        entries_max=_number(low, "maxentriespertrigger", 0),
        task_bytes=max(1, _number(low, "bytespertask", Options.task_bytes)),
        tasks=max(1, _number(low, "tasks", Options.tasks)),
        poll_ms=_number(low, "pollms", Options.poll_ms),
        fail_on_data_loss=_flag(low, "failondataloss", True),
        mode=_choice(low, "mode", ("read", "play")),
        groups=max(1, _number(low, "groups", 1)),
        lease_seconds=max(1, _number(low, "leaseseconds", 20)),
        staging=low.get("staging") or (f"{checkpoint.rstrip('/')}/logplayer-sink" if checkpoint else ""),
        producer=low.get("producer", "spark"),
        addresses=addresses,
        to=_choice(low, "to", ("log", "targets")),
    )


def parse_addresses(text: str) -> tuple[tuple[str, str], ...]:
    """``a=grpc://host:1,b=tcp://host:2`` as pairs."""
    pairs = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, address = part.partition("=")
        if not equals or not name or not address:
            raise ConfigError(f"{part!r} does not say where a target is; write NAME=grpc://HOST:PORT")
        pairs.append((name, address))
    return tuple(pairs)


def require_log(options: Options) -> str:
    """The log's address, without which nothing can be read."""
    if not options.log:
        raise ConfigError('format logplayer needs option("log", ADDRESS), for example file:///var/lib/wal')
    return options.log


def _flag(low: Mapping[str, str], key: str, default: bool) -> bool:
    value = low.get(key, str(default)).lower()
    if value not in ("true", "false"):
        raise ConfigError(f"option {key} is {value!r}; write true or false")
    return value == "true"


def _number(low: Mapping[str, str], key: str, default: int) -> int:
    value = low.get(key, str(default))
    if not value.isdigit():
        raise ConfigError(f"option {key} is {value!r}; write a whole number")
    return int(value)


def _index(low: Mapping[str, str], key: str, default: str, words: tuple[str, ...]) -> str:
    value = low.get(key, default).lower()
    if value not in words and not value.isdigit():
        raise ConfigError(f"option {key} is {value!r}; write {', '.join(words)} or an index")
    return value


def _choice(low: Mapping[str, str], key: str, words: tuple[str, ...]) -> str:
    value = low.get(key, words[0]).lower()
    if value not in words:
        raise ConfigError(f"option {key} is {value!r}; write {' or '.join(words)}")
    return value
