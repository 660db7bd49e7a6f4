"""The decision on a bid request, step by step (document 2; contract 3 and 4):

bytes -> request (structs) -> decision (ranks) -> response (bytes).

Everything here is a function of values, without a clock or I/O. A bid that the ledger refuses,
because of a budget or a frequency cap, is replaced by the next best (`limits.py`). The steps are
native (`_bid_path`).

The cost of a request is bounded (contract 3). The clock is read between impressions, inside a
search and between bids; impressions that are still undecided when the time is up get no bid.
"""

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
from snapbid.bidding.reasons import Reason
from snapbid.bidding.request import BidRequest
from snapbid.bidding.snapshot import CatalogSnapshot

__all__ = [
    "MAX_NOTICE_ID",
    "CatalogSnapshot",
    "Choice",
    "Decision",
    "NoBid",
    "Proposal",
    "Reason",
    "can_be_notified",
    "decide",
    "propose",
    "search",
]


def decide(
    request: BidRequest, ssp: str, snapshot: CatalogSnapshot, now_ms: int
) -> list[Choice] | NoBid:
    """Return the choices of `search`."""
    decision = search(request, ssp, snapshot, now_ms)
    return decision if isinstance(decision, NoBid) else decision.choices
