"""Fixtures of the tests of targets."""

from __future__ import annotations

from tests.target.store_places import place

__all__ = ["place"]
