"""The table against Kafka's connector in docs/spark.md: each row has a test that CI runs, or says why there is none."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import ROOT


@dataclass(frozen=True)
class Because:
    """There is nothing to test in this row; its last cell must say this."""

    reason: str


# The first cell of a row -> tests in tests/spark, or the reason why there is none.
HELD_BY: dict[str, tuple[str, ...] | Because] = {
    "`startingOffsets`, `endingOffsets`": (
        "test_source::test_start_and_end",
        "test_source::test_a_stream_from_latest_and_from_an_index",
    ),
    "`startingTimestamp`, `endingTimestamp`": (
        "test_parity::test_starting_and_ending_timestamp",
        "test_parity::test_a_stream_starts_at_a_timestamp",
    ),
    "`startingOffsetsByTimestamp` (per partition)": Because("a log has one order"),
    "`maxOffsetsPerTrigger`": ("test_parity::test_limits_of_a_micro_batch",),
    "`minOffsetsPerTrigger`, `maxTriggerDelay`": ("test_parity::test_few_entries_wait_for_more_but_not_for_ever",),
    "`minPartitions`, `maxRecordsPerPartition`": ("test_source::test_ranges_are_split_over_tasks",),
    "`failOnDataLoss`": (
        "test_parity::test_entries_that_were_trimmed_before_a_stream_read_them",
        "test_place::test_a_log_that_was_restored_is_not_skipped_over",
        "test_place::test_another_log_is_not_taken_for_the_one_that_was_read",
        "test_place::test_a_stream_that_may_lose_entries_says_where_it_goes_on",
    ),
    "`includeHeaders`": ("test_source::test_headers_are_a_column_for_those_who_ask",),
    "`subscribe` (several topics), column `topic`": (
        "test_parity::test_several_logs_in_one_query",
        "test_parity::test_a_log_that_is_added_starts_at_its_beginning",
    ),
    "`subscribePattern`": Because("there is no list of logs to search"),
    "`assign`, `groupIdPrefix`, `kafka.group.id`": Because("there are no partitions to assign and no groups"),
    "`AvailableNow`, restart from the checkpoint": (
        "test_source::test_a_stream_reads_each_entry_once_through_restarts",
    ),
    "real-time mode": (
        "test_parity::test_real_time_mode_takes_no_source_in_python",
        "test_real_time::test_targets_hold_what_the_query_leaves",
    ),
    "pushdown of filters": (
        "test_source::test_filters_are_pushed_down",
        "test_source::test_a_session_without_pushdown_can_read_too",
    ),
    "pruning of columns": ("test_parity::test_spark_does_not_say_which_columns_are_read",),
    "source metrics in the progress": ("test_parity::test_progress_says_how_far_a_stream_lags",),
    "`CREATE TABLE ... USING`": ("test_parity::test_a_table_in_the_catalog",),
    "`df.write`": (
        "test_sinks::test_a_table_is_appended",
        "test_examples::test_the_batch_write_of_the_page_on_spark",
    ),
    "sink: at least once": (
        "test_sinks::test_rows_reach_the_log_once_through_every_fault",
        "test_sinks::test_rows_reach_the_targets_once_and_in_order",
        "test_sinks::test_a_half_appended_batch_is_finished_not_repeated",
        "test_once::test_a_batch_is_delivered_by_tasks_once",
    ),
    "sink: column `headers`": (
        "test_parity::test_headers_are_written_in_the_payload",
        "test_table_rows::test_headers_come_through_and_are_refused_where_they_contradict",
        "test_table_rows::test_rows_go_from_a_log_into_another_and_into_tables",
    ),
    "an option that does not exist is ignored": ("test_parity::test_what_is_wrong_with_an_option_is_said",),
    "errors": ("test_parity::test_an_error_is_the_first_line_of_its_trace",),
    "Spark Connect": (
        "test_connect::test_every_entry_works_for_a_client_of_spark_connect",
        "test_connect::test_what_needs_a_driver_says_so",
    ),
}


def rows() -> dict[str, str]:
    """The first cell of each row, and the last, which says what is different."""
    table = (ROOT / "docs" / "spark.md").read_text().partition("| Kafka | Here | |\n|---|---|---|\n")[2]
    cells = [re.split(r" *\| *", line.strip("|").strip()) for line in table.partition("\n\n")[0].splitlines()]
    return {row[0]: row[-1] for row in cells}


def test_every_row_is_held_or_says_why_not() -> None:
    found = rows()
    assert set(found) == set(HELD_BY)
    for name, held in HELD_BY.items():
        if isinstance(held, Because):
            assert held.reason in found[name], f"{name} has neither a test nor its reason"
        else:
            assert held, f"{name} has no test"


def in_every_run(file: Path) -> set[str]:
    """The tests of a file of which at least some cases run without ``-m soak``."""
    tree = ast.parse(file.read_text())
    marked = [
        node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    if any("soak" in ast.unparse(node) for node in marked):
        return set()
    tests = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))
    always = {"pytest.mark.soak", "pytest.mark.skip"}
    return {
        test.name for test in tests if not always & {ast.unparse(one).partition("(")[0] for one in test.decorator_list}
    }


def test_a_test_that_only_soak_runs_holds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "test_x.py"
    file.write_text(
        "@pytest.mark.soak\ndef test_long(): ...\ndef test_short(): ...\ndef helper(): ...\n"
        "@pytest.mark.parametrize('x', [1, pytest.param(2, marks=pytest.mark.soak)])\ndef test_both(x): ...\n"
    )
    assert in_every_run(file) == {"test_short", "test_both"}
    file.write_text("pytestmark = [pytest.mark.soak]\n" + file.read_text())
    assert in_every_run(file) == set()


@pytest.mark.parametrize("name", [name for name, held in HELD_BY.items() if not isinstance(held, Because)])
def test_its_tests_run_in_every_run(name: str) -> None:
    held = HELD_BY[name]
    assert not isinstance(held, Because)
    for test in held:
        file, _, function = test.partition("::")
        assert function in in_every_run(ROOT / "tests" / "spark" / f"{file}.py"), f"{name}: {test}"
