"""The decision on a bid request, step by step (document 2; contract 3 and 4):

bytes -> request (structs) -> decision (ranks) -> response (bytes).

Everything here is a function of values, without a clock or I/O. A bid that the ledger refuses,
because of a budget or a frequency cap, is replaced by the next best (`limits.py`).

What a request may cost is bounded (contract 3). The clock is looked at between impressions, inside
a search and between bids; impressions that are not decided by then get no bid.
"""

import secrets
from enum import Enum
from math import inf
from typing import Final, final

from msgspec import Struct

from snapbid.exchange._response import BidIds
from snapbid.exchange.cost import cost_of
from snapbid.exchange.lookups import USD, Lookups
from snapbid.exchange.market import Market
from snapbid.exchange.pods import Pods, pods_of
from snapbid.exchange.request import BidRequest, Imp
from snapbid.exchange.response import Bid, Writer
from snapbid.match.catalog import Query

__all__ = [
    "MAX_TMAX_MS",
    "SEARCHING",
    "Bidder",
    "Choice",
    "Decision",
    "Market",
    "NoBid",
    "Proposal",
    "Reason",
    "bid_of",
    "can_be_notified",
    "decide",
    "search",
    "unanswered",
]

MAX_NOTICE_ID: Final = 512  # bytes of an id in a notification URL
MAX_TMAX_MS: Final = 2**31 - 1  # OpenRTB's integers; beyond, `tmax` counts as absent
# Of the processor time allowed. What is left is for the answer, whose length is bounded.
SEARCHING: Final = 0.45
TEMPLATES: Final = 0.15  # for those that are not built yet
REPLACING: Final = 0.1  # for bids that the ledger refuses


Best = tuple[int, int, int]  # what `Query.next` returns


class Reason(Enum):
    """Why there is no bid."""

    __hash__ = object.__hash__  # each is counted; Enum's is a call of Python

    CURRENCY = "currency"
    LONG_ID = "long_id"  # the notification endpoints would refuse it
    NO_MEDIA = "no_media"
    FLOOR_CURRENCY = "floor_currency"  # no exchange rate
    PRIVATE_AUCTION = "private_auction"  # no campaign targets its deals
    NO_CAMPAIGN = "no_campaign"
    LIMITED = "limited"  # budgets or caps
    CUT_SHORT = "cut_short"  # the time was over before any impression was decided
    LATE = "late"
    OVERLOAD = "overload"
    RATE = "rate"  # the SSP's requests per second are used up
    STORE_DOWN = "store_down"


# Looking up an enumeration's member is a call of Python.
_NO_CAMPAIGN: Final = Reason.NO_CAMPAIGN
_NO_MEDIA: Final = Reason.NO_MEDIA


@final
class NoBid(Struct, frozen=True, gc=False):
    """An answer without a bid; `undecided`: impressions for which the time was not enough.

    The hot path tests for it with `type(...) is`: a failing `isinstance` takes ten times as long.
    """

    reason: Reason
    undecided: int = 0


class Choice(Struct, frozen=True, gc=False):
    """The decision for one impression; `deal` is an index into `imp.pmp.deals`, or -1."""

    imp: Imp
    rank: int
    creative: int
    deal: int


class Decision(Struct, frozen=True, gc=False):
    """The best campaigns, and the search that can continue behind the impression `last`.

    `lookups` are those of the currency in which the bids are made; `declares`: bids carry what
    their campaigns declare under the Digital Services Act; `pods`: which advertisers have which
    impressions of its pods, if it has pods.
    """

    choices: list[Choice]
    query: Query
    last: Imp
    user: str | None
    lookups: Lookups
    declares: bool
    pods: Pods | None


def search(
    request: BidRequest,
    ssp: str,
    market: Market,
    now_ms: int,
    left_s: float = inf,
    processor_s: float = inf,
) -> Decision | NoBid:
    """Find the best campaign for each impression; `now_ms` is UTC epoch time.

    It takes at most `left_s`, and `processor_s` of processor time; `query.undecided` tells for how
    many impressions, the last ones, that was not enough.
    """
    lookups = market.lookups.bidding_in(request.cur)
    if lookups is None:
        return NoBid(Reason.CURRENCY)
    catalog = market.catalog
    canonical = catalog.ssps.get(ssp, ssp)
    query = catalog.index.query(lookups, request, ssp, canonical, now_ms, left_s, processor_s)
    choices = []
    last = None
    imps = request.imp
    assert imps is not None
    pods = pods_of(imps) if len(imps) > 1 else None
    for imp in imps:
        if query.impression(imp) if pods is None else query.impression(imp, pods.rivals(imp)):
            last = imp
            best = query.next()
            if imp.qty is not None and market.exhausted:
                best = _affordable(best, query, imp, market)
            if best is not None:
                rank, creative, deal = best
                choices.append(Choice(imp, rank, creative, deal))
                if pods is not None and can_be_notified(imp.id):  # type: ignore[arg-type]
                    pods.take(imp, catalog.index.advertiser(rank))
    if not choices or last is None:
        if query.undecided:
            return NoBid(Reason.CUT_SHORT, query.undecided)
        return NoBid(unanswered(request, has_floor=last is not None))
    return Decision(choices, query, last, query.user, lookups, query.declares, pods)


