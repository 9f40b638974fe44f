"""The HTTP face of every process: status, metrics, health, events and, at a player, the page and its actions."""
