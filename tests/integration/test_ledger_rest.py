"""An idle ledger ticks once a beat; one that waits for Redis, every few ms."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.remembered import looking, opened, remember, remembering

from snapbid.redisclient import trips
from snapbid.redisclient.trips import RoundTrips

PATIENCE_S = 30.0


@contextlib.contextmanager
def paused(url: str) -> Iterator[None]:
    """Redis answers no script meanwhile."""
    with looking(url) as store:
        store.client_pause(60_000, all=False)
        try:
            yield
        finally:
            store.client_unpause()


async def test_sending_ends_the_idle_wait(
    fresh_redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the wait: a bid that Redis does not answer times out at its own deadline."""
    async with opened(fresh_redis, tmp_path) as ledger:
        assert await remember(ledger, b"a", (b"1", 1, 1))
        monkeypatch.setattr(trips, "REST_S", 10 * PATIENCE_S)
        await asyncio.sleep(4 * trips.TICK_S)  # idle by now
        with paused(fresh_redis):
            async with asyncio.timeout(PATIENCE_S):
                verdict = remembering(ledger, b"b", (b"1", 1, 1), within_s=0.02)
                assert verdict is not None
                assert await verdict == ""


async def test_an_idle_ledger_does_not_tick(
    fresh_redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[float] = []
    async with opened(fresh_redis, tmp_path) as ledger:
        assert await remember(ledger, b"a", (b"1", 1, 1))
        monkeypatch.setattr(trips, "REST_S", 10 * PATIENCE_S)
        monkeypatch.setattr(RoundTrips, "tick", lambda self, now, busy_s: ticks.append(now))
        await asyncio.sleep(60 * trips.TICK_S)
    assert len(ticks) < 30


async def test_a_late_bid_is_unconfirmed_until_it_is_rolled_back(
    fresh_redis: str, tmp_path: Path
) -> None:
    async with opened(fresh_redis, tmp_path) as ledger:
        assert await remember(ledger, b"a", (b"1", 1, 1))
        certain = asyncio.Event()
        with paused(fresh_redis):
            async with asyncio.timeout(PATIENCE_S):
                verdict = remembering(ledger, b"b", (b"1", 1, 1), within_s=0.02)
                assert verdict is not None
                assert await verdict == ""
            ledger.when_certain(certain.set)
            await asyncio.sleep(4 * trips.TICK_S)
            assert not certain.is_set()
        async with asyncio.timeout(PATIENCE_S):
            await certain.wait()
        ledger.when_certain(certain.clear)  # nothing is under way: at the next tick
        async with asyncio.timeout(PATIENCE_S):
            while certain.is_set():
                await asyncio.sleep(trips.TICK_S)
