"""SQL between the log and the shards, at milliseconds: a query in Spark's real-time mode, delivered exactly once."""
