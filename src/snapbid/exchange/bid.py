"""The bid endpoint, straight down (document 2; contract 3 and 4):

bytes -> request (structs) -> features (flat values) -> decision (ranks) -> response (bytes).

Everything here is a function of values: no clock, no I/O.
"""

import secrets
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Final, NamedTuple

from msgspec import Struct

from snapbid.exchange.features import (
    References,
    accepts_usd,
    read_impression,
    read_request,
)
from snapbid.exchange.request import BidRequest, Imp
from snapbid.exchange.response import Bid, Template, Writer, template
from snapbid.match.catalog import Catalog
from snapbid.match.compile import read_document

MAX_NOTICE_ID: Final = 512  # bytes of an id that a notification URL may carry
MAX_TEMPLATES: Final = 100_000  # kept for one catalog


class Reason(Enum):
    """Why there is no bid."""

    CURRENCY = "currency"
    NO_CAMPAIGN = "no_campaign"
    LATE = "late"
    STORE_DOWN = "store_down"


class NoBid(Struct, frozen=True):
    """An answer without a bid."""

    reason: Reason


class Choice(NamedTuple):
    """The decision for one impression; `deal` is a place in `imp.pmp.deals`, or -1."""

    imp: Imp
    rank: int
    creative: int
    deal: int


@dataclass(slots=True)
class Market:
    """A catalog with what is looked up beside it, and the templates of its creatives."""

    catalog: Catalog
    references: References
    templates: dict[tuple[int, int], Template] = field(default_factory=dict)

    def template(self, rank: int, creative: int) -> Template:
        """The template of a creative, made at its first use."""
        found = self.templates.get((rank, creative))
        if found is None:
            document = read_document(self.catalog.index.payload(rank))
            price = self.catalog.index.price(rank)
            found = template(document, document.creatives[creative], price)
            if len(self.templates) >= MAX_TEMPLATES:
                self.templates.clear()
            self.templates[rank, creative] = found
        return found


def decide(request: BidRequest, ssp: str, market: Market, now_ms: int) -> list[Choice] | NoBid:
    """The best campaign for each impression that has one; `now_ms` is UTC epoch time."""
    if request.cur and not accepts_usd(request.cur):
        return NoBid(Reason.CURRENCY)
    references = market.references
    canonical = market.catalog.ssps.get(ssp, ssp)
    query = market.catalog.index.query(read_request(request, ssp, canonical, now_ms, references))
    choices = []
    assert request.imp is not None
    for imp in request.imp:
        wanted = read_impression(imp, references.rates)
        if wanted is not None:
            query.impression(wanted)
            best = query.next()
            if best is not None:
                choices.append(Choice(imp, *best))
    return choices or NoBid(Reason.NO_CAMPAIGN)


class Answered(NamedTuple):
    """An answer with bids: the response's body, and what it promises."""

    auction_id: str
    bids: list[Bid]
    body: bytes


class Bidder:
    """Answers bid requests from a market."""

    def __init__(self, base_url: str) -> None:
        self._writer = Writer(base_url)
        self._process = secrets.token_hex(6)
        self._numbers = count(1)

    def answer(
        self, request: BidRequest, ssp: str, market: Market, now_ms: int
    ) -> Answered | NoBid:
        """Decides on a request and writes the response; `now_ms` is UTC epoch time."""
        choices = decide(request, ssp, market, now_ms)
        if isinstance(choices, NoBid):
            return choices
        auction_id: str = request.id  # type: ignore[assignment]
        bids = [bid for choice in choices if _can_be_notified((bid := _bid(choice, market)).imp_id)]
        if not bids or not _can_be_notified(auction_id):
            return NoBid(Reason.NO_CAMPAIGN)
        bid_id = f"{self._process}-{next(self._numbers):x}"
        return Answered(auction_id, bids, self._writer.write(auction_id, bid_id, bids))


def _bid(choice: Choice, market: Market) -> Bid:
    imp, rank, creative, deal = choice
    deal_id = None
    if deal >= 0:
        assert imp.pmp is not None
        assert imp.pmp.deals is not None
        deal_id = str(imp.pmp.deals[deal].id)
    return Bid(imp.id, market.template(rank, creative), deal_id)  # type: ignore[arg-type]


def _can_be_notified(text: str) -> bool:
    """Whether the notification endpoints would take the id back."""
    return len(text) <= MAX_NOTICE_ID and (text.isascii() or len(text.encode()) <= MAX_NOTICE_ID)
