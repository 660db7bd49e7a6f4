"""The currency of bids (contract 3, `cur`)."""

from typing import Any

import pytest
from support.snapshot import RATES, Geo

from snapbid.bidding.lookups import Lookups


@pytest.mark.parametrize(
    ("cur", "currency"),
    [
        *((cur, "USD") for cur in (None, [], [""], [None], ["USD"], ["usd"], ["EUR", "USD"])),
        *((["XXX", None, "uSd"], "USD"), ([5, None, "jpY", "EUR"], "JPY"), (["", None], "USD")),
        *((cur, "EUR") for cur in (["EUR"], ["eur"], ["XXX", "EUR"], ["EUR", "JPY"], ["", "EUR"])),
        *((cur, None) for cur in (["XXX"], [7])),
    ],
)
def test_currencies(cur: Any, currency: str | None) -> None:
    lookups = Lookups(Geo(), RATES)
    chosen = lookups.bidding_in(cur)
    assert (chosen and chosen.currency) == currency
    assert lookups.bidding_in(cur) is chosen
