"""What a win costs (contract 3, `qty.multiplier`; OpenRTB 2.6, 7.9.4)."""

import json
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid.errors import BadRequest
from snapbid.exchange.cost import MAX_COST, cost_of, quantity_of
from snapbid.exchange.request import Imp, Qty, decode

EXACT = Context(prec=400, rounding=ROUND_HALF_EVEN)


def imp(qty: Any) -> Imp:
    request = decode(json.dumps({"id": "a", "imp": [{"id": "1", "qty": qty}]}).encode())
    assert request.imp
    return request.imp[0]


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
        (1e9, 10**9, 10**18),
        (1e9, 2**63 - 1, MAX_COST),
    ],
)
def test_costs(multiplier: float, price: int, cost: int) -> None:
    assert cost_of(imp({"multiplier": multiplier}), price) == cost


@pytest.mark.parametrize(
    "qty",
    [
        *(None, {}, "", [], {"sourcetype": 1}),
        *({"multiplier": each} for each in (None, "", 0, -1, -0.0, 1e9 + 1, 1e30, 1e308)),
    ],
)
def test_absent_or_out_of_range(qty: Any) -> None:
    assert quantity_of(imp(qty)) == 1
    assert cost_of(imp(qty), 1_234_567) == 1_234_567


@pytest.mark.parametrize("written", ["12.5", [12.5], 12.5])
def test_as_exchanges_write_it(written: Any) -> None:
    assert cost_of(imp({"multiplier": written}), 1_000_000) == 12_500_000


@pytest.mark.parametrize("qty", [{"multiplier": {}}, {"multiplier": "many"}, 3])
def test_what_makes_no_sense(qty: Any) -> None:
    with pytest.raises(BadRequest, match=r"imp\[0\]\.qty"):
        imp(qty)


@given(
    st.floats(min_value=0, max_value=1e9, exclude_min=True),
    st.integers(min_value=1, max_value=MAX_COST),
)
def test_any_cost(multiplier: float, price: int) -> None:
    exact = EXACT.multiply(Decimal(repr(multiplier)), Decimal(price))
    rounded = int(exact.to_integral_value(context=EXACT))
    assert cost_of(Imp(id="1", qty=Qty(multiplier)), price) == min(max(rounded, 1), MAX_COST)
