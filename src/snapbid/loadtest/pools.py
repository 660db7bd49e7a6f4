"""Weighted random choice."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Weighted values, drawn at random."""

    def __init__(self, weighted: Iterable[tuple[T, float]]) -> None:
        pairs = list(weighted)
        self.values: Sequence[T] = [value for value, _ in pairs]
        self._cumulative = list(accumulate(weight for _, weight in pairs))

    def draw(self, random: Random) -> T:
        return random.choices(self.values, cum_weights=self._cumulative)[0]

    def draw_several(self, random: Random, most: int) -> list[T]:
        """Draw up to `most` distinct values, at least one."""
        drawn = random.choices(self.values, cum_weights=self._cumulative, k=random.randint(1, most))
        return list(dict.fromkeys(drawn))


def shares(text: str) -> Pool[str]:
    """Parse a pool from `value weight value weight …`."""
    words = text.split()
    return Pool(zip(words[::2], map(float, words[1::2]), strict=True))


def zipf(values: Sequence[T], exponent: float = 1.1) -> Pool[T]:
    """Return a pool with weights by Zipf's law; the first value is the most popular."""
    return Pool((value, 1 / rank**exponent) for rank, value in enumerate(values, 1))
