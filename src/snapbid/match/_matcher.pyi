from enum import IntEnum
from typing import Any, Final, Self, final

from typing_extensions import disjoint_base

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
    REFUSED_DSA = 14
    REFUSED_POD = 15

FORMAT_DIMENSION: int  # the formats of creatives, which no campaign targets

@disjoint_base
class Reader:
    """Reads the fields of decoded requests; `exchange.lookups.Lookups` has the callbacks.

    `structs`: the classes of the decoded request. The memos have countries by code, systems by
    spelling, (system, browser) by user agent, and whether a US Privacy string opts out. `in_usd`:
    bids are in USD. Raises ValueError or TypeError where a struct or a field that is read is
    missing.
    """

    def __init__(
        self,
        structs: tuple[type, ...],
        countries: dict[str, str | None],
        systems: dict[str, str],
        agents: dict[str, tuple[str, str]],
        opt_outs: dict[str, bool],
        in_usd: bool = True,
    ) -> None: ...

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
    def advertiser(self, rank: int) -> str: ...
    def set_active(self, rank: int, active: bool) -> None:
        """Lets the campaign bid or not, in this process; a hidden one never does."""
    def query(
        self,
        reader: Reader,
        request: Any,
        ssp: str,
        canonical: str,
        now_ms: int,
        left_s: float = ...,
        processor_s: float = ...,
    ) -> Query:
        """Starts a request's search: a decoded request to an SSP, at a time (UTC epoch ms).

        It may go on for `left_s`, and for `processor_s` of this thread's processor time.
        """

@final
class Query:
    """The search for one request: `impression`, then `next` until it gives None."""

    user: Final[str | None]  # recognised, for frequency caps
    undecided: Final[int]  # impressions for which the time was not enough
    @property
    def point(self) -> tuple[float, float] | None:
        """(lat, lon) in degrees where the request has them and they may be used."""
    @property
    def declares(self) -> bool:
        """Whether the request asks for what campaigns declare under the Digital Services Act."""
    def impression(self, imp: Any, rivals: list[str] | None = None) -> bool:
        """Turns to an impression of the request; False where its floor cannot be told in USD, or
        where the time is over.

        `rivals`: advertisers that may not answer, since they have other impressions of its pod; in
        the form of `Index.advertiser`.
        """
    def allow(self, left_s: float, processor_s: float) -> None:
        """Lets the search go on for a time, and some processor time, from now on."""
    def has_time(self) -> bool:
        """Looks at the clock: whether the time allowed is not over."""
    def next(self) -> tuple[int, int, int] | None:
        """(rank, creative, deal or -1) of the best campaign not given yet."""
    def explain(self, rank: int) -> tuple[Refusal, int]:
        """Return the first rule that refuses the campaign for the impression, and the dimension.

        That is a number of `DIMENSIONS`, FORMAT_DIMENSION, or -1 for a rule other than targeting.
        The search is left as it is.
        """
    def carried(self) -> dict[int, list[str | int]]:
        """What the request and the impression that is set carry: dimension -> values in the form in
        which campaigns' are compared. Dimensions in which no campaign has an entry are not read.
        """

    @property
    def counts(self) -> dict[str, int]:
        """What the search has taken so far: rows, flats, groups and postings that narrow a block;
        blocks, candidates and those that were verified.
        """
