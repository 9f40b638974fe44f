"""Fixtures of the tests of targets."""

from __future__ import annotations

from tests.target.store_places import any_place, place, table_place

__all__ = ["any_place", "place", "table_place"]
