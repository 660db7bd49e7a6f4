"""The histogram against the sorted values themselves."""

import random

import pytest

from snapbid.load.histogram import PERCENTILES, Histogram, merged


def exact_ms(values: list[float], percent: float) -> float:
    place = max(1, -int(-len(values) * percent // 100))
    return sorted(values)[place - 1] * 1000


@pytest.mark.parametrize("scale", [1e-5, 1e-3, 0.1, 20.0])
def test_percentiles_are_within_a_thousandth(scale: float) -> None:
    rng = random.Random(scale)
    values = [rng.expovariate(1 / scale) for _ in range(20_000)]
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    found = histogram.percentiles(PERCENTILES)
    for percent, ms in zip(PERCENTILES, found, strict=True):
        assert ms == pytest.approx(exact_ms(values, percent), rel=0.001, abs=0.001)
    assert histogram.max_us == int(max(values) * 1e6)
    assert found == sorted(found)


def test_the_last_percentile_is_the_highest_value() -> None:
    histogram = Histogram()
    for value in (0.001, 0.002, 7.654321):
        histogram.record(value)
    assert histogram.percentile(100) == 7654.321
    assert histogram.percentile(33) == 1.0


def test_merged_is_as_if_recorded_in_one() -> None:
    parts, whole = [Histogram() for _ in range(5)], Histogram()
    for number in range(10_000):
        parts[number % 5].record(number / 3000)
        whole.record(number / 3000)
    total = merged(parts)
    assert (total.buckets, total.count, total.max_us) == (
        whole.buckets,
        whole.count,
        whole.max_us,
    )


def test_nothing_and_odd_values() -> None:
    histogram = Histogram()
    assert histogram.percentile(99) == 0
    histogram.record(-0.5)
    histogram.record(1e9)
    assert histogram.percentiles([50, 100]) == [0, 3_600_000]
