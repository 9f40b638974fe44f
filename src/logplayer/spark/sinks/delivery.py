"""Carries out a decided micro-batch for targets: the identity of the query there, the addresses, and the delivery."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from logplayer.core.entry import Takeover
from logplayer.log import control_chain as chain
from logplayer.spark import event_loop
from logplayer.spark.folders import Folder
from logplayer.spark.options import SparkOptions, require_log
from logplayer.spark.sinks.deliver import Destination, play
from logplayer.spark.sinks.parts import Part, messages_of
from logplayer.spark.sinks.staging import Intent, Staging

SESSIONS_MAX = 16


def first_target_state(options: SparkOptions, staging: Staging) -> dict[str, Any]:
    """The identity that the query has for its targets, decided once."""
    if staging.started():
        return {}
    if not options.config.log:
        return {"log_id": f"spark-{uuid.uuid4().hex[:12]}", "epoch": 1, "high": 0}
    with event_loop.opened(require_log(options), readonly=False) as log:
        log_id = event_loop.run(log.info()).log_id
        record = Takeover(options.producer, f"spark-{uuid.uuid4().hex[:12]}")
        epoch, _ = event_loop.run(chain.append(log, record, options.config.map))
    return {"log_id": log_id, "epoch": epoch, "high": 0}


def destinations(options: SparkOptions, intent: Intent) -> list[Destination]:
    """All targets, those too that have no rows in this batch: they learn how far it goes."""
    log_id, epoch = intent.state["log_id"], intent.state["epoch"]
    config = options.config
    return [Destination(name, address, log_id, epoch, config.security) for name, address in config.targets.items()]


def deliver_to(where: Sequence[Destination], folder: Folder, parts: Sequence[Part], highest: int) -> None:
    """Deliver a decided batch to some targets, side by side; doing so again changes nothing."""
    if not highest:
        return
    with ThreadPoolExecutor(min(SESSIONS_MAX, max(1, len(where)))) as threads:
        work = [threads.submit(_deliver, target, folder, parts, highest) for target in where]
        for done in work:
            done.result()


def _deliver(where: Destination, folder: Folder, parts: Sequence[Part], highest: int) -> None:
    play(where, lambda index: messages_of(folder, where.target, parts), highest)
