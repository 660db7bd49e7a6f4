"""Maps our rules to OpenRTB's no-bid codes (2.6, 5.24; AdCOM 1.0) and loss codes (2.5, 5.25).

There is no code for most targeting rules, nor for durations, bit rates, delivery, skipping or APIs.
"""

from typing import Final, Literal

import msgspec

from snapbid.bidding.refusals import NATIVE_REQUEST, SIZE, SIZE_MISSING
from snapbid.campaigns.suspensions import REASONS
from snapbid.catalog.single import FORMAT_NAME, Refusal


class Code(msgspec.Struct, frozen=True):
    """A no-bid or loss code of OpenRTB, with its name in the standard."""

    list: Literal["loss", "no-bid"]
    number: int
    name: str

    def __str__(self) -> str:
        return f"{self.list} {self.number}, {self.name}"


class RuleCheck(msgspec.Struct, frozen=True):
    """The verdict on one rule, with the campaign's side (`asks`) and the request's (`carries`)."""

    rule: str
    asks: str
    carries: str
    holds: bool
    code: Code | None = None


def _no_bid(number: int, name: str) -> Code:
    return Code("no-bid", number, name)


def _loss(number: int, name: str) -> Code:
    return Code("loss", number, name)


def filtered(number: int) -> Code:
    """Return the loss code with this number, for a creative filtered by an SSP."""
    return _loss(number, f"Creative Filtered - {REASONS[number]}")


INVALID_REQUEST: Final = _no_bid(2, "Invalid Request")
UNMATCHED_USER: Final = _no_bid(8, "Unmatched User")
CAP_MET: Final = _no_bid(9, "Daily User Cap Met")
BELOW_FLOOR: Final = _loss(100, "Bid was Below Auction Floor")
BELOW_DEAL_FLOOR: Final = _loss(101, "Bid was Below Deal Floor")
HIGHER_BID: Final = _loss(102, "Lost to Higher Bid")
DEAL_BID: Final = _loss(103, "Lost to a Bid for a PMP Deal")
_SIZE: Final = filtered(203)
FORMAT: Final = filtered(204)

_BLOCKED_PLACE: Final = _no_bid(7, "Blocked Publisher or Site")
_DIMENSIONS: Final = {
    "device_type": _no_bid(6, "Unsupported Device"),
    "domain": _BLOCKED_PLACE,
    "bundle": _BLOCKED_PLACE,
    "publisher": _BLOCKED_PLACE,
    "segment": UNMATCHED_USER,
    "audience": UNMATCHED_USER,
    "product": UNMATCHED_USER,
    "deal": _loss(4, "Invalid Deal ID"),
    FORMAT_NAME: FORMAT,
}
_REFUSALS: Final = {
    Refusal.REFUSED_DEAL: filtered(213),
    Refusal.REFUSED_PRIVATE_AUCTION: _loss(4, "Invalid Deal ID"),
    Refusal.REFUSED_FLOOR: BELOW_FLOOR,
    Refusal.REFUSED_SEAT: _loss(104, "Buyer Seat Blocked"),
    Refusal.REFUSED_BLOCKED_APP: filtered(206),
    Refusal.REFUSED_BLOCKED_ADVERTISER: filtered(205),
    Refusal.REFUSED_POD: filtered(205),
    Refusal.REFUSED_BLOCKED_CATEGORY: filtered(209),
    Refusal.REFUSED_CREATIVE: filtered(200),
    Refusal.REFUSED_USER: UNMATCHED_USER,
}
CREATIVE: Final = {
    SIZE: _SIZE,
    SIZE_MISSING: _SIZE,
    "player": _SIZE,
    FORMAT_NAME: FORMAT,
    NATIVE_REQUEST: FORMAT,
    "mimes": FORMAT,
    "protocols": FORMAT,
    "linear": FORMAT,
    "native": FORMAT,
    "price": BELOW_FLOOR,
    "secure": filtered(207),
    "language": filtered(208),
    "attributes": filtered(210),
    "type": filtered(211),
}


def code_of(refusal: Refusal, dimension: str | None) -> Code | None:
    """Return the code that corresponds to a refusal by the matcher, if any."""
    if refusal == Refusal.REFUSED_TARGETING and dimension is not None:
        return _DIMENSIONS.get(dimension)
    return _REFUSALS.get(refusal)
