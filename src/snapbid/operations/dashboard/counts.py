"""The growth of all workers' counters over the last minute: totals, shares and percentiles.

Counters are sampled every 2 s even if no page is open, so a page has a history as soon as it opens.
One sample every 10 s is kept for a minute.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Final

from snapbid.metrics.keys import parse_key

Counts = Mapping[str, int]

WINDOW_S: Final = 60.0
KEEP_EVERY_S: Final = 10.0
FEW: Final = 20  # requests, below which a share is not meaningful

BIDS: Final = "snapbid_bid_requests_total"
EVENTS: Final = "snapbid_events_accepted_total"
NOTICES: Final = "snapbid_notices_total"
WHOLE: Final = "snapbid_bid_seconds"


class CountWindow:
    """The growth of counters between two moments, by key (see `metrics.slots`)."""

    def __init__(self, seconds: float, before: Counts, now: Counts) -> None:
        self.seconds = seconds
        self._names: defaultdict[str, list[tuple[dict[str, str], int]]] = defaultdict(list)
        for key, value in now.items():
            grown = value - before.get(key, 0)
            if grown > 0 or "_bucket{" in key:  # a quantile also needs empty buckets
                name, labels = parse_key(key)
                self._names[name].append((labels, grown))

    def of(self, name: str) -> list[tuple[dict[str, str], int]]:
        """Return the labels and growth of each series of a metric.

        Series without growth are left out, except the buckets of histograms.
        """
        return self._names.get(name, [])

    def total(self, name: str) -> int:
        """Return the growth of a counter over all labels."""
        return sum(grown for _, grown in self.of(name))

    def errors(self) -> int:
        """Return the number of requests answered with a 5xx, not counting health checks."""
        return sum(
            grown
            for labels, grown in self.of("snapbid_http_requests_total")
            if labels.get("status", "").startswith("5") and labels.get("route") != "health"
        )

    def quantiles(
        self, name: str, fractions: Sequence[float], **labels: str
    ) -> list[float | None] | None:
        """Return quantiles of a histogram, with None for any beyond the last finite bound.

        Only series with all of `labels` are counted. Returns None instead of a list if nothing was
        counted.
        """
        counts: defaultdict[float, int] = defaultdict(int)
        for own, grown in self.of(f"{name}_bucket"):
            if labels.items() <= own.items():
                counts[float(own["le"])] += grown
        buckets = sorted(counts.items())
        if not sum(counts.values()):
            return None
        return [quantile(buckets, fraction) for fraction in fractions]


def quantile(buckets: Sequence[tuple[float, int]], fraction: float) -> float | None:
    """Return a quantile of ascending (upper bound, count) buckets, interpolated within a bucket.

    Returns None if the quantile is beyond the last finite bound.
    """
    rank = fraction * sum(count for _, count in buckets)
    passed, low = 0, 0.0
    for bound, count in buckets:
        if count and passed + count >= rank:
            if bound == float("inf"):
                return None
            return low + (bound - low) * (rank - passed) / count
        passed, low = passed + count, bound
    return None


class CountHistory:
    """Samples of all counters from the last minute. Written by one thread, read by others."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Counts]] = deque(maxlen=int(WINDOW_S / KEEP_EVERY_S) + 1)
        self._last: tuple[float, Counts] | None = None

    def add(self, at: float, counts: Counts) -> None:
        """Add a sample taken at `at` (epoch s); start over if the clock was set back."""
        if self._last is not None and at < self._last[0]:
            self._kept.clear()
        if not self._kept or at - self._kept[-1][0] >= KEEP_EVERY_S:
            self._kept.append((at, counts))
        self._last = (at, counts)

    def window(self) -> CountWindow | None:
        """Return how all counters grew in about the last minute; None before the second sample."""
        last, kept = self._last, list(self._kept)
        if last is None or not kept or last[0] <= kept[0][0]:
            return None
        return CountWindow(last[0] - kept[0][0], kept[0][1], last[1])