def _affordable(best: Best | None, query: Query, imp: Imp, market: Market) -> Best | None:
    """Return the best campaign, from this one on, that may have budget for an impression's cost."""
    while best is not None:
        rank = best[0]
        if not market.is_too_dear(rank, cost_of(imp, market.catalog.index.price(rank))):
            break
        best = query.next()
    return best


def unanswered(request: BidRequest, *, has_floor: bool) -> Reason:
    """Return why no impression has a campaign, as far as the request tells.

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


def decide(request: BidRequest, ssp: str, market: Market, now_ms: int) -> list[Choice] | NoBid:
    """Return the choices of `search`."""
    decision = search(request, ssp, market, now_ms)
    return decision if isinstance(decision, NoBid) else decision.choices


class Proposal(Struct, frozen=True, gc=False):
    """An answer before it is written: its bids, with the choices and the decision behind them.

    `undecided`: impressions for which the time was not enough. `processor_s`: what was allowed.
    """

    auction_id: str
    bids: list[Bid]
    choices: list[Choice]
    decision: Decision
    limited: bool  # whether some campaign has a budget or caps
    undecided: int
    processor_s: float


class Bidder:
    """Answers bid requests from a market."""

    def __init__(self, base_url: str) -> None:
        self._writer = Writer(base_url)
        self._ids = BidIds(secrets.token_hex(6).encode())

    def propose(
        self,
        request: BidRequest,
        ssp: str,
        market: Market,
        now_ms: int,
        left_s: float = inf,
        processor_s: float = inf,
    ) -> Proposal | NoBid:
        """Decide on a request, within the time allowed; `now_ms` is UTC epoch time."""
        decision = search(request, ssp, market, now_ms, left_s, SEARCHING * processor_s)
        if type(decision) is NoBid:
            return decision
        auction_id: str = request.id  # type: ignore[assignment]
        if not can_be_notified(auction_id):
            return NoBid(Reason.LONG_ID)
        bids: list[Bid] = []
        choices, limited = [], False
        query, undecided = decision.query, decision.query.undecided
        if len(decision.choices) > 1:
            query.allow(left_s, TEMPLATES * processor_s)
        for choice in decision.choices:
            if bids and not query.has_time():
                undecided += len(decision.choices) - len(bids)
                break
            bid = bid_of(choice, market, decision)
            if can_be_notified(bid.imp_id):
                bids.append(bid)
                choices.append(choice)
                limited = limited or bid.template.limits is not None
        if not bids:
            return NoBid(Reason.LONG_ID)
        return Proposal(auction_id, bids, choices, decision, limited, undecided, processor_s)

    def write(self, auction_id: str, bids: list[Bid], currency: str = USD) -> bytes:
        """Write the response's body; bids that have no room are taken from the end of `bids`."""
        return self._writer.write(auction_id, self._ids.next(), bids, currency)

    def length(self, auction_id: str, bid: Bid) -> int:
        """Return how many bytes a bid takes in an answer."""
        return self._writer.length(auction_id, bid)


def bid_of(choice: Choice, market: Market, decision: Decision) -> Bid:
    """Return the bid for a choice of the decision."""
    imp, deal_id = choice.imp, None
    if choice.deal >= 0:
        assert imp.pmp is not None
        assert imp.pmp.deals is not None
        deal_id = str(imp.pmp.deals[choice.deal].id)
    lookups, declares = decision.lookups, decision.declares
    asked = None if imp.native is None else lookups.native_request(imp.native)
    if lookups.currency == USD and not declares:
        template = market.template(choice.rank, choice.creative, asked)
    else:
        template = market.adapted(choice.rank, choice.creative, lookups, declares, asked)
    cost = None if imp.qty is None else cost_of(imp, template.price_micros)
    return Bid(imp.id, template, deal_id, cost)  # type: ignore[arg-type]


def can_be_notified(text: str) -> bool:
    """Return whether the notification endpoints would accept the id."""
    return len(text) <= MAX_NOTICE_ID and (text.isascii() or len(text.encode()) <= MAX_NOTICE_ID)
