"""The paper's experiments: the same workload for this player and for competing systems, alternating in one run."""
