"""The asyncio shell that runs the core: one inbox, a main fetcher, catch-up readers, one session per target."""
