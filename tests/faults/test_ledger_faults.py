"""Bids while the connection breaks and Redis is killed (contract 5).

What was acknowledged counts once, what was not counts nothing, and no bid waits.
"""

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest
from support.proxy import FaultProxy, Way
from support.remembered import (
    kill,
    looking,
    opened,
    remember,
    remembering,
    settled_once,
    sum_of,
    until,
)

from snapbid.embedded import Redis
from snapbid.ledger.bids import shard
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import WIN

SEED = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(10**9))
KILLS = int(os.environ.get("FAULTS_KILLS") or 8)


@pytest.mark.usefixtures("no_heartbeats")
@pytest.mark.parametrize("way", Way)
async def test_what_was_not_acknowledged_leaves_no_record(
    ledger: Ledger, proxy: FaultProxy, store: Any, way: Way
) -> None:
    """What was applied is rolled back, and nothing else."""
    assert await remember(ledger, b"before", (b"1", 1, 7))
    proxy.stall(way)
    lost = [asyncio.create_task(remember(ledger, b"lost-%d" % n, (b"1", 1, 7))) for n in range(20)]
    await until(lambda: sum_of(store)["b:1"] > 1 if way is Way.ANSWERS else proxy.held.total())
    proxy.cut()
    assert await asyncio.gather(*lost) == [False] * 20
    await proxy.resume()
    await until(lambda: ledger.connected)
    assert await ledger.settle(WIN, b"lost-0", b"1") == "u"
    await settled_once(ledger, store, [b"before"])


async def test_a_batch_that_arrives_after_it_was_given_up_on_is_refused(
    ledger: Ledger, proxy: FaultProxy, store: Any
) -> None:
    """The new connection, which takes the batch back, overtakes the old one."""
    assert await remember(ledger, b"before", (b"1", 1, 7))
    proxy.stall(Way.REQUESTS, new=False)
    assert await remember(ledger, b"late", (b"1", 1, 7), within_s=0.05) is False
    await until(lambda: not ledger.connected)
    await until(lambda: ledger.connected)
    assert proxy.held.total()
    await proxy.resume()
    await until(lambda: not proxy.held.total())
    assert await remember(ledger, b"after", (b"1", 1, 7))
    assert await ledger.settle(WIN, b"late", b"1") == "u"
    await settled_once(ledger, store, [b"before", b"after"])


async def test_a_stall_is_answered_in_time_and_leaves_no_record(
    ledger: Ledger, proxy: FaultProxy, store: Any
) -> None:
    ledger._shards[0].trips.stall_s = 3600.0  # the connection has not ended
    for way in Way:
        proxy.stall(way)
        async with asyncio.timeout(60):
            waiting = [remember(ledger, b"%d" % n, (b"1", 1, 7), within_s=0.05) for n in range(10)]
            assert await asyncio.gather(*waiting) == [False] * 10
        assert ledger.connected
        await proxy.resume()
        await until(lambda: not proxy.held.total())
        assert await remember(ledger, b"after-%d" % way.value, (b"1", 1, 7))
    await until(lambda: sum_of(store)["b:1"] == 2)
    assert await ledger.settle(WIN, b"3", b"1") == "u"
    await settled_once(ledger, store, [b"after-1", b"after-2"])


async def test_a_lost_revocation_is_repeated(ledger: Ledger, proxy: FaultProxy, store: Any) -> None:
    """The connection ends between the acknowledgement and the revocation."""
    assert await remember(ledger, b"before", (b"1", 1, 7))
    proxy.stall(Way.ANSWERS)
    assert await remember(ledger, b"late", (b"1", 1, 7), within_s=0.05) is False
    proxy.stall(Way.REQUESTS, new=False)
    await proxy.resume(Way.ANSWERS)
    await until(lambda: proxy.held[Way.REQUESTS])
    proxy.cut()
    await until(lambda: not ledger.connected)
    await proxy.resume()
    await until(lambda: ledger.connected)
    await settled_once(ledger, store, [b"before"])


@pytest.mark.usefixtures("no_heartbeats")
async def test_a_connection_cut_amid_answers_leaves_no_record(
    ledger: Ledger, proxy: FaultProxy, store: Any
) -> None:
    """Bids and notices share a round trip: the bids are acknowledged late, then it ends."""
    assert await remember(ledger, b"before", (b"1", 1, 7))
    proxy.stall(Way.ANSWERS)
    notice = asyncio.create_task(ledger.settle(WIN, b"before", b"1"))
    assert await remember(ledger, b"late", (b"1", 1, 7), within_s=0.05) is False
    await until(lambda: proxy.held[Way.ANSWERS])
    proxy.answer_bytes = len(b":1\r\n")
    await proxy.resume()
    assert await notice == "s"
    await until(lambda: not ledger.connected)
    await until(lambda: ledger.connected)
    assert await ledger.settle(WIN, b"before", b"1") == "d"
    assert await ledger.settle(WIN, b"late", b"1") == "u"
    assert sum_of(store) == {"b:1": 1, "w:1": 1, "p:1": 7}


@pytest.mark.parametrize("first_is_late", [True, False])
async def test_a_revocation_leaves_the_answered_bid_of_the_same_pair(
    ledger: Ledger, proxy: FaultProxy, store: Any, first_is_late: bool
) -> None:
    """An SSP repeats its request within a second: one answer is late, the other is not."""
    proxy.stall(Way.ANSWERS)
    within = (0.05, 10.0) if first_is_late else (10.0, 0.05)
    asked = [
        asyncio.create_task(remember(ledger, b"a", (b"1", 1, 7), within_s=seconds))
        for seconds in within
    ]
    await until(lambda: any(task.done() for task in asked))
    await proxy.resume()
    assert await asyncio.gather(*asked) == ([False, True] if first_is_late else [True, False])
    assert await remember(ledger, b"b", (b"1", 1, 7))
    await settled_once(ledger, store, [b"a", b"b"])


