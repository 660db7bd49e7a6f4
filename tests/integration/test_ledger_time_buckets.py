"""Time buckets of remembered bids: how large they are, when they end, and when they expire."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.remembered import (
    NOON,
    REGISTRY,
    TIME_BUCKET_S,
    TTL_S,
    Clock,
    keys,
    opened,
    remember,
    remembering,
    segment_of,
    settle_all,
    until,
)
from support.spending import sent
from support.time_buckets import open_time_bucket

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import WIN
from snapbid.ledger.scripts import script

KEYS = ShardKeys(0)
ALL_BUCKETS = 64  # heartbeats until each bucket of the least time bucket has its expiry
APART_S = 600  # the first bucket of a time bucket and the last expire
LEAST, MOST, FULL = 16_384, 1_048_576, 32  # buckets, and records of one


def beat(store: Any, now: float, times: int) -> None:
    """Heartbeats of a worker, at that time."""
    text = script("heartbeat", simulated=True)
    for _ in range(times):
        store.eval(text, 2, *KEYS.script_keys, int(now * 1000), TTL_S, "", "", 0, "", 0)


def takers(store: Any) -> list[int]:
    """The time buckets whose buckets have no expiry yet."""
    return [int(name[1:]) for name in store.hkeys(REGISTRY) if name.startswith(b"x")]


def expiry(store: Any, key: bytes) -> int | None:
    """When a key expires (epoch s), None: never."""
    left_ms, (seconds, micros) = store.pttl(key), store.time()
    return None if left_ms == -1 else round(seconds + (micros / 1000 + left_ms) / 1000)


def expiries(store: Any, time_bucket: int) -> set[int | None]:
    """The expiries of a time bucket's buckets, less the offset of each bucket."""
    ends = set[int | None]()
    for key in keys(store, f"{{sb0}}:r:{time_bucket}:*"):
        end, place = expiry(store, key), int(key.split(b":")[3])
        if end is not None:
            end -= APART_S * place // int(store.hget(REGISTRY, f"b{time_bucket}"))
        ends.add(end)
    return ends


async def test_records_leave_redis(fresh_redis: str, tmp_path: Path, store: Any) -> None:
    """Every record's key gets an end, after the last of its bids is forgotten, not much later."""
    clock = Clock(NOON)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        for step in range(40):
            clock.now = NOON + 600 * step
            await remember(ledger, b"a-%d" % step, (b"1", 1, 1), (b"2", 1, 1))
    records = keys(store, "{sb0}:r:*")
    assert len(records) >= 40
    beat(store, NOON + 600 * 39 + TIME_BUCKET_S, ALL_BUCKETS * len(takers(store)))
    for key in records:
        time_bucket = int(key.split(b":")[2])
        last, end = NOON + time_bucket * TIME_BUCKET_S - 1, expiry(store, key)
        assert end is not None
        assert last + TTL_S < end <= last + TTL_S + 2 * TIME_BUCKET_S
    (writer,) = keys(store, "{sb0}:w:*")
    assert store.ttl(writer) > 0
    others = set(keys(store)) - set(records) - {writer}
    counters = f"{{sb0}}:c:{segment_of(store)}:2030-06-15".encode()
    small = ("epoch", "segment", "segments", "d", "r", "ttl", "h", "spools:left")
    assert others == {f"{{sb0}}:{name}".encode() for name in small} | {counters}
    time_buckets = [name for name in store.hkeys(REGISTRY) if name.isdigit()]
    assert store.hlen(REGISTRY) == 3 * len(time_buckets)  # when each was opened, and its buckets
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        clock.now += TIME_BUCKET_S
        await remember(ledger, b"b", (b"1", 1, 1))
    time_buckets = [name for name in store.hkeys(REGISTRY) if name.isdigit()]
    assert len(time_buckets) <= (TTL_S + 2 * TIME_BUCKET_S) // TIME_BUCKET_S + 1


async def test_records_really_expire(fresh_redis: str, tmp_path: Path, store: Any) -> None:
    """By Redis's own clock, where it is ours as well."""
    clock = Clock(store.time()[0] - 2 * TIME_BUCKET_S - APART_S - 10)
    async with opened(fresh_redis, tmp_path, clock=clock, ttl_s=4) as ledger:
        assert await remember(ledger, b"a", (b"1", 1, 1))
        beat(store, store.time()[0], ALL_BUCKETS)
    assert not keys(store, "{sb0}:r:*")


