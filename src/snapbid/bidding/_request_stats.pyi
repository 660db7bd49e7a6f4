from collections import deque
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class RequestCounts:
    """Request statistics of one SSP: its requests, and the statuses of their answers, the latest
    `kept` of them in order.
    """

    def __init__(self, kept: int, sampled: int = 0) -> None: ...
    @property
    def requests(self) -> int: ...
    @property
    def tests(self) -> int: ...
    @property
    def country(self) -> int:
        """Requests with a valid country; `strange_country` counts those with another text."""
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
        """Return the samples taken since the last call, and ask for `wanted` more.

        A sample has the body, the request, the SSP, the snapshot, the time (epoch ms), and the
        reason for no bid (None with a bid).
        """

    def clear(self) -> None:
        """Reset all counts."""
