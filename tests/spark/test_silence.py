"""What is shown of groups that nobody is heard to play: never LIVE with lag 0."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from logplayer.admin.exposition import Samples, add_player, exposition
from logplayer.player.start import Waiting
from logplayer.player.status_table import status_table
from logplayer.spark.resident.events import Heard
from logplayer.spark.resident.group_run import SILENT_MS
from logplayer.spark.resident.groups import deal
from logplayer.spark.resident.heartbeat import Beat, read_beat
from logplayer.spark.resident.machine import Machine, Settings
from logplayer.spark.resident.overview import Overview
from logplayer.spark.resident.silence import why_not_ready
from tests.spark.test_heartbeats import a_beat


def heard(machine: Machine, overview: Overview, group: int, target: str) -> Beat:
    """A heartbeat of a group whose target is LIVE and has everything up to 41."""
    question = {**a_beat(target, index=41, state="LIVE", lag_entries=0, lag_seconds=0.0), "group": group}
    question["status"] |= {"current": 41, "log_last": 41, "log_error": ""}
    beat = read_beat(question, machine.plan, machine.members)
    overview.heard(beat)
    machine.step(Heard(machine.jobs()[group], beat))
    return beat


def shown(status: dict[str, Any], target: str) -> tuple[str, int, int]:
    [row] = [row for row in status["targets"] if row["target"] == target]
    return row["state"], row["index"], row["lag_entries"]


def test_a_silent_group_is_shown_as_silent_everywhere() -> None:
    machine = Machine(Settings(), deal("ab", 2), frozenset("ab"), application=1)
    machine.begin(0)
    overview = Overview()
    status = overview.status(machine, 0, 41)
    assert status["state"] == "starting"
    assert (shown(status, "a"), shown(status, "b")) == (("SILENT", -1, 0), ("SILENT", -1, 0))
    heard(machine, overview, 0, "a")
    heard(machine, overview, 1, "b")
    status = overview.status(machine, SILENT_MS, 41)
    assert status["state"] == "playing"
    assert (shown(status, "a"), shown(status, "b")) == (("LIVE", 41, 0), ("LIVE", 41, 0))

    machine.now = SILENT_MS
    heard(machine, overview, 0, "a")
    later = SILENT_MS + 1
    status = overview.status(machine, later, 50)  # The driver itself sees where the log ends.
    assert (shown(status, "a"), shown(status, "b")) == (("LIVE", 41, 0), ("SILENT", 41, 9))
    [row] = [row for row in status["targets"] if row["target"] == "b"]
    assert row["lag_seconds"] >= SILENT_MS / 1000
    assert row["why"].startswith("nobody is heard to play group 1, for 3 s")
    assert "SILENT" in status_table(status)
    samples = Samples()
    add_player(samples, status)
    text = exposition(samples).decode()
    assert 'logplayer_target_state{state="SILENT",target="b"} 1.0' in text
    assert 'logplayer_target_state{state="LIVE",target="b"} 0.0' in text
    assert 'logplayer_group_playing{group="1"} 0.0' in text
    assert 'logplayer_group_playing{group="0"} 1.0' in text

    status = overview.status(machine, 10 * SILENT_MS, 50)
    assert status["state"] == "silent"
    assert "no word from [0, 1]" in status["player"]


def series(status: dict[str, Any], name: str) -> list[float]:
    """The values of one metric, as Prometheus gets them."""
    samples = Samples()
    add_player(samples, status)
    families = text_string_to_metric_families(exposition(samples).decode())
    return [sample.value for family in families for sample in family.samples if sample.name == name]


def test_a_standby_alarms_nobody_and_hides_no_alarm() -> None:
    """The alerts ask for groups that are not played, and whether any player has taken over."""
    machine = Machine(Settings(), deal("ab", 2), frozenset("ab"))
    machine.begin(0)
    overview = Overview()
    standby = overview.status(machine, 0, 41)
    assert standby["state"] == "standby"
    assert series(standby, "logplayer_group_playing") == []
    assert series(standby, "logplayer_player_epoch") == []
    machine.application = 1
    starting = overview.status(machine, 0, 41)
    assert series(starting, "logplayer_group_playing") == [0, 0]
    assert series(starting, "logplayer_player_epoch") == []
    heard(machine, overview, 0, "a")
    playing = overview.status(machine, 0, 41)
    assert series(playing, "logplayer_group_playing") == [1, 0]
    assert series(playing, "logplayer_player_epoch") == [playing["epoch"]]
    waiting = Waiting("p", "", "grpc://x").status()
    assert series(waiting, "logplayer_player_epoch") == []
    assert series(waiting, "logplayer_player_info") == [1]


def test_an_application_is_ready_while_every_group_is_heard_to_play() -> None:
    machine = Machine(Settings(), deal("ab", 2), frozenset("ab"))
    machine.begin(0)
    assert why_not_ready(machine, 0) == "it stands by: another player plays"
    machine.application = 1
    waits = "nobody is heard to play group {}: its job waits for a slot in Spark"
    assert why_not_ready(machine, 0) == f"{waits.format(0)}; {waits.format(1)}"
    overview = Overview()
    heard(machine, overview, 0, "a")
    assert why_not_ready(machine, 0) == waits.format(1)
    heard(machine, overview, 1, "b")
    assert why_not_ready(machine, 0) == ""
    assert "group 0, for 3 s: its player is not heard; nobody" in why_not_ready(machine, SILENT_MS + 1)
    machine.now = SILENT_MS + 1
    heard(machine, overview, 0, "a")
    heard(machine, overview, 1, "b")
    assert why_not_ready(machine, SILENT_MS + 1) == ""


def test_a_standby_and_an_application_that_stops_say_so() -> None:
    machine = Machine(Settings(), deal("ab", 1), frozenset("ab"))
    machine.begin(0)
    assert Overview().status(machine, 0, 0)["state"] == "standby"
    machine.stopping = True
    assert Overview().status(machine, 0, 0)["state"] == "stopping"
