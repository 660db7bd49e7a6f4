"""The rounds of the drain, over one connection to the warehouse that holds its leases."""

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
from snapbid.drain.confirm import confirm
from snapbid.drain.counters import ShardCounters, ShardsAwayError
from snapbid.drain.fence import Fence
from snapbid.drain.lags import LAGS
from snapbid.drain.leases import Leases
from snapbid.drain.tidy import tidy
from snapbid.golive.store import EvidenceStore
from snapbid.ledger.budgets import Budgets
from snapbid.ledger.segment import ShardState
from snapbid.metrics import Metrics
from snapbid.warehouse import absorb
from snapbid.warehouse.absorb import Absorbed, CounterValue

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
        shards = await self._leased(connection)
        states: dict[int, ShardState] = {}
        carried = 0

        async def check(shard: ShardCounters) -> None:
            await self._claim(shard)
            states[shard.number] = await self._fence.check(connection, shard)

        async def drain(shard: ShardCounters) -> None:
            nonlocal carried
            carried += await self._drain(connection, shard)

        errors = await self._each(shards, check)
        errors |= await self._each([s for s in shards if s.number not in errors], drain)
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
            for shard in shards:
                await self._drain(connection, shard)

        now = self._clock()
        await confirm(connection, self._shards, states, self._budgets, absorb, now)

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


def _report_strangers(names: Sequence[bytes]) -> None:
    strangers = [name for name in names if counter_names.parse(name) is None]
    if strangers:
        logger.error("%d names are no counters: %a", len(strangers), strangers[0][:60])
