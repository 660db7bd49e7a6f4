"""How long a bid is remembered, and on which day it counts (contract 5)."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.remembered import (
    NOON,
    TTL_S,
    Clock,
    anomalies,
    at,
    counts,
    day_of,
    expected,
    keys,
    opened,
    remember,
    remembering,
    segment_of,
    settle_all,
    until,
)
from support.spending import sent

from snapbid.ledger import closing
from snapbid.ledger.keys import ShardKeys
from snapbid.ledger.ledger import Ledger
from snapbid.ledger.records import BILLING, WIN
from snapbid.ledger.scripts import scripts

GRANULE_S = 1800
LONG_S = 4 * 86_400  # long enough to remember over the end of a day
PRICE = 2_345_678
KEYS = ShardKeys(0)
REGISTRY = f"{KEYS.prefix}r"
ALL_BUCKETS = 64  # heartbeats until each bucket of a granule has its expiry


# -- how long -------------------------------------------------------------------------------------


@pytest.mark.parametrize("into", [0, 1, 899, 1799])
async def test_a_bid_is_remembered_for_its_time_and_no_longer(
    ledger: Ledger, clock: Clock, into: int
) -> None:
    """The same wherever in a granule it was made."""
    assert NOON % GRANULE_S == 0
    clock.now = made = NOON + into
    for imp in (b"1", b"2"):
        await remember(ledger, b"a", (imp, 1, 1))
    clock.now = made + TTL_S
    assert await ledger.settle(WIN, b"a", b"1") == "c"
    assert await ledger.settle(WIN, b"a", b"1") == "d"
    clock.now = made + TTL_S + 1
    assert await settle_all(ledger, b"a", b"1") == "uuu"
    assert await settle_all(ledger, b"a", b"2") == "uuu"


@pytest.mark.parametrize("ttl_s", [1, 2, 3, 5, 7, 10, 59, 7201, 86_400, 2_592_000])
async def test_any_time_to_live_is_exact(fresh_redis: str, tmp_path: Path, ttl_s: int) -> None:
    clock = Clock()
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=ttl_s) as ledger:
        for shift in range(8):
            clock.now = made = NOON + shift * (ttl_s // 7 or 1)
            auction = b"%d" % shift
            await remember(ledger, auction, (b"1", 1, 1))
            clock.now = made + ttl_s
            assert await ledger.settle(WIN, auction, b"1") in "cl"
            clock.now = made + ttl_s + 1
            assert await ledger.settle(BILLING, auction, b"1") == "u"


async def test_a_worker_whose_clock_is_behind_finds_the_bid(ledger: Ledger, clock: Clock) -> None:
    await remember(ledger, b"a", (b"1", 1, 1))
    clock.now -= 3
    assert await ledger.settle(WIN, b"a", b"1") == "c"


def beat(store: Any, now: float, times: int) -> None:
    """Heartbeats of a worker, at that time."""
    text = scripts(simulated=True)["heartbeat"]
    for _ in range(times):
        store.eval(text, 2, *KEYS.script_keys, int(now * 1000), TTL_S, "", "")


def takers(store: Any) -> list[int]:
    """The granules whose buckets have no expiry yet."""
    return [int(name[1:]) for name in store.hkeys(REGISTRY) if name.startswith(b"x")]


def expiry(store: Any, key: bytes) -> int | None:
    """When a key expires (epoch s), None: never."""
    left_ms, (seconds, micros) = store.pttl(key), store.time()
    return None if left_ms == -1 else round(seconds + (micros / 1000 + left_ms) / 1000)


def expiries(store: Any, granule: int) -> set[int | None]:
    """Those of the buckets of a granule."""
    return {expiry(store, key) for key in keys(store, f"{{sb0}}:r:{granule}:*")}


async def test_records_leave_redis(fresh_redis: str, tmp_path: Path, store: Any) -> None:
    """Every record's key gets an end, after the last of its bids is forgotten, not much later."""
    clock = Clock(NOON)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        for step in range(40):
            clock.now = NOON + 600 * step
            await remember(ledger, b"a-%d" % step, (b"1", 1, 1), (b"2", 1, 1))
    records = keys(store, "{sb0}:r:*")
    assert len(records) >= 40
    beat(store, NOON + 600 * 39 + GRANULE_S, ALL_BUCKETS * len(takers(store)))
    for key in records:
        granule = int(key.split(b":")[2])
        last, end = NOON + granule * GRANULE_S - 1, expiry(store, key)
        assert end is not None
        assert last + TTL_S < end <= last + TTL_S + 2 * GRANULE_S
    (writer,) = keys(store, "{sb0}:w:*")
    assert store.ttl(writer) > 0
    others = set(keys(store)) - set(records) - {writer}
    counters = f"{{sb0}}:c:{segment_of(store)}:2030-06-15".encode()
    small = ("epoch", "segment", "segments", "d", "r", "ttl", "h", "spools:left")
    assert others == {f"{{sb0}}:{name}".encode() for name in small} | {counters}
    granules = [name for name in store.hkeys(REGISTRY) if name.isdigit()]
    assert store.hlen(REGISTRY) == 2 * len(granules)  # and when each was opened
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        clock.now += GRANULE_S
        await remember(ledger, b"b", (b"1", 1, 1))
    granules = [name for name in store.hkeys(REGISTRY) if name.isdigit()]
    assert len(granules) <= (TTL_S + 2 * GRANULE_S) // GRANULE_S + 1


