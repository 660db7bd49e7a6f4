"""Holds wait for the wins that were acknowledged before their end (contract 3, Budgets)."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.proxy import FaultProxy, Way
from support.remembered import (
    PATIENCE_S,
    kill,
    looking,
    opened,
    remember,
    spool_files,
    sum_of,
    until,
)
from support.spending import limits, reserve, state

from snapbid.embedded import Redis
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import LOSS, WIN
from snapbid.ledger.scripts import script
from workload.serving import confirm_budgets

PRICE = 2_000_000
HOLD_S = 1
WON = 5
BUDGET = limits(total=WON * PRICE // 1000)
CAP = limits(2, caps=((WON, 86_400),))


async def sell_out(ledger: Ledger) -> None:
    """Hold the whole budget, and all that the cap allows."""
    # At once: a busy machine takes longer than HOLD_S for one after the other.
    budgeted = [reserve(ledger, b"%d" % number, (b"1", PRICE, BUDGET)) for number in range(WON)]
    capped = [reserve(ledger, b"c%d" % number, (b"1", 1, CAP), user="u") for number in range(WON)]
    assert await asyncio.gather(*budgeted, *capped) == ["k"] * 2 * WON
    assert await more(ledger) == "bc"


async def more(ledger: Ledger) -> str:
    """What becomes of a bid more; kept ones end at once."""
    verdicts = await reserve(ledger, b"more", (b"1", PRICE, BUDGET))
    verdicts += await reserve(ledger, b"more", (b"2", 1, CAP), user="u")
    for imp in (b"1", b"2"):
        await ledger.settle(LOSS, b"more", imp)
    return verdicts


async def win_all(ledger: Ledger) -> None:
    for number in range(WON):
        assert await ledger.settle(WIN, b"%d" % number, b"1") == "s"
        assert await ledger.settle(WIN, b"c%d" % number, b"1") == "s"


async def hold_clock_passes(store: Any, seconds: float) -> None:
    def now() -> int:
        return int(store.hget("{sb0}:h", "clock"))

    end = now() + seconds * 1000
    await until(lambda: now() >= end)


async def all_won(ledger: Ledger, store: Any) -> None:
    assert await more(ledger) == "bc"
    await hold_clock_passes(store, HOLD_S + 1)
    assert await more(ledger) == "bc"
    assert await state(ledger) == (WON * PRICE, WON * PRICE, 0, 0)
    assert sum_of(store)["w:1"] == 2 * WON


async def test_while_redis_is_unavailable_no_hold_ends(own_redis: Redis, tmp_path: Path) -> None:
    async with opened(own_redis.url, tmp_path, hold_s=HOLD_S) as ledger:
        await sell_out(ledger)
        kill(own_redis)
        await until(lambda: not ledger.connected)
        await win_all(ledger)
        await asyncio.sleep(HOLD_S + 1)  # the outage outlasts the holds
        own_redis.start()
        await asyncio.to_thread(confirm_budgets, own_redis.url)
        await until(lambda: ledger.connected)
        async with asyncio.timeout(PATIENCE_S):
            while spool_files(tmp_path):
                assert await more(ledger) in ("bc", "")
        with looking(own_redis.url) as store:
            await all_won(ledger, store)


async def test_while_one_machine_is_cut_off_no_hold_ends(
    own_redis: Redis, proxy: FaultProxy, tmp_path: Path, store: Any
) -> None:
    async with (
        opened(proxy.redis_url, tmp_path / "a", hold_s=HOLD_S) as first,
        opened(own_redis.url, tmp_path / "b", hold_s=HOLD_S) as second,
    ):
        await sell_out(first)
        await proxy.disconnect()
        await until(lambda: not first.connected)
        await win_all(first)
        await hold_clock_passes(store, HOLD_S + 1.5)
        assert await more(second) == "bc"
        await proxy.resume()
        await until(lambda: not spool_files(tmp_path / "a"))
        await all_won(second, store)


WORKER = """
import asyncio, sys
from pathlib import Path
from snapbid.ledger.bids.ledger import Ledger

async def main():
    url, spool, prefix = sys.argv[1:]
    ledger = Ledger(url, Path(spool), shards=1, ttl_s=7200, spool_max_bytes=1 << 20, hold_s=1)
    await ledger.open()
    while not ledger.connected:
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        for number in range(5):
            for prefix in ("", "c"):
                print(await ledger.settle(1, b"%s%d" % (prefix.encode(), number), b"1"), flush=True)

