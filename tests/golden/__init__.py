"""Golden files: what a release wrote, and what it must mean to every later one.

``python -m tests.golden`` writes those of this release into ``tests/golden/VERSION``, once: they are frozen with the
release and never written again. ``test_golden.py`` reads those of every release.
"""
