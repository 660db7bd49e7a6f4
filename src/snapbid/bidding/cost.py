"""The cost of a win (contract 3, `qty.multiplier`; OpenRTB 2.6, 3.2.31 and 7.9.4).

A win costs a thousandth of its CPM. An impression may stand for several, such as one on a screen
seen by many people; then the cost is multiplied by the number of impressions. The ledger holds,
spends and reports this cost instead of the price; the price in the response is still the CPM.
Ordinary bids take no extra work.

The sender of the request states the multiplier, so it counts only for DOOH, and only up to the
operator's limit.
"""

from fractions import Fraction
from typing import Final

from snapbid.bidding.request import BidRequest, Imp

MAX_QUANTITY: Final = 1000  # impressions that one may stand for; the operator's default
MAX_COST: Final = 10**15  # nano-USD: no win costs more than 1,000,000 USD


def quantity_of(request: BidRequest, imp: Imp) -> float:
    """Return how many impressions `imp` stands for; 1 unless a DOOH request states a number."""
    if request.dooh is None or request.site is not None or request.app is not None:
        return 1
    quantity = None if imp.qty is None else imp.qty.multiplier
    return quantity if quantity is not None and quantity > 0 else 1


def cost_of(price_micros: int, quantity: float) -> int:
    """Return the cost (nano-USD) of a win at a CPM (micro-USD).

    For quantity 1, the cost is the same number as the CPM. `quantity` is taken as its shortest
    decimal form. The product is rounded once, half to even, and is at least 1, so no win is free.
    No bid is made if its cost exceeds MAX_COST.
    """
    if quantity == 1:
        return price_micros
    return max(round(price_micros * Fraction(repr(quantity))), 1)
