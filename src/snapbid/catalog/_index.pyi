from enum import IntEnum
from typing import Any, Final, Protocol, Self, final, type_check_only

from snapbid.catalog._request import Reader

FORMAT_DIMENSION: int  # the formats of creatives, which no campaign targets

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
    REFUSED_SUSPENDED = 16

@type_check_only
class Lookups(Protocol):
    """The part of `bidding.lookups.Lookups` that a search needs to read a request."""

    @property
    def reader(self) -> Reader: ...

@final
class Index:
    """A campaign index in memory; `suspend` affects only this process.

    Campaigns are identified by rank, in order of descending price, then id. An overlay hides the
    base's campaigns that it replaces or that were deleted; its own campaigns rank after the base's.
    """

    def __new__(cls, source: Any, overlay: Any = None) -> Self:
        """Open an index and, if given, its overlay. Raises ValueError if either is not an index."""
    def __len__(self) -> int:
        """Return the number of ranks, including those of hidden campaigns."""
    def targets(self, dimension: int) -> bool:
        """Return whether any campaign has an entry in this dimension (an index into
        `DIMENSIONS`)."""
    @property
    def has_caps(self) -> bool:
        """Whether any campaign has frequency caps, and so bids only if the user is recognised."""
    def rank(self, id: str) -> int | None:
        """Return the rank of a campaign; None if the id is unknown or deleted."""
    def payload(self, rank: int) -> bytes:
        """Return the payload stored with the campaign."""
    def price(self, rank: int) -> int:
        """Return the campaign's CPM in micro-USD."""
    def advertiser(self, rank: int) -> str:
        """Return the campaign's advertiser domain, in lower case."""
    def suspend(self, id: str, creative: str, canonical: str) -> None:
        """Suspend a campaign's creative for an SSP (canonical id), in this process.

        Unknown and hidden campaigns and creatives are ignored.
        """
    def query(
        self,
        lookups: Lookups,
        request: Any,
        ssp: str,
        canonical: str,
        now_ms: int,
        left_s: float = ...,
        processor_s: float = ...,
        refused: RefusedRanks | None = None,
    ) -> Query:
        """Start the search for an SSP's decoded request; `now_ms` is UTC epoch time.

        The search ends after `left_s`, or after `processor_s` of this thread's processor time.
        `refused`: campaigns that may not bid.
        """

@final
class RefusedRanks:
    """The ranks of campaigns that may not bid for now; initially those of `others`, if given."""

    def __new__(cls, index: Index, others: RefusedRanks | None = None) -> Self: ...
    def add(self, rank: int) -> None:
        """Keep a campaign from bidding."""
    def discard(self, rank: int) -> None:
        """Let a campaign bid again, if it is active."""

@final
class Query:
    """The search for campaigns that may bid on one request.

    For each impression, call `impression`, then `next` until it returns None.
    """

    undecided: Final[int]  # impressions that were not decided in time
    @property
    def request(self) -> Any:
        """The decoded request."""
    @property
    def user(self) -> str | None:
        """The user's key for frequency caps (see `Lookups.person`), or None."""
    @property
    def point(self) -> tuple[float, float] | None:
        """The user's location (lat, lon) in degrees; None if it is absent or may not be used."""
    @property
    def declares(self) -> bool:
        """Whether the request requires declarations under the Digital Services Act."""
    def impression(self, imp: Any, rivals: list[str] | None = None) -> bool:
        """Start the search for campaigns that may bid on an impression.

        Returns False if its floor is in a currency without a rate, or if the time is up. `rivals`:
        the advertisers of other impressions in the same pod, as `Index.advertiser` names them; they
        may not bid on this one.
        """
    def allow(self, left_s: float, processor_s: float) -> None:
        """Limit the rest of the search to `left_s`, and to `processor_s` of processor time."""
    def has_time(self) -> bool:
        """Return whether any of the time allowed is left."""
    def next(self) -> tuple[int, int, int] | None:
        """Return the next best campaign as (rank, creative, deal), or None.

        `creative` is an index into the campaign's creatives, `deal` into the impression's deals, or
        -1.
        """
    def explain(self, rank: int) -> tuple[Refusal, int]:
        """Return the first rule that keeps a campaign from the impression, as (Refusal, dimension).

        The dimension is an index into `DIMENSIONS`, FORMAT_DIMENSION if no creative has a format
        that the impression accepts, or -1 for a rule other than targeting. The search is not
        affected. Raises ValueError unless `impression` has returned True.
        """
    def carried(self) -> dict[int, list[str | int]]:
        """Return the values of the request and the current impression, by dimension.

        They are in normal form; dimensions that no campaign targets are not read.
        """

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the work that the search has done in the base so far.

            blocks      blocks of campaigns searched
            rows        filters that are a single row of bits
            flats       filters of several rows
            groups      filters that include lists of ranks
            postings    rows and lists in all flats and groups
            candidates  campaigns in the searched blocks that passed rows and flats
            verified    candidates that also passed the groups

        Only verified campaigns are checked against the other rules.
        """

@final
class Workspace:
    """Reusable memory for reading requests and searching, shared by an index's queries."""
