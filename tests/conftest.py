"""What every folder of tests may use, and how the tests share a machine."""

from pathlib import Path

import pytest

from servers import postgres_url, redis_url

__all__ = ["postgres_url", "redis_url"]

# Folders whose tests share something expensive: one Spark session, one cluster.
TOGETHER = ("spark",)


@pytest.hookimpl(tryfirst=True)  # Before xdist looks at the groups.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers (``pytest -n 3 --dist loadgroup``) the tests of one file stay on one of them."""
    here = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(here)
        group = path.parts[0] if path.parts[0] in TOGETHER else str(path)
        item.add_marker(pytest.mark.xdist_group(group))
