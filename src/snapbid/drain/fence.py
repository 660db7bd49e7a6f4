"""Fence the drain against a restored ledger or warehouse (contract 5, point 3).

Either store may have been replaced: the ledger with an older copy of its data (a restored file, a
lagging replica), the warehouse with a backup or with a different warehouse. The numbers of counter
batches reveal this. A number is unique within its run (ledger/scripts/segment.lua). The ledger
keeps the number of the last batch that was read (R), and of the last one whose names were removed
(D); the warehouse keeps the number of the last batch that it absorbed (A), and the run that was
current then.

Replaced data begins another run, so two ledgers never continue to count in the same run. Let L be
the last batch that this ledger has read in A's run: R, or the value of R when that run ended; -1 if
the ledger never had that run. Then

    A > L    the ledger is older: it lacks counts that the warehouse has absorbed
    D > A    the warehouse is older: it lacks counters whose names the ledger has removed

In both cases all counters are marked as changed, so the drain reads and absorbs them again. This is
needed even if the warehouse is now the newer store: it may have been older a moment ago, and not
have absorbed all counters again. If the warehouse is older, D is then set to A. Redis keeps D
beside the names of changed counters, so an earlier copy of the ledger has neither this value of D
nor these names.

The next batch is always number R + 1, and begins with all names that were not removed.

If no batch has been read since a copy of the ledger was made, A = L for the copy, too. It may still
have counters of past days that have been removed since (tidy.py). So when all counters are read
again, those of earlier runs add nothing for such days.

After a move of the ledger, only the old ledger has the counters that an older warehouse lacks. The
new one knows each old shard's D; if an A is below, this is logged.

A restored warehouse never gives a number to a different campaign or SSP than the lost state did:
numbers are derived from names (`number_of` in warehouse/schema). Counters of an unknown number are
deferred, and count for their campaign once it is added again.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import asyncpg
from redis.exceptions import RedisError

from snapbid.drain.counters import ShardCounters, SupersededError
from snapbid.ledger.bids.segment import ShardState
from snapbid.warehouse import absorb, fence
from snapbid.warehouse.fence import Batch, Step

logger = logging.getLogger(__name__)


class UnrelatedStoresError(Exception):
    """The ledger does not belong to the warehouse; the message names its owner and the remedy."""


class OtherLedgerError(RedisError):
    """A shard's data set is not the one that the warehouse recorded (see ownership.py)."""


class _Known(NamedTuple):
    """A shard's data set and last batches, as of the last check."""

    epoch: str
    read: Batch  # the last batch read
    absorbed: Batch  # the last batch in the warehouse


class Fence:
    """Compares the records that ledger and warehouse keep of each shard; numbers its batches."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def reset(self) -> None:
        """Have the two stores' records of all shards compared again.

        Called when either store may have been replaced.
        """
        self._known.clear()

    def reset_shard(self, shard: int) -> None:
        """Have the next `check` of a shard compare both stores' records again."""
        self._known.pop(shard, None)

    async def check(self, connection: asyncpg.Connection, shard: ShardCounters) -> ShardState:
        """Reconcile both stores' records of a shard; return the shard's state in the ledger.

        Raises UnrelatedStoresError if the shard belongs to another warehouse, OtherLedgerError if
        its data set is not the one that the warehouse recorded, and SupersededError if the
        warehouse's data was replaced since it was last seen.
        """
        state = await shard.fetch_state()
        absorbed = await self._check_identity(connection, shard, state)
        known = self._known.get(shard.number)
        if known is not None and known.epoch == state.epoch and known.absorbed != absorbed:
            raise _replaced()
        if known is None or (known.epoch, known.read) != (state.epoch, _read(state)):
            state, absorbed = await _compare(connection, shard, state)
            self._known[shard.number] = _Known(state.epoch, _read(state), absorbed)
        return state

    def next_batch(self, shard: int) -> int:
        """Return the number of the shard's next batch."""
        return self._known[shard].read.number + 1

    def step(self, shard: int, batch: Batch) -> Step:
        """Return the step from the last batch absorbed from a shard to `batch`."""
        known = self._known[shard]
        return Step(known.epoch, shard, known.absorbed, batch)

    def note(self, steps: Iterable[Step]) -> None:
        """Remember that the warehouse has recorded the batches of `steps` as absorbed."""
        for step in steps:
            self._known[step.shard] = _Known(step.epoch, step.next, step.next)

    async def _check_identity(
        self, connection: asyncpg.Connection, shard: ShardCounters, state: ShardState
    ) -> Batch | None:
        """Check that the warehouse owns the shard; return the last batch absorbed from it, if any.

        A shard without an owner is recorded as the warehouse's. Raises UnrelatedStoresError or
        OtherLedgerError.
        """
        # Asked in each round, to notice a lost connection, another warehouse behind it, and one
        # whose data was replaced.
        identity, epoch, absorbed = await fence.owner(connection, state.epoch, shard.number)
        check_warehouse(state, identity)
        if epoch == "":
            await fence.set_shard(connection, shard.number, state.epoch)
        elif epoch != state.epoch:
            raise OtherLedgerError(
                "the shard's data set is not the one that the warehouse recorded"
            )
        if not state.warehouse:
            await shard.change(state.segment, warehouse=identity)
        return absorbed


