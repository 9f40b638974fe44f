"""What every folder of tests may use."""

from servers import postgres_url, redis_url

__all__ = ["postgres_url", "redis_url"]
