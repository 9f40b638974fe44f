"""``python -m logplayer.cli``."""

from logplayer.cli.main import main

main()
