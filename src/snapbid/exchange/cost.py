"""What a win costs (contract 3, `qty.multiplier`; OpenRTB 2.6, 3.2.31 and 7.9.4).

A win costs a thousandth of its CPM. Where an impression stands for several, as one on a screen that
many see does, it costs as many times more. The ledger holds, spends and reports the product in
place of the price, so that a plain bid takes nothing more; the price in the answer stays the CPM.
"""

from fractions import Fraction
from typing import Final

from snapbid.exchange.request import Imp

MOST_IMPRESSIONS: Final = 1_000_000_000  # that one may stand for; a number beyond counts as absent
MAX_COST: Final = 2**63 - 1  # the ledger counts in 64 bits; no budget reaches so far


def quantity_of(imp: Imp) -> float:
    """Return how many impressions this one stands for; 1 unless it says so."""
    quantity = None if imp.qty is None else imp.qty.multiplier
    return quantity if quantity is not None and 0 < quantity <= MOST_IMPRESSIONS else 1


def cost_of(imp: Imp, price_micros: int) -> int:
    """Return what a win at a CPM in micro-USD costs, in nano-USD: the CPM itself for a plain one.

    A float stands for its shortest decimal. The product is rounded once, half to even, and is at
    least 1: a win never costs nothing.
    """
    quantity = quantity_of(imp)
    if quantity == 1:
        return price_micros
    return min(max(round(price_micros * Fraction(repr(quantity))), 1), MAX_COST)
