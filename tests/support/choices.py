"""Choices for generators, all made from integers whose zero means the plainest choice.

Integers come from `random.Random` in fast seeded runs and from Hypothesis elsewhere, where failing
cases therefore shrink towards plain ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


class Integers(Protocol):
    """Where choices come from: an integer between two, both included."""

    def __call__(self, least: int, most: int, /) -> int: ...


@dataclass
class Choices:
    """Choices made from integers; zero is the plainest."""

    integer: Integers

    def chance(self, percent: int) -> bool:
        """Be true in so many of a hundred cases."""
        return self.integer(0, 99) >= 100 - percent

    def pick(self, pool: Sequence[T]) -> T:
        """Pick one value; the first is the plainest."""
        return pool[self.integer(0, len(pool) - 1)]

    def some(self, pool: Sequence[T], most: int = 3, least: int = 1) -> list[T]:
        """Pick different values, in the order in which they were picked."""
        left, picked = list(pool), []
        for _ in range(min(self.integer(least, most), len(pool))):
            picked.append(left.pop(self.integer(0, len(left) - 1)))
        return picked
