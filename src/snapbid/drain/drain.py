"""The rounds that drain counters, over the one warehouse connection that holds the leases."""

import asyncio
import contextlib
import datetime
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import monotonic, time
from typing import Final

import asyncpg
from redis.exceptions import RedisError

from snapbid.base.days import utc_day
from snapbid.base.repeats import RepeatedLog
from snapbid.base.tasks import end
from snapbid.drain.confirm import confirm
from snapbid.drain.counters import NOTHING, START, ShardCounters, ShardsUnavailableError
from snapbid.drain.fence import Fence, OtherLedgerError, take
from snapbid.drain.leases import Leases
from snapbid.drain.names import CounterField, format_field, join
from snapbid.drain.ownership import own
from snapbid.drain.tidy import tidy
from snapbid.ledger.bids.segment import ShardState
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.metrics import Metrics
from snapbid.operations.golive.store import RequestStatsStore
from snapbid.warehouse import absorb, leases
from snapbid.warehouse.absorb import Absorbed, SourceCounters
from snapbid.warehouse.fence import Batch, Step

LAGS: Final = (0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600)  # s; buckets of histograms
TIDY_EVERY_S: Final = 600.0
SUMMED: Final = 4  # shards in one statement: a group
GROUPS: Final = 2  # at a time: one is written while the other is read

logger = logging.getLogger(__name__)
repeated = RepeatedLog(logger)


class _ShardRound:
    """The progress of one shard in a round."""

    def __init__(self, shard: ShardCounters) -> None:
        self.shard = shard
        self.reading = NOTHING  # the last batch
        self.taken_at = 0.0  # of the first batch, by the clock of Redis (epoch s)
        self.batch = Batch(0, "")
        self.count = 0  # names read so far, of those set aside
        self.is_left = False  # more may have changed than was set aside
        self.deferred: list[bytes] = []
        self.unknown = 0

    @property
    def has_more(self) -> bool:
        """Whether names of changed counters are left for another batch."""
        return self.reading.cursor != START or self.is_left


