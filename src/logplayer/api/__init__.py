"""The public face, where it is more than a name of another room: an opened log with its producers, a player to embed.

docs/api.md describes it; ``import logplayer as lp`` has its names.
"""
