"""What a win costs (contract 3, `qty.multiplier`; OpenRTB 2.6, 7.9.4)."""

import json
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid.base.errors import BadRequest
from snapbid.bidding.cost import MAX_COST, cost_of, quantity_of
from snapbid.bidding.request import decode

EXACT = Context(prec=400, rounding=ROUND_HALF_EVEN)


def quantity(qty: Any, **inventory: Any) -> float:
    document = {"id": "a", "imp": [{"id": "1", "qty": qty}], **(inventory or {"dooh": {}})}
    request = decode(json.dumps(document).encode())
    assert request.imp
    return quantity_of(request, request.imp[0])


@pytest.mark.parametrize(
    ("multiplier", "price", "cost"),
    [
        (30.3, 2_500_000, 75_750_000),  # the specification's example: 2.50 USD, 0.07575 USD
        (12.5, 1_000_001, 12_500_012),  # half to even
        (12.5, 1_000_003, 12_500_038),
        (0.1, 3, 1),  # never nothing
        (0.1, 15, 2),
        (14.2, 1, 14),
        (1, 7, 7),
        (1000, 10**12, MAX_COST),  # a CPM of 1,000,000 USD
    ],
)
def test_costs(multiplier: float, price: int, cost: int) -> None:
    assert cost_of(price, quantity({"multiplier": multiplier})) == cost


@pytest.mark.parametrize(
    "qty",
    [
        *(None, {}, "", [], {"sourcetype": 1}),
        *({"multiplier": each} for each in (None, "", 0, -1, -0.0, -1e308)),
    ],
)
def test_absent_or_out_of_range(qty: Any) -> None:
    assert quantity(qty) == 1


@pytest.mark.parametrize(
    "inventory",
    [
        {"site": {}},
        {"app": {"id": "a"}},
        {"site": {}, "dooh": {}},
        {"app": {}, "dooh": {}},
        {"dooh": None},
        {"dooh": ""},
    ],
)
def test_multipliers_count_for_dooh_only(inventory: dict[str, Any]) -> None:
    assert quantity({"multiplier": 12.5}, **inventory) == 1


@pytest.mark.parametrize("written", ["12.5", [12.5], 12.5])
def test_quantities_as_exchanges_write_them(written: Any) -> None:
    assert quantity({"multiplier": written}) == 12.5


@pytest.mark.parametrize("qty", [{"multiplier": {}}, {"multiplier": "many"}, 3])
def test_meaningless_quantities(qty: Any) -> None:
    with pytest.raises(BadRequest, match=r"imp\[0\]\.qty"):
        quantity(qty)


@given(
    st.floats(min_value=0, max_value=1e6, exclude_min=True),
    st.integers(min_value=1, max_value=10**12),
)
def test_any_cost(multiplier: float, price: int) -> None:
    exact = EXACT.multiply(Decimal(repr(multiplier)), Decimal(price))
    rounded = int(exact.to_integral_value(context=EXACT))
    assert cost_of(price, multiplier) == max(rounded, 1)
