"""Choices for generators, all derived from integers; zero is always the plainest choice.

The integers come from `random.Random` in fast seeded runs, else from Hypothesis, where failing
cases therefore shrink towards plain ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


class Integers(Protocol):
    """The source of choices: an integer between two bounds, both included."""

    def __call__(self, least: int, most: int, /) -> int: ...


@dataclass
class Choices:
    """Choices derived from integers; zero is the plainest."""

    integer: Integers

    def chance(self, percent: int) -> bool:
        """Be true with a probability in percent."""
        return self.integer(0, 99) >= 100 - percent

    def pick(self, pool: Sequence[T]) -> T:
        """Pick a value; the first is the plainest."""
        return pool[self.integer(0, len(pool) - 1)]

    def some(self, pool: Sequence[T], most: int = 3, least: int = 1) -> list[T]:
        """Pick distinct values, in the order of picking."""
        left, picked = list(pool), []
        for _ in range(min(self.integer(least, most), len(pool))):
            picked.append(left.pop(self.integer(0, len(left) - 1)))
        return picked
