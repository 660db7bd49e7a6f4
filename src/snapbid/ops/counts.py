"""The counters of all workers over the last minutes: rates, shares and percentiles.

Samples are taken every 2 s whether or not anybody looks, so that a page that is opened has a past.
Of each only totals are kept (5 minutes of them); whole ones are kept every 10 s, for a minute.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from snapbid.metrics.keys import parse_key

Counts = Mapping[str, int]

POINTS: Final = 150
WINDOW_S: Final = 60.0
KEEP_EVERY_S: Final = 10.0

BIDS: Final = "snapbid_bid_requests_total"
EVENTS: Final = "snapbid_events_accepted_total"
NOTICES: Final = "snapbid_notices_total"
WHOLE: Final = "snapbid_bid_seconds"


class Point(NamedTuple):
    """Totals since ever at a moment (epoch s)."""

    at: float
    requests: int
    bids: int
    notices: int
    events: int


class Window:
    """What was counted between two moments, by key (see `metrics.slots`)."""

    def __init__(self, seconds: float, before: Counts, now: Counts) -> None:
        self.seconds = seconds
        self._names: defaultdict[str, list[tuple[dict[str, str], int]]] = defaultdict(list)
        for key, value in now.items():
            grown = value - before.get(key, 0)
            if grown > 0 or "_bucket{" in key:  # a quantile needs the empty ones too
                name, labels = parse_key(key)
                self._names[name].append((labels, grown))

    def of(self, name: str) -> list[tuple[dict[str, str], int]]:
        """Labels and growth of each series that grew."""
        return self._names.get(name, [])

    def total(self, name: str) -> int:
        """Growth of a counter over all labels."""
        return sum(grown for _, grown in self.of(name))

    def quantiles(
        self, name: str, wanted: Sequence[float], **labels: str
    ) -> list[float | None] | None:
        """Quantiles of a histogram; None for one beyond the last bound, for all without values."""
        found: defaultdict[float, int] = defaultdict(int)
        for has, grown in self.of(f"{name}_bucket"):
            if labels.items() <= has.items():
                found[float(has["le"])] += grown
        buckets = sorted(found.items())
        if not sum(found.values()):
            return None
        return [quantile(buckets, each) for each in wanted]


def quantile(buckets: Sequence[tuple[float, int]], wanted: float) -> float | None:
    """The quantile of ascending (upper bound, count) buckets, taken as evenly spread in each.

    None where it lies beyond the last finite bound.
    """
    rank = wanted * sum(count for _, count in buckets)
    passed, low = 0, 0.0
    for bound, count in buckets:
        if count and passed + count >= rank:
            if bound == float("inf"):
                return None
            return low + (bound - low) * (rank - passed) / count
        passed, low = passed + count, bound
    return None


class History:
    """The samples of the last minutes. Written by one thread, read by others."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS)
        self._kept: deque[tuple[float, Counts]] = deque(maxlen=int(WINDOW_S / KEEP_EVERY_S) + 1)
        self._last: tuple[float, Counts] | None = None

    def add(self, at: float, counts: Counts) -> None:
        """Add a sample, `at` epoch s."""
        self._points.append(_point(at, counts))
        if not self._kept or at - self._kept[-1][0] >= KEEP_EVERY_S:
            self._kept.append((at, counts))
        self._last = (at, counts)

    def points(self) -> list[Point]:
        """Totals, oldest first."""
        return list(self._points)

    def window(self) -> Window | None:
        """Growth over the last minute, or what there is of it; None before the second sample."""
        last, kept = self._last, list(self._kept)
        if last is None or not kept or last[0] <= kept[0][0]:
            return None
        return Window(last[0] - kept[0][0], kept[0][1], last[1])


def growth(points: Sequence[Point]) -> Iterator[tuple[float, Point]]:
    """Seconds and growth between neighbours; `at` is the later moment."""
    for before, now in pairwise(points):
        changes = (max(b - a, 0) for a, b in zip(before[1:], now[1:], strict=True))
        yield max(now.at - before.at, 0.001), Point(now.at, *changes)


def _point(at: float, counts: Counts) -> Point:
    requests = bids = notices = events = 0
    for key, value in counts.items():
        if key.startswith(BIDS):
            requests += value
            if 'outcome="bid"' in key:
                bids += value
        elif key.startswith(NOTICES):
            notices += value
        elif key.startswith(EVENTS):
            events += value
    return Point(at, requests, bids, notices, events)
