"""The rounds of the drain, over one connection to the warehouse that holds the drain's place."""

import datetime
import logging
from collections.abc import Callable, Sequence
from time import monotonic, time
from typing import Final

import asyncpg

from snapbid.drain.shard import Shard, is_counter
from snapbid.metrics import Metrics
from snapbid.warehouse import absorb
from snapbid.warehouse.absorb import Absorbed, Counter

KEPT_DAYS: Final = 3  # a day's counters stay in Redis until so many days later
RETIRED_DAYS: Final = 35  # after which lost Redis data is taken to be lost for good
TIDY_EVERY_S: Final = 600.0
LAGS: Final = (0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600)

logger = logging.getLogger("snapbid")


class Drain:
    """Carries what the shards have counted; `clock` gives epoch seconds."""

    def __init__(
        self, shards: Sequence[Shard], metrics: Metrics, clock: Callable[[], float] = time
    ) -> None:
        self._shards = shards
        self._clock = clock
        self._sources: dict[tuple[str, int], int] = {}
        self._sources_of: datetime.date | None = None
        self._taken_at = [monotonic()] * len(shards)
        self._tidied_at: float | None = None
        self._unknown: dict[int, int] = {}
        self._rounds = metrics.counter("snapbid_drain_rounds_total")
        self._carried = metrics.counter("snapbid_drain_counters_total")
        self._lag = metrics.histogram("snapbid_drain_lag_seconds", LAGS)

    async def begin(self) -> None:
        """Announce this drain to every shard; before the first round, and after any failure."""
        self._sources.clear()
        for shard in self._shards:
            await shard.claim()

    async def round(self, connection: asyncpg.Connection) -> int:
        """Absorb all that has changed until now; give how many counters had.

        Raises what Redis and the warehouse raise, and SupersededError; it can be repeated then.
        """
        carried = 0
        for shard in self._shards:
            carried += await self._drain(connection, shard)
        await self._tidy_sometimes(connection)
        return carried

    async def _drain(self, connection: asyncpg.Connection, shard: Shard) -> int:
        started, taken_at = monotonic(), self._clock()
        carried = unknown = 0
        left = True
        while left:  # what another drain has not finished, first
            names, left = await shard.take()
            while names:
                done = await self._carry(connection, shard, names)
                carried += done.changed
                unknown += len(done.unknown)
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
        self, connection: asyncpg.Connection, shard: Shard, names: Sequence[bytes]
    ) -> Absorbed:
        """One transaction with what the names stand for."""
        reading = await shard.read(names)
        await shard.see(reading, self._clock())
        source = await self._source(connection, reading.epoch, shard)
        done = await self._absorb(connection, source, reading.counters)
        await shard.release(names, [reading.names[place] for place in done.unknown])
        _report_strangers(names)
        return done

    async def _absorb(
        self, connection: asyncpg.Connection, source: int, counters: Sequence[Counter]
    ) -> Absorbed:
        """As `absorb.absorb`; what the warehouse refuses is kept back, alone."""
        if not counters:
            return Absorbed(0, [])
        try:
            return await absorb.absorb(connection, source, counters)
        except asyncpg.DataError as error:
            if len(counters) == 1:
                logger.error("the warehouse cannot hold %s: %s", counters[0], error)
                return Absorbed(0, [0])
        half = len(counters) // 2
        first = await self._absorb(connection, source, counters[:half])
        second = await self._absorb(connection, source, counters[half:])
        unknown = [*first.unknown, *(half + place for place in second.unknown)]
        return Absorbed(first.changed + second.changed, unknown)

    async def _source(self, connection: asyncpg.Connection, epoch: str, shard: Shard) -> int:
        today = self._today()
        if today != self._sources_of:
            self._sources.clear()
            self._sources_of = today
        found = self._sources.get((epoch, shard.number))
        if found is None:
            found = await absorb.source_of(connection, epoch, shard.number, today)
            self._sources[epoch, shard.number] = found
        return found

    # -- what is over ------------------------------------------------------------------------

    async def _tidy_sometimes(self, connection: asyncpg.Connection) -> None:
        now = self._clock()
        if self._tidied_at is None or abs(now - self._tidied_at) >= TIDY_EVERY_S:
            for shard in self._shards:
                await self._tidy(connection, shard)
            self._tidied_at = now

    async def _tidy(self, connection: asyncpg.Connection, shard: Shard) -> None:
        """Remove the counters of days that are over, and what was absorbed of them.

        The counters go first, and their generation with them: should the day be counted in again
        (a notice from a spool, say), that is absorbed as new, whether the second step was reached
        or not.
        """
        epoch = await shard.epoch()
        source = await self._source(connection, epoch, shard)
        over = self._today() - datetime.timedelta(days=KEPT_DAYS - 1)

        async def check(counters: Sequence[Counter]) -> list[int]:
            return await absorb.differing(connection, source, counters)

        for day in await absorb.days_before(connection, source, over):
            generation = await shard.remove_day(day, epoch, check)
            if generation is not None:
                await absorb.forget(connection, source, day, generation)
        unseen_since = self._today() - datetime.timedelta(days=RETIRED_DAYS)
        await absorb.retire(connection, source, unseen_since, self._today())

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
    strangers = [name for name in names if not is_counter(name)]
    if strangers:
        logger.error("%d names are no counters: %a", len(strangers), strangers[0][:60])
