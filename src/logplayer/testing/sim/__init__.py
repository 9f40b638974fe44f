"""A deterministic simulator around the real core: the same seed takes the same steps and ends in the same state.

Reading order: ``options`` (what a seed stands for), ``world`` (log, targets, network), ``host`` (a player's shell),
``checkers`` (what must hold), ``simulation`` (the scheduler, the faults and the two phases).
"""
