"""Which events have failed, and how often: what the drain does not try again unchanged.

Storing may fail by time, or end the connection, and a process that comes back to it would do the
same for ever. So what fails is remembered over rounds: its product is carried apart from others,
what has failed `TWICE` in halves, and a single event that has failed `THRICE` not at all.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

TWICE: Final = 2
THRICE: Final = 3  # the first time the warehouse may have gone; then it was asked before
MOST: Final = 10_000  # failures that are remembered


class Suspects:
    """Products with events that have failed, and the runs of events that did."""

    def __init__(self) -> None:
        self.products: dict[str, None] = {}  # whose turn it is comes first
        self._failed: dict[tuple[str, int], tuple[int, str]] = {}

    def add(self, products: Iterable[str]) -> None:
        """Carry products apart; the last turn is theirs."""
        for product in products:
            self.products.pop(product, None)
            self.products[product] = None

    def clear(self, products: Iterable[str]) -> None:
        """Carry products with others again."""
        for product in products:
            self.products.pop(product, None)
        if not self.products:
            self._failed.clear()

    def next_of(self, waits: Callable[[str], bool]) -> str | None:
        """The product whose turn it is, of those that wait."""
        return next(filter(waits, self.products), None)

    def note(self, event_ids: Sequence[str], reason: str) -> None:
        """Note that a run of events has failed."""
        if len(self._failed) >= MOST:
            self._failed.clear()
        self._failed[_key(event_ids)] = (self._count(event_ids) + 1, reason)

    def has_failed(self, event_ids: Sequence[str]) -> bool:
        return self._count(event_ids) > 0

    def verdict(self, event_ids: Sequence[str]) -> str:
        """Why a run of events is not to be tried again as it is; empty: it may be."""
        enough = TWICE if len(event_ids) > 1 else THRICE
        return self._failed[_key(event_ids)][1] if self._count(event_ids) >= enough else ""

    def _count(self, event_ids: Sequence[str]) -> int:
        return self._failed.get(_key(event_ids), (0, ""))[0]


def _key(event_ids: Sequence[str]) -> tuple[str, int]:
    return event_ids[0], len(event_ids)
