"""Notices from the spool count for the bid that was meant, on a day that is open (contract 5)."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from support.proxy import FaultProxy, Way
from support.remembered import (
    NOON,
    Clock,
    anomalies,
    at,
    counts,
    kill,
    opened,
    remember,
    settle_all,
    spool_files,
    sum_of,
    until,
)

from snapbid.embedded import Redis
from snapbid.ledger.bids.records import NOTICE, SPOOLED, WIN, bid_digest
from snapbid.ledger.scripts import script

LONG_S = 4 * 86_400  # bids are remembered over the end of a day


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


def now_ms(store: Any) -> int:
    """By the clock of Redis."""
    seconds, micros = store.time()
    return int(seconds * 1000 + micros // 1000)


async def passed_since(store: Any, since_ms: int) -> int:
    """The time once it is clearly later, for clocks that differ by half a round trip."""
    await until(lambda: now_ms(store) > since_ms + 500)
    return now_ms(store)


@pytest.mark.usefixtures("no_heartbeats")
async def test_a_notice_applied_and_spooled_counts_once_whatever_was_bid_since(
    own_redis: Redis, proxy: FaultProxy, tmp_path: Path, store: Any
) -> None:
    async with (
        opened(proxy.redis_url, tmp_path / "a") as first,
        opened(own_redis.url, tmp_path / "b") as second,
    ):
        assert await remember(first, b"a", (b"1", 1, 7))
        proxy.stall(Way.ANSWERS)
        win = asyncio.create_task(first.settle(WIN, b"a", b"1"))
        await until(lambda: sum_of(store).get("w:1") == 1)
        await proxy.disconnect()
        assert await win == "s"
        assert await remember(second, b"a", (b"1", 2, 50))
        await proxy.resume()
        await until(lambda: not spool_files(tmp_path / "a"))
        assert sum_of(store) == {"b:1": 2, "w:1": 1, "p:1": 7}
        assert await second.settle(WIN, b"a", b"1") == "c"
        assert sum_of(store) == {"b:1": 2, "w:1": 2, "p:1": 57}


async def test_a_notice_that_arrives_after_it_was_spooled_counts_for_the_same_bid(
    own_redis: Redis, tmp_path: Path, store: Any
) -> None:
    """Seen: it was under way when its process gave up, and the pair bid again before it arrived:
    one win was fired, and two were counted.
    """
    async with (
        opened(own_redis.url, tmp_path / "a") as first,
        opened(own_redis.url, tmp_path / "b") as second,
    ):
        assert await remember(first, b"a", (b"1", 1, 7))
        came = await passed_since(store, now_ms(store))
        await passed_since(store, came)
        assert await remember(second, b"a", (b"1", 2, 50))
        settle = script("settle")
        for kind in (WIN, WIN | SPOOLED):
            packed = NOTICE.pack(kind, 0, bid_digest(b"a", b"1"), *divmod(came, 1000), 0, 0)
            store.eval(settle, 1, "{sb0}:epoch", came, 600, packed)
    assert sum_of(store) == {"b:1": 2, "w:1": 1, "p:1": 7}


async def test_a_notice_whose_bid_was_lost_counts_for_no_later_one(
    own_redis: Redis, proxy: FaultProxy, tmp_path: Path, store: Any
) -> None:
    """Seen: a spooled win met the bid that came after Redis had lost its data."""
    async with opened(own_redis.url, tmp_path / "a") as first:
        assert await remember(first, b"a", (b"1", 1, 7))
        async with opened(proxy.redis_url, tmp_path / "b") as second:
            await proxy.disconnect()
            assert await second.settle(WIN, b"a", b"1") == "s"
            await passed_since(store, now_ms(store))
            store.flushall()
            assert await remember(first, b"b", (b"1", 1, 7))  # with which it begins anew
            await passed_since(store, now_ms(store))
            assert await remember(first, b"a", (b"1", 2, 50))
            await proxy.resume()
            await until(lambda: not spool_files(tmp_path / "b"))
    assert sum_of(store) == {"b:1": 2}


async def test_a_clock_that_is_set_back_loses_no_spooled_notice(
    own_redis: Redis, proxy: FaultProxy, tmp_path: Path, store: Any
) -> None:
    """By less than Redis has been up, so that its bid, and Redis, seem to have come later."""
    async with opened(own_redis.url, tmp_path / "a", ttl_s=600) as first:
        assert await remember(first, b"a", (b"1", 1, 7))
        (field,) = store.hkeys("{sb0}:segments")
        store.hset("{sb0}:segments", field, now_ms(store) / 1000 - 200)
        store.hincrby("{sb0}:h", "at", 3_600_000)  # as if the clock had been ahead until now
        await until(lambda: store.hget("{sb0}:h", "back"))
        packed = NOTICE.pack(
            WIN | SPOOLED, 0, bid_digest(b"a", b"1"), *divmod(now_ms(store) - 300_000, 1000), 0, 0
        )
        store.eval(script("settle"), 1, "{sb0}:epoch", now_ms(store), 600, packed)
    assert sum_of(store) == {"b:1": 1, "w:1": 1, "p:1": 7}


@pytest.mark.parametrize("ahead_s", [3600, -3600])
async def test_a_notice_before_the_first_redis_time(
    own_redis: Redis,
    proxy: FaultProxy,
    tmp_path: Path,
    store: Any,
    monkeypatch: pytest.MonkeyPatch,
    ahead_s: int,
) -> None:
    """Seen: it carried the time of its machine, whose clock was wrong, and counted for no bid."""
    async with opened(own_redis.url, tmp_path / "a", ttl_s=600) as first:
        assert await remember(first, b"a", (b"1", 1, 7))
        await passed_since(store, now_ms(store))  # a time that is learned slowly may be too early
        await proxy.refuse()
        monkeypatch.setattr("snapbid.ledger.bids.clock.time", lambda: time.time() + ahead_s)
        async with opened(proxy.redis_url, tmp_path / "b", ttl_s=600, wait=False) as joined:
            assert await joined.settle(WIN, b"a", b"1") == "s"
            await proxy.resume()
            await until(lambda: not spool_files(tmp_path / "b"))
    assert sum_of(store) == {"b:1": 1, "w:1": 1, "p:1": 7}


async def test_spooled_notices_keep_their_own_time(
    own_redis: Redis, tmp_path: Path, store: Any, clock: Clock
) -> None:
    """Replayed after the bid would be forgotten: it is known by when the notice came."""
    clock.now = at("2030-06-15T23:50:00")
    async with opened(own_redis.url, tmp_path, clock=clock) as ledger:
        for auction in (b"a", b"b", b"late"):
            assert await remember(ledger, auction, (b"1", 1, 7))
        kill(own_redis)
        await until(lambda: not ledger.connected)
        clock.now = at("2030-06-16T01:49:59")
        assert await ledger.settle(WIN, b"a", b"1") == "s"
        clock.now = at("2030-06-16T01:50:00")
        assert await ledger.settle(WIN, b"b", b"1") == "s"
        clock.now = at("2030-06-16T01:50:01")
        assert await ledger.settle(WIN, b"late", b"1") == "s"
        clock.now = at("2030-06-16T01:59:59")
        own_redis.start()
        await until(lambda: not spool_files(tmp_path))
    assert counts(store) == {
        "2030-06-15": {"b:1": 3, "B:1": 3, "w:1": 2, "W:1": 2, "p:1": 14, "P:1": 14}
    }


@pytest.mark.parametrize(
    ("came", "settled", "counted_on"),
    [
        ("2030-06-15T23:55:00", "2030-06-16T01:59:59", "2030-06-15"),
        ("2030-06-15T23:55:00", "2030-06-16T02:00:00", "2030-06-16"),
        ("2030-06-16T01:59:59", "2030-06-16T02:00:00", "2030-06-16"),
        ("2030-06-16T01:59:59", "2030-06-17T01:00:00", "2030-06-17"),
        ("2030-06-16T02:30:00", "2030-06-16T02:31:00", "2030-06-16"),
        ("2030-06-16T02:30:00", "2030-06-17T00:10:00", "2030-06-17"),
    ],
)
async def test_a_spooled_notice_leaves_a_closed_day_as_it_is(
    own_redis: Redis,
    tmp_path: Path,
    store: Any,
    clock: Clock,
    came: str,
    settled: str,
    counted_on: str,
) -> None:
    """It counts on the day on which it is settled, where that of its bid has closed by then."""
    clock.now = at("2030-06-15T23:50:00")
    async with opened(own_redis.url, tmp_path, clock=clock, ttl_s=LONG_S) as ledger:
        assert await remember(ledger, b"a", (b"1", 1, 7))
        before = counts(store)["2030-06-15"]
        kill(own_redis)
        await until(lambda: not ledger.connected)
        clock.now = at(came)
        assert await settle_all(ledger, b"a", b"1", 9) == "sss"
        clock.now = at(settled)
        own_redis.start()
        await until(lambda: not spool_files(tmp_path))
    expected = {"2030-06-15": before}
    notices = {"w:1": 1, "W:1": 1, "p:1": 7, "P:1": 7, "i:1": 1, "I:1": 1, "l:1:9": 1}
    expected[counted_on] = expected.get(counted_on, {}) | notices
    assert counts(store) == expected
    is_late = counted_on != "2030-06-15"
    late = {name for of_day in anomalies(store).values() for name in of_day} - {"n:1:60"}
    assert late == ({"n:1:11", "n:1:12", "n:1:14"} if is_late else set())


@pytest.mark.parametrize(
    "known",
    [
        [b"a/b"],  # its URL was encoded twice
        [b"a%2Fb"],  # an id that looks like it
        [b"a%2Fb", b"a/b"],  # two auctions
    ],
)
async def test_a_spooled_notice_is_decoded_again_only_if_unknown(
    own_redis: Redis, proxy: FaultProxy, tmp_path: Path, store: Any, known: list[bytes]
) -> None:
    async with opened(own_redis.url, tmp_path / "a") as first:
        for price, auction in zip((7, 50), known, strict=False):
            assert await remember(first, auction, (b"1", 1, price))
        async with opened(proxy.redis_url, tmp_path / "b") as second:
            await proxy.disconnect()
            for _ in range(2):
                assert await second.settle(WIN, b"a%2Fb", b"1", 0, (b"a/b", b"1")) == "s"
            await proxy.resume()
            await until(lambda: not spool_files(tmp_path / "b"))
    assert sum_of(store) == {"b:1": len(known), "w:1": 1, "p:1": 7}
