"""Answers to each SSP by outcome, from the worker's metrics."""

from collections.abc import Iterator
from typing import Final

from snapbid.metrics import Metrics
from snapbid.metrics.keys import parse_key

METRIC: Final = "snapbid_bid_requests_total"


class Outcomes:
    """Yields, at each call, the growth since the call before."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._seen = metrics.values(METRIC)  # counted by earlier processes

    def __call__(self) -> Iterator[tuple[str, str, int]]:
        """Yield SSP, outcome and growth of each series that has grown."""
        before, self._seen = self._seen, self._metrics.values(METRIC)
        for key, value in self._seen.items():
            more = value - before.get(key, 0)
            if more:
                labels = parse_key(key)[1]
                yield labels["ssp"], labels["outcome"], more
