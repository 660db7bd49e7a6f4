import math
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid.campaigns.value_rules import MAX_CPM
from snapbid.reference import rates
from snapbid.reference.rates import Rates

TABLE = (
    "Date,USD,JPY,CYP,GBP,\n"
    "2024-05-02,1.25,160,0.58,0.8,\n"
    "2024-05-03,1.2,150.5,N/A,0.86,\n"
    "2024-05-01,1.0,1,1,1,\n"
)
EXACT = Context(prec=1000, rounding=ROUND_CEILING)


@pytest.fixture(scope="module")
def table() -> Rates:
    return rates.parse_table(TABLE)


def test_only_the_newest_day_counts(table: Rates) -> None:
    assert table.date == date(2024, 5, 3)
    assert table.usd == {
        "USD": 1,
        "EUR": Fraction(6, 5),
        "JPY": Fraction(12, 1505),
        "GBP": Fraction(120, 86),
    }


def test_the_bundled_table_has_the_currencies_that_are_promised() -> None:
    bundled = rates.load()
    assert bundled.usd["USD"] == 1
    assert {"EUR", "GBP", "JPY", "CHF", "SEK", "INR", "BRL"} <= bundled.usd.keys()
    assert not {"DEM", "CYP", "HRK", "RUB", "ROL"} & bundled.usd.keys()
    assert all(0 < rate < 10 for rate in bundled.usd.values())
    assert Fraction(1, 1000) < bundled.usd["JPY"] < Fraction(1, 50)
    assert bundled.date >= date(2025, 1, 1)


TODAY = datetime.now(UTC).date()
YESTERDAY, TOMORROW = TODAY - timedelta(days=1), TODAY + timedelta(days=1)


@pytest.mark.parametrize(
    ("currency", "entries", "usd"),
    [
        ("VND", [(TODAY, "0.00004")], "0.00004"),
        ("EUR", [(YESTERDAY, "2"), (date(2020, 1, 1), "1")], "2"),
        ("GBP", [(TOMORROW, "9"), (YESTERDAY, "1.5")], "1.5"),
        ("GBP", [(TOMORROW, "9")], Fraction(120, 86)),
        ("XXL", [(TODAY, "1000000")], "1000000"),
        ("XXS", [(TODAY, "0.000001")], "0.000001"),
        ("XXL", [(TODAY, "1000000.1")], None),
        ("EUR", [(TODAY, "0.0000009")], None),  # and not the bank's, which the operator replaced
        ("USDT", [(TODAY, "1")], None),
        ("X1X", [(TODAY, "1")], None),
    ],
)
def test_the_operators_rates_replace_the_banks(
    table: Rates, currency: str, entries: list[tuple[date, str]], usd: Fraction | str | None
) -> None:
    own = {currency: [(day, Decimal(text)) for day, text in entries]}
    found = table.overridden(own)
    others = {code: rate for code, rate in table.usd.items() if code != currency}
    assert found.usd == others | ({} if usd is None else {currency: Fraction(usd)})
    assert found.date == table.date
    assert table.overridden({}) == table


@pytest.mark.parametrize("rate", [rates.LEAST_USD, rates.MOST_USD])
def test_prices_at_the_limits_of_rates_fit_64_bits(table: Rates, rate: Fraction) -> None:
    own = table.overridden({"XXX": [(TODAY, Decimal(str(float(rate))))]})
    highest = MAX_CPM * rates.MICROS
    assert 0 < own.price_micros(highest, "XXX") < 2**63


@given(
    amount=st.floats(0, 1e6),
    of=st.sampled_from(["USD", "EUR", "JPY", "GBP"]),
    bid=st.sampled_from(["EUR", "JPY", "GBP"]),
)
def test_the_least_price_reaches_the_floor_once_it_is_converted(
    amount: float, of: str, bid: str
) -> None:
    table = rates.parse_table(TABLE)
    least = table.least_price_micros(amount, of, bid)
    assert least is not None
    stated = Fraction(repr(amount)) * table.usd[of] * rates.MICROS

    def reaches(usd_micros: int) -> bool:
        price = table.price_micros(usd_micros, bid)
        return price > 0 and price * table.usd[bid] >= stated

    assert reaches(least)
    assert not reaches(least - 1)


