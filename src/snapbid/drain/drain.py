"""The rounds of the drain, over one connection to the warehouse that holds its leases."""

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

from snapbid.base.repeats import RepeatedLog
from snapbid.base.tasks import end
from snapbid.drain.confirm import confirm
from snapbid.drain.counters import NOTHING, START, ShardCounters, ShardsAwayError
from snapbid.drain.fence import Fence, OtherLedgerError
from snapbid.drain.lags import LAGS
from snapbid.drain.leases import Leases
from snapbid.drain.names import CounterField, format_field, join
from snapbid.drain.ownership import own
from snapbid.drain.tidy import tidy
from snapbid.ledger.bids.segment import ShardState
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.metrics import Metrics
from snapbid.operations.golive.store import EvidenceStore
from snapbid.warehouse import absorb, leases
from snapbid.warehouse.absorb import Absorbed, SourceCounters
from snapbid.warehouse.fence import Batch

TIDY_EVERY_S: Final = 600.0
SUMMED: Final = 4  # shards in one statement
LANES: Final = 2  # groups of them: one is written, the other read meanwhile

logger = logging.getLogger("snapbid")
repeated = RepeatedLog(logger)


class _ShardRound:
    """A shard in a round."""

    def __init__(self, shard: ShardCounters) -> None:
        self.shard = shard
        self.reading = NOTHING  # the last batch
        self.batch = Batch(0, "")
        self.count = 0  # of the names aside, as far as they were read
        self.is_left = False  # more may have changed than was aside
        self.waiting: list[bytes] = []
        self.unknown = 0

    @property
    def has_more(self) -> bool:
        """Whether there is another batch, of what is aside or changed since."""
        return self.reading.place != START or self.is_left


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
        self._is_own = self._was_own = False  # the ledger is the warehouse's; it was before
        self._writing = asyncio.Lock()  # the connection is one group's at a time
        self._sources: dict[tuple[str, str, int], int] = {}
        self._sources_of: datetime.date | None = None
        self._taken_at: dict[int, float] = {}
        self._tidied_at: float | None = None
        self._unknown: dict[int, int] = {}
        self._unclaimed = {shard.number for shard in shards}
        self._leases = Leases(shards)
        self._leased_before: frozenset[int] = frozenset()
        self._rounds = metrics.counter("snapbid_drain_rounds_total")
        self._carried = metrics.counter("snapbid_drain_counters_total")
        self._lag = metrics.histogram("snapbid_drain_lag_seconds", LAGS)

    async def begin(self) -> None:
        """Take nothing for granted; before the first round, and after any failure."""
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
        """Do something with each shard, whichever of them are away; give their errors."""
        errors = {}
        for shard in shards:
            try:
                await work(shard)
            except RedisError as error:
                errors[shard.number] = error
        self._unclaimed |= errors.keys()
        return errors

    async def round(self, connection: asyncpg.Connection) -> int:
        """Absorb all that has changed until now in this drain's shards; give how many counters.

        Raises what Redis and the warehouse raise, SupersededError and UnrelatedStoresError; `begin`
        again then. Raises IdleError where other drains have all shards, ShardsAwayError where only
        some shards are away: the next round tries them again.
        """
        if not self._is_own:
            await own(connection, self._shards, is_known=self._was_own)
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
        carried, more = await self._drain_all(connection, [s for s in shards if s.number in states])
        errors |= more
        self._leases.note({shard.number for shard in shards} - errors.keys(), errors)
        if shards and len(errors) == len(shards):
            raise errors[shards[0].number]
        if away := {**self._leases.lost, **errors}:  # a budget is spent in all shards
            states = {n: s for n, s in states.items() if n not in errors and s.is_carried}
        if not all(state.is_confirmed for state in states.values()):
            await self._confirm(connection, shards, states)
        if away:
            raise ShardsAwayError(away)
        await self._tidy_sometimes(connection, shards)
        return carried

    async def _leased(self, connection: asyncpg.Connection) -> list[ShardCounters]:
        """The shards that this drain carries."""
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
                raise ShardsAwayError(errors)

        now = self._clock()
        await confirm(connection, self._shards, states, self._budgets, absorb, now)

    async def _drain_all(
        self, connection: asyncpg.Connection, shards: Sequence[ShardCounters]
    ) -> tuple[int, dict[int, RedisError]]:
        """Absorb what has changed in groups of shards, some of which are read while others are
        written; give as `_drain`.
        """
        starts = range(0, len(shards), SUMMED)
        groups = iter([shards[start : start + SUMMED] for start in starts])
        carried, errors = 0, dict[int, RedisError]()

        async def work() -> None:
            nonlocal carried
            for group in groups:
                more, away = await self._drain(connection, group)
                carried += more
                errors.update(away)

        lanes = [asyncio.create_task(work()) for _ in range(LANES)]
        try:
            await asyncio.gather(*lanes)
        finally:
            await end(*lanes)
        return carried, errors

    async def _drain(
        self, connection: asyncpg.Connection, shards: Sequence[ShardCounters]
    ) -> tuple[int, dict[int, RedisError]]:
        """Absorb what has changed in some shards, summed; give how many counters had changed, and
        the errors of shards that are away.
        """
        started, taken_at = monotonic(), self._clock()
        parts = {shard.number: _ShardRound(shard) for shard in shards}
        carried, oldest = 0, started

        async def read(shard: ShardCounters) -> None:
            part = parts[shard.number]
            number = self._fence.next_batch(shard.number)
            is_first = part.reading.place == START
            part.reading = await shard.read(number, part.reading)
            part.batch = Batch(number, part.reading.segment)
            part.count += part.reading.size
            if is_first:
                part.is_left = part.reading.is_left
            await shard.note_seen(part.reading, self._clock())

        async def release(shard: ShardCounters) -> None:
            part = parts[shard.number]
            _report_strangers(part.reading.strangers)
            if part.reading.place == START:
                await shard.release(part.reading, part.count, part.batch.number, part.waiting)
                part.unknown += len(part.waiting)
                part.count, part.waiting = 0, []

        async def finish(shard: ShardCounters) -> None:
            await shard.finish(taken_at)
            self._taken_at[shard.number] = started
            self._report_unknown(shard.number, parts[shard.number].unknown)

        errors, active = dict[int, RedisError](), list(shards)
        while active:
            errors |= await self._each(active, read)
            active = [s for s in active if s.number not in errors and parts[s.number].count]
            async with self._writing:
                changed = await self._absorb_parts(connection, [parts[s.number] for s in active])
            if changed:
                oldest = min([oldest, *(self._taken_at[shard.number] for shard in active)])
            carried += changed
            errors |= await self._each(active, release)
            active = [s for s in active if s.number not in errors and parts[s.number].has_more]
        if carried:
            self._rounds.inc()
            self._carried.inc(carried)
            self._lag.observe(monotonic() - oldest)
        errors |= await self._each([s for s in shards if s.number not in errors], finish)
        return carried, errors

    async def _absorb_parts(
        self, connection: asyncpg.Connection, parts: Sequence["_ShardRound"]
    ) -> int:
        """Absorb what was read of each part; give how many counters had changed."""
        read = []
        for part in parts:
            for segment in part.reading.segments:
                source = await self._source(
                    connection, part.reading.epoch, segment.segment, part.shard
                )
                read.append(SourceCounters(source, part.batch, segment.counters))
        done = await self._absorb(connection, read) if read else Absorbed(0, [], is_stored=False)
        if done.grown and self._evidence is not None:
            with contextlib.suppress(RedisError):  # in another slot, and no accounting
                await self._evidence.write_notices(done.grown, int(self._clock()))
        if done.unknown:
            _keep(parts, done.unknown)
        for part in parts:
            is_stored = done.is_stored and bool(part.reading.segments)
            await self._fence.pass_batch(
                connection, part.shard.number, part.batch, is_absorbed=is_stored
            )
        return done.changed

    async def _absorb(
        self, connection: asyncpg.Connection, read: Sequence[SourceCounters]
    ) -> Absorbed:
        """As `absorb.absorb`; what the warehouse refuses is kept back, alone."""
        try:
            return await absorb.absorb(connection, read)
        except asyncpg.DataError as error:
            count = sum(len(each.counters) for each in read)
            if count == 1:
                (counter,) = (counter for each in read for counter in each.counters)
                repeated.error("the warehouse cannot hold %s: %s", counter, error)
                return Absorbed(0, [0], is_stored=False)
        half = count // 2
        first = await self._absorb(connection, _part_of(read, 0, half))
        second = await self._absorb(connection, _part_of(read, half, count))
        unknown = [*first.unknown, *(half + index for index in second.unknown)]
        grown = Counter(first.grown)
        grown.update(second.grown)
        changed, is_stored = first.changed + second.changed, first.is_stored and second.is_stored
        return Absorbed(changed, unknown, grown, is_stored)

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

    async def _tidy_sometimes(
        self, connection: asyncpg.Connection, shards: Iterable[ShardCounters]
    ) -> None:
        now = self._clock()
        if self._tidied_at is None or abs(now - self._tidied_at) >= TIDY_EVERY_S:
            for shard in shards:
                state = await shard.fetch_state()
                source = await self._source(connection, state.epoch, state.segment, shard)
                await tidy(connection, shard, state, source, self._today())
            self._tidied_at = now

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


def _keep(parts: Sequence[_ShardRound], indices: Iterable[int]) -> None:
    """Let the counters of these places, among all of the parts in a row, wait."""
    counters = [
        (part, segment.segment, counter)
        for part in parts
        for segment in part.reading.segments
        for counter in segment.counters
    ]
    for index in indices:
        part, segment, counter = counters[index]
        field = format_field(CounterField(counter.kind, counter.number, counter.reason))
        part.waiting.append(join(segment, counter.day.isoformat(), field))


def _part_of(read: Iterable[SourceCounters], start: int, end: int) -> list[SourceCounters]:
    """The counters of these places, among all in a row."""
    part = []
    for each in read:
        counters = each.counters[max(start, 0) : max(end, 0)]
        if counters:
            part.append(each._replace(counters=counters))
        start, end = start - len(each.counters), end - len(each.counters)
    return part


def _report_strangers(strangers: Sequence[bytes]) -> None:
    if strangers:
        repeated.error("%d names are no counters: %a", len(strangers), strangers[0][:60])
