"""When an SSP's price and ours are the same: one by one, and in columns where that is plain."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from snapbid.reconcile.claims import Claim
from snapbid.reconcile.own import DAY_MS, EPOCH, OwnBid
from snapbid.warehouse.registry import FamilySpan

CONVERTED_PART: Final = 100  # by a hundredth prices in different currencies may differ
ROUNDING: Final = 2  # micros that floating point may be off by, and more than it is

Convert = Callable[[str, date], Fraction | None]  # USD per unit of a currency on a day


class Terms(NamedTuple):
    """How to compare. `tolerance` is in micros of a CPM; `descriptors` are the SSP's endpoints, and
    `family` the days on which they are: all days where it is empty.
    """

    ssp: str
    descriptors: frozenset[str]
    convert: Convert
    tolerance: int = 5_000
    first: date | None = None
    last: date | None = None
    family: tuple[FamilySpan, ...] = ()

    @property
    def spans(self) -> Sequence[FamilySpan]:
        """The days on which bids of the descriptors are the SSP's."""
        return self.family or [FamilySpan(name, date.min, date.max) for name in self.descriptors]


def difference(claim: Claim, bid: OwnBid, terms: Terms) -> tuple[str, str]:
    """The dispute about a claim's price and its size; "" where there is none."""
    assert claim.price is not None
    more: int | Fraction = claim.price - bid.sent
    allowed = terms.tolerance
    if claim.currency != bid.currency:
        usd = rate(claim.currency, day_of(bid.time_ms), terms)
        if usd is None:
            return "unknown_currency", claim.currency
        more = claim.price * usd - bid.price
        allowed = max(allowed, bid.price // CONVERTED_PART)
    if -allowed <= more <= allowed:
        return "", ""
    return "price_differs", f"by {float(more) / 1e6:+.6g} for 1,000"


def agree(claims: pa.RecordBatch, bids: pa.RecordBatch, terms: Terms) -> pa.Array:
    """Which claims have no price, or certainly one that agrees with the bid beside it."""
    price = claims["price"]
    same = pc.equal(claims["currency"], bids["currency"])
    near = pc.less_equal(pc.abs(pc.subtract(price, bids["sent"])), terms.tolerance)
    if pc.all(same, min_count=0).as_py() is not True:
        dollars = pc.multiply(price.cast(pa.float64()), _rates(claims, bids, terms))
        more = pc.abs(pc.subtract(dollars, bids["price"].cast(pa.float64())))
        allowed = pc.divide(bids["price"], CONVERTED_PART)
        allowed = pc.subtract(pc.max_element_wise(allowed, terms.tolerance), ROUNDING)
        near = pc.if_else(same, near, pc.less_equal(more, allowed.cast(pa.float64())))
    return pc.or_kleene(pc.is_null(price), near)


def rate(currency: str, day: date, terms: Terms) -> Fraction | None:
    """USD per unit of a currency on a day; None if that is not known."""
    return Fraction(1) if currency == "USD" else terms.convert(currency, day)


def _rates(claims: pa.RecordBatch, bids: pa.RecordBatch, terms: Terms) -> pa.Array:
    """USD per unit of each claim's currency on the bid's day; null where that is not known."""
    days = pc.divide(bids["time_ms"], DAY_MS)
    keys = pc.binary_join_element_wise(days.cast(pa.string()), claims["currency"], " ")
    encoded = keys.dictionary_encode()
    rates = []
    for key in encoded.dictionary.to_pylist():
        number, _, currency = key.partition(" ")
        usd = rate(currency, _date(int(number)), terms)
        rates.append(None if usd is None else float(usd))
    return pa.array(rates, pa.float64()).take(encoded.indices)


def day_of(time_ms: int) -> date:
    """The UTC day of an epoch time."""
    return _date(time_ms // DAY_MS)


@lru_cache
def _date(number: int) -> date:
    return EPOCH + timedelta(days=number)
