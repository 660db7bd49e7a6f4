"""What the end of a bid request records: counts, its share, its time."""

import sys
from typing import Any

import pytest

from snapbid.bidding._bid_path import AdmissionControl, Outcome, RequestCounts
from snapbid.metrics import Metrics, read


def parts(metrics: Metrics, status: int) -> tuple[Any, ...]:
    admission = AdmissionControl(0.0)
    return (
        metrics.counter("snapbid_bid_requests_total", ssp="acme", outcome="bid"),
        RequestCounts(3),
        status,
        admission,
        admission.share("acme"),
        metrics.histogram("snapbid_bid_seconds", (0.01, 0.1)),
    )


def test_admitted_requests_are_released_counted_and_timed(metrics: Metrics) -> None:
    counter, request_stats, _, admission, share, _ = made = parts(metrics, 200)
    outcome = Outcome(*made)
    admission.enter(share, 0.0)
    admission.enter(share, 0.0)
    outcome.end(0.05)
    assert (admission.under_way, share.under_way, counter.value) == (1, 1, 1)
    assert (request_stats.statuses, list(request_stats.answers)) == ({200: 1}, [200])
    counts = read(metrics.path.parent)
    assert counts['snapbid_bid_seconds_bucket{le="0.1"}'] == 1
    assert counts['snapbid_bid_seconds_bucket{le="0.01"}'] == 0


def test_refused_requests_are_only_counted(metrics: Metrics) -> None:
    counter, request_stats, _, admission, share, _ = made = parts(metrics, 204)
    Outcome(*made).count()
    assert (admission.under_way, share.under_way, counter.value) == (0, 0, 1)
    assert (request_stats.statuses, list(request_stats.answers)) == ({204: 1}, [204])
    assert read(metrics.path.parent)['snapbid_bid_seconds_bucket{le="0.1"}'] == 0


def test_invalid_parts_are_refused(metrics: Metrics) -> None:
    made = parts(metrics, 200)
    for place in (0, 1, 3, 4, 5):
        for wrong in (None, "x"):
            others: list[Any] = [wrong if at == place else part for at, part in enumerate(made)]
            with pytest.raises(TypeError):
                Outcome(*others)
    blank = Outcome.__new__(Outcome)
    for use in (blank.count, lambda: blank.end(1.0)):
        with pytest.raises(TypeError):
            use()


def test_parts_are_released(metrics: Metrics) -> None:
    made = parts(metrics, 200)
    before = [sys.getrefcount(part) for part in made]
    outcome = Outcome(*made)
    for _ in range(1000):
        outcome.count()
    del outcome
    assert [sys.getrefcount(part) for part in made][3:] == before[3:]


def test_a_released_counter_raises_before_anything_else_is_counted(metrics: Metrics) -> None:
    _, request_stats, _, admission, share, _ = made = parts(metrics, 200)
    admission.enter(share, 0.0)
    outcome = Outcome(*made)
    metrics.close()
    with pytest.raises(ValueError, match="released"):
        outcome.end(0.1)
    assert (request_stats.statuses, share.under_way) == ({}, 1)
