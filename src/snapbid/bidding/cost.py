"""What a win costs (contract 3, `qty.multiplier`; OpenRTB 2.6, 3.2.31 and 7.9.4).

A win costs a thousandth of its CPM. Where an impression stands for several, as one on a screen that
many see does, it costs as many times more. The ledger holds, spends and reports the product in
place of the price, so that a plain bid takes nothing more; the price in the answer stays the CPM.

Whoever sends a request states the multiplier, so it counts on the screens of DOOH alone, and up to
what the operator allows.
"""

from fractions import Fraction
from typing import Final

from snapbid.bidding.request import BidRequest, Imp

MAX_QUANTITY: Final = 1000  # impressions that one may stand for, unless the operator says otherwise
MAX_COST: Final = 10**15  # nano-USD: no win costs more than 1,000,000 USD


def quantity_of(request: BidRequest, imp: Imp) -> float:
    """Return how many impressions this one stands for: 1, unless one of DOOH alone says more."""
    if request.dooh is None or request.site is not None or request.app is not None:
        return 1
    quantity = None if imp.qty is None else imp.qty.multiplier
    return quantity if quantity is not None and quantity > 0 else 1


def cost_of(price_micros: int, quantity: float) -> int:
    """Return what a win at a CPM in micro-USD costs, in nano-USD: the CPM itself for a plain one.

    A float stands for its shortest decimal. The product is rounded once, half to even, and is at
    least 1: a win never costs nothing. No bid is made that costs more than MAX_COST.
    """
    if quantity == 1:
        return price_micros
    return max(round(price_micros * Fraction(repr(quantity))), 1)
