"""``python -m tests.campaign --faults 300``."""

from __future__ import annotations

import sys

from tests.campaign.campaign import main

if __name__ == "__main__":
    sys.exit(main())
