"""The rounds of the drain, over one connection to the warehouse that holds the drain's place."""

import contextlib
import datetime
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import monotonic, time
from typing import Final

import asyncpg
from redis.exceptions import RedisError

from snapbid.drain import names as counter_names
from snapbid.drain import spend
from snapbid.drain.counters import ShardCounters, ShardsAwayError
from snapbid.drain.fence import Fence
from snapbid.drain.lags import LAGS
from snapbid.golive.store import EvidenceStore
from snapbid.ledger.budgets import Budgets
from snapbid.ledger.segment import ShardState
from snapbid.metrics import Metrics
from snapbid.warehouse import absorb
from snapbid.warehouse.absorb import Absorbed, CounterValue

KEPT_DAYS: Final = 3  # a day's counters stay in Redis until so many days later
RETIRED_DAYS: Final = 35  # after which lost Redis data is taken to be lost for good
TIDY_EVERY_S: Final = 600.0

logger = logging.getLogger("snapbid")


class Drain:
    """Carries what the shards have counted; `clock` gives epoch seconds.

    `evidence` is given what has been counted of notices, for the last minutes' diagnosis.
    """

    def __init__(
        self,
        shards: Sequence[ShardCounters],
        budgets: Budgets,
        metrics: Metrics,
        clock: Callable[[], float] = time,
        evidence: EvidenceStore | None = None,
    ) -> None:
        self._shards = shards
        self._evidence = evidence
        self._budgets = budgets
        self._clock = clock
        self._fence = Fence()
        self._sources: dict[tuple[str, str, int], int] = {}
        self._sources_of: datetime.date | None = None
        self._taken_at = [monotonic()] * len(shards)
        self._tidied_at: float | None = None
        self._unknown: dict[int, int] = {}
        self._unclaimed = {shard.number for shard in shards}
        self._rounds = metrics.counter("snapbid_drain_rounds_total")
        self._carried = metrics.counter("snapbid_drain_counters_total")
        self._lag = metrics.histogram("snapbid_drain_lag_seconds", LAGS)

    async def begin(self) -> None:
        """Announce this drain to every shard; before the first round, and after any failure."""
        self._sources.clear()
        self._fence.reset()
        self._unclaimed = {shard.number for shard in self._shards}
        self._check(await self._each(self._shards, self._claim))

    async def _claim(self, shard: ShardCounters) -> None:
        if shard.number in self._unclaimed:
            self._fence.reset_shard(shard.number)
            await shard.claim()
            self._unclaimed.remove(shard.number)

    async def _each(
        self, shards: Iterable[ShardCounters], work: Callable[[ShardCounters], Awaitable[object]]
    ) -> dict[int, RedisError]:
        """Do something with each shard, whichever of them are away; give their errors."""
        errors = {}
        for shard in shards:
            try:
                await work(shard)
            except RedisError as error:
                errors[shard.number] = error
        self._unclaimed |= errors.keys()
        return errors

    def _check(self, errors: Mapping[int, RedisError]) -> None:
        """Raise an error where all shards are away."""
        if len(errors) == len(self._shards):
            raise errors[self._shards[0].number]

    async def round(self, connection: asyncpg.Connection) -> int:
        """Absorb all that has changed until now; give how many counters had.

        Raises what Redis and the warehouse raise, SupersededError and UnrelatedStoresError; `begin`
        again then. Raises ShardsAwayError where only some shards are away: the next round tries
        them again. New segments wait for all shards, since a budget is spent in all of them.
        """
        states: dict[int, ShardState] = {}
        carried = 0

        async def check(shard: ShardCounters) -> None:
            await self._claim(shard)
            states[shard.number] = await self._fence.check(connection, shard)

        async def drain(shard: ShardCounters) -> None:
            nonlocal carried
            carried += await self._drain(connection, shard)

        errors = await self._each(self._shards, check)
        errors |= await self._each([s for s in self._shards if s.number not in errors], drain)
        self._check(errors)
        if errors:
            raise ShardsAwayError(errors)
        if not all(state.is_confirmed for state in states.values()):
            await self._confirm(connection, list(states.values()))
        await self._tidy_sometimes(connection)
        return carried

    async def _drain_all(self, connection: asyncpg.Connection) -> int:
        return sum([await self._drain(connection, shard) for shard in self._shards])

    async def _confirm(self, connection: asyncpg.Connection, states: Sequence[ShardState]) -> None:
        """Let budgeted campaigns bid in the segments that have begun."""
        if not all(state.is_carried for state in states):

            async def absorb() -> int:
                return await self._drain_all(connection)

            now = self._clock()
            await spend.carry(connection, self._shards, states, self._budgets, absorb, now)
        for shard, state in zip(self._shards, states, strict=True):
            await shard.change(state.segment, confirmed=state.segment, carried=1)

    async def _drain(self, connection: asyncpg.Connection, shard: ShardCounters) -> int:
        started, taken_at = monotonic(), self._clock()
        carried = unknown = 0
        left = True
        while left:  # what another drain has not finished, first
            names, left = await shard.take()
            while names:
                changed, waiting = await self._carry(connection, shard, names)
                carried += changed
                unknown += waiting
                names = await shard.more()
        if carried:
            self._rounds.inc()
            self._carried.inc(carried)
            self._lag.observe(monotonic() - self._taken_at[shard.number])
        self._taken_at[shard.number] = started
        await shard.finish(taken_at)
        self._report_unknown(shard.number, unknown)
        return carried

    async def _carry(
        self, connection: asyncpg.Connection, shard: ShardCounters, names: Sequence[bytes]
    ) -> tuple[int, int]:
        """One batch: absorb what the names stand for. Give how many had changed, and how many wait
        for a name of their number.
        """
        batch = self._fence.next_batch(shard.number)
        reading = await shard.read(names, batch)
        await shard.note_seen(reading, self._clock())
        changed, waiting = 0, []
        for segment in reading.segments:
            source = await self._source(connection, reading.epoch, segment.segment, shard)
            done = await self._absorb(connection, source, segment.counters, batch)
            changed += done.changed
            if done.grown and self._evidence is not None:
                with contextlib.suppress(RedisError):  # in another slot, and no accounting
                    await self._evidence.write_notices(done.grown, int(self._clock()))
            waiting += [segment.names[index] for index in done.unknown]
        await self._fence.pass_batch(connection, shard.number, is_absorbed=changed > 0)
        await shard.release(names, waiting, batch)
        _report_strangers(names)
        return changed, len(waiting)

    async def _absorb(
        self,
        connection: asyncpg.Connection,
        source: int,
        counters: Sequence[CounterValue],
        batch: int,
    ) -> Absorbed:
        """As `absorb.absorb`; what the warehouse refuses is kept back, alone."""
        try:
            return await absorb.absorb(connection, source, counters, batch)
        except asyncpg.DataError as error:
            if len(counters) == 1:
                logger.error("the warehouse cannot hold %s: %s", counters[0], error)
                return Absorbed(0, [0])
        half = len(counters) // 2
        first = await self._absorb(connection, source, counters[:half], batch)
        second = await self._absorb(connection, source, counters[half:], batch)
        unknown = [*first.unknown, *(half + index for index in second.unknown)]
        grown = Counter(first.grown)
        grown.update(second.grown)
        return Absorbed(first.changed + second.changed, unknown, grown)

    async def _source(
        self, connection: asyncpg.Connection, epoch: str, segment: str, shard: ShardCounters
    ) -> int:
        today = self._today()
        if today != self._sources_of:
            self._sources.clear()
            self._sources_of = today
        key = (epoch, segment, shard.number)
        source = self._sources.get(key)
        if source is None:
            source = await absorb.source_of(connection, *key, today)
            self._sources[key] = source
        return source

    # -- what is over ------------------------------------------------------------------------

    async def _tidy_sometimes(self, connection: asyncpg.Connection) -> None:
        now = self._clock()
        if self._tidied_at is None or abs(now - self._tidied_at) >= TIDY_EVERY_S:
            for shard in self._shards:
                await self._tidy(connection, shard)
            self._tidied_at = now

    async def _tidy(self, connection: asyncpg.Connection, shard: ShardCounters) -> None:
        """Remove the counters of days that are over, and what was absorbed of them.

        The counters go first, and their generation with them: should the day be counted in again
        (a notice from a spool, say), that is absorbed as new, whether the second step was reached
        or not.
        """
        state = await shard.fetch_state()
        listed = set(await shard.fetch_segments())
        current = await self._source(connection, state.epoch, state.segment, shard)
        sources = await absorb.sources_of(connection, state.epoch, shard.number)
        empty = listed - {state.segment}
        for segment, source in sources.items():
            if await self._tidy_segment(connection, shard, state.epoch, segment, source):
                empty.discard(segment)
        if empty:
            await shard.drop_segments(empty)
        unseen_since = self._today() - datetime.timedelta(days=RETIRED_DAYS)
        await absorb.retire(connection, current, unseen_since, self._today())

    async def _tidy_segment(
        self,
        connection: asyncpg.Connection,
        shard: ShardCounters,
        epoch: str,
        segment: str,
        source: int,
    ) -> bool:
        """Whether the segment has counters left."""

        async def check(counters: Sequence[CounterValue]) -> list[int]:
            return await absorb.differing(connection, source, counters)

        over = self._today() - datetime.timedelta(days=KEPT_DAYS - 1)
        days = await absorb.days_before(connection, source, datetime.date.max)
        is_left = False
        for day in days:
            generation = None
            if day < over:
                generation = await shard.remove_day(segment, day, epoch, check)
            if generation is None:
                is_left = True
            else:
                await absorb.forget(connection, source, day, generation)
        return is_left

    def _today(self) -> datetime.date:
        return datetime.datetime.fromtimestamp(self._clock(), datetime.UTC).date()

    # -- what is told ------------------------------------------------------------------------

    def _report_unknown(self, shard: int, unknown: int) -> None:
        if unknown and unknown != self._unknown.get(shard):
            logger.warning(
                "%d counters of shard %d wait: the warehouse does not know their numbers",
                unknown,
                shard,
            )
        self._unknown[shard] = unknown


def _report_strangers(names: Sequence[bytes]) -> None:
    strangers = [name for name in names if counter_names.parse(name) is None]
    if strangers:
        logger.error("%d names are no counters: %a", len(strangers), strangers[0][:60])
