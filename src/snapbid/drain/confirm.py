"""Restores budgets, so that budgeted campaigns bid in new runs (contract 5, point 3).

A shard whose data is intact needs nothing. Where data was lost, or replaced by an older copy, the
spend that the warehouse has recorded is first added to the budgets of all shards (spend.py). Only
one drain at a time does this, after the others have drained their shards.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import asyncpg
from redis.exceptions import RedisError

from snapbid.drain import spend
from snapbid.drain.counters import ShardCounters, ShardsUnavailableError
from snapbid.ledger.bids.segment import ShardState
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.warehouse import leases

OTHERS_S: Final = 10.0  # to wait for rounds of other drains
LOOK_S: Final = 0.1  # between polls


async def confirm(
    connection: asyncpg.Connection,
    shards: Sequence[ShardCounters],
    states: Mapping[int, ShardState],
    budgets: Budgets,
    absorb: Callable[[], Awaitable[object]],
    now: float,
) -> None:
    """Mark budgets as restored in the runs of `states`, the states of this drain's shards.

    `absorb` drains these shards once more. Raises ShardsUnavailableError if other shards are needed
    to find what was lost, and cannot be read or are not drained.
    """
    carried = all(state.is_carried for state in states.values())
    if not carried:
        carried = await _carry(connection, shards, states, budgets, absorb, now)
    for shard in shards:
        state = states.get(shard.number)
        if state is not None and not state.is_confirmed and (carried or state.is_carried):
            await shard.change(state.segment, confirmed=state.segment, carried=1)


async def _carry(
    connection: asyncpg.Connection,
    shards: Sequence[ShardCounters],
    states: Mapping[int, ShardState],
    budgets: Budgets,
    absorb: Callable[[], Awaitable[object]],
    now: float,
) -> bool:
    """Add missing spend to budgets; False while another drain does so."""
    others = [shard for shard in shards if shard.number not in states]

    async def absorb_all() -> None:
        await absorb()
        await _await_others(others)

    async with leases.carrying(connection) as is_free:
        if not is_free:
            return False
        every = {**states, **await _states_of(others)}
        ordered = [every[shard.number] for shard in shards]
        await spend.carry(connection, shards, ordered, budgets, absorb_all, now)
        for shard in others:
            if not every[shard.number].is_carried:
                await shard.change(every[shard.number].segment, carried=1)
    return True


async def _states_of(shards: Sequence[ShardCounters]) -> dict[int, ShardState]:
    try:
        return {shard.number: await shard.fetch_state() for shard in shards}
    except RedisError as error:
        raise ShardsUnavailableError({shard.number: error for shard in shards}) from error


async def _await_others(shards: Sequence[ShardCounters]) -> None:
    """Wait until a round that began after this call has drained each shard.

    The second round to finish from now on is such a round. Only changes of the recorded time count:
    the clocks of two machines need not agree.
    """
    try:
        async with asyncio.timeout(OTHERS_S):
            for _ in range(2):
                before = [await shard.drained_at() for shard in shards]
                for shard, at in zip(shards, before, strict=True):
                    while await shard.drained_at() == at:
                        await asyncio.sleep(LOOK_S)
    except TimeoutError as error:
        why = RedisError(f"not drained for {OTHERS_S:.0f} s by the drain that holds its lease")
        raise ShardsUnavailableError({shard.number: why for shard in shards}) from error
