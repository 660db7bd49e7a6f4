"""The histogram against the sorted values themselves."""

import random

import pytest

from snapbid.loadtest.histogram import PERCENTILES, LatencyHistogram


def exact_ms(values: list[float], percent: float) -> float:
    rank = max(1, -int(-len(values) * percent // 100))
    return sorted(values)[rank - 1] * 1000


@pytest.mark.parametrize("scale", [1e-5, 1e-3, 0.1, 20.0])
def test_percentiles_are_within_a_thousandth(scale: float) -> None:
    rng = random.Random(scale)
    values = [rng.expovariate(1 / scale) for _ in range(20_000)]
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    measured = histogram.percentiles(PERCENTILES)
    for percent, ms in zip(PERCENTILES, measured, strict=True):
        assert ms == pytest.approx(exact_ms(values, percent), rel=0.001, abs=0.001)
    assert histogram.max_us == int(max(values) * 1e6)
    assert measured == sorted(measured)


def test_the_last_percentile_is_the_highest_value() -> None:
    histogram = LatencyHistogram()
    for value in (0.001, 0.002, 7.654321):
        histogram.record(value)
    assert histogram.percentile(100) == 7654.321
    assert histogram.percentile(33) == 1.0


@pytest.mark.parametrize("count", range(1, 22))
def test_percentiles_of_few_values(count: int) -> None:
    values = [0.001 * number for number in range(1, count + 1)]
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value + 1e-9)  # so that it is not truncated to the microsecond below
    percents = [*range(1, 101), 99.9, 99.99]
    measured = histogram.percentiles(sorted(percents))
    expected = [exact_ms(values, percent) for percent in sorted(percents)]
    assert measured == pytest.approx(expected, rel=0.001)


def test_merging_equals_recording_into_a_single_histogram() -> None:
    parts, whole = [LatencyHistogram() for _ in range(5)], LatencyHistogram()
    for number in range(10_000):
        parts[number % 5].record(number / 3000)
        whole.record(number / 3000)
    total = LatencyHistogram()
    for part in parts:
        total.add(part)
    assert (total.buckets, total.count, total.max_us) == (whole.buckets, whole.count, whole.max_us)


def test_empty_and_out_of_range_values() -> None:
    histogram = LatencyHistogram()
    assert histogram.percentile(99) == 0
    histogram.record(-0.5)
    histogram.record(1e9)
    assert histogram.percentiles([50, 100]) == [0, 3_600_000]
