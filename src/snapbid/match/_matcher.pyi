from enum import IntEnum
from typing import Any, Self, final

class Refusal(IntEnum):
    NOT_REFUSED = 0
    REFUSED_TIME = 1
    REFUSED_DEAL = 2
    REFUSED_PRIVATE_AUCTION = 3
    REFUSED_FLOOR = 4
    REFUSED_SEAT = 5
    REFUSED_BLOCKED_APP = 6
    REFUSED_BLOCKED_ADVERTISER = 7
    REFUSED_BLOCKED_CATEGORY = 8
    REFUSED_DISTANCE = 9
    REFUSED_CREATIVE = 10
    REFUSED_USER = 11
    REFUSED_INACTIVE = 12
    REFUSED_TARGETING = 13

FORMAT: int

@final
class Index:
    """A campaign index in memory, and this process's view of it.

    Campaigns are named by their rank: falling price, then id. An overlay hides the campaigns whose
    ids it has, its deleted ones too; the ranks of its own count on from the base's.
    """

    def __new__(cls, source: Any, overlay: Any = None) -> Self:
        """Two buffers, which are kept. Raises ValueError where one holds no index."""
    def __len__(self) -> int:
        """How many ranks there are, those of hidden campaigns among them."""
    def targets(self, dimension: int) -> bool: ...
    @property
    def has_caps(self) -> bool: ...
    def rank(self, id: str) -> int | None: ...
    def payload(self, rank: int) -> bytes: ...
    def price(self, rank: int) -> int: ...
    def set_active(self, rank: int, active: bool) -> None:
        """Lets the campaign bid or not, in this process; a hidden one never does."""
    def query(self, features: tuple[Any, ...]) -> Query: ...

@final
class Query:
    """The search for one request: `impression`, then `next` until it gives None."""

    def impression(self, wanted: tuple[Any, ...]) -> None: ...
    def next(self) -> tuple[int, int, int] | None:
        """(rank, creative, deal or -1) of the best campaign not given yet."""
    def explain(self, rank: int) -> tuple[Refusal, int]:
        """The first rule that refuses the campaign for the impression, and the dimension (a number
        of `DIMENSIONS`, FORMAT, or -1 where the rule is no targeting). The search is left as it is.
        """