asyncio.run(main())
"""


async def start_worker(url: str, spool: Path) -> asyncio.subprocess.Process:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, url, str(spool), "",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert worker.stdout
    assert await worker.stdout.readline() == b"ready\n"
    return worker


async def test_holds_wait_for_a_server_that_was_killed_with_a_full_spool(
    own_redis: Redis, proxy: FaultProxy, tmp_path: Path, store: Any
) -> None:
    async with opened(own_redis.url, tmp_path / "b", hold_s=HOLD_S) as ledger:
        worker = await start_worker(proxy.redis_url, tmp_path / "a")
        await sell_out(ledger)
        await proxy.disconnect()
        assert worker.stdin
        assert worker.stdout
        worker.stdin.write(b"win\n")
        await worker.stdin.drain()
        assert [await worker.stdout.readline() for _ in range(2 * WON)] == [b"s\n"] * 2 * WON
        worker.kill()
        assert await worker.wait() == -signal.SIGKILL
        await hold_clock_passes(store, HOLD_S + 1.5)
        assert await more(ledger) == "bc"
        async with opened(own_redis.url, tmp_path / "a", hold_s=HOLD_S):
            await until(lambda: not spool_files(tmp_path / "a"))
            await all_won(ledger, store)
            await until(lambda: store.hlen("{sb0}:spools") == 2)


async def test_a_killed_process_with_an_empty_spool_delays_nothing(
    own_redis: Redis, tmp_path: Path, store: Any
) -> None:
    async with opened(own_redis.url, tmp_path, hold_s=HOLD_S) as ledger:
        worker = await start_worker(own_redis.url, tmp_path)
        await until(lambda: store.hlen("{sb0}:spools") == 2)
        worker.kill()
        await worker.wait()
        await sell_out(ledger)
        await until(lambda: store.hlen("{sb0}:spools") == 1)
        await hold_clock_passes(store, HOLD_S + 2.5)
        assert await more(ledger) == "kk"
    assert not store.exists("{sb0}:spools")
    assert not list(tmp_path.iterdir())


async def test_a_heartbeat_after_sign_off_delays_nothing(
    ledger: Ledger, store: Any, own_redis: Redis, tmp_path: Path
) -> None:
    """It was under way when its process ended; its connection may deliver it at any time."""
    (own,) = store.hkeys("{sb0}:spools")
    async with opened(own_redis.url, tmp_path / "other"):
        tokens = store.hkeys("{sb0}:spools")
    (token,) = set(tokens) - {own}
    seconds, microseconds = store.time()
    now_ms = seconds * 1000 + microseconds // 1000
    store.eval(script("heartbeat"), 1, "{sb0}:epoch", now_ms, 600, token, "", 0, "", 0)
    assert store.hkeys("{sb0}:spools") == [own]


async def test_a_process_that_is_gone_for_long_is_given_up(
    ledger: Ledger, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    clock = int(store.hget("{sb0}:h", "clock"))
    store.hset("{sb0}:spools", "lost", f"{clock} {clock}")
    store.hincrby("{sb0}:h", "clock", 600_000)
    await hold_clock_passes(store, 0.6)
    assert store.hexists("{sb0}:spools", "lost")
    store.hincrby("{sb0}:h", "clock", 400_000)
    await until(lambda: not store.hexists("{sb0}:spools", "lost"))
    await until(lambda: "process lost" in caplog.text)


async def test_the_hold_clock_ignores_clock_changes(ledger: Ledger, store: Any) -> None:
    """What the server's clock jumps is no part of it, however often it does."""
    begun, before = store.time(), int(store.hget("{sb0}:h", "clock"))
    for jump in (-3600, 3600, 3600, 3600, 3600, 3600, 3600):
        store.hincrby("{sb0}:h", "at", -jump * 1000)
        await until(lambda: abs(store.time()[0] * 1000 - int(store.hget("{sb0}:h", "at"))) < 3000)
    clock, ended = int(store.hget("{sb0}:h", "clock")), store.time()
    assert 0 <= clock - before <= (ended[0] - begun[0] + 1) * 1000


async def test_a_hold_lasts_its_full_time_by_any_workers_clock(
    own_redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers hold for different times, and the clock of one machine is an hour ahead."""
    brief, long = (limits(number, total=PRICE // 1000) for number in (1, 2))
    async with opened(own_redis.url, tmp_path / "a", hold_s=60) as patient:
        monkeypatch.setattr("snapbid.ledger.bids.clock.time", lambda: time.time() + 3600)
        async with opened(own_redis.url, tmp_path / "b", hold_s=2) as hasty:
            begun, number = time.monotonic(), 0
            assert await reserve(hasty, b"brief", (b"1", PRICE, brief)) == "k"
            assert await reserve(patient, b"long", (b"1", PRICE, long)) == "k"
            while await reserve(patient, b"%d" % number, (b"1", PRICE, brief)) == "b":
                assert await reserve(hasty, b"%d" % number, (b"1", PRICE, long)) == "b"
                number += 1
            assert time.monotonic() - begun >= 2
            assert await reserve(hasty, b"last", (b"1", PRICE, long)) == "b"


# -- a stop while Redis stalls --------------------------------------------------------------------


@pytest.mark.usefixtures("no_heartbeats")
@pytest.mark.parametrize("way", Way)
async def test_unconfirmed_batches_are_rolled_back_by_the_next_process(
    own_redis: Redis,
    proxy: FaultProxy,
    tmp_path: Path,
    store: Any,
    monkeypatch: pytest.MonkeyPatch,
    way: Way,
) -> None:
    monkeypatch.setattr("snapbid.ledger.bids.ledger.STOP_S", 0.5)
    async with opened(proxy.redis_url, tmp_path) as ledger:
        assert await remember(ledger, b"before", (b"1", 1, 7))
        proxy.stall(way)
        ledger._shards[0].trips.stall_s = 0.2
        late = asyncio.create_task(remember(ledger, b"late", (b"1", 1, 7), within_s=0.1))
        assert await late is False
    assert spool_files(tmp_path, "doubt")
    await proxy.resume()
    async with opened(own_redis.url, tmp_path) as ledger:
        await until(lambda: not spool_files(tmp_path, "doubt"))
        assert await ledger.settle(WIN, b"late", b"1") == "u"
        assert await ledger.settle(WIN, b"before", b"1") == "c"
    assert sum_of(store) == {"b:1": 1, "w:1": 1, "p:1": 7}


@pytest.mark.usefixtures("no_heartbeats")
async def test_a_stop_rolls_back_what_it_can(
    proxy: FaultProxy, tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapbid.ledger.bids.ledger.STOP_S", 60.0)
    async with opened(proxy.redis_url, tmp_path) as ledger:
        assert await remember(ledger, b"before", (b"1", 1, 7))
        proxy.stall(Way.ANSWERS, new=False)
        assert await remember(ledger, b"late", (b"1", 1, 7), within_s=0.05) is False
    assert not spool_files(tmp_path, "doubt")
    assert sum_of(store) == {"b:1": 1}
