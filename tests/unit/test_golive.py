"""The verdict on statistics that no short run brings about, and how Redis keeps them."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.bidding.request_stats import KEPT, RequestStats, RequestTotals
from snapbid.ledger.bids.records import WIN
from snapbid.operations.golive import writer
from snapbid.operations.golive.checklist import Item, judge
from snapbid.operations.golive.examination import Sample
from snapbid.operations.golive.store import MAX_STRAYS, RequestStatsStore, SspRequestStats
from snapbid.operations.golive.writer import EXAMINING_S, RequestStatsWriter

NOW = 1_767_225_600 + 30  # 2026-01-01 00:00:30


def items(**more: Any) -> list[Item]:
    empty: dict[str, Any] = {key: {} for key in ("counts", "last_at", "notices", "noticed_at")}
    empty |= {"answers": [], "problems": [], "strays": {}}
    return judge(
        SspRequestStats(since=NOW - 600, until=NOW, **(empty | more)), "acme", "http://bid.example"
    )


def states(**more: Any) -> list[str]:
    return [item.state for item in items(**more)]


@pytest.mark.parametrize(
    ("wins", "imps", "win", "billing"),
    [
        (0, 0, "not seen yet", "not seen yet"),
        (9, 0, "pass", "not seen yet"),  # what is won last is not rendered yet
        (10, 0, "pass", "fail"),
        (0, 1, "fail", "pass"),
    ],
)
def test_notices(wins: int, imps: int, win: str, billing: str) -> None:
    assert states(notices={"b": 100, "w": wins, "i": imps})[3:5] == [win, billing]


def test_requests_to_unregistered_ids_show_beside_good_ones() -> None:
    first = items(counts={"status:200": 5}, answers=[(NOW, 200)], strays={"acmee": NOW})[0]
    assert first.state == "pass"
    assert first.evidence[-1].startswith("a request to the unregistered id 'acmee' at ")


def test_the_latest_answers_decide() -> None:
    """What went wrong before them is told and forgiven; what came before the span is not judged."""
    counts = {"status:200": KEPT, "status:400": 3}
    good = [(NOW, 200)] * KEPT
    problems = [(NOW - 60, 400, "imp: is required and may not be empty")] * 3
    item = items(counts=counts, answers=good, problems=problems)[2]
    assert item.state == "pass"
    assert item.evidence[-1] == (
        "400 at 2025-12-31 23:59:30 UTC: imp: is required and may not be empty"
    )
    assert states(counts=counts, answers=[(NOW, 400), *good[1:]])[2] == "fail"
    assert states(counts=counts, answers=[*good[1:], (NOW - 601, 400)])[2] == "pass"
    assert states(counts={}, answers=[(NOW - 601, 200)])[2] == "not seen yet"


def test_our_errors_do_not_count_against_the_ssp() -> None:
    item = items(counts={"status:500": 1}, answers=[(NOW, 500)])[2]
    assert (item.state, item.fix[:30]) == ("fail", "a status of 500 or above is th")


def test_only_complete_shares_show_100_percent() -> None:
    counts = {"requests": 100_000, "country": 99_999, "ua": 100_000, "ip": 100_000}
    item = items(counts=counts)[5]
    assert (item.state, item.fix) == ("fail", "include device.geo.country in every bid request")
    assert item.evidence[0] == "device.geo.country: 99.9% (99,999 of 100,000)"


@pytest.fixture
async def redis(fresh_redis: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(fresh_redis) as redis:
        yield redis


async def test_spans_use_minutes_up_to_an_hour(redis: Redis) -> None:
    store = RequestStatsStore(redis)
    for number, ago in enumerate((0, 9, 11, 59, 61, 300), 1):
        for ssp, requests in ((7, 1), (8, 5)):
            totals = RequestTotals(Counter(requests=requests))
            await store.write({ssp: totals}, NOW - ago * 60, f"w{ssp}", number)
    by_span = {span: await store.read(7, 1, span, NOW) for span in (1, 10, 60, 120, 600)}
    counts = {span: seen.counts["requests"] for span, seen in by_span.items()}
    assert counts == {1: 1, 10: 2, 60: 4, 120: 5, 600: 6}  # 2 hours are 22:00 to now
    assert by_span[10].since == NOW - 30 - 10 * 60
    assert by_span[120].since == NOW - 30 - 2 * 3600
    assert by_span[1].last_at == {"first": NOW, "requests": NOW - 300 * 60}


async def test_pending_counts_are_bounded(redis: Redis) -> None:
    store = RequestStatsStore(redis)
    for batch in range(1, 4):
        answers = [f"{NOW} {number}" for number in range(KEPT)]
        problems = [f"{NOW} 400 {number}" for number in range(KEPT)]
        totals = RequestTotals(Counter(a=1), answers, problems)
        await store.write({7: totals}, NOW, "w", batch)
    for number in range(2 * MAX_STRAYS):
        await store.write_strays([f"s{number}"], NOW + number)
    seen = await store.read(7, 1, 10, NOW)
    expires = [await redis.ttl(key) async for key in redis.scan_iter("{golive}:7:*")]
    assert [status for _, status in seen.answers] == list(reversed(range(KEPT)))
    assert [detail for _, _, detail in seen.problems] == [str(n) for n in reversed(range(KEPT))]
    assert len(seen.strays) == MAX_STRAYS
    assert sorted(ttl > 0 for ttl in expires) == [False, *[True] * 5]  # `at` stays


async def test_refused_writes_are_retried(redis: Redis) -> None:
    async with Redis.from_url("redis://127.0.0.1:1") as unavailable:
        stats = RequestStatsWriter(RequestStatsStore(unavailable), lambda: NOW)
        for _ in range(2):
            stats.of(7).counts.answered(204)
            with pytest.raises(RedisError):
                await stats.write()
    stats._store = RequestStatsStore(redis)
    stats.of(7).counts.answered(200)
    await stats.write()
    seen = await RequestStatsStore(redis).read(7, 1, 10, NOW)
    assert seen.counts == {"status:204": 2, "status:200": 1}
    assert [status for _, status in seen.answers] == [200, 204, 204]


class Forgetful(RequestStatsStore):
    """A store that loses the first `lost` answers of Redis."""

    lost = 2

    async def write(
        self, sent: Mapping[int, RequestTotals], now: int, writer: str, number: int
    ) -> None:
        await super().write(sent, now, writer, number)
        if self.lost:
            self.lost -= 1
            raise TimeoutError("the answer was lost")


async def test_a_batch_whose_answer_was_lost_counts_once(redis: Redis) -> None:
    stats = RequestStatsWriter(Forgetful(redis), lambda: NOW)
    for _ in range(2):
        stats.of(7).counts.answered(204)
        with pytest.raises(TimeoutError):
            await stats.write()
    stats.of(7).counts.answered(200)
    await stats.write()
    seen = await RequestStatsStore(redis).read(7, 1, 10, NOW)
    assert seen.counts == {"status:204": 2, "status:200": 1}
    assert [status for _, status in seen.answers] == [200, 204, 204]


async def test_unknown_notices_are_looked_up_three_times(redis: Redis) -> None:
    """A test bid may be written down by another worker after its notice has come."""
    stats = RequestStatsWriter(RequestStatsStore(redis), lambda: NOW)
    other = RequestStatsWriter(RequestStatsStore(redis), lambda: NOW)
    stats.unknown_notice(WIN, b"a", b"1")
    stats.unknown_notice(WIN, b"a", b"2")
    await stats.write()
    await stats.write()
    other.of(7).tested.append(("a", ["1"]))
    other.of(7).counts.answered(200)
    await other.write()
    await stats.write()
    other.of(7).tested.append(("a", ["2"]))
    other.of(7).counts.answered(200)
    await other.write()
    await stats.write()
    assert (await RequestStatsStore(redis).read(7, 1, 10, NOW)).counts["win"] == 1


class Slow(RequestStatsStore):
    """A store that counts more while it writes, and whose first look-up of tests fails."""

    meanwhile: Callable[[], None]
    fails = True

    async def write_strays(self, ids: Iterable[str], now: int) -> None:
        await super().write_strays(ids, now)
        self.meanwhile()

    async def testers(self, digests: Sequence[bytes]) -> list[int | None]:
        if self.fails:
            self.fails = False
            raise TimeoutError("no answer")
        return await super().testers(digests)


async def test_counts_during_a_write_are_kept(redis: Redis) -> None:
    store = Slow(redis)
    stats = RequestStatsWriter(store, lambda: NOW)
    store.meanwhile = lambda: stats.stray("second")
    stats.stray("first")
    stats.unknown_notice(WIN, b"a", b"1")
    with pytest.raises(TimeoutError):
        await stats.write()
    stats.of(7).tested.append(("a", ["1"]))
    stats.of(7).counts.answered(200)
    await stats.write()
    await stats.write()
    seen = await store.read(7, 1, 10, NOW)
    assert set(seen.strays) == {"first", "second"}
    assert seen.counts["win"] == 1


class Sampled(RequestStats):
    """Statistics with three samples of an SSP, however many are requested."""

    def __init__(self, ssp: str) -> None:
        super().__init__()
        self.ssp = ssp

    def take_samples(self, wanted: int) -> list[tuple[Any, ...]]:
        return [(b"", None, self.ssp, None, 0, None)] * 3


async def test_samples_are_examined_in_turns_as_far_as_there_is_time(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def examine(sample: Sample) -> list[str]:
        looked.append(sample.ssp)
        clock[0] += EXAMINING_S / 3
        return ["examined"]

    clock = [0.0]
    monkeypatch.setattr(writer, "examine", examine)
    monkeypatch.setattr(writer, "thread_time", lambda: clock[0])
    stats = RequestStatsWriter(RequestStatsStore(redis), lambda: NOW)
    stats._ssps |= {7: Sampled("a"), 8: Sampled("b")}
    await stats.write()
    counts = [(await RequestStatsStore(redis).read(number, 1, 10, NOW)).counts for number in (7, 8)]
    assert looked == ["a", "b", "a"]
    assert [each["examined"] for each in counts] == [2, 1]
