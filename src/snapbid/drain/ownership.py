"""Which ledger is the warehouse's own (contract 5, point 3).

The warehouse keeps the data set (epoch) of each shard, and so how many there are. A ledger is

    own       if some shard is what it was: of others the data was lost, and is new
    moved     if it was filled from the warehouse's own (ledger/admin/moving.py)
    new       if the warehouse knows none of its data sets: all was lost, or this is another one
    former    if the warehouse has absorbed some of them, and has another one now

The drain takes a moved one over, and a new one if no other drain is at work, which may have the
other one; what the warehouse knows to be spent is added to its budgets then (spend.py). A former
one does not know what others have spent since: it is refused, until `snapbid ledger adopt`
(adopt.py) makes it the warehouse's own again.
"""

import logging
from collections.abc import Sequence

import asyncpg
from redis.exceptions import RedisError

from snapbid.drain.counters import ShardCounters, ShardsAwayError
from snapbid.drain.fence import UnrelatedStoresError, check_warehouse
from snapbid.ledger.bids.segment import ShardState
from snapbid.operations.preflight import Ledger, compare_ledger
from snapbid.warehouse import fence

logger = logging.getLogger("snapbid")


async def own(
    connection: asyncpg.Connection, shards: Sequence[ShardCounters], *, is_known: bool = False
) -> None:
    """Have the warehouse own the ledger, if it may.

    Raises UnrelatedStoresError if not, and RedisError where all shards are away, or where that
    cannot be known while some are. `is_known`: it was this drain's before its data changed, which
    other drains have yet to notice.
    """
    states, error = await _states(shards)
    if not states:
        assert error is not None
        raise error
    identity = await fence.identity(connection)
    for state in states.values():
        check_warehouse(state, identity)
    epochs = [states[shard.number].epoch if shard.number in states else "" for shard in shards]
    ledger = Ledger(
        epochs,
        next(iter(states.values())).moved_from,
        max(state.shards for state in states.values()),
    )
    known = await fence.own_ledger(connection)
    finding = await compare_ledger(connection, ledger, known)
    if finding.is_new and finding.problem and is_known:
        away = RedisError("its data is new, which other drains have yet to notice")
        raise ShardsAwayError({shard.number: away for shard in shards})
    if finding.problem:
        raise UnrelatedStoresError(finding.problem)
    if finding.is_new:
        if error is not None:
            raise error
        logger.warning("the ledger in Redis is new: it is this warehouse's own from now on")
    if len(known) == len(epochs):
        epochs = [epoch or before for epoch, before in zip(epochs, known, strict=True)]
    if epochs != known:
        await fence.set_ledger(connection, epochs)
    for shard in shards:
        if shard.number in states and states[shard.number].shards != len(shards):
            await shard.change(states[shard.number].segment, shards=len(shards))


async def _states(
    shards: Sequence[ShardCounters],
) -> tuple[dict[int, ShardState], RedisError | None]:
    """The states of the shards that answer, and the error of one that does not."""
    states, error = dict[int, ShardState](), None
    for shard in shards:
        try:
            states[shard.number] = await shard.fetch_state()
        except RedisError as away:
            error = away
    return states, error
