"""The benchmark of what the chain costs runs, both sides, and reports its ratios."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests import ROOT


def test_it_reports_what_the_chain_costs(tmp_path: Path) -> None:
    script = str(ROOT / "bench/parts/chain_bench.py")
    command = [sys.executable, script, "--scale", "0.02", "--turns", "2", "--json", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result) == {"append 10240", "append 200", "deliver 10240", "deliver 200"}
    for found in result.values():
        assert found["turns"] == 2
        assert found["throughput"] > 0
        assert found["cpu"] > 0
        assert found["cpu_least"] > 0
        assert found["constant_per_second"] > 0
    assert not list(tmp_path.iterdir())


def test_the_constant_side_has_no_chain_and_the_other_one_has() -> None:
    """Else it would compare a thing with itself."""
    program = """
from bench.parts import chain_bench
from logplayer.core import chain
from logplayer.log import chain as readers, sequences
from logplayer.log.file import writer
def values():
    one = {module.extend(b"", 0, "p", n, b"12345678") for module in (chain, readers, sequences) for n in (1, 2)}
    return one | set(writer.extend_all(b"", [("p", 1, b"", 0), ("p", 2, b"", 0)], [b"12345678"] * 2))
real = values()
assert len(real) == 3
chain_bench.take("constant")
assert values() == {chain_bench.CONSTANT}
chain_bench.take("chain")
assert values() == real
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
