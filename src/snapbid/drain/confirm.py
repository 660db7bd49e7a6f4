"""Lets budgeted campaigns bid in the segments that have begun (contract 5, point 3).

Where a shard's data is what it was, that is its own matter. Where it was lost, or is an older copy,
what the warehouse knows to be spent is first added to budgets, in all shards (spend.py): by one
drain at a time, after the others have carried what their shards had counted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import asyncpg
from redis.exceptions import RedisError

from snapbid.drain import spend
from snapbid.drain.counters import ShardCounters, ShardsAwayError
from snapbid.ledger.bids.segment import ShardState
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.warehouse import leases

OTHERS_S: Final = 10.0  # for rounds of other drains
LOOK_S: Final = 0.1


async def confirm(
    connection: asyncpg.Connection,
    shards: Sequence[ShardCounters],
    states: Mapping[int, ShardState],
    budgets: Budgets,
    absorb: Callable[[], Awaitable[object]],
    now: float,
) -> None:
    """Confirm the segments of `states`, which are of the shards that this drain carries.

    `absorb` brings to the warehouse what was counted in these. Raises ShardsAwayError where other
    shards, which are needed for what was lost, cannot be read or are not carried.
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
    """Whether budgets have what the warehouse knows; not while another drain sees to that."""
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
        raise ShardsAwayError({shard.number: error for shard in shards}) from error


async def _await_others(shards: Sequence[ShardCounters]) -> None:
    """Wait until each shard has been carried by a round that began after now.

    The second that ends has begun after the first one did. By changes alone: the clocks of two
    machines need not agree.
    """
    try:
        async with asyncio.timeout(OTHERS_S):
            for _ in range(2):
                before = [await shard.drained_at() for shard in shards]
                for shard, at in zip(shards, before, strict=True):
                    while await shard.drained_at() == at:
                        await asyncio.sleep(LOOK_S)
    except TimeoutError as error:
        why = RedisError("no drain carries what was counted")
        raise ShardsAwayError({shard.number: why for shard in shards}) from error
