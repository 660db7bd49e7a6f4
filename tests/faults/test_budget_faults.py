"""Budgets at full speed, while workers and Redis are killed (contract 3).

Every acknowledged win is spend. A budget must never be exceeded; if demand suffices and nothing is
killed, at least 99% of a budget of 1,000 bids or more is spent.
"""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.buyers import Buyer, campaign, overspent, sold_out
from support.campaigns import put
from support.machine import temporary_home
from support.processes import workers_of
from support.remembered import until
from support.stack import Stack

from snapbid.embedded import Home, Postgres, Redis

SEED = int(os.environ.get("BUDGET_SEED") or random.SystemRandom().randrange(10**9))
WORKERS = 4
CENT = 10_000  # micro-USD


class CatalogSnapshot:
    """Stores, four workers, and campaigns with budgets, each for a different size."""

    def __init__(self, home: Home, hold_s: int) -> None:
        self.hold_s = hold_s
        self.redis = Redis(home)
        self.postgres = Postgres(home)
        self.redis.start()
        self.postgres.start()
        self._environ = {
            "SNAPBID_HOME": str(home.path / "served"),
            "SNAPBID_DATABASE_URL": self.postgres.dsn,
            "SNAPBID_REDIS_URL": self.redis.url,
            "SNAPBID_BASE_URL": "http://127.0.0.1:8000",
            "SNAPBID_WORKERS": str(WORKERS),
            "SNAPBID_HOLD_S": str(hold_s),
        }

    def start(self, documents: list[dict[str, Any]]) -> None:
        asyncio.run(put(self.postgres.dsn, *documents, ssp="acme"))
        self.drain = Stack(self._environ, "drain")  # without it, no budget outlasts Redis
        self.drain.launch()
        self.served = Stack(self._environ)
        self.served.start()

    def close(self) -> None:
        if hasattr(self, "served"):
            self.served.close()
            self.drain.close()
        self.redis.stop()
        self.postgres.stop()

    @property
    def workers(self) -> list[int]:
        assert self.served.process
        return sorted(workers_of(self.served.process.pid))


@pytest.fixture
def snapshot(initialise: Callable[[Path], None]) -> Iterator[Callable[[int], CatalogSnapshot]]:
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(temporary_home())
        initialise(home.path)

        def make(hold_s: int) -> CatalogSnapshot:
            made = CatalogSnapshot(home, hold_s)
            stack.callback(made.close)
            return made

        yield make


def test_budgets_are_spent_and_never_exceeded(snapshot: Callable[[int], CatalogSnapshot]) -> None:
    """Hundreds of campaigns; budgets of 1,000 bids or more are spent to at least 99%."""
    rng = random.Random(SEED)
    print(f"BUDGET_SEED={SEED}")
    documents = [
        campaign(number, rng.choice((2_000_000, 3_333_333, 7_000_001)), CENT, 1 + number % 4)
        for number in range(150)
    ]
    documents += [campaign(150 + n, 1_000_000, 1000 * 1_000 + n, 1 + n) for n in range(4)]
    made = snapshot(60)
    made.start(documents)
    buyer = Buyer(made.served.port, 4, rng, SEED)
    over = asyncio.Event()

    async def stop() -> None:
        try:
            await sold_out(made.redis.url, made.postgres.dsn, 1, [buyer], documents)
        finally:
            over.set()

    async def run() -> None:
        await asyncio.gather(stop(), buyer.run(over.is_set))

    asyncio.run(run())
    assert not overspent(buyer, documents)
    for each in documents[150:]:
        assert buyer.wins[each["id"]] >= 990
    small = documents[:150]
    spent = sum(buyer.wins[each["id"]] * each["cpm"] / 1000 for each in small)
    assert spent > 0.8 * len(small) * 0.01  # a cent is 1 to 5 bids: a remainder may stay


def test_no_kill_makes_a_budget_overspend(snapshot: Callable[[int], CatalogSnapshot]) -> None:
    rng = random.Random(SEED + 1)
    print(f"BUDGET_SEED={SEED}")
    documents = [
        campaign(number, 1_000_000 + number, 200 * 1_000, 1 + number % 4) for number in range(12)
    ]
    made = snapshot(3600)  # so that no win is notified after its hold, whatever was unavailable
    made.start(documents)
    buyer = Buyer(made.served.port, 4, rng, SEED)
    over = asyncio.Event()

    async def kill() -> None:
        try:
            for victim in ("worker", "redis", "worker", "worker", "redis", "redis"):
                before = sum(buyer.wins.values())
                with contextlib.suppress(AssertionError):
                    await until(lambda before=before: sum(buyer.wins.values()) > before + 100)  # type: ignore[misc]
                if victim == "worker":
                    os.kill(rng.choice(made.workers), signal.SIGKILL)
                else:
                    assert made.redis.process
                    made.redis.process.kill()
                    made.redis.process.wait()
                    await asyncio.sleep(rng.uniform(0, 0.3))
                    await asyncio.to_thread(made.redis.start)
            await sold_out(made.redis.url, made.postgres.dsn, 1, [buyer], documents)
        finally:
            over.set()

    async def run() -> None:
        await asyncio.gather(kill(), buyer.run(over.is_set, lanes=32))

    asyncio.run(run())
    assert not overspent(buyer, documents)
    assert sum(buyer.wins.values()) > 0.5 * 12 * 200