async def test_a_bucket_expires_only_when_its_time_bucket_takes_no_more(
    ledger: Ledger, store: Any
) -> None:
    for number in range(40):
        await remember(ledger, b"a-%d" % number, (b"1", 1, 1))
    beat(store, NOON + TIME_BUCKET_S - 1, ALL_BUCKETS)
    assert (takers(store), expiries(store, 1)) == ([1], {None})
    beat(store, NOON + TIME_BUCKET_S, ALL_BUCKETS - 1)
    assert takers(store) == [1]
    assert await ledger.settle(WIN, b"a-3", b"1") == "c"  # it is as findable as before
    beat(store, NOON + TIME_BUCKET_S, 1)
    assert takers(store) == []
    ends = {int(store.hget(REGISTRY, "1"))}
    assert expiries(store, 1) == ends
    await remember(ledger, b"b", (b"1", 1, 1))  # by a clock that is behind
    assert (takers(store), expiries(store, 1), expiries(store, 2)) == ([2], ends, {None})
    assert await ledger.settle(WIN, b"a-4", b"1") == "c"


async def test_a_clock_set_right_again_does_not_lengthen_a_time_bucket(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """One opened while the clock was ten days ahead would take and keep records until then."""
    clock = Clock(NOON + 10 * 86_400)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        await remember(ledger, b"a", (b"1", 1, 1))
        clock.now -= TIME_BUCKET_S - 1
        await remember(ledger, b"b", (b"1", 1, 1))
        assert takers(store) == [1]  # little enough to stay
        clock.now = NOON
        await remember(ledger, b"c", (b"1", 1, 1))
        assert sorted(takers(store)) == [1, 2]
        beat(store, NOON + TIME_BUCKET_S, 2 * ALL_BUCKETS)
        assert expiries(store, 2) == {int(NOON) + TTL_S + 2 * TIME_BUCKET_S}
        assert await settle_all(ledger, b"c", b"1") == "ccc"


async def test_no_time_bucket_is_dropped_before_its_buckets_expire(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """Where no worker was there for longer than bids are remembered."""
    clock = Clock(store.time()[0] - TTL_S - 4 * TIME_BUCKET_S)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        assert await remember(ledger, b"a", (b"1", 1, 1))
        clock.now = store.time()[0]
        assert await remember(ledger, b"b", (b"1", 1, 1))
        beat(store, clock.now, ALL_BUCKETS)
    (record,) = keys(store, "{sb0}:r:*")
    assert record.startswith(b"{sb0}:r:2:")
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        clock.now += TIME_BUCKET_S
        assert await remember(ledger, b"c", (b"1", 1, 1))
    assert not {b"1", b"o1", b"b1", b"x1"} & set(store.hkeys(REGISTRY))


async def test_a_heartbeat_leaves_a_closed_ledger_as_it_is(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    clock = Clock(NOON)
    async with opened(fresh_redis, tmp_path, clock=clock) as ledger:
        await remember(ledger, b"a", (b"1", 1, 1))
    store.eval(script("close"), 2, *KEYS.script_keys, "being moved")
    before = store.hgetall("{sb0}:closed:r")
    beat(store, NOON + TIME_BUCKET_S, ALL_BUCKETS)
    assert store.hgetall("{sb0}:closed:r") == before
    assert expiries(store, 1) == {None}


async def test_a_bid_rolled_back_leaves_its_bucket_the_expiry(
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
        await until(lambda: all(core.unconfirmed == [] for core in ledger._cores))
    assert store.hlen(bucket) == 1
    assert expiry(store, bucket) == NOON + TTL_S


# -- how large they are ---------------------------------------------------------------------------


def fill(store: Any, time_bucket: int, buckets: int, records: int) -> None:
    """Put that many records into each bucket that the scripts sample."""
    for bucket in range(0, buckets, buckets // 16):
        for number in range(records):
            store.hset(f"{KEYS.prefix}r:{time_bucket}:{bucket}", f"record {number}", b"")


def sizes(store: Any) -> dict[int, int]:
    """The buckets of each time bucket."""
    all_of: Any = store.hgetall(REGISTRY)
    return {int(k[1:]): int(n) for k, n in sorted(all_of.items()) if k.startswith(b"b")}


async def test_a_time_bucket_whose_buckets_are_full_takes_no_more(
    ledger: Ledger, store: Any
) -> None:
    await remember(ledger, b"a", (b"1", 1, 1))
    fill(store, 1, LEAST, FULL - 1)
    beat(store, NOON, 1)
    await remember(ledger, b"b", (b"1", 1, 1))
    assert sizes(store) == {1: LEAST}
    fill(store, 1, LEAST, FULL)
    await remember(ledger, b"c", (b"1", 1, 1))
    assert sizes(store) == {1: LEAST}  # no heartbeat has seen it
    beat(store, NOON, 1)
    await remember(ledger, b"d", (b"1", 1, 1))
    assert sizes(store) == {1: LEAST, 2: 2 * LEAST}
    for auction in (b"a", b"b", b"c", b"d"):
        assert await settle_all(ledger, auction, b"1") == "ccc"
        assert await settle_all(ledger, auction, b"1") == "ddd"
    assert takers(store) == [1, 2]
    beat(store, NOON, ALL_BUCKETS)
    assert takers(store) == [2]
    assert expiries(store, 1) == {int(store.hget(REGISTRY, "1"))}


async def test_a_time_bucket_of_the_greatest_size_takes_records_for_its_whole_time(
    ledger: Ledger, store: Any, clock: Clock
) -> None:
    open_time_bucket(store, 1, MOST, NOON)
    fill(store, 1, MOST, 2 * FULL)
    beat(store, NOON + TIME_BUCKET_S - 1, 1)
    clock.now = NOON + TIME_BUCKET_S - 1
    await remember(ledger, b"a", (b"1", 1, 1))
    assert sizes(store) == {1: MOST}
    clock.now += 1
    await remember(ledger, b"b", (b"1", 1, 1))
    assert sizes(store) == {1: MOST, 2: MOST}


@pytest.mark.parametrize(
    ("before", "records", "after"),
    [
        (LEAST, 0, LEAST),
        (8 * LEAST, 0, LEAST),
        (8 * LEAST, FULL // 8, LEAST),
        (8 * LEAST, FULL // 8 + 1, 2 * LEAST),
        (8 * LEAST, FULL // 2, 4 * LEAST),
        (8 * LEAST, FULL - 1, 8 * LEAST),
        (8 * LEAST, FULL, 16 * LEAST),
        (8 * LEAST, 9 * FULL, 16 * LEAST),
        (MOST, FULL, MOST),
    ],
)
async def test_a_time_bucket_has_buckets_for_as_many_records_as_the_one_before(
    ledger: Ledger, store: Any, clock: Clock, before: int, records: int, after: int
) -> None:
    open_time_bucket(store, 7, before, NOON)
    fill(store, 7, before, records)
    clock.now += TIME_BUCKET_S
    await remember(ledger, b"a", (b"1", 1, 1))
    assert sizes(store) == {7: before, 8: after}


@pytest.mark.parametrize("buckets", [LEAST, 4 * LEAST, 8 * LEAST, MOST])
async def test_records_are_spread_over_all_buckets(
    ledger: Ledger, store: Any, clock: Clock, buckets: int
) -> None:
    """And found there, while their time bucket takes more and afterwards; and rolled back."""
    names = [b"a-%d" % number for number in range(800)]
    open_time_bucket(store, 1, buckets, NOON)
    for name in names:
        assert await remember(ledger, name, (b"1", 1, 1))
    found = [int(key.split(b":")[3]) for key in keys(store, "{sb0}:r:1:*")]
    assert max(found) < buckets
    assert len(found) > 750  # of 800 in the least
    parts = Counter(16 * bucket // buckets for bucket in found)
    assert len(parts) == 16
    assert max(parts.values()) < 100
    assert [await ledger.settle(WIN, name, b"1") for name in names[:400]] == ["c"] * 400
    waiting = remembering(ledger, b"back", (b"1", 1, 2))
    assert waiting is not None
    await sent(ledger)
    waiting.cancel()
    clock.now += TIME_BUCKET_S
    assert await remember(ledger, b"next", (b"1", 1, 1))
    await until(lambda: all(core.unconfirmed == [] for core in ledger._cores))
    assert sorted(sizes(store)) == [1, 2]
    assert [await ledger.settle(WIN, name, b"1") for name in names] == ["d"] * 400 + ["c"] * 400
    assert await ledger.settle(WIN, b"back", b"1") == "u"


async def test_all_buckets_of_a_larger_time_bucket_expire(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    async with opened(fresh_redis, tmp_path, clock=Clock(NOON)) as ledger:
        open_time_bucket(store, 1, 2 * LEAST, NOON)
        for number in range(100):
            await remember(ledger, b"a-%d" % number, (b"1", 1, 1))
    beat(store, NOON + TIME_BUCKET_S, 2 * ALL_BUCKETS - 1)
    assert takers(store) == [1]
    beat(store, NOON + TIME_BUCKET_S, 1)
    assert takers(store) == []
    assert None not in expiries(store, 1)


async def test_the_buckets_of_a_time_bucket_expire_one_after_another(
    fresh_redis: str, tmp_path: Path, store: Any
) -> None:
    """Redis deletes keys that expire in the same second at once, and answers nobody meanwhile."""
    async with opened(fresh_redis, tmp_path, clock=Clock(NOON)) as ledger:
        for number in range(200):
            await remember(ledger, b"a-%d" % number, (b"1", 1, 1))
    beat(store, NOON + TIME_BUCKET_S, ALL_BUCKETS)
    ends = [expiry(store, key) for key in keys(store, "{sb0}:r:1:*")]
    due = int(store.hget(REGISTRY, "1"))
    in_time = sorted(end - due for end in ends if end is not None)
    assert len(in_time) == len(ends) > 190
    assert 0 <= in_time[0] < in_time[-1] < APART_S
    assert len(set(in_time)) > 100
