"""Restore budgets, so that campaigns with a budget may bid in new runs (contract 5, point 3).

A shard whose data is intact needs nothing. If data was lost or replaced with an older copy, the
lost spend is known only to the warehouse, and is first added back to the budgets. One drain at a
time does this, after the others have drained their shards.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import asyncpg
from redis.exceptions import RedisError

from snapbid.drain.counters import ShardCounters, ShardsUnavailableError
from snapbid.ledger.bids.records import DAY_S
from snapbid.ledger.bids.segment import ShardState
from snapbid.ledger.budgets.budgets import NOTHING as UNUSED
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.warehouse import fence, leases

OTHERS_S: Final = 10.0  # to wait for rounds of other drains
LOOK_S: Final = 0.1  # between polls
ATTEMPTS: Final = 5
CAMPAIGNS: Final = 200  # in one script call


class NanoSpend(NamedTuple):
    """Nano-USD spent, in total and on today's bids."""

    total: int
    today: int


NOTHING: Final = NanoSpend(0, 0)


async def confirm(
    connection: asyncpg.Connection,
    shards: Sequence[ShardCounters],
    states: Mapping[int, ShardState],
    budgets: Budgets,
    absorb: Callable[[], Awaitable[object]],
    now: float,
) -> None:
    """Add missing spend to budgets, then mark the budgets as restored in this drain's shards.

    `shards`: all shards; `states`: the states of this drain's shards; `absorb` drains these shards
    once more. While another drain is adding missing spend, only shards that need none are marked.
    Raises ShardsUnavailableError if missing spend cannot be found, since other shards cannot be
    read or are not being drained.
    """
    carried = all(state.is_carried for state in states.values())
    if not carried:
        carried = await _carry_alone(connection, shards, states, budgets, absorb, now)
    for shard in shards:
        state = states.get(shard.number)
        if state is not None and not state.is_confirmed and (carried or state.is_carried):
            await shard.change(state.segment, confirmed=state.segment, carried=1)


async def _carry_alone(
    connection: asyncpg.Connection,
    shards: Sequence[ShardCounters],
    states: Mapping[int, ShardState],
    budgets: Budgets,
    absorb: Callable[[], Awaitable[object]],
    now: float,
) -> bool:
    """Add spend that is missing from budgets; return False if another drain is doing so."""
    others = [shard for shard in shards if shard.number not in states]

    async def absorb_all() -> None:
        await absorb()
        await _await_others(others)

    async with leases.carrying(connection) as is_free:
        if not is_free:
            return False
        every = {**states, **await _states_of(others)}
        ordered = [every[shard.number] for shard in shards]
        await carry(connection, shards, ordered, budgets, absorb_all, now)
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
    """Wait until each shard has been drained by a round that began after this call.

    That is certain once two rounds of the shard have finished. After each round, the drain changes
    the time recorded in the shard (`drained_at`); only changes matter, so the clocks of the
    machines need not agree. Raises ShardsUnavailableError after OTHERS_S.
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


async def carry(
    connection: asyncpg.Connection,
    shards: Sequence[ShardCounters],
    states: Sequence[ShardState],
    budgets: Budgets,
    absorb: Callable[[], Awaitable[object]],
    now: float,
) -> None:
    """Add missing spend to the budgets, in the shards that may have lost it.

    `absorb` drains the counters into the warehouse. Safe to repeat after a failure: spend that was
    added is no longer missing. Raises SupersededError if a run that is not in `states` has begun.
    """
    day = int(now // DAY_S)
    missing = await fence.spend_of_day(connection, day)
    for attempt in range(ATTEMPTS):
        if not missing:
            return
        numbers = list(missing)
        before = await _spent(budgets, numbers)
        await absorb()
        known = await fence.spend_of_day(connection, day)
        after = await _spent(budgets, numbers)
        # A win in between may be in only one of the two.
        still = [n for n in numbers if before[n] == after[n] or attempt == ATTEMPTS - 1]
        lacking = {n: _lacking(known.get(n, (0, 0)), after[n]) for n in still}
        added = {n: spend for n, spend in lacking.items() if spend != NOTHING}
        await _add(shards, states, budgets, day, added)
        missing = {n: missing[n] for n in numbers if n not in lacking}


async def _spent(budgets: Budgets, numbers: Sequence[int]) -> Mapping[int, NanoSpend]:
    states = await budgets.states(numbers)
    return {
        number: NanoSpend(state.used - state.held, state.used_today - state.held_today)
        for number, state in states.items()
    }


def _lacking(known: tuple[int, int], spent: NanoSpend) -> NanoSpend:
    return NanoSpend(max(known[0] - spent.total, 0), max(known[1] - spent.today, 0))


async def _add(
    shards: Sequence[ShardCounters],
    states: Sequence[ShardState],
    budgets: Budgets,
    day: int,
    added: Mapping[int, NanoSpend],
) -> None:
    """Add missing spend to the shards that lost data, within their unused grants if possible."""
    lost = [n for n, state in enumerate(states) if not state.is_carried]
    shares: dict[int, list[tuple[int, int]]] = {}
    if len(lost) == 1:
        shares = {n: [(spend.total, spend.today)] for n, spend in added.items()}
    elif added:
        used = await budgets.states_of_each(list(added))
        granted = [await budgets.grants(shard, added, day) for shard in lost]
        for number, spend in added.items():
            own = [(used[n] or {}).get(number, UNUSED) for n in lost]
            total = [of[number][0] - o.used for of, o in zip(granted, own, strict=True)]
            today = [of[number][1] - o.used_today for of, o in zip(granted, own, strict=True)]
            shares[number] = list(
                zip(_divided(spend.total, total), _divided(spend.today, today), strict=True)
            )
    for position, index in enumerate(lost):
        rows = iter((number, *of[position]) for number, of in shares.items())
        while some := list(islice(rows, CAMPAIGNS)):
            await shards[index].add_spend(states[index].segment, day, some)


def _divided(amount: int, headroom: Sequence[int]) -> list[int]:
    """Divide an amount over shards: fill their headroom in turn, then split the rest evenly."""
    shares = []
    for most in headroom:
        shares.append(min(amount, max(most, 0)))
        amount -= shares[-1]
    return [share + (amount + index) // len(headroom) for index, share in enumerate(shares)]
