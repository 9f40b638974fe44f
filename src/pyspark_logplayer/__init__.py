"""Spark looks for modules with this prefix, and so finds ``format("logplayer")`` by itself."""

from logplayer.spark.format import LogPlayerSource as DefaultSource

__all__ = ["DefaultSource"]
