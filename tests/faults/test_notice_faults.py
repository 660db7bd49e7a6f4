"""Notices while the connection breaks, Redis is unavailable, and workers are killed (contract 5).

What was answered counts once, directly or through the spool.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.proxy import FaultProxy, Way
from support.remembered import (
    FIELDS,
    expected,
    keys,
    kill,
    looking,
    opened,
    remember,
    settle_all,
    sum_of,
    until,
)

from snapbid.embedded import Redis
from snapbid.ledger.bids.ledger import Ledger, SpoolFullError
from snapbid.ledger.bids.records import BILLING, LOSS, WIN


async def test_notices_without_redis_count_once_afterwards(
    ledger: Ledger, proxy: FaultProxy, store: Any
) -> None:
    auctions = [b"%d" % number for number in range(30)]
    assert all(await asyncio.gather(*(remember(ledger, id, (b"1", 1, 7)) for id in auctions)))
    await proxy.disconnect()
    await until(lambda: not ledger.connected)
    for _ in range(2):
        letters = await asyncio.gather(*(settle_all(ledger, id, b"1", 1) for id in auctions))
        assert set(letters) == {"sss"}
    assert await ledger.settle(WIN, b"unknown", b"1") == "s"
    assert sum_of(store) == {"b:1": 30}
    await proxy.resume()
    whole = expected(bids=30, wins=30, imps=30, price=7, losses={1: 30})
    wanted = {field: value for field, value in whole.items() if field in FIELDS}
    await until(lambda: sum_of(store) == wanted)
    letters = await asyncio.gather(*(settle_all(ledger, id, b"1", 1) for id in auctions))
    assert set(letters) == {"ddd"}
    assert sum_of(store) == wanted


@pytest.mark.parametrize("way", Way)
async def test_a_notice_in_a_stall_counts_once(
    ledger: Ledger,
    proxy: FaultProxy,
    store: Any,
    tmp_path: Path,
    way: Way,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether or not Redis already had it, and while the answer is held back."""
    ledger._shards[0].trips.stall_s = 60.0
    assert await remember(ledger, b"a", (b"1", 1, 7))
    proxy.stall(way)
    with monkeypatch.context() as hurry:
        hurry.setattr("snapbid.ledger.bids.shard.NOTICE_S", 0.1)
        assert await settle_all(ledger, b"a", b"1", 1) == "sss"
    assert ledger.connected, "a notice does not wait until the connection is given up"
    assert list((tmp_path / "spool").glob("*.spool"))
    await proxy.resume()
    await until(lambda: not list((tmp_path / "spool").glob("*.spool")))
    await settled_twice(ledger, store)


async def settled_twice(ledger: Ledger, store: Any) -> None:
    assert await settle_all(ledger, b"a", b"1", 1) == "ddd"
    assert sum_of(store) == {"b:1": 1, "w:1": 1, "i:1": 1, "l:1:1": 1, "p:1": 7}


async def test_interrupted_replays_are_repeated(
    ledger: Ledger, proxy: FaultProxy, store: Any, tmp_path: Path
) -> None:
    auctions = [b"%d" % number for number in range(1200)]
    assert all(await asyncio.gather(*(remember(ledger, id, (b"1", 1, 7)) for id in auctions)))
    await proxy.disconnect()
    await until(lambda: not ledger.connected)
    letters = await asyncio.gather(*(ledger.settle(WIN, id, b"1") for id in auctions))
    assert set(letters) == {"s"}
    for _ in range(3):
        await proxy.resume()
        await until(lambda: ledger.connected)
        proxy.stall(Way.ANSWERS)
        await until(lambda: proxy.held[Way.ANSWERS])
        await proxy.disconnect()
        await until(lambda: not ledger.connected)
    await proxy.resume()
    await until(lambda: not list((tmp_path / "spool").glob("*.spool")))
    assert sum_of(store) == {"b:1": 1200, "w:1": 1200, "p:1": 8400}


