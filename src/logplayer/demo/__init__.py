"""``logplayer demo``: money moves between shards while processes are killed and frozen, and the total never changes."""