@given(
    amount=st.floats(0, 1e6), times=st.integers(0, 3600), of=st.sampled_from(["USD", "EUR", "JPY"])
)
def test_a_floor_by_the_second_is_rounded_once(amount: float, times: int, of: str) -> None:
    table = rates.parse_table(TABLE)
    exact = Fraction(repr(amount)) * times * table.usd[of] * rates.MICROS
    assert table.floor_micros(amount, of, times) == math.ceil(exact)


def test_prices_are_converted_downwards(table: Rates) -> None:
    assert table.price_micros(2_000_000, "EUR") == 1_666_666
    assert table.price_micros(1, "EUR") == 0
    assert table.least_price_micros(1, "XXX", "EUR") is None
    assert table.least_price_micros(0, "XXX", "EUR") == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Date,JPY,\n2024-05-03,150,\n",
        "Date,USD,\n2024-05-03,N/A,\n",
        "Date,USD,\n2024-05-03,0,\n",
    ],
)
def test_a_damaged_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        rates.parse_table(text)


@pytest.mark.parametrize(
    ("amount", "currency", "micros"),
    [
        (0.5, "USD", 500_000),
        (3, "USD", 3_000_000),
        (0.1, "USD", 100_000),
        (0.3, "usd", 300_000),
        (1.000001, "USD", 1_000_001),
        (0.0000001, "USD", 1),
        (1.0000001, "USD", 1_000_001),
        (1e-300, "USD", 1),
        (0.1, "EUR", 120_000),
        (1, "eur", 1_200_000),
        (1, "JPY", 7_974),  # 7973.42…
        (0.86, "GBP", 1_200_000),
        (1, "XXX", None),
        (1, "CYP", None),
        (1, "", None),
        (0, "USD", 0),
        (0.0, "XXX", 0),
        (-0.0, "EUR", 0),
        (1e300, "EUR", 2**63 - 1),
        (10**400, "USD", 2**63 - 1),
    ],
)
def test_floors(table: Rates, amount: float, currency: str, micros: int | None) -> None:
    assert table.floor_micros(amount, currency) == micros
    assert table.floor_micros(amount, currency) == micros, "the remembered answer differs"


@pytest.mark.parametrize("amount", [-1, -0.001, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("currency", ["USD", "EUR", "XXX"])
def test_invalid_floors(table: Rates, amount: float, currency: str) -> None:
    with pytest.raises(ValueError, match="a floor must be a finite number"):
        table.floor_micros(amount, currency)


@given(st.one_of(st.floats(0, 1e12), st.integers(0, 10**12), st.decimals(0, 1000, places=6)))
def test_usd_floors_are_the_decimal_rounded_up(amount: float | Decimal) -> None:
    number = float(amount) if isinstance(amount, Decimal) else amount
    exact = Decimal(repr(number)).scaleb(6, EXACT).to_integral_value(ROUND_CEILING)
    assert rates.parse_table(TABLE).floor_micros(number, "USD") == int(exact)


@given(st.floats(0, 1e9), st.sampled_from(["EUR", "JPY", "GBP"]))
def test_other_floors_are_never_below_and_less_than_one_micro_above(
    amount: float, currency: str
) -> None:
    table = rates.parse_table(TABLE)
    exact = Fraction(repr(amount)) * table.usd[currency] * 1_000_000
    micros = table.floor_micros(amount, currency)
    assert micros is not None
    assert 0 <= micros - exact < 1


def test_the_memory_of_conversions_is_bounded(table: Rates) -> None:
    for amount in range(1, 3 * rates.CACHED_FLOORS):
        table.floor_micros(amount, "EUR")
    assert len(table._floors) <= rates.CACHED_FLOORS


def test_pickle_keeps_the_table(table: Rates) -> None:
    assert pickle.loads(pickle.dumps(table)) == table
