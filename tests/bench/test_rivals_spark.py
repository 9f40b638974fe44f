"""Spark's micro-batches deliver the whole workload."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from bench.contest import Sample, Workload
from tests.servers import require

SMALL = Workload(targets=3, keys=4, rate=200.0, count=20, warm_up=2)


@pytest.mark.soak
def test_micro_batches_deliver_every_transaction() -> None:
    require("pyspark")
    # In a process of its own: the tests of the pipeline share the one session of this process.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        samples = pool.submit(_run).result()
    wanted = {(number, target) for number in SMALL.counted() for target in SMALL.parts(number)}
    assert {(s.transaction, s.target) for s in samples} == wanted
    assert len(samples) == len(wanted)
    assert all(s.asked_ns < s.commit_ns and s.asked_ns < s.dispatch_ns < s.apply_ns for s in samples)


def _run() -> list[Sample]:
    from bench.rivals.spark_micro_batch import SparkMicroBatch

    contestant = SparkMicroBatch("file")
    try:
        contestant.open()
        return contestant.run(SMALL)
    finally:
        contestant.close()
        contestant.close()
