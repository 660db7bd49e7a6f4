"""Server events as the load test generates them, the same in every run."""

from typing import Any, Final

from snapbid.loadtest import events
from snapbid.loadtest.events import encode

__all__ = ["BATCH", "NOW_MS", "encode", "generate"]

BATCH: Final = 600
NOW_MS: Final = 1_790_000_000_000


def generate(count: int = BATCH, seed: int = 1) -> list[dict[str, Any]]:
    """Generate valid envelopes, with each event type at its share of traffic."""
    return events.generate(count, seed, NOW_MS)
