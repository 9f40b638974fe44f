"""What a query delivers and to whom, as the driver decides it from the log before each start."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from logplayer.config import Config
from logplayer.core.control_state import ControlState
from logplayer.core.entry import Takeover
from logplayer.errors import ConfigError, Malformed
from logplayer.log import control_chain as chain
from logplayer.log.open import check_protection, parse
from logplayer.log.protocol import Log
from logplayer.player.maps import check_start
from logplayer.player.start import ask_targets, leave_alone
from logplayer.spark.resident.groups import GroupPlan, deal, worker_name
from logplayer.wire.addresses import parse as parse_target
from logplayer.wire.security import SYSTEM, Security, read_file, require_protection

IDLE_MS = 50  # A target that gets nothing of a stretch of the log is moved on after this long.
OPEN_MS = 10_000  # The first connection of a task also loads classes.


NOT_HERE = {  # What a whole configuration may have, and a query in real time does not do.
    "owner": "keys are routed in the JVM, by the log's map: give a map",
    "owns": "a query plays to all members of the log: leave it out",
    "trims": "it never trims: run 'logplayer log trim' now and then",
    "trims_unroutable": "it never trims: run 'logplayer log trim' now and then",
    "standby": "it takes over at once: start it when it is to play",
    "tables": "rows of tables pass under the log's own names: give the mapping to the stores",
}


@dataclass(frozen=True)
class DriverPort:
    """Where the tasks report to."""

    url: str = ""
    token: str = ""
    ca: str = ""


@dataclass(frozen=True)
class Decided:
    """The log's decisions that a query starts with."""

    log_id: str
    through: int  # The newest control entry: its state holds.
    snapshot: bytes
    addresses: Mapping[str, str]  # Of every member.
    floors: Mapping[str, int]  # Of every member: the index that it must have at least.
    last: int  # Where the log ended.
    control: ControlState


def check_config(config: Config) -> tuple[str, ...]:
    """The log servers. Raises ConfigError for what a connector in the JVM cannot reach or does not do."""
    default = Config()
    for name, instead in NOT_HERE.items():
        if getattr(config, name) != getattr(default, name):
            raise ConfigError(f"realtime does not use the setting {name}: {instead}")
    address = parse(config.log)
    if address.scheme != "grpc":
        raise ConfigError(
            f"tasks in the JVM read a log server, and {config.log} is not one: serve the log with 'logplayer log serve "
            f"{config.log} --listen HOST:PORT', and give grpc://HOST:PORT"
        )
    check_protection(config.log, config.security)
    for where in config.targets.values():
        require_protection(config.security, parse_target(where).host, server=False)
    _secrets(config.security)
    return address.hosts


def addresses_of(control: ControlState, config: Config) -> dict[str, str]:
    """Where each member is. Raises ConfigError for one that no connector would reach."""
    addresses = {name: config.targets.get(name) or member.address for name, member in control.members.items()}
    for name, address in addresses.items():
        if not address:
            raise ConfigError(f"the log does not say where target {name} is: give targets={{{name!r}: ADDRESS}}")
        require_protection(config.security, parse_target(address).host, server=False)
    return addresses


async def members(log: Log, config: Config) -> dict[str, str]:
    """The members that a takeover would find, and where they are. Raises ConfigError."""
    return addresses_of(chain.begin(await chain.load(log), config.map, tuple(config.targets.items())), config)


async def take_over(log: Log, config: Config) -> int:
    """Append the takeover whose index is the query's epoch. Raises ConfigError if nothing would arrive."""
    given = tuple(config.targets.items())
    head = await chain.load(log)
    decided = chain.begin(head, config.map, given)
    check_start(decided, config.map, config.targets, head.state is not None)
    addresses = addresses_of(decided, config)
    if not config.take_over:
        await leave_alone(log, addresses, await ask_targets(addresses, config.security), config.security)
    epoch, _ = await chain.append(log, Takeover(config.group, worker_name()), config.map, given)
    return epoch


async def decisions(log: Log, config: Config) -> Decided:
    """What the log's newest control entry says. There is one: the takeover, or a later one."""
    head = await chain.load(log)
    if head.state is None:
        raise Malformed("the log has no control entry, not even this query's takeover")
    control = head.control(None)
    addresses = addresses_of(control, config)
    floors = {name: member.at or 0 for name, member in control.members.items()}
    info = await log.info()
    return Decided(info.log_id, head.index, head.state.SerializeToString(), addresses, floors, info.last, control)


def tasks(groups: int, addresses: Collection[str]) -> int:
    """How many tasks deliver."""
    return min(groups, len(addresses))


def dealt(groups: int, decided: Decided) -> GroupPlan:
    """Which task delivers to which target."""
    return deal(decided.addresses, tasks(groups, decided.addresses))


def plan_json(config: Config, decided: Decided, epoch: int, groups: int, driver: DriverPort) -> str:
    """The plan in the form that the connector reads."""
    seats = dealt(groups, decided)
    partitions: list[list[dict[str, Any]]] = [[] for _ in range(seats.groups)]
    for name, address in sorted(decided.addresses.items()):
        one = {"name": name, "address": address, "floor": decided.floors[name]}
        partitions[seats.group_of(name)].append(one)
    names = ("batch_count_max", "batch_bytes_max", "flight_batches_max", "flight_bytes_max")
    limits = {name: getattr(config.limits, name) for name in (*names, "progress_ms_max", "heartbeat_ms")}
    plan = {
        "hosts": list(parse(config.log).hosts),
        "log_id": decided.log_id,
        "group": config.group,
        "epoch": epoch,
        "through": decided.through,
        "snapshot": b64encode(decided.snapshot).decode(),
        "partitions": partitions,
        "security": _secrets(config.security),
        "driver": {"url": driver.url, "token": driver.token, "ca": driver.ca},
        "limits": {**limits, "open_ms_max": max(OPEN_MS, config.limits.open_ms_max), "idle_ms": IDLE_MS},
    }
    return json.dumps(plan)


def _secrets(security: Security) -> dict[str, str]:
    """The content of the files: tasks may be on other machines."""

    def text(place: str, what: str) -> str:
        return place if place in ("", SYSTEM) else read_file(place, what).decode("ascii", "ignore")

    return {
        "ca": text(security.ca, "CA"),
        "cert": text(security.cert, "certificate"),
        "key": text(security.key, "key"),
        "token": security.token,
    }
