"""Whether the ledger's data and the warehouse belong together (contract 5, point 3).

Either may have been replaced: the ledger by an older copy of its data (a restored file, a replica
that lagged), the warehouse by a backup of itself or by another one. Batches of counters tell. Each
has a number that no other one has of its segment (ledger/scripts/segment.lua). The ledger has that
of the last batch that was read of its counters (R), and of the last one whose names were removed
from it (D); the warehouse the last one that it absorbed (A, and the segment that was counted in
then).

Data that was replaced begins another segment, so that no two ledgers ever count on in the same one.
Let L be the last batch that this ledger has read of the segment that A names: R, or what that was
when another segment followed; none where it never had that segment. Then

    A > L             the ledger lacks what was absorbed: its data is older than the warehouse
    D > min(A, L)     the warehouse lacks what the ledger has no names of any more: it is older, or
                      both are what became of two copies; all counters are named, and so compared

The next batch is always number R + 1, and begins with all names that were not removed.

A restored warehouse gives no number to another campaign or SSP than the later state did that is
lost: numbers are made from names (`number_of` in warehouse/schema). What counts for a number that
it does not know waits, and is that campaign's if it is added again.
"""

import logging

import asyncpg
from redis.exceptions import RedisError

from snapbid.drain.counters import ShardCounters
from snapbid.ledger.bids.segment import ShardState
from snapbid.warehouse import absorb, fence
from snapbid.warehouse.fence import Batch

logger = logging.getLogger("snapbid")


class UnrelatedStoresError(Exception):
    """The ledger is not the warehouse's own; the message says whose, and what to do."""


class OtherLedgerError(RedisError):
    """A shard has another data set than the warehouse's own ledger: ownership.py decides."""


class Fence:
    """Compares both sides of each shard, and counts the batches."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, Batch]] = {}  # shard -> epoch, last batch read

    def reset(self) -> None:
        """Compare anew what the stores have; either may be another one than before."""
        self._known.clear()

    def reset_shard(self, shard: int) -> None:
        """The same for one shard."""
        self._known.pop(shard, None)

    async def check(self, connection: asyncpg.Connection, shard: ShardCounters) -> ShardState:
        """Make what both sides know of a shard fit, and give the state of its ledger.

        Raises UnrelatedStoresError where it never will.
        """
        state = await shard.fetch_state()
        await self._check_identity(connection, shard, state)
        if self._known.get(shard.number) != _read(state):
            state = await _compare(connection, shard, state)
            self._known[shard.number] = _read(state)
        return state

    def next_batch(self, shard: int) -> int:
        """Give the number of the next batch of a shard."""
        _, last = self._known[shard]
        return last.number + 1

    async def pass_batch(
        self, connection: asyncpg.Connection, shard: int, batch: Batch, *, is_absorbed: bool
    ) -> None:
        """Go on to the next batch; `is_absorbed`: the warehouse has this one's number already."""
        epoch, _ = self._known[shard]
        if not is_absorbed:
            await fence.set_batch(connection, epoch, shard, batch)
        self._known[shard] = epoch, batch

    async def _check_identity(
        self, connection: asyncpg.Connection, shard: ShardCounters, state: ShardState
    ) -> None:
        # Also what notices, in each round, that the connection is gone and the warehouse another.
        identity, epoch = await fence.owner(connection, shard.number)
        check_warehouse(state, identity)
        if epoch == "":
            await fence.set_shard(connection, shard.number, state.epoch)
        elif epoch != state.epoch:
            raise OtherLedgerError("its data is not that of the warehouse's own ledger")
        if not state.warehouse:
            await shard.change(state.segment, warehouse=identity)


def check_warehouse(state: ShardState, identity: str) -> None:
    """Raise UnrelatedStoresError where the ledger is another warehouse's than that of this id."""
    if state.warehouse not in ("", identity):
        raise UnrelatedStoresError(
            f"the ledger belongs to the warehouse {state.warehouse} and this one is"
            f" {identity}: set SNAPBID_DATABASE_URL and SNAPBID_REDIS_URL to stores that"
            " belong together, or give the ledger up with snapbid ledger adopt"
        )


def _read(state: ShardState) -> tuple[str, Batch]:
    return state.epoch, Batch(state.read, state.segment)


async def _compare(
    connection: asyncpg.Connection, shard: ShardCounters, state: ShardState
) -> ShardState:
    """Have the warehouse go on after what the ledger has read; give the ledger's state then."""
    absorbed = await fence.absorbed_batch(connection, state.epoch, shard.number)
    # A backup may be from before the ledger's data turned out to be older.
    await fence.outdate(connection, state.epoch, shard.number, state.outdated)
    last = state.read  # of that segment
    if absorbed.segment not in ("", state.segment):
        last = await shard.read_when_left(absorbed.segment)
    is_older = absorbed.number > last
    lacks_names = min(absorbed.number, last) < state.released
    if is_older:
        state = await _outdate(connection, shard, state, absorbed.number)
    elif lacks_names:
        logger.warning(
            "shard %d: the warehouse is older than the ledger: figures of the last days are"
            " absorbed again, older ones are as in the backup",
            shard.number,
        )
    if lacks_names:
        await shard.name_all()
    if is_older or lacks_names:
        batch = Batch(state.read, state.segment)
        await fence.set_batch(connection, state.epoch, shard.number, batch)
    return state


async def _outdate(
    connection: asyncpg.Connection, shard: ShardCounters, state: ShardState, absorbed: int
) -> ShardState:
    """Keep older data of the ledger from taking figures back, or from being counted again."""
    logger.warning(
        "shard %d: the ledger's data is older than the warehouse: what was counted since is kept,"
        " bids made since are forgotten (batch %d was absorbed, its last one is %d)",
        shard.number,
        absorbed,
        state.read,
    )
    known = await absorb.sources_of(connection, state.epoch, shard.number)
    if state.segment in known:  # it went on, and the warehouse has what it counted then
        state = await shard.begin_segment(state.segment)
    outdated = sorted({*known, *await shard.fetch_segments()} - {state.segment})
    await fence.outdate(connection, state.epoch, shard.number, outdated)
    await shard.change(
        state.segment,
        read=max(state.read, absorbed),
        carried="",
        confirmed="",
        outdated=" ".join(outdated),
    )
    await shard.forget_processes()
    return await shard.fetch_state()
