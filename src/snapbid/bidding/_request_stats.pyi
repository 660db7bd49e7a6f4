from collections import deque
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class RequestCounts:
    """What an SSP sends, and the statuses of its answers, the latest `kept` of them in order."""

    def __init__(self, kept: int, sampled: int = 0) -> None: ...
    @property
    def requests(self) -> int: ...
    @property
    def tests(self) -> int: ...
    @property
    def country(self) -> int:
        """Of requests that name one; `strange_country` counts other texts in its place."""
    @property
    def strange_country(self) -> int: ...
    @property
    def ua(self) -> int: ...
    @property
    def ip(self) -> int: ...
    @property
    def ipv6(self) -> int: ...
    @property
    def statuses(self) -> dict[int, int]: ...
    @property
    def answers(self) -> deque[int]: ...
    def answered(self, status: int) -> None:
        """Count an answer."""

    def take_samples(self, wanted: int) -> list[tuple[Any, ...]]:
        """Return the latest requests that were kept, at most as many as were wanted, and want more.

        Of each the body, the request, the SSP, the snapshot, the time (epoch ms), and the reason
        for no bid, None with one.
        """

    def clear(self) -> None:
        """Start over."""
