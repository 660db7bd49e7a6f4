from typing import Any, Final, Self, final

from snapbid.catalog._reader import Reader
from snapbid.catalog._rules import Refusal

FORMAT_DIMENSION: int  # the formats of creatives, which no campaign targets

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
        """Let the campaign bid or not, in this process; one that is hidden or paused never does."""
    def suspend(self, id: str, creative: str, canonical: str) -> None:
        """Keeps a campaign's creative from an SSP, by its canonical id, in this process.

        What is unknown, or hidden, changes nothing.
        """
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

    undecided: Final[int]  # impressions for which the time was not enough
    @property
    def user(self) -> str | None:
        """The user recognised, for frequency caps; or None."""
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

@final
class Workspace:
    """Readings and searches that the queries of an index use in turns."""
