"""Latencies in the buckets of an HdrHistogram (hdrhistogram.org): 3 digits from 1 µs on.

Up to 2047 µs each microsecond has a bucket; from there on each doubling has 1024. Only the buckets
that were hit are kept, which makes a second's histogram as cheap to keep as the whole run's.
"""

from collections.abc import Iterable
from typing import Final

_DIGITS: Final = 11  # binary; 2**11 buckets before the first doubling
_HALF: Final = 1 << (_DIGITS - 1)
MAX_US: Final = 3_600_000_000

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9, 99.99)


class Histogram:
    """Counts of values in µs; a value stands for its bucket's upper end."""

    __slots__ = ("buckets", "count", "max_us")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.max_us = 0

    def record(self, seconds: float) -> None:
        """Count one value; below zero is zero, over an hour is an hour."""
        value = int(seconds * 1e6)
        if value > self.max_us:
            self.max_us = value = min(value, MAX_US)
        elif value < 0:
            value = 0
        shift = value.bit_length() - _DIGITS
        place = value if shift <= 0 else (shift << (_DIGITS - 1)) + (value >> shift)
        self.buckets[place] = self.buckets.get(place, 0) + 1
        self.count += 1

    def add(self, other: "Histogram") -> None:
        """Count all values of another one, too."""
        for place, count in other.buckets.items():
            self.buckets[place] = self.buckets.get(place, 0) + count
        self.count += other.count
        self.max_us = max(self.max_us, other.max_us)

    def percentile(self, percent: float) -> float:
        """The value in ms that so many percent of all do not exceed; 0 without values."""
        return self.percentiles([percent])[0]

    def percentiles(self, percents: Iterable[float]) -> list[float]:
        """Several at once, in ascending order of percents."""
        found: list[float] = []
        places = iter(sorted(self.buckets.items()))
        place, seen = -1, 0
        for percent in percents:
            wanted = max(1, -int(-self.count * percent // 100)) if self.count else 0
            while seen < wanted:
                place, count = next(places)
                seen += count
            found.append(min(_upper_us(place), self.max_us) / 1000 if self.count else 0.0)
        return found


def _upper_us(place: int) -> int:
    """The highest value of a bucket."""
    shift = max(0, (place >> (_DIGITS - 1)) - 1)
    return ((place - (shift << (_DIGITS - 1)) + 1) << shift) - 1 if shift else place


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram of all their values."""
    total = Histogram()
    for one in histograms:
        total.add(one)
    return total
