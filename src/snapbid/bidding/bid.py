"""The decision on a bid request, step by step (document 2; contract 3 and 4):

bytes -> request (structs) -> decision (ranks) -> response (bytes).

Everything here is a function of values, without a clock or I/O. A bid that the ledger refuses,
because of a budget or a frequency cap, is replaced by the next best (`limits.py`). The steps are
native (`_bid_path`).

The cost of a request is bounded (contract 3). The clock is read between impressions, inside a
search and between bids; impressions that are still undecided when the time is up get no bid.
"""

import secrets
from collections.abc import Callable
from math import inf

from snapbid.bidding._bid_path import (
    MAX_NOTICE_ID,
    Choice,
    Decision,
    NoBid,
    Proposal,
    can_be_notified,
    propose,
    search,
)
from snapbid.bidding._response import BidIds
from snapbid.bidding.lookups import USD
from snapbid.bidding.reasons import Reason
from snapbid.bidding.request import BidRequest
from snapbid.bidding.response import Bid, Writer
from snapbid.bidding.snapshot import CatalogSnapshot

__all__ = [
    "MAX_NOTICE_ID",
    "Bidder",
    "CatalogSnapshot",
    "Choice",
    "Decision",
    "NoBid",
    "Proposal",
    "Reason",
    "can_be_notified",
    "decide",
    "search",
]


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
        return propose(request, ssp, snapshot, now_ms, left_s, processor_s)

    def write(self, auction_id: str, bids: list[Bid], currency: str = USD) -> bytes:
        """Write the response's body; bids that do not fit are dropped from the end of `bids`."""
        return self.writer.write(auction_id, self.ids.next(), bids, currency)

    def length(self, auction_id: str, bid: Bid) -> int:
        """Return how many bytes a bid takes in an answer."""
        return self.writer.length(auction_id, bid)
