"""Values with popularities, drawn at random."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Values with weights, drawn at random."""

    def __init__(self, weighted: Iterable[tuple[T, float]]) -> None:
        pairs = list(weighted)
        self.values: Sequence[T] = [value for value, _ in pairs]
        self._heights = list(accumulate(weight for _, weight in pairs))

    def one(self, random: Random) -> T:
        return random.choices(self.values, cum_weights=self._heights)[0]

    def several(self, random: Random, most: int) -> list[T]:
        """One to `most` different values."""
        drawn = random.choices(self.values, cum_weights=self._heights, k=random.randint(1, most))
        return list(dict.fromkeys(drawn))


def shares(text: str) -> Pool[str]:
    """Values and their weights by turns."""
    words = text.split()
    return Pool(zip(words[::2], map(float, words[1::2]), strict=True))


def zipf(values: Sequence[T], exponent: float = 1.1) -> Pool[T]:
    """The first value is the most popular one."""
    return Pool((value, 1 / rank**exponent) for rank, value in enumerate(values, 1))
