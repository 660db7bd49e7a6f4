from collections.abc import Callable
from typing import final

from typing_extensions import disjoint_base

from snapbid.bidding.bid import Best, Reason
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.pods import Pods
from snapbid.bidding.request import BidRequest, Imp
from snapbid.bidding.response import Bid, Template
from snapbid.bidding.snapshot import CatalogSnapshot, ExhaustedCampaign
from snapbid.catalog.catalog import Index, Query

MAX_NOTICE_ID: int  # bytes of an id in a notification URL

def can_be_notified(text: str) -> bool:
    """Return whether the notification endpoints would accept the id."""

@disjoint_base
class SnapshotCore:
    """The native part of a snapshot: index and lookups, and the templates built so far.

    `ssps`: descriptor to canonical id. `of_base` has the templates of ranks below `overlaid`,
    `of_overlay` those of the others. `exhausted`: by rank, the campaigns that a shard last refused
    for want of budget.
    """

    def __init__(
        self,
        lookups: Lookups,
        index: Index,
        ssps: dict[str, str],
        of_base: dict[int, Template],
        of_overlay: dict[int, Template],
        overlaid: int,
    ) -> None: ...
    @property
    def lookups(self) -> Lookups: ...
    @property
    def index(self) -> Index: ...
    @property
    def exhausted(self) -> dict[int, ExhaustedCampaign]: ...
    def found(self, rank: int, creative: int) -> Template | None:
        """Return the template of a creative; None if it is not built yet."""

    def keep(self, rank: int, creative: int, template: Template, most: int) -> None:
        """Keep a template; if there are `most` already, drop them first."""

@final
class Choice:
    """The decision for one impression; `deal` is an index into `imp.pmp.deals`, or -1.

    `quantity`: how many impressions it stands for.
    """

    def __init__(
        self, imp: Imp, rank: int, creative: int, deal: int, quantity: float = 1
    ) -> None: ...
    @property
    def imp(self) -> Imp: ...
    @property
    def rank(self) -> int: ...
    @property
    def creative(self) -> int: ...
    @property
    def deal(self) -> int: ...
    @property
    def quantity(self) -> float: ...

@final
class Decision:
    """The best campaign of each impression, and the search, which can continue from `last`.

    `lookups` are those of the bids' currency; `declares`: bids carry their campaigns' declarations
    under the Digital Services Act; `pods`: the advertisers in its pods, if it has pods.
    """

    @property
    def choices(self) -> list[Choice]: ...
    @property
    def query(self) -> Query: ...
    @property
    def last(self) -> Imp: ...
    @property
    def user(self) -> str | None: ...
    @property
    def lookups(self) -> Lookups: ...
    @property
    def declares(self) -> bool: ...
    @property
    def pods(self) -> Pods | None: ...

@final
class NoBid:
    """An answer without a bid; `undecided`: number of impressions not decided in time."""

    def __init__(self, reason: Reason, undecided: int = 0) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def reason(self) -> Reason: ...
    @property
    def undecided(self) -> int: ...

@final
class Proposal:
    """An answer before it is written: its bids, with the choices and the decision behind them.

    `limited`: whether some campaign has a budget or caps; `undecided`: number of impressions not
    decided in time; `processor_s`: the processor time allowed.
    """

    @property
    def auction_id(self) -> str: ...
    @property
    def bids(self) -> list[Bid]: ...
    @property
    def choices(self) -> list[Choice]: ...
    @property
    def decision(self) -> Decision: ...
    @property
    def limited(self) -> bool: ...
    @property
    def undecided(self) -> int: ...
    @property
    def processor_s(self) -> float: ...

@final
class Decider:
    """The decision on bid requests. Rare steps are left to the functions given.

    `pods_of`: the pods of several impressions; `quantity_of`: how many impressions one stands for
    (contract 3, `qty.multiplier`), and `cost_of`: what a win costs then; `affordable`: the best
    campaign from this one on that may have budget for a quantity; `unanswered`: why no impression
    has a campaign. `no_currency`, `too_many`, `cut_short` and `long_id` are reasons. `searching`
    and `templates` are shares of the processor time.
    """

    def __init__(
        self,
        pods_of: Callable[[list[Imp]], Pods | None],
        quantity_of: Callable[[BidRequest, Imp], float],
        cost_of: Callable[[int, float], int],
        affordable: Callable[[Best | None, Query, float, CatalogSnapshot], Best | None],
        unanswered: Callable[..., Reason],
        no_currency: Reason,
        too_many: Reason,
        cut_short: Reason,
        long_id: Reason,
        searching: float,
        templates: float,
    ) -> None: ...
    def search(
        self,
        request: BidRequest,
        ssp: str,
        snapshot: CatalogSnapshot,
        now_ms: int,
        left_s: float = ...,
        processor_s: float = ...,
    ) -> Decision | NoBid:
        """Find the best campaign for each impression; `now_ms` is UTC epoch time.

        It takes at most `left_s`, and `processor_s` of processor time; `query.undecided` counts the
        impressions, the last ones, that were not decided by then.
        """

    def propose(
        self,
        request: BidRequest,
        ssp: str,
        snapshot: CatalogSnapshot,
        now_ms: int,
        left_s: float = ...,
        processor_s: float = ...,
    ) -> Proposal | NoBid:
        """Decide on a request within the time allowed; `now_ms` is UTC epoch time."""

    def bid_of(self, choice: Choice, snapshot: CatalogSnapshot, decision: Decision) -> Bid:
        """Return the bid for a choice of the decision."""
