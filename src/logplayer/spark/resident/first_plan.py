"""The groups of a new application: as many as the targets are worth, as far as Spark has room for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from logplayer.errors import UserError
from logplayer.spark.resident.groups import GroupPlan, count_groups, deal
from logplayer.spark.session import executors, is_elastic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOM_SECONDS = 30.0  # How long a cluster's executors may take to register before the groups wait for slots.
LOOK_SECONDS = 0.1


def first_plan(spark: SparkSession, members: frozenset[str], wanted: int, stop: Callable[[], bool]) -> GroupPlan:
    """Deal the members out to ``wanted`` groups; 0: LogPlayer chooses.

    A cluster's executors may take a while to register; after ``ROOM_SECONDS`` groups that find no slot wait for one.

    Raises:
        UserError: There are no members, or more groups than a local master has slots: it never gets more.
    """
    if not members:
        raise UserError("no target is given: say --target NAME=ADDRESS, or add members to the log")
    local = str(spark.sparkContext.master).startswith("local[")
    room = _room(spark, count_groups(len(members), len(members), wanted), local, stop)
    groups = count_groups(len(members), room, wanted)
    if groups > room and local:
        raise UserError(
            f"{groups} groups need {groups} slots at once, and Spark has {room}: lower groups, or give the "
            f"master more cores (for example local[{groups}]); the rest would never be played"
        )
    return deal(members, groups)


def _room(spark: SparkSession, wanted: int, local: bool, stop: Callable[[], bool]) -> int:
    """The slots that there are, or with dynamic allocation will be."""
    if is_elastic(spark):
        return wanted
    deadline = time.monotonic() + ROOM_SECONDS
    while (found := sum(executors(spark).values())) < wanted:
        if local or stop() or time.monotonic() > deadline:
            break
        time.sleep(LOOK_SECONDS)
    return found
