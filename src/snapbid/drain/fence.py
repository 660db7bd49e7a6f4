"""Whether the ledger's data and the warehouse belong together (contract 5, point 3).

Either may have been replaced: the ledger by an older copy of its data (a restored file, a replica
that lagged), the warehouse by a backup of itself or by another one. Numbers of batches tell. The
ledger has that of the last batch that was read of its counters (R), and of the last one whose names
were removed from it (D); the warehouse that of the last one that it absorbed (A). D <= A <= R,
whatever is killed when.

    A > R  the ledger lacks what was absorbed: its data is older than the warehouse
    A < D  the warehouse lacks what was absorbed: it is older than the ledger

A restored warehouse gives no number to another campaign or SSP than the later state did that is
lost: numbers are made from names (warehouse/schema/0010_numbers.sql). What counts for a number that
it does not know waits, and is that campaign's if it is added again.
"""

import logging

import asyncpg

from snapbid.drain.counters import ShardCounters
from snapbid.ledger.segment import ShardState
from snapbid.warehouse import absorb, fence

logger = logging.getLogger("snapbid")


class UnrelatedStoresError(Exception):
    """The ledger belongs to another warehouse."""


class Fence:
    """Compares both sides of each shard, and counts the batches."""

    def __init__(self) -> None:
        self._batches: dict[int, tuple[str, int]] = {}  # shard -> epoch, last batch absorbed

    def reset(self) -> None:
        """Compare anew what the stores have; either may be another one than before."""
        self._batches.clear()

    def reset_shard(self, shard: int) -> None:
        """The same for one shard."""
        self._batches.pop(shard, None)

    async def check(self, connection: asyncpg.Connection, shard: ShardCounters) -> ShardState:
        """Make what both sides know of a shard fit, and give the state of its ledger.

        Raises UnrelatedStoresError where it never will.
        """
        state = await shard.fetch_state()
        await self._check_identity(connection, shard, state)
        epoch, absorbed = self._batches.get(shard.number, ("", 0))
        if epoch != state.epoch:
            absorbed = await fence.absorbed_batch(connection, state.epoch, shard.number)
            # A backup may be from before the ledger's data turned out to be older.
            await fence.outdate(connection, state.epoch, shard.number, state.outdated)
        if absorbed > state.read:
            state = await _outdate(connection, shard, state, absorbed)
        elif absorbed < state.released:
            await _catch_up(connection, shard, state)
            absorbed = state.read
        self._batches[shard.number] = (state.epoch, absorbed)
        return state

    def next_batch(self, shard: int) -> int:
        """Give the number of the next batch of a shard."""
        return self._batches[shard][1] + 1

    async def pass_batch(
        self, connection: asyncpg.Connection, shard: int, *, is_absorbed: bool
    ) -> None:
        """Go on to the next batch; `is_absorbed`: the warehouse has this one's number already."""
        epoch, absorbed = self._batches[shard]
        if not is_absorbed:
            await fence.set_batch(connection, epoch, shard, absorbed + 1)
        self._batches[shard] = (epoch, absorbed + 1)

    async def _check_identity(
        self, connection: asyncpg.Connection, shard: ShardCounters, state: ShardState
    ) -> None:
        # Also what notices, in each round, that the connection is gone and the warehouse another.
        identity = await fence.identity(connection)
        if not state.warehouse:
            await shard.change(state.segment, warehouse=identity)
        elif state.warehouse != identity:
            raise UnrelatedStoresError(
                f"the ledger belongs to the warehouse {state.warehouse} and this one is"
                f" {identity}: set SNAPBID_DATABASE_URL and SNAPBID_REDIS_URL to stores that"
                " belong together, or give the ledger up with snapbid ledger adopt"
            )


async def _outdate(
    connection: asyncpg.Connection, shard: ShardCounters, state: ShardState, absorbed: int
) -> ShardState:
    """Keep older data of the ledger from taking figures back, or from being counted again."""
    logger.warning(
        "shard %d: the ledger's data is %d batches older than the warehouse: what was counted"
        " since is kept, bids made since are forgotten",
        shard.number,
        absorbed - state.read,
    )
    known = await absorb.sources_of(connection, state.epoch, shard.number)
    outdated = sorted({*known, *await shard.fetch_segments()} - {state.segment})
    await fence.outdate(connection, state.epoch, shard.number, outdated)
    await shard.change(
        state.segment, read=absorbed, carried="", confirmed="", outdated=" ".join(outdated)
    )
    return await shard.fetch_state()


async def _catch_up(
    connection: asyncpg.Connection, shard: ShardCounters, state: ShardState
) -> None:
    """Have a warehouse that went back to a backup absorb what the ledger still has."""
    logger.warning(
        "shard %d: the warehouse is older than the ledger: figures of the last days are absorbed"
        " again, older ones are as in the backup",
        shard.number,
    )
    await shard.name_all()
    await fence.set_batch(connection, state.epoch, shard.number, state.read)