async def test_refused_bids_count_nothing(ledger: Ledger, store: Any) -> None:
    """Redis without memory, or without its scripts."""
    assert await remember(ledger, b"before", (b"1", 1, 7))
    store.config_set("maxmemory", 1)
    assert not await remember(ledger, b"refused", (b"1", 1, 7))
    store.config_set("maxmemory", 0)
    await until(lambda: ledger.connected)
    store.script_flush()
    assert not await remember(ledger, b"refused", (b"1", 1, 7))
    await until(lambda: ledger.connected)
    assert await remember(ledger, b"after", (b"1", 1, 7))
    assert await ledger.settle(WIN, b"refused", b"1") == "u"
    await settled_once(ledger, store, [b"before", b"after"])


async def test_without_redis_the_ledger_refuses_at_once(
    ledger: Ledger, proxy: FaultProxy, store: Any
) -> None:
    await proxy.disconnect()
    await until(lambda: not ledger.connected)
    for _ in range(10):
        assert remembering(ledger, b"a", (b"1", 1, 7), within_s=10.0) is None
        assert await ledger.settle(WIN, b"a", b"1") == "s"
    await proxy.resume()
    await until(lambda: ledger.connected)
    assert await remember(ledger, b"a", (b"1", 1, 7))
    await until(lambda: not ledger._spool.holds_own)


async def test_it_may_start_before_redis(own_redis: Redis, tmp_path: Path) -> None:
    own_redis.stop()
    async with opened(own_redis.url, tmp_path, wait=False) as ledger:
        assert remembering(ledger, b"a", (b"1", 1, 7), within_s=10.0) is None
        assert await ledger.settle(WIN, b"a", b"1") == "s"
        own_redis.start()
        await until(lambda: ledger.connected)
        assert await remember(ledger, b"a", (b"1", 1, 7))


@pytest.mark.usefixtures("no_heartbeats")
async def test_the_queue_is_bounded(
    ledger: Ledger, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "MAX_WAITING", 50)
    proxy.stall()
    first = remembering(ledger, b"sent", (b"1", 1, 7), within_s=10.0)
    await until(lambda: proxy.held.total())
    more = [remembering(ledger, b"%d" % n, (b"1", 1, 7), within_s=10.0) for n in range(80)]
    assert more[50:] == [None] * 30
    waiting = [bid for bid in (first, *more) if bid is not None]
    assert len(waiting) == 51
    await proxy.resume()
    assert all(await asyncio.gather(*waiting))


async def test_a_slow_connection_is_kept(ledger: Ledger, proxy: FaultProxy, store: Any) -> None:
    proxy.delay_s = 0.03
    auctions = [b"%d" % number for number in range(40)]
    assert all(await asyncio.gather(*(remember(ledger, id, (b"1", 1, 7)) for id in auctions)))
    proxy.delay_s = 0.0
    await settled_once(ledger, store, auctions)


async def test_closing_does_not_wait_for_a_stalled_redis(
    proxy: FaultProxy, tmp_path: Path, store: Any
) -> None:
    async with asyncio.timeout(60):
        async with opened(proxy.redis_url, tmp_path) as ledger:
            proxy.stall()
            asked = asyncio.create_task(remember(ledger, b"a", (b"1", 1, 7), within_s=0.05))
            await until(lambda: proxy.held.total())
        assert await asked is False


async def test_closing_flushes_pending_requests(
    own_redis: Redis, tmp_path: Path, store: Any
) -> None:
    async with opened(own_redis.url, tmp_path) as ledger:
        waiting = [remembering(ledger, b"%d" % n, (b"1", 1, 7), within_s=10.0) for n in range(5000)]
    assert all(done is not None and done.result() for done in waiting)
    assert sum_of(store) == {"b:1": 5000}


async def test_acknowledged_bids_survive_a_kill_of_redis(own_redis: Redis, tmp_path: Path) -> None:
    """SIGKILL at random times under load: counts equal the acknowledged bids exactly."""
    print(f"FAULTS_SEED={SEED}")
    rng = random.Random(SEED)
    acknowledged: list[bytes] = []
    asked = 0
    async with opened(own_redis.url, tmp_path) as ledger:
        for _ in range(KILLS):
            stop = asyncio.Event()

            async def client(number: int, stop: asyncio.Event) -> None:
                nonlocal asked
                while not stop.is_set():
                    asked += 1
                    auction = b"%d" % asked
                    if await remember(ledger, auction, (b"1", 1, 7)):
                        acknowledged.append(auction)
                    await asyncio.sleep(0)

            clients = [asyncio.create_task(client(number, stop)) for number in range(20)]
            enough = len(acknowledged) + rng.randrange(20, 2000)
            await until(lambda enough=enough: len(acknowledged) > enough)  # type: ignore[misc]
            kill(own_redis)
            stop.set()
            await asyncio.gather(*clients)
            own_redis.start()
            await until(lambda: ledger.connected)
            with looking(own_redis.url) as store:
                assert sum_of(store)["b:1"] == len(acknowledged)
        with looking(own_redis.url) as store:
            assert asked > len(acknowledged)
            some = rng.sample(acknowledged, min(len(acknowledged), 3000))
            letters = await asyncio.gather(*(ledger.settle(WIN, id, b"1") for id in some))
            assert set(letters) <= {"c", "s"}
            await until(lambda: sum_of(store).get("w:1") == len(some))