async def test_a_full_spool_refuses(own_redis: Redis, tmp_path: Path) -> None:
    async with opened(own_redis.url, tmp_path, spool_max_bytes=378) as ledger:
        kill(own_redis)
        await until(lambda: not ledger.connected)
        letters = [await ledger.settle(WIN, b"%d" % number, b"1") for number in range(10)]
        assert letters == ["s"] * 10
        with pytest.raises(SpoolFullError):
            await ledger.settle(WIN, b"10", b"1")
        own_redis.start()
        await until(lambda: not list(tmp_path.glob("*.spool")))
        assert await ledger.settle(WIN, b"10", b"1") == "u"
        kill(own_redis)
        await until(lambda: not ledger.connected)
        assert await ledger.settle(WIN, b"11", b"1") == "s"


async def test_a_spool_in_another_format_is_left_alone(own_redis: Redis, tmp_path: Path) -> None:
    other = tmp_path / "0.spool"  # looked at before the worker's own
    other.write_bytes(b"snapbid\xff" + bytes(100))
    async with opened(own_redis.url, tmp_path) as ledger:
        assert await remember(ledger, b"a", (b"1", 1, 7))
        kill(own_redis)
        await until(lambda: not ledger.connected)
        assert await ledger.settle(WIN, b"a", b"1") == "s"
        own_redis.start()
        await until(lambda: len(list(tmp_path.glob("*.spool"))) < 2)
        assert other.exists()
        assert await ledger.settle(WIN, b"a", b"1") == "d"


WORKER = """
import asyncio, sys
from pathlib import Path
from snapbid.ledger.bids.ledger import Ledger

async def main():
    url, spool, first, last = sys.argv[1:]
    ledger = Ledger(url, Path(spool), shards=1, ttl_s=7200, spool_max_bytes=1 << 20)
    await ledger.open()
    for number in range(int(first), int(last)):
        for kind in (1, 2, 4):
            print(await ledger.settle(kind, b"%d" % number, b"1", 1), flush=True)
    print("end", flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_notices_spooled_by_a_killed_worker_are_settled_by_another(
    own_redis: Redis, tmp_path: Path
) -> None:
    auctions = [b"%d" % number for number in range(40)]
    async with opened(own_redis.url, tmp_path) as ledger:
        assert all(await asyncio.gather(*(remember(ledger, id, (b"1", 1, 7)) for id in auctions)))
        kill(own_redis)
        await until(lambda: not ledger.connected)
        for first in (0, 20):
            command = [sys.executable, "-c", WORKER, own_redis.url, tmp_path, first, first + 20]
            worker = await asyncio.create_subprocess_exec(
                *map(str, command), stdout=subprocess.PIPE
            )
            assert worker.stdout
            letters = [(await worker.stdout.readline()).decode().strip() for _ in range(61)]
            assert letters == ["s"] * 60 + ["end"]
            worker.kill()
            assert await worker.wait() == -signal.SIGKILL
        assert len(list(tmp_path.glob("*.spool"))) == 2
        own_redis.start()
        await until(lambda: not list(tmp_path.glob("*.spool")))
        with looking(own_redis.url) as store:
            whole = expected(bids=40, wins=40, imps=40, price=7, losses={1: 40})
            assert sum_of(store) == {f: n for f, n in whole.items() if f in FIELDS}
            letters = await asyncio.gather(*(settle_all(ledger, id, b"1") for id in auctions))
            assert set(letters) == {"ddd"}


async def test_nothing_grows_while_redis_comes_and_goes(
    ledger: Ledger, proxy: FaultProxy, store: Any
) -> None:
    """Many interruptions leave the same connections, keys and files as one."""
    assert await remember(ledger, b"a", (b"1", 1, 7))
    before, files = keys(store), len(os.listdir("/proc/self/fd"))
    for _ in range(6):
        proxy.cut()
        await until(lambda: not ledger.connected)
        await until(lambda: ledger.connected)
        await ledger.settle(random.choice((WIN, BILLING, LOSS)), b"b", b"1")
    assert keys(store) == before
    assert len(os.listdir("/proc/self/fd")) <= files + 2
    assert await settle_all(ledger, b"a", b"1", 1) == "ccc"
