from collections.abc import Sequence
from typing import Protocol, Self, final, type_check_only

from typing_extensions import Buffer

@final
class Counter:
    """A count of this process's slot. Not for use by several threads at once.

    `cell`: 8 writable bytes of the slot. Raises ValueError for anything else.
    """

    def __new__(cls, cell: Buffer) -> Self: ...
    @property
    def value(self) -> int: ...
    def inc(self, n: int = 1) -> None:
        """Add `n`. Raises ValueError once the cell is released."""

    def release(self) -> None:
        """Let go of the cell."""

@type_check_only
class MakesCounters(Protocol):
    """See `slots.Metrics.counter`."""

    def counter(self, name: str, **labels: object) -> Counter: ...

@final
class Counters:
    """The counters of one metric, made on first use; for labels with few values."""

    def __new__(cls, metrics: MakesCounters, name: str, *labels: str) -> Self: ...
    def inc(self, *values: object) -> None:
        """Add 1 to the counter of these values, in the order of the labels."""

@final
class Histogram:
    """Counts of values per bucket, and their sum. Not for use by several threads at once.

    The bucket after the last of the ascending `bounds` counts what exceeds it; `total` counts
    units of 1/`resolution`. Raises ValueError where `buckets` are not one more than `bounds`.
    """

    def __new__(
        cls, bounds: Sequence[float], buckets: Sequence[Counter], total: Counter, resolution: float
    ) -> Self: ...
    def observe(self, value: float) -> None:
        """Count one value, in the unit of the metric's name."""
