from collections import deque

from typing_extensions import disjoint_base

@disjoint_base
class RequestCounts:
    """What an SSP sends, and the statuses of its answers, the latest `kept` of them in order."""

    def __init__(self, kept: int) -> None: ...
    @property
    def requests(self) -> int: ...
    @property
    def tests(self) -> int: ...
    @property
    def country(self) -> int: ...
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

    def clear(self) -> None:
        """Start over."""
