"""Reasons for not bidding on a request."""

from enum import Enum
from typing import Final

from snapbid.bidding.request import BidRequest


class Reason(Enum):
    """A reason for not bidding; its value is the label `outcome` in metrics."""

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
    CUT_SHORT = "cut_short"  # time ran out before any impression was decided
    LATE = "late"
    OVERLOAD = "overload"
    RATE = "rate"  # the SSP exceeded its requests per second
    STORE_DOWN = "store_down"


# Looking up an enumeration's member is a Python call.
_NO_CAMPAIGN: Final = Reason.NO_CAMPAIGN
_NO_MEDIA: Final = Reason.NO_MEDIA


def unanswered(request: BidRequest, *, has_floor: bool) -> Reason:
    """Infer from the request why no campaign bids on it.

    `has_floor`: at least one impression's floor could be converted to USD.
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