def check_warehouse(state: ShardState, identity: str) -> None:
    """Raise UnrelatedStoresError if the ledger belongs to a warehouse other than `identity`."""
    if state.warehouse not in ("", identity):
        raise UnrelatedStoresError(
            f"the ledger belongs to the warehouse {state.warehouse}, but this one is"
            f" {identity}: set SNAPBID_DATABASE_URL and SNAPBID_REDIS_URL to stores that"
            " belong together, or take the ledger over with snapbid ledger adopt"
        )


async def take(connection: asyncpg.Connection, steps: Sequence[Step]) -> None:
    """Record in the warehouse that the batches of `steps` are absorbed.

    Raises SupersededError if the warehouse's data was replaced.
    """
    if not await fence.step(connection, steps):
        raise _replaced()


def _replaced() -> SupersededError:
    return SupersededError("the warehouse's data was replaced")


def _read(state: ShardState) -> Batch:
    return Batch(state.read, state.segment)


async def _compare(
    connection: asyncpg.Connection, shard: ShardCounters, state: ShardState
) -> tuple[ShardState, Batch]:
    """Check whether either store's data is older; if so, have all counters absorbed again.

    Returns the shard's resulting state, and the last batch that counts as absorbed.
    """
    absorbed = await fence.absorbed_batch(connection, state.epoch, shard.number)
    # A backup may predate the discovery that the ledger's data is older.
    await fence.outdate(connection, state.epoch, shard.number, state.outdated)
    last = state.read  # of that segment
    if absorbed.segment not in ("", state.segment):
        last = await shard.read_when_left(absorbed.segment)
    is_older, lacks_names = absorbed.number > last, absorbed.number < state.released
    await _check_former(connection, shard)
    if lacks_names:  # removed counters of past days may be there again
        await fence.close_forgotten(connection, state.epoch, shard.number, state.segment)
    if is_older or lacks_names:
        await shard.name_all()
    if is_older:
        state = await _outdate(connection, shard, state, absorbed.number)
        await take(connection, [Step(state.epoch, shard.number, absorbed, _read(state))])
        absorbed = _read(state)
    elif lacks_names:
        logger.warning(
            "absorbing all counters of shard %(shard)d again: the warehouse is older than the"
            " ledger, as after restoring a backup; recent days are corrected, earlier ones are not",
            {"shard": shard.number},
        )
        await shard.change(state.segment, released=absorbed.number)
        state = await shard.fetch_state()
    return state, absorbed


async def _check_former(connection: asyncpg.Connection, shard: ShardCounters) -> None:
    """Log an error if the warehouse is older than the last move of the ledger."""
    batches = await shard.fetch_former_batches()
    if batches and (lacking := await fence.lacking(connection, batches)):
        logger.error(
            "the warehouse lacks counts of the ledger before the move (shards %(shards)s): its data"
            " is older than the move, for example because a standby was promoted; to add them, run"
            " snapbid ledger adopt and snapbid drain on the old ledger, then adopt this one again",
            {"shards": ", ".join(map(str, lacking))},
        )


async def _outdate(
    connection: asyncpg.Connection, shard: ShardCounters, state: ShardState, absorbed: int
) -> ShardState:
    """Protect the figures from a shard whose data is older than the warehouse's.

    Marks the shard's budgets as not restored. Also marks its earlier runs as outdated, so that no
    figure is lowered and nothing is counted twice. Returns the shard's new state.
    """
    logger.warning(
        "fenced shard %(shard)d: the ledger's data ends with batch %(read)d, the warehouse's with"
        " batch %(absorbed)d; the warehouse keeps its figures, but bids made after batch %(read)d"
        " are lost",
        {"shard": shard.number, "absorbed": absorbed, "read": state.read},
    )
    known = await absorb.sources_of(connection, state.epoch, shard.number)
    if state.segment in known:  # data that was lost had counted in this run, and was absorbed
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
