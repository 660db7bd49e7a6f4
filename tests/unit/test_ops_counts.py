"""Rates and quantiles from counters, and the counts that only grow."""

import datetime
from math import inf

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as UnavailableError

from snapbid.metrics.keys import key_of
from snapbid.operations.dashboard.counts import CountHistory, quantile
from snapbid.operations.dashboard.ledger import NOTHING, RunningTotals, Traffic, TrafficReader

DAY = datetime.date(2026, 1, 1)
NEXT = datetime.date(2026, 1, 2)
BID = key_of("snapbid_bid_requests_total", {"ssp": "acme", "outcome": "bid"})
LATE = key_of("snapbid_bid_requests_total", {"ssp": "acme", "outcome": "late"})
UP_TO_1 = key_of("snapbid_bid_seconds_bucket", {"le": "1.0"})
UP_TO_2 = key_of("snapbid_bid_seconds_bucket", {"le": "2.0"})
BEYOND = key_of("snapbid_bid_seconds_bucket", {"le": "+Inf"})


@pytest.mark.parametrize(
    ("buckets", "wanted", "expected"),
    [
        ([(1.0, 10), (2.0, 10), (inf, 0)], 0.5, 1.0),
        ([(1.0, 10), (2.0, 10), (inf, 0)], 0.75, 1.5),
        ([(1.0, 0), (2.0, 4), (inf, 0)], 0.5, 1.5),
        ([(1.0, 0), (2.0, 4), (inf, 0)], 0.0, 1.0),
        ([(1.0, 1), (2.0, 0), (inf, 1)], 0.99, None),
        ([(1.0, 1), (2.0, 0), (inf, 1)], 0.5, 1.0),
    ],
)
def test_quantiles(buckets: list[tuple[float, int]], wanted: float, expected: float | None) -> None:
    assert quantile(buckets, wanted) == expected


def test_windows_of_counts() -> None:
    history = CountHistory()
    assert history.window() is None
    history.add(100.0, {BID: 5, UP_TO_1: 5, UP_TO_2: 0, BEYOND: 0})
    assert history.window() is None
    history.add(102.0, {BID: 25, LATE: 5, UP_TO_1: 5, UP_TO_2: 20, BEYOND: 5})
    window = history.window()
    assert window is not None
    assert window.seconds == 2.0
    assert window.total("snapbid_bid_requests_total") == 25
    assert sorted((labels["outcome"], grown) for labels, grown in window.of(
        "snapbid_bid_requests_total"
    )) == [("bid", 20), ("late", 5)]  # fmt: skip
    assert window.quantiles("snapbid_bid_seconds", (0.4, 0.99)) == [1.5, None]
    assert window.quantiles("snapbid_commit_seconds", (0.5,)) is None


def test_a_window_is_a_minute_long_and_memory_is_bounded() -> None:
    history = CountHistory()
    for second in range(0, 2000, 2):
        history.add(float(second), {BID: second})
    window = history.window()
    assert window is not None
    assert 60 <= window.seconds < 72
    assert window.total("snapbid_bid_requests_total") == window.seconds


def test_counters_that_fall_have_not_grown() -> None:
    history = CountHistory()
    history.add(0.0, {BID: 50})
    history.add(2.0, {BID: 3})
    window = history.window()
    assert window is not None
    assert window.total("snapbid_bid_requests_total") == 0


def test_totals_start_at_zero_and_continue_over_midnight() -> None:
    totals = RunningTotals()
    assert totals.add({DAY: {1: Traffic(100, 10, 10, 9)}}) == {1: NOTHING}
    assert totals.add({DAY: {1: Traffic(105, 11, 12, 9)}}) == {1: Traffic(5, 1, 2, 0)}
    late_and_new = {DAY: {1: Traffic(105, 12, 13, 10)}, NEXT: {1: Traffic(7, 0, 0, 0)}}
    assert totals.add(late_and_new) == {1: Traffic(12, 2, 3, 1)}
    assert totals.add({NEXT: {1: Traffic(8, 1, 1, 1)}}) == {1: Traffic(13, 3, 4, 2)}


def test_totals_do_not_fall_where_redis_has_lost_its_data() -> None:
    totals = RunningTotals()
    totals.add({DAY: {1: Traffic(100, 10, 10, 9), 2: NOTHING}})
    assert totals.add({DAY: {1: Traffic(3, 1, 1, 0), 2: NOTHING}})[1] == Traffic(3, 1, 1, 0)


async def test_an_unavailable_shard_shows_its_last_known_traffic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: dict[int, Traffic | None] = {0: Traffic(5, 0, 0, 0), 1: Traffic(3, 0, 0, 0)}

    async def traffic(_: Redis, shard: int, day: datetime.date, __: object) -> dict[int, Traffic]:
        known = counted[shard]
        if known is None:
            raise UnavailableError
        return {7: known if day == NEXT else NOTHING}

    monkeypatch.setattr("snapbid.operations.dashboard.ledger.traffic", traffic)
    reader = TrafficReader(Redis(), 2)

    async def bids() -> tuple[int, int]:
        today, since = (await reader.fetch(NEXT, {7: "acme"}, {}))["acme"]
        return today.bids, since.bids

    assert await bids() == (8, 0)
    counted |= {0: Traffic(6, 0, 0, 0), 1: None}
    assert await bids() == (9, 1)
    counted |= {1: Traffic(13, 0, 0, 0)}
    assert await bids() == (19, 11)
    counted |= {0: None, 1: None}
    with pytest.raises(UnavailableError):
        await bids()


async def test_todays_traffic_is_the_larger_of_what_redis_and_the_warehouse_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def traffic(*_: object) -> dict[int, Traffic]:
        return {7: Traffic(5, 0, 0, 9), 8: Traffic(1, 1, 1, 1)}

    monkeypatch.setattr("snapbid.operations.dashboard.ledger.traffic", traffic)
    drained = {7: Traffic(3, 2, 100, 9), 9: Traffic(4, 4, 4, 4)}
    shown = await TrafficReader(Redis(), 1).fetch(NEXT, {7: "acme", 8: "nova"}, drained)
    assert {name: of.today for name, of in shown.items()} == {
        "acme": Traffic(5, 2, 100, 9),
        "nova": Traffic(1, 1, 1, 1),
    }
    assert {of.since for of in shown.values()} == {NOTHING}


def test_a_clock_that_is_set_back_hides_nothing() -> None:
    history = CountHistory()
    for at in (1000.0, 2200.0, 1010.0, 1020.0):  # 20 minutes ahead, and back
        history.add(at, {BID: int(at)})
    window = history.window()
    assert window is not None
    assert (window.seconds, window.total("snapbid_bid_requests_total")) == (10.0, 10)
