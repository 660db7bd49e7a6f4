"""Metrics of the ledger's round trips: their duration and batch sizes."""

from collections.abc import Callable
from typing import Final

from snapbid.metrics import Metrics

SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2000)
SECONDS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)

Observe = Callable[[int, int, float], None]


def commits(metrics: Metrics) -> Observe:
    """Return the observer of round trips: called with the numbers of answers with bids and of
    notices, and the duration (s).
    """
    name = "snapbid_commit_batch_size"
    of_bids = metrics.histogram(name, SIZES, of="bids")
    of_notices = metrics.histogram(name, SIZES, of="notices")
    took = metrics.histogram("snapbid_commit_seconds", SECONDS)

    def observe(bids: int, notices: int, seconds: float) -> None:
        if bids:
            of_bids.observe(bids)
        if notices:
            of_notices.observe(notices)
        took.observe(seconds)

    return observe


def unobserved(bids: int, notices: int, seconds: float) -> None:
    """Ignore a round trip: the observer for callers without metrics."""