class Drain:
    """The drain of shards' counters into the warehouse; `clock` returns epoch seconds.

    Counted notices are also added to `request_stats`, for the diagnosis of recent traffic.
    """

    def __init__(
        self,
        shards: Sequence[ShardCounters],
        budgets: Budgets,
        metrics: Metrics,
        clock: Callable[[], float] = time,
        request_stats: RequestStatsStore | None = None,
    ) -> None:
        self._shards = shards
        self._request_stats = request_stats
        self._budgets = budgets
        self._clock = clock
        self._fence = Fence()
        self._is_own = self._was_own = False  # whether the ledger belongs to the warehouse
        self._writing = asyncio.Lock()  # one group at a time uses the connection
        self._sources: dict[tuple[str, str, int], int] = {}
        self._sources_of: datetime.date | None = None
        self._taken_at: dict[int, float] = {}
        self._tidied_at: float | None = None
        self._unknown: dict[int, int] = {}
        self._unclaimed = {shard.number for shard in shards}
        self._leases = Leases(shards)
        self._leased_before: frozenset[int] = frozenset()
        self._rounds = metrics.counter("snapbid_drain_rounds_total")
        self._drained = metrics.counter("snapbid_drain_counters_total")
        self._lag = metrics.histogram("snapbid_drain_lag_seconds", LAGS)

    async def begin(self) -> None:
        """Discard cached state of both stores; call before the first round and after failures."""
        self._sources.clear()
        self._fence.reset()
        self._is_own = False
        self._unclaimed = {shard.number for shard in self._shards}

    async def _claim(self, shard: ShardCounters) -> None:
        if shard.number in self._unclaimed:
            self._fence.reset_shard(shard.number)
            await shard.claim()
            self._unclaimed.remove(shard.number)

    async def _each(
        self, shards: Iterable[ShardCounters], work: Callable[[ShardCounters], Awaitable[object]]
    ) -> dict[int, RedisError]:
        """Apply `work` to each shard; return the errors of unavailable shards, by number."""
        errors = {}
        for shard in shards:
            try:
                await work(shard)
            except RedisError as error:
                errors[shard.number] = error
        self._unclaimed |= errors.keys()
        return errors

    async def round(self, connection: asyncpg.Connection) -> int:
        """Absorb all changes so far in this drain's shards; return how many counters changed.

        Raises the errors of Redis and the warehouse, SupersededError and UnrelatedStoresError;
        after these, call `begin` before the next round. Raises IdleError if other drains have all
        shards, and ShardsUnavailableError if some shards are unavailable; the next round tries
        those again.
        """
        if not self._is_own:
            try:
                await own(connection, self._shards, is_known=self._was_own)
            except ShardsUnavailableError:  # other drains wait for these leases, as we for theirs
                await leases.release(connection, (await leases.look(connection)).mine)
                raise
            self._is_own = self._was_own = True
        shards = await self._leased(connection)
        states: dict[int, ShardState] = {}

        async def check(shard: ShardCounters) -> None:
            await self._claim(shard)
            states[shard.number] = await self._fence.check(connection, shard)

        errors = await self._each(shards, check)
        if any(isinstance(error, OtherLedgerError) for error in errors.values()):
            self._is_own = False
            await leases.release(connection, self._leased_before)
            return await self.round(connection)
        drained, more = await self._drain_all(connection, [s for s in shards if s.number in states])
        errors |= more
        self._leases.note({shard.number for shard in shards} - errors.keys(), errors)
        if shards and len(errors) == len(shards):
            raise errors[shards[0].number]
        if unavailable := {**self._leases.lost, **errors}:  # a budget is spent in all shards
            states = {n: s for n, s in states.items() if n not in errors and s.is_carried}
        if not all(state.is_confirmed for state in states.values()):
            await self._confirm(connection, shards, states)
        if unavailable:
            raise ShardsUnavailableError(unavailable)
        await self._tidy_sometimes(connection, shards)
        return drained

    async def _leased(self, connection: asyncpg.Connection) -> list[ShardCounters]:
        """Return the shards whose leases this drain holds."""
        numbers = await self._leases.share(connection)
        for number in numbers - self._leased_before:  # another drain may have had them
            self._unclaimed.add(number)
            self._taken_at[number] = monotonic()
        self._leased_before = numbers
        return [shard for shard in self._shards if shard.number in numbers]

    async def _confirm(
        self,
        connection: asyncpg.Connection,
        shards: Sequence[ShardCounters],
        states: Mapping[int, ShardState],
    ) -> None:
        async def absorb() -> None:
            _, errors = await self._drain_all(connection, shards)
            if errors:
                raise ShardsUnavailableError(errors)

        now = self._clock()
        await confirm(connection, self._shards, states, self._budgets, absorb, now)

    async def _drain_all(
        self, connection: asyncpg.Connection, shards: Sequence[ShardCounters]
    ) -> tuple[int, dict[int, RedisError]]:
        """Absorb the changed counters of all shards, reading one group while another is written.

        Return how many counters changed, and the errors of unavailable shards.
        """
        starts = range(0, len(shards), SUMMED)
        groups = iter([shards[start : start + SUMMED] for start in starts])
        drained, errors = 0, dict[int, RedisError]()

        async def work() -> None:
            nonlocal drained
            for group in groups:
                more, unavailable = await self._drain(connection, group)
                drained += more
                errors.update(unavailable)

        tasks = [asyncio.create_task(work()) for _ in range(GROUPS)]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end(*tasks)
        return drained, errors

    async def _drain(
        self, connection: asyncpg.Connection, shards: Sequence[ShardCounters]
    ) -> tuple[int, dict[int, RedisError]]:
        """Absorb the changed counters of a group of shards.

        Redis then no longer lists these counters as changed. Return how many counters changed, and
        the errors of unavailable shards.
        """
        started = monotonic()
        parts = {shard.number: _ShardRound(shard) for shard in shards}
        drained, oldest = 0, started

        async def read(shard: ShardCounters) -> None:
            part = parts[shard.number]
            number = self._fence.next_batch(shard.number)
            is_first = part.reading.cursor == START
            part.reading = await shard.read(number, part.reading)
            part.taken_at = part.taken_at or part.reading.at
            part.batch = Batch(number, part.reading.segment)
            part.count += part.reading.size
            if is_first:
                part.is_left = part.reading.is_left
            await shard.note_seen(part.reading, self._clock())

        async def release(shard: ShardCounters) -> None:
            part = parts[shard.number]
            _log_malformed(shard.number, part.reading.malformed)
            if part.reading.cursor == START:
                await shard.release(part.reading, part.count, part.batch.number, part.deferred)
                part.unknown += len(part.deferred)
                part.count, part.deferred = 0, []

        async def finish(shard: ShardCounters) -> None:
            await shard.finish(parts[shard.number].taken_at)
            self._taken_at[shard.number] = started
            self._log_unknown(shard.number, parts[shard.number].unknown)

        errors, active = dict[int, RedisError](), list(shards)
        while active:
            errors |= await self._each(active, read)
            active = [s for s in active if s.number not in errors and parts[s.number].count]
            async with self._writing:
                changed = await self._absorb_parts(connection, [parts[s.number] for s in active])
            if changed:
                oldest = min([oldest, *(self._taken_at[shard.number] for shard in active)])
            drained += changed
            errors |= await self._each(active, release)
            active = [s for s in active if s.number not in errors and parts[s.number].has_more]
        if drained:
            self._rounds.inc()
            self._drained.inc(drained)
            self._lag.observe(monotonic() - oldest)
        errors |= await self._each([s for s in shards if s.number not in errors], finish)
        return drained, errors

    async def _absorb_parts(
        self, connection: asyncpg.Connection, parts: Sequence["_ShardRound"]
    ) -> int:
        """Absorb the batch read from each shard; return how many counters changed."""
        if not parts:
            return 0
        read = []
        for part in parts:
            for segment in part.reading.segments:
                source = await self._source(
                    connection, part.reading.epoch, segment.segment, part.shard
                )
                read.append(SourceCounters(source, segment.counters))
        steps = [self._fence.step(part.shard.number, part.batch) for part in parts]
        done = await self._absorb(connection, read, steps)
        if done.grown and self._request_stats is not None:
            with contextlib.suppress(RedisError):  # in another slot, and not accounting
                await self._request_stats.write_notices(done.grown, int(self._clock()))
        if done.unknown:
            _defer(parts, done.unknown)
        self._fence.note(steps)
        return done.changed

    async def _absorb(
        self,
        connection: asyncpg.Connection,
        read: Sequence[SourceCounters],
        steps: Sequence[Step],
    ) -> Absorbed:
        """Absorb a batch; if the warehouse refuses it, bisect it and defer the bad counters."""
        try:
            async with connection.transaction():
                await take(connection, steps)
                return await absorb.absorb(connection, read)
        except asyncpg.DataError as error:
            count = sum(len(each.counters) for each in read)
            if count == 1:
                (counter,) = (counter for each in read for counter in each.counters)
                repeated.error(
                    "deferred 1 counter: the warehouse cannot store %(counter)s: %(reason)s",
                    {"counter": counter, "reason": error},
                )
                await take(connection, steps)
                return Absorbed(0, [0])
        half = count // 2
        first = await self._absorb(connection, _part_of(read, 0, half), steps)
        second = await self._absorb(connection, _part_of(read, half, count), steps)
        unknown = [*first.unknown, *(half + index for index in second.unknown)]
        grown = Counter(first.grown)
        grown.update(second.grown)
        return Absorbed(first.changed + second.changed, unknown, grown)

    async def _source(
        self, connection: asyncpg.Connection, epoch: str, segment: str, shard: ShardCounters
    ) -> int:
        today = utc_day(self._clock())
        if today != self._sources_of:
            self._sources.clear()
            self._sources_of = today
        key = (epoch, segment, shard.number)
        source = self._sources.get(key)
        if source is None:
            source = await absorb.source_of(connection, *key, today)
            self._sources[key] = source
        return source

    async def _tidy_sometimes(
        self, connection: asyncpg.Connection, shards: Iterable[ShardCounters]
    ) -> None:
        now = self._clock()
        if self._tidied_at is None or abs(now - self._tidied_at) >= TIDY_EVERY_S:
            for shard in shards:
                state = await shard.fetch_state()
                source = await self._source(connection, state.epoch, state.segment, shard)
                await tidy(connection, shard, state, source, utc_day(self._clock()))
            self._tidied_at = now

    def _log_unknown(self, shard: int, unknown: int) -> None:
        if unknown and unknown != self._unknown.get(shard):
            logger.warning(
                "deferred %(counters)d counters of shard %(shard)d: SSP or campaign unknown to the"
                " warehouse",
                {"counters": unknown, "shard": shard},
            )
        self._unknown[shard] = unknown


def _defer(parts: Sequence[_ShardRound], indices: Iterable[int]) -> None:
    """Defer counters to a later round; `indices`: positions in the joined batches of all parts."""
    counters = [
        (part, segment.segment, counter)
        for part in parts
        for segment in part.reading.segments
        for counter in segment.counters
    ]
    for index in indices:
        part, segment, counter = counters[index]
        field = format_field(CounterField(counter.kind, counter.number, counter.reason))
        part.deferred.append(join(segment, counter.day.isoformat(), field))


def _part_of(read: Iterable[SourceCounters], start: int, end: int) -> list[SourceCounters]:
    """Return the slice `start:end` of the sources' counters, taken as one concatenated list."""
    part = []
    for each in read:
        counters = each.counters[max(start, 0) : max(end, 0)]
        if counters:
            part.append(each._replace(counters=counters))
        start, end = start - len(each.counters), end - len(each.counters)
    return part


def _log_malformed(shard: int, names: Sequence[bytes]) -> None:
    if names:
        repeated.error(
            "dropped %(names)d malformed counter names of shard %(shard)d, such as %(first)a",
            {"names": len(names), "shard": shard, "first": names[0][:60]},
        )
