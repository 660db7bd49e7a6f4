"""The load test's page: numbers that can be read, none of them lost."""

import re

import pytest

from snapbid.loadtest import plots
from snapbid.loadtest.page import number, rounded
from snapbid.loadtest.plots import Line


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.0, "0"),
        (12_345, "12,345"),
        (200.0, "200"),
        (1999.6, "2,000"),
        (879.615, "880"),
        (26.143, "26.1"),
        (9.3512, "9.35"),
        (0.4321, "0.43"),
        (0.0004, "0.0004"),
    ],
)
def test_a_number_is_shown_to_three_digits(value: float, shown: str) -> None:
    assert rounded(value) == shown


@pytest.mark.parametrize("value", [0.1, 879.615, 26.1429, 1_234_567.25, 42])
def test_a_rounded_number_carries_the_exact_one(value: float) -> None:
    exact = re.search(r'value="([^"]+)"', number(value))
    assert float(exact[1] if exact else number(value).replace(",", "")) == value


def test_plots_show_the_values_of_all_lines_at_a_point() -> None:
    lines = [Line("p99", "s1", [(0, 1.5), (1, 20.25)]), Line("p<50", "s2", [(1, 7.0)])]
    x, y = plots.linear(1, "s"), plots.linear(30, "ms")
    spots = re.findall(r'<g class="spot">(.*?)</g>', plots.plot("t", x, y, lines))
    told = [re.findall(r">([^<>]+)</tspan>", spot) for spot in spots]
    assert told == [["0", "p99: 1.5"], ["1", "p99: 20.25", "p&lt;50: 7"]]


def test_long_plots_have_few_hover_points() -> None:
    line = Line("p99", "s1", [(at, 1.0) for at in range(3600)])
    drawn = plots.plot("t", plots.linear(3600, "s"), plots.linear(1, "ms"), [line])
    assert 100 < drawn.count('class="spot"') <= plots.MAX_SPOTS
