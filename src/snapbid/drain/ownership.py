"""Decide which ledger is the warehouse's own (contract 5, point 3).

The warehouse records the data set (epoch) of each shard, and so the number of shards. A ledger is

    own       if any shard has the recorded data set; other shards may have lost their data
    moved     if it was filled from the warehouse's own (ledger/admin/moving.py)
    new       if the warehouse knows none of its data sets: all was lost, or this is another ledger
    former    if the warehouse has absorbed some of its counters, and owns another ledger now

The drain takes over a moved ledger. It also takes over a new one, unless another drain is running,
which may be using the warehouse's own ledger. The recorded spend is then added to the new ledger's
budgets (confirm.py). A former ledger lacks the spend of its successor, and is refused until
`snapbid ledger adopt` (adopt.py) makes it the warehouse's own again.
"""

import logging
from collections.abc import Sequence

import asyncpg
from redis.exceptions import RedisError

from snapbid.drain.counters import ShardCounters, ShardsUnavailableError
from snapbid.drain.fence import UnrelatedStoresError, check_warehouse
from snapbid.ledger.bids.segment import ShardState
from snapbid.operations.preflight import Ledger, compare_ledger
from snapbid.warehouse import fence

logger = logging.getLogger(__name__)


async def own(
    connection: asyncpg.Connection, shards: Sequence[ShardCounters], *, is_known: bool = False
) -> None:
    """Check that the warehouse may own the ledger, and record it as the owner.

    Raises UnrelatedStoresError if the warehouse may not own it, and RedisError if no shard can be
    read, or if some shards of a new ledger cannot be read. `is_known`: whether the warehouse owned
    the ledger when this drain last checked. If so, raises ShardsUnavailableError for a new ledger
    that may not be taken over yet, since other drains may not have noticed the change.
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
        why = RedisError("its data is new, which other drains have yet to notice")
        raise ShardsUnavailableError({shard.number: why for shard in shards})
    if finding.problem:
        raise UnrelatedStoresError(finding.problem)
    if finding.is_new:
        if error is not None:
            raise error
        logger.warning(
            "claimed a new ledger of %(shards)d shards: it belongs to this warehouse from now on",
            {"shards": len(shards)},
        )
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
    """Fetch the states of the shards that answer, and the error of one that does not, if any."""
    states, error = dict[int, ShardState](), None
    for shard in shards:
        try:
            states[shard.number] = await shard.fetch_state()
        except RedisError as unavailable:
            error = unavailable
    return states, error
