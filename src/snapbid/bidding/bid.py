"""The decision on a bid request, step by step (document 2; contract 3 and 4):

bytes -> request (structs) -> decision (ranks) -> response (bytes).

Everything here is a function of values, without a clock or I/O. A bid that the ledger refuses,
because of a budget or a frequency cap, is replaced by the next best (`limits.py`). The steps of
every request are native (`_bid_path`); the rare ones are here.

The cost of a request is bounded (contract 3). The clock is read between impressions, inside a
search and between bids; impressions that are still undecided when the time is up get no bid.
"""

import secrets
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Final

from snapbid.bidding._bid_path import MAX_NOTICE_ID as MAX_NOTICE_ID
from snapbid.bidding._bid_path import Choice, Decider, Decision, NoBid, Proposal, can_be_notified
from snapbid.bidding._response import BidIds
from snapbid.bidding.cost import cost_of, quantity_of
from snapbid.bidding.lookups import USD
from snapbid.bidding.pods import pods_of
from snapbid.bidding.request import BidRequest
from snapbid.bidding.response import Bid, Writer
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog.catalog import Query

__all__ = [
    "MAX_TMAX_MS",
    "SEARCHING",
    "Bidder",
    "CatalogSnapshot",
    "Choice",
    "Decision",
    "NoBid",
    "Proposal",
    "Reason",
    "bid_of",
    "can_be_notified",
    "decide",
    "search",
    "unanswered",
]

MAX_TMAX_MS: Final = 2**31 - 1  # OpenRTB's integers; beyond, `tmax` counts as absent
# Shares of the processor time allowed. The remainder is for the answer, whose length is bounded.
SEARCHING: Final = 0.45
TEMPLATES: Final = 0.15  # for those that are not built yet
REPLACING: Final = 0.1  # for bids that the ledger refuses


class Reason(Enum):
    """A reason for not bidding."""

    __hash__ = object.__hash__  # a reason is counted per request, and Enum's own is a Python call

    CURRENCY = "currency"
    LONG_ID = "long_id"  # the notification endpoints would refuse it
    NO_MEDIA = "no_media"
    FLOOR_CURRENCY = "floor_currency"  # no exchange rate
    QUANTITY = "quantity"  # an impression stands for more than the operator allows
    PRIVATE_AUCTION = "private_auction"  # no campaign targets its deals
    NO_CAMPAIGN = "no_campaign"
    LIMITED = "limited"  # budgets or caps
    TAKEN = "taken"  # another family of SSPs has a bid on the auction's impression
    CUT_SHORT = "cut_short"  # the time was up before any impression was decided
    LATE = "late"
    OVERLOAD = "overload"
    RATE = "rate"  # the SSP's requests per second are used up
    STORE_DOWN = "store_down"


Best = tuple[int, int, int]  # what `Query.next` returns

# Looking up an enumeration's member is a Python call.
_NO_CAMPAIGN: Final = Reason.NO_CAMPAIGN
_NO_MEDIA: Final = Reason.NO_MEDIA


def _affordable(
    best: Best | None, query: Query, quantity: float, snapshot: CatalogSnapshot
) -> Best | None:
    """Return the best campaign from this one on that may have budget for `quantity` impressions."""
    while best is not None:
        rank = best[0]
        if not snapshot.is_too_dear(rank, cost_of(snapshot.catalog.index.price(rank), quantity)):
            break
        best = query.next()
    return best


def unanswered(request: BidRequest, *, has_floor: bool) -> Reason:
    """Return why no impression has a campaign, as far as the request shows.

    `has_floor`: the floor of some impression could be converted to USD.
    """
    if not has_floor:
        return Reason.FLOOR_CURRENCY
    reason = _NO_MEDIA
    for imp in request.imp or ():
        if imp.banner or imp.video or imp.audio or imp.native:
            if imp.pmp is None or imp.pmp.private_auction != 1:
                return _NO_CAMPAIGN
            reason = Reason.PRIVATE_AUCTION
    return reason


DECIDER: Final[Decider] = Decider(
    pods_of=pods_of,
    quantity_of=quantity_of,
    cost_of=cost_of,
    affordable=_affordable,
    unanswered=unanswered,
    no_currency=Reason.CURRENCY,
    too_many=Reason.QUANTITY,
    cut_short=Reason.CUT_SHORT,
    long_id=Reason.LONG_ID,
    searching=SEARCHING,
    templates=TEMPLATES,
)
search: Final = DECIDER.search
bid_of: Final = DECIDER.bid_of


def decide(
    request: BidRequest, ssp: str, snapshot: CatalogSnapshot, now_ms: int
) -> list[Choice] | NoBid:
    """Return the choices of `search`."""
    decision = search(request, ssp, snapshot, now_ms)
    return decision if isinstance(decision, NoBid) else decision.choices


class Bidder:
    """Bid decisions from a snapshot, and the writer of the responses.

    `sign`: see `Writer`. All bidders of a process share one `ids`.
    """

    def __init__(
        self,
        base_url: str,
        sign: Callable[[str, str], bytes] | None = None,
        ids: BidIds | None = None,
    ) -> None:
        self.base_url = base_url
        self.writer = Writer(base_url, sign)
        self.ids = ids or BidIds(secrets.token_hex(6).encode())

    def propose(
        self,
        request: BidRequest,
        ssp: str,
        snapshot: CatalogSnapshot,
        now_ms: int,
        left_s: float = inf,
        processor_s: float = inf,
    ) -> Proposal | NoBid:
        """Decide on a request within the time allowed; `now_ms` is UTC epoch time."""
        return DECIDER.propose(request, ssp, snapshot, now_ms, left_s, processor_s)

    def write(self, auction_id: str, bids: list[Bid], currency: str = USD) -> bytes:
        """Write the response's body; bids that do not fit are dropped from the end of `bids`."""
        return self.writer.write(auction_id, self.ids.next(), bids, currency)

    def length(self, auction_id: str, bid: Bid) -> int:
        """Return how many bytes a bid takes in an answer."""
        return self.writer.length(auction_id, bid)
