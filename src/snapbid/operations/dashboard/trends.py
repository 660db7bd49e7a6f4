"""Rates and latency of the last five minutes, hour and day.

A mark holds the counters at one moment; two adjacent marks give a rate and two percentiles. The
marks of the hour and the day are written to a file beside the counters, and survive a restart of
the server.
"""

import contextlib
import os
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from snapbid.metrics.keys import parse_key
from snapbid.operations.dashboard.counts import BIDS, EVENTS, NOTICES, WHOLE, Counts, quantile

SPANS: Final = {"5 minutes": (2.0, 150), "hour": (30.0, 120), "day": (600.0, 144)}
"""Seconds between two marks, and the number of intervals kept, by name."""
SAVED: Final = ("hour", "day")
FILE: Final = "trends"
REQUESTS: Final = "snapbid_http_requests_total"
SLACK: Final = 0.9  # share of the interval between marks, since samples are not exactly on time


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """Counter values at one moment."""

    at: float  # epoch s
    requests: int
    bids: int
    errors: int
    notices: int
    events: int
    buckets: dict[str, int]  # the latency histogram, by upper bound


class TrendPoint(NamedTuple):
    """Rates per second and latency percentiles (s) between two successive samples."""

    age: float  # of the later sample, in seconds
    requests: float
    bids: float
    errors: float  # answers with a 5xx
    p50: float | None
    p99: float | None


class Rates(msgspec.Struct, frozen=True):
    """Rates per second; `bid_share` is the share of requests answered with a bid."""

    requests: float
    bids: float
    notices: float
    events: float
    bid_share: float | None


class Trends:
    """The marks (see `Mark`) of the last five minutes, hour and day.

    Written by one thread, read by others. The marks of the hour and the day are saved in `folder`,
    beside the counters.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._marks = {name: deque[Mark](maxlen=count + 1) for name, (_, count) in SPANS.items()}
        for name, marks in self._load().items():
            if name in SAVED:
                self._marks[name].extend(marks)

    def add(self, at: float, counts: Counts) -> None:
        """Add the counters as read at `at` (epoch s)."""
        mark = _mark(at, counts)
        save = False
        for name, (every_s, _) in SPANS.items():
            marks = self._marks[name]
            while marks and marks[-1].at > at:  # the clock was set back
                marks.pop()
            if not marks or at - marks[-1].at >= every_s * SLACK:
                marks.append(mark)
                save = save or name in SAVED
        if save:
            self._save()

    def rates(self, seconds: float) -> Rates | None:
        """Return the average rates over the last `seconds`; None before the second sample."""
        marks = list(self._marks["5 minutes"])
        if len(marks) < 2:
            return None
        last = marks[-1]
        before = next((mark for mark in reversed(marks) if last.at - mark.at >= seconds), marks[0])
        requests, bids = _rate(before, last, "requests"), _rate(before, last, "bids")
        share = bids / requests if requests else None
        notices, events = _rate(before, last, "notices"), _rate(before, last, "events")
        return Rates(requests, bids, notices, events, share)

    def points(self, now: float) -> dict[str, list[TrendPoint]]:
        """Return the points of each trend by its name, such as `hour`, oldest first."""
        return {
            name: [
                _point(now, before, mark)
                for before, mark in pairwise(list(marks))
                if now - mark.at <= SPANS[name][0] * SPANS[name][1]
            ]
            for name, marks in self._marks.items()
        }

    def _load(self) -> dict[str, list[Mark]]:
        try:
            return msgspec.msgpack.decode(self._file.read_bytes(), type=dict[str, list[Mark]])
        except (OSError, msgspec.DecodeError):
            return {}

    def _save(self) -> None:
        new = self._file.with_name(f"{FILE}.new")
        data = msgspec.msgpack.encode({name: list(self._marks[name]) for name in SAVED})
        with contextlib.suppress(OSError):  # a full disk: the marks are lost at a restart
            new.write_bytes(data)
            os.replace(new, self._file)


def _mark(at: float, counts: Counts) -> Mark:
    requests = bids = errors = notices = events = 0
    buckets = {}
    for key, value in counts.items():
        if key.startswith(BIDS):
            requests += value
            if 'outcome="bid"' in key:
                bids += value
        elif key.startswith(f"{WHOLE}_bucket"):
            buckets[parse_key(key)[1]["le"]] = value
        elif key.startswith(REQUESTS) and 'status="5' in key and 'route="health"' not in key:
            errors += value
        elif key.startswith(NOTICES):
            notices += value
        elif key.startswith(EVENTS):
            events += value
    return Mark(at, requests, bids, errors, notices, events, buckets)


def _rate(before: Mark, mark: Mark, name: str) -> float:
    """Return the growth per second of a count between two marks."""
    grown = max(getattr(mark, name) - getattr(before, name), 0)
    return float(grown / max(mark.at - before.at, 0.001))


def _point(now: float, before: Mark, mark: Mark) -> TrendPoint:
    grown = _growth(before.buckets, mark.buckets)
    p50, p99 = (quantile(grown, share) if grown else None for share in (0.5, 0.99))
    requests, bids, errors = (
        round(_rate(before, mark, name), 2) for name in ("requests", "bids", "errors")
    )
    return TrendPoint(round(max(now - mark.at, 0.0), 1), requests, bids, errors, p50, p99)


def _growth(before: Mapping[str, int], after: Mapping[str, int]) -> list[tuple[float, int]]:
    """Return (upper bound, growth) of each bucket, ascending; empty if nothing was counted."""
    grown = sorted(
        (float(bound), max(value - before.get(bound, 0), 0)) for bound, value in after.items()
    )
    return grown if any(more for _, more in grown) else []
