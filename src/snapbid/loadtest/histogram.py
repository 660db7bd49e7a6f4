"""Latencies in the buckets of an HdrHistogram (hdrhistogram.org), to 3 digits, from 1 µs up.

Each microsecond up to 2047 µs has a bucket; above that, each doubling of the value has 1024
buckets. Only non-empty buckets are stored, so a histogram per second is cheap.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

_DIGITS: Final = 11  # binary; 2**11 buckets before the first doubling
MAX_US: Final = 3_600_000_000

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9, 99.99)


class LatencyHistogram(Struct):
    """Counts of values in µs; a value is represented by its bucket's upper end."""

    buckets: dict[int, int] = {}
    count: int = 0
    max_us: int = 0

    def record(self, seconds: float) -> None:
        """Count a latency in seconds, clamped to between 0 and one hour."""
        value = int(seconds * 1e6)
        if value > self.max_us:
            self.max_us = value = min(value, MAX_US)
        elif value < 0:
            value = 0
        shift = value.bit_length() - _DIGITS
        bucket = value if shift <= 0 else (shift << (_DIGITS - 1)) + (value >> shift)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        self.count += 1

    def add(self, other: "LatencyHistogram") -> None:
        """Add all values of another histogram."""
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += other.count
        self.max_us = max(self.max_us, other.max_us)

    def percentile(self, percent: float) -> float:
        """Return a percentile of the values, in ms; 0 if there are no values."""
        return self.percentiles([percent])[0]

    def latencies_ms(self) -> dict[str, float]:
        """Return latencies in ms by percentile, and the maximum."""
        names = (f"p{percent:g}" for percent in PERCENTILES)
        by_percentile = dict(zip(names, self.percentiles(PERCENTILES), strict=True))
        return by_percentile | {"max": self.max_us / 1000}

    def percentiles(self, percents: Iterable[float]) -> list[float]:
        """Return several percentiles, in ms, in one pass; `percents` must be in ascending order."""
        values: list[float] = []
        buckets = iter(sorted(self.buckets))
        bucket, seen = -1, 0
        for percent in percents:
            wanted = max(1, -int(-self.count * percent // 100)) if self.count else 0
            while seen < wanted:
                bucket = next(buckets)
                seen += self.buckets[bucket]
            values.append(min(_upper_us(bucket), self.max_us) / 1000 if self.count else 0.0)
        return values


def _upper_us(bucket: int) -> int:
    """Return the highest value of a bucket."""
    shift = max(0, (bucket >> (_DIGITS - 1)) - 1)
    return ((bucket - (shift << (_DIGITS - 1)) + 1) << shift) - 1 if shift else bucket