async def test_records_really_expire(fresh_redis: str, tmp_path: Path, store: Any) -> None:
    """By Redis's own clock, where it is ours as well."""
    clock = Clock(store.time()[0] - 2 * GRANULE_S - 10)
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=4) as ledger:
        assert await remember(ledger, b"a", (b"1", 1, 1))
        beat(store, store.time()[0], ALL_BUCKETS)
    assert not keys(store, "{sb0}:r:*")


async def test_a_bucket_expires_only_when_its_granule_takes_no_more(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    clock = Clock(NOON)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        for number in range(40):
            await remember(ledger, b"a-%d" % number, (b"1", 1, 1))
        beat(store, NOON + GRANULE_S - 1, ALL_BUCKETS)
        assert (takers(store), expiries(store, 1)) == ([1], {None})
        beat(store, NOON + GRANULE_S, ALL_BUCKETS - 1)
        assert takers(store) == [1]
        assert await ledger.settle(WIN, b"a-3", b"1") == "c"  # it is as findable as before
        beat(store, NOON + GRANULE_S, 1)
        assert takers(store) == []
        ends = {int(store.hget(REGISTRY, "1"))}
        assert expiries(store, 1) == ends
        await remember(ledger, b"b", (b"1", 1, 1))  # by a clock that is behind
        assert (takers(store), expiries(store, 1), expiries(store, 2)) == ([2], ends, {None})
        assert await ledger.settle(WIN, b"a-4", b"1") == "c"


async def test_a_clock_set_right_again_does_not_lengthen_a_granule(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """Opened while it was ten days ahead, it would take records, and keep them, until then."""
    clock = Clock(NOON + 10 * 86_400)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        await remember(ledger, b"a", (b"1", 1, 1))
        clock.now -= GRANULE_S - 1
        await remember(ledger, b"b", (b"1", 1, 1))
        assert takers(store) == [1]  # little enough to stay
        clock.now = NOON
        await remember(ledger, b"c", (b"1", 1, 1))
        assert sorted(takers(store)) == [1, 2]
        beat(store, NOON + GRANULE_S, 2 * ALL_BUCKETS)
        assert expiries(store, 2) == {int(NOON) + TTL_S + 2 * GRANULE_S}
        assert await settle_all(ledger, b"c", b"1") == "ccc"


async def test_no_granule_is_dropped_before_its_buckets_expire(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """Where no worker was there for longer than bids are remembered."""
    clock = Clock(store.time()[0] - TTL_S - 4 * GRANULE_S)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        assert await remember(ledger, b"a", (b"1", 1, 1))
        clock.now = store.time()[0]
        assert await remember(ledger, b"b", (b"1", 1, 1))
        beat(store, clock.now, ALL_BUCKETS)
    (record,) = keys(store, "{sb0}:r:*")
    assert record.startswith(b"{sb0}:r:2:")
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        clock.now += GRANULE_S
        assert await remember(ledger, b"c", (b"1", 1, 1))
    assert store.hexists(REGISTRY, "1") is False


async def test_a_heartbeat_leaves_a_closed_ledger_as_it_is(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    clock = Clock(NOON)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        await remember(ledger, b"a", (b"1", 1, 1))
    store.eval(closing._CLOSE, 2, *KEYS.script_keys, "being moved")
    before = store.hgetall("{sb0}:closed:r")
    beat(store, NOON + GRANULE_S, ALL_BUCKETS)
    assert store.hgetall("{sb0}:closed:r") == before
    assert expiries(store, 1) == {None}


async def test_a_bid_taken_back_leaves_its_bucket_the_expiry(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """Of a bid that had replaced another one, with nothing else in the bucket."""
    async with opened(fresh_redis, tmp_path, clock=Clock(NOON)) as ledger:
        await remember(ledger, b"a", (b"1", 1, 1))
        (bucket,) = keys(store, "{sb0}:r:*")
        store.expireat(bucket, int(NOON) + TTL_S)
        waiting = remembering(ledger, b"a", (b"1", 1, 2))
        assert waiting is not None
        await sent(ledger)
        waiting.cancel()
        assert await remember(ledger, b"next", (b"1", 1, 1))
        await until(lambda: all(core.in_doubt == [] for core in ledger._cores))
    assert store.hlen(bucket) == 1
    assert expiry(store, bucket) == NOON + TTL_S


# -- which day ------------------------------------------------------------------------------------

ENDS_OF_DAYS = [
    ("2030-06-15", "2030-06-16"),
    ("2030-06-30", "2030-07-01"),
    ("2028-02-28", "2028-02-29"),
    ("2028-02-29", "2028-03-01"),
    ("2030-02-28", "2030-03-01"),
    ("2030-12-31", "2031-01-01"),
    ("2100-02-28", "2100-03-01"),
]


@pytest.mark.parametrize(("day", "following"), ENDS_OF_DAYS)
@pytest.mark.parametrize("bid_at", ["00:00:00", "12:34:56", "23:59:59"])
async def test_a_day_stays_open_until_two(
    fresh_redis: str, tmp_path: Path, store: Any, day: str, following: str, bid_at: str
) -> None:
    clock = Clock()
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=LONG_S) as ledger:
        for number, (notice_at, letter, counted_on) in enumerate(
            [
                (f"{day}T23:59:59", "c", day),
                (f"{following}T00:00:00", "c", day),
                (f"{following}T01:59:59", "c", day),
                (f"{following}T02:00:00", "l", following),
                (f"{following}T23:59:59", "l", following),
            ],
            1,
        ):
            clock.now = at(f"{day}T{bid_at}")
            await remember(ledger, b"%d" % number, (b"1", number, PRICE), ssp=number)
            before = counts(store)
            clock.now = at(notice_at)
            assert await settle_all(ledger, b"%d" % number, b"1", 9) == letter * 3
            assert await settle_all(ledger, b"%d" % number, b"1", 9) == "ddd"
            after = counts(store)
            whole = expected(
                bids=1, wins=1, imps=1, price=PRICE, losses={9: 1}, ssp=number, campaign=number
            )
            settled = {field: value for field, value in whole.items() if field[0] not in "bB"}
            before.setdefault(counted_on, {}).update(settled)
            assert after == before, notice_at
            day_it_came = anomalies(store)[notice_at.partition("T")[0]]
            assert (f"n:{number}:11" in day_it_came) == (letter == "l"), notice_at


async def test_a_bid_just_after_midnight_is_the_new_days(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    clock = Clock()
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=LONG_S) as ledger:
        for moment in ("2030-06-15T23:59:59", "2030-06-16T00:00:00", "2030-06-16T01:59:59"):
            clock.now = at(moment)
            await remember(ledger, moment.encode(), (b"1", 1, 1))
            clock.now += 1
            assert await ledger.settle(WIN, moment.encode(), b"1") == "c"
    counted = expected(bids=1, wins=1, price=1)
    assert counts(store) == {
        "2030-06-15": counted,
        "2030-06-16": {f: 2 * n for f, n in counted.items()},
    }


async def test_much_later_it_is_the_day_of_the_notice(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    clock = Clock(at("2030-02-27T10:00:00"))
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=LONG_S) as ledger:
        await remember(ledger, b"a", (b"1", 1, 5))
        clock.now = at("2030-03-02T01:00:00")
        assert await ledger.settle(WIN, b"a", b"1") == "l"
    assert counts(store)["2030-03-02"] == expected(wins=1, price=5)


async def test_a_whole_century_has_the_right_days(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """The script's days against Python's: ends of months, leap days, and others at random."""
    first, rng = datetime(2027, 1, 1, tzinfo=UTC), random.Random(3)
    months = [datetime(year, month, 1, tzinfo=UTC) for year in range(2027, 2106)
              for month in range(1, 13)]  # fmt: skip
    days = {*months, *(month - timedelta(days=1) for month in months[1:])}
    days |= {first + timedelta(days=rng.randrange(78 * 365)) for _ in range(200)}
    clock = Clock()
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        for number, day in enumerate(sorted(days)):
            clock.now = day.timestamp() + rng.randrange(86_400)
            auction = b"%d" % number
            await remember(ledger, auction, (b"1", 1, 1))
            assert await ledger.settle(BILLING, auction, b"1") == "c"
    counted = expected(bids=1, imps=1)
    assert counts(store) == {day_of(day.timestamp()): counted for day in days}
