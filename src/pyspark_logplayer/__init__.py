"""Spark looks for modules with this prefix, and so finds ``format("logplayer")`` by itself."""

from logplayer.spark.source.table import LogPlayerSource as DefaultSource

__all__ = ["DefaultSource"]
