"""The paper's experiments: the same workload for this player and its rivals, alternating in one run."""
