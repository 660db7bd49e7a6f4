from collections.abc import Sequence
from typing import Protocol, Self, final, type_check_only

from typing_extensions import Buffer

@final
class Counter:
    """A counter in this process's slot. Not thread-safe.

    `cell`: 8 writable, aligned bytes of the slot. Raises ValueError for another length or
    alignment.
    """

    def __new__(cls, cell: Buffer) -> Self: ...
    @property
    def value(self) -> int: ...
    def inc(self, n: int = 1) -> None:
        """Add `n`. Raises ValueError once the cell is released."""

    def release(self) -> None:
        """Release the cell; the counter keeps its value."""

@type_check_only
class MakesCounters(Protocol):
    """An object with a method that creates counters, such as `slots.Metrics`."""

    def counter(self, name: str, **labels: object) -> Counter: ...

@final
class Counters:
    """The counters of one metric, each created on first use; only for labels with few values."""

    def __new__(cls, metrics: MakesCounters, name: str, *labels: str) -> Self: ...
    def inc(self, *values: object) -> None:
        """Add 1 to the counter with these label values, in the order of the labels."""

@final
class Histogram:
    """A histogram: counts of values per bucket, and their sum. Not thread-safe.

    `bounds` must ascend; the last bucket counts values above all of them. `total` is in units of
    1/`resolution`. Raises ValueError unless there is one more bucket than bounds.
    """

    def __new__(
        cls, bounds: Sequence[float], buckets: Sequence[Counter], total: Counter, resolution: float
    ) -> Self: ...
    def observe(self, value: float) -> None:
        """Count a value, given in the unit that the metric's name states."""
