"""Computes exact floors of impressions and deals in the bids' currency, to check answers.

Parameters called `unit` are the value in USD of one unit of the bids' currency.
"""

import math
from fractions import Fraction
from typing import NamedTuple

from snapbid.bidding.request import Audio, Deal, Video
from snapbid.reference.rates import MICROS, Rates


class DurationFloor(NamedTuple):
    """A floor for a range of creative durations (seconds, inclusive), in the bids' currency."""

    shortest: int
    longest: int | None
    floor: Fraction | None  # millionths, or millionths per second; None if there is no rate
    is_per_second: bool


def floor_of(
    amount: float | None, currency: str | None, rates: Rates, unit: Fraction | int
) -> int | None:
    """Return a floor in millionths of the bids' currency, rounded up; None if there is no rate."""
    if not amount or not amount > 0:
        return 0
    exact = _exact(amount, currency, rates, unit)
    return None if exact is None else math.ceil(exact)


def _exact(
    amount: float, currency: str | None, rates: Rates, unit: Fraction | int
) -> Fraction | None:
    rate = rates.usd.get((currency or "USD").upper())
    return None if rate is None else Fraction(repr(amount)) * rate * MICROS / unit


def floors_by_duration(
    place: Video | Audio | Deal, currency: str | None, rates: Rates, unit: Fraction | int
) -> list[DurationFloor]:
    """Return the floors above 0 that depend on a creative's duration, or are set per second."""
    spans = [(span.mindur or 0, span.maxdur, span.bidfloor) for span in place.durfloors or ()]
    floors = [(0, None, place.mincpmpersec, True), *((*span, False) for span in spans)]
    return [
        DurationFloor(
            max(shortest, 0),
            None if longest is None or longest < 0 else longest,
            _exact(amount, currency, rates, unit),
            is_per_second,
        )
        for shortest, longest, amount, is_per_second in floors
        if amount is not None and amount > 0
    ]


def is_paid(price: int, seconds: int | None, limit: DurationFloor) -> bool:
    """Return whether a price (in millionths) meets a floor, given the creative's duration.

    Returns True if the floor does not apply to this duration. A creative without a duration fails.
    """
    shortest, longest, floor, is_per_second = limit
    if longest is not None and longest < shortest:
        return True
    if seconds is None:
        return False
    if seconds < shortest or (longest is not None and seconds > longest):
        return True
    return floor is not None and price >= (floor * seconds if is_per_second else floor)
