"""Remember failed events, so that the drain does not retry them unchanged for ever.

Storing an event may time out or end the connection, and would do so again at each retry. So
failures are remembered between rounds: the products concerned are drained separately, a batch of
events that failed twice is halved, and a single event that failed three times is dead-lettered.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

TWICE: Final = 2
THRICE: Final = 3  # the first failure may be the warehouse's, which is probed before later tries
MOST: Final = 10_000  # remembered failures


class Suspects:
    """Products whose events are drained separately after a failure, and the batches that failed."""

    def __init__(self) -> None:
        self.products: dict[str, None] = {}  # the next one comes first
        self._failed: dict[tuple[str, int], tuple[int, str]] = {}

    def add(self, products: Iterable[str]) -> None:
        """Have products drained separately, after the products that are already suspect."""
        for product in products:
            self.products.pop(product, None)
            self.products[product] = None

    def clear(self, products: Iterable[str]) -> None:
        """Clear products of suspicion: they are drained together with others again."""
        for product in products:
            self.products.pop(product, None)
        if not self.products:
            self._failed.clear()

    def next_of(self, waits: Callable[[str], bool]) -> str | None:
        """Return the next suspect product with events waiting (`waits`); None if there is none."""
        return next(filter(waits, self.products), None)

    def note(self, event_ids: Sequence[str], reason: str) -> None:
        """Record that a batch of events failed, and why."""
        if len(self._failed) >= MOST:
            self._failed.clear()
        self._failed[_key(event_ids)] = (self._count(event_ids) + 1, reason)

    def has_failed(self, event_ids: Sequence[str]) -> bool:
        return self._count(event_ids) > 0

    def verdict(self, event_ids: Sequence[str]) -> str:
        """Return a batch's last error if the batch must not be retried unchanged, otherwise ""."""
        enough = TWICE if len(event_ids) > 1 else THRICE
        return self._failed[_key(event_ids)][1] if self._count(event_ids) >= enough else ""

    def _count(self, event_ids: Sequence[str]) -> int:
        return self._failed.get(_key(event_ids), (0, ""))[0]


def _key(event_ids: Sequence[str]) -> tuple[str, int]:
    return event_ids[0], len(event_ids)
