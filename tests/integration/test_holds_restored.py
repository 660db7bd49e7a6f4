"""Holds of a ledger that was put back end in their time (contract 5.3)."""

import asyncio
from pathlib import Path

import pytest
from support.remembered import opened
from support.restoring import PRICE, Stores
from support.spending import limits, reserve

from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.scripts import SPOOL_GIVEN_UP_MS
from snapbid.operations.dashboard.ledger import SilentProcesses, waiting

HOLD_S = 1
PATIENCE_S = 60.0
OWN = limits(1, total=4 * PRICE // 1000)


async def bids(ledger: Ledger, name: str, most: int = 8) -> int:
    """Bid until the budget is used up; give how many were kept."""
    for number in range(most):
        if await reserve(ledger, b"%s %d" % (name.encode(), number), (b"1", PRICE, OWN)) != "k":
            return number
    return most


async def copied_amid_holds(stores: Stores, folder: Path, *, is_older: bool) -> Path:
    """A copy of a ledger whose server has bids on hold, and notices on disk for all that is known.

    `is_older`: something is counted after that.
    """
    async with opened(stores.redis.url, folder, hold_s=HOLD_S, confirmed=False) as ledger:
        await stores.drain()
        assert await bids(ledger, "before") == 4
        await stores.drain()
        copy = stores.copy_ledger()
    if is_older:
        async with opened(stores.redis.url, folder, hold_s=HOLD_S, confirmed=False) as ledger:
            assert await reserve(ledger, b"after", (b"1", PRICE, None)) == "k"
            await stores.drain()
    return copy


@pytest.mark.parametrize("is_older", [True, False])
async def test_holds_wait_for_no_former_process(
    stores: Stores, tmp_path: Path, is_older: bool
) -> None:
    """Seen: a budget stood still for 15 minutes. An older copy is noticed; else `adopt` says so."""
    stores.restore_ledger(await copied_amid_holds(stores, tmp_path / "a", is_older=is_older))
    if not is_older:
        done = await stores.command("ledger", "adopt")
        assert done.returncode == 0
    await stores.drain()
    async with opened(stores.redis.url, tmp_path / "b", hold_s=HOLD_S, confirmed=False) as ledger:
        await stores.drain()
        async with asyncio.timeout(PATIENCE_S):
            while await bids(ledger, "again", 1) == 0:
                await asyncio.sleep(0.1)


async def test_awaited_processes_are_named(stores: Stores, tmp_path: Path) -> None:
    stores.restore_ledger(await copied_amid_holds(stores, tmp_path / "a", is_older=False))
    client = stores.client()
    assert (await waiting(client, 1, stores.clock.now)).silent == SilentProcesses(0, 0.0)
    await client.hincrby("{sb0}:h", "clock", 20_000)
    silent = (await waiting(client, 1, stores.clock.now)).silent
    assert silent.processes == 1
    assert SPOOL_GIVEN_UP_MS / 1000 - 25 < silent.left_s <= SPOOL_GIVEN_UP_MS / 1000 - 19
    await client.aclose()
