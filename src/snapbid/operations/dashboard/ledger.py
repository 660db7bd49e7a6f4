"""Reads SSPs' traffic and the drain's backlog from Redis, for all machines.

No call keeps Redis busy for more than a fraction of a millisecond: counters are read by name, never
all counters of a day. Figures of unavailable shards are missing or outdated.
"""

import contextlib
import datetime
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.admin.parts import of_each, unavailable
from snapbid.ledger.bids.segment import fetch_segments
from snapbid.ledger.scripts import SPOOL_GIVEN_UP_MS
from snapbid.queues.queues import fetch_leftovers

FIELDS: Final = (b"b", b"w", b"p", b"i")  # names of settle.lua and records.py
SSPS_AT_ONCE: Final = 100
SILENT_MS: Final = 10_000  # without a heartbeat, of which there are four a second


class Standing(NamedTuple):
    """The state of a shard."""

    warehouse: str  # that owns it; "" if unknown
    is_confirmed: bool  # campaigns with a budget may bid
    is_unreplicated: bool = False  # it acknowledges writes without the required replica


def is_foreign(shard: Standing | None, warehouse: str | None) -> bool:
    """Return whether a shard is known to belong to another warehouse."""
    owner = "" if shard is None else shard.warehouse
    return bool(warehouse and owner and owner != warehouse)


class SilentProcesses(NamedTuple):
    """Server processes without a recent heartbeat.

    Such a process may still have spooled notices on disk, so expired holds are kept for a while.
    """

    processes: int
    left_s: float  # how much longer holds wait, by a clock that stops while nobody uses Redis


class Backlog(NamedTuple):
    """The work waiting for the drain, and the state of the shards."""

    counters: int
    behind_s: float | None  # None if no drain has ever finished a round
    entries: int  # in the event streams, also those left over from a ledger with more shards
    oldest_s: float  # age of the oldest entry
    shards: list[Standing | None]  # None if unavailable
    silent: SilentProcesses = SilentProcesses(0, 0.0)

    @property
    def unavailable(self) -> list[int]:
        """The numbers of the unavailable shards."""
        return unavailable(self.shards)

    @property
    def unreplicated(self) -> list[int]:
        """The numbers of the shards whose writes are acknowledged without a replica."""
        return [n for n, shard in enumerate(self.shards) if shard and shard.is_unreplicated]


class Traffic(NamedTuple):
    """An SSP's counts over a period."""

    bids: int  # answers with a bid
    wins: int
    cpm_micros: int  # sum over the wins
    imps: int

    def plus(self, other: "Traffic") -> "Traffic":
        return Traffic(*(a + b for a, b in zip(self, other, strict=True)))

    def at_least(self, other: "Traffic") -> "Traffic":
        """Return the higher of the two counts of each kind."""
        return Traffic(*map(max, self, other))


NOTHING: Final = Traffic(0, 0, 0, 0)


class _ShardBacklog(NamedTuple):
    counters: int
    drained_at: float | None
    entries: int
    oldest_ms: int | None
    standing: Standing
    silent: Mapping[bytes, int]  # remaining ms, by token


async def waiting(redis: Redis, shards: int, now: float) -> Backlog:
    """Fetch the drain's backlog and the shards' states; `now`: epoch s by the clock of Redis.

    Raises RedisError or OSError if no shard answers.
    """
    answers = await of_each(shards, lambda number: _waiting(redis, ShardKeys(number)))
    behind: list[float] | None = [0.0]
    for shard in answers:
        if shard is not None and shard.counters and behind is not None:
            at = shard.drained_at
            behind = None if at is None else [*behind, now - at]
    streams = [(shard.entries, shard.oldest_ms) for shard in answers if shard is not None]
    for number in await fetch_leftovers(redis, shards):
        with contextlib.suppress(RedisError, OSError):
            streams.append(await _events(redis, ShardKeys(number)))
    began = min((oldest for _, oldest in streams if oldest is not None), default=now * 1000)
    return Backlog(
        counters=sum(shard.counters for shard in answers if shard is not None),
        behind_s=None if behind is None else max(behind),
        entries=sum(entries for entries, _ in streams),
        oldest_s=max(now - began / 1000, 0.0),
        shards=[None if shard is None else shard.standing for shard in answers],
        silent=_longest([shard.silent for shard in answers if shard is not None]),
    )


def _longest(shards: Sequence[Mapping[bytes, int]]) -> SilentProcesses:
    """Count the silent processes that the shards know of, each once.

    `left_s` is the longest time for which a shard still keeps expired holds for a silent process.
    """
    tokens = {token for silent in shards for token in silent}
    left_ms = max((left for silent in shards for left in silent.values()), default=0)
    return SilentProcesses(len(tokens), left_ms / 1000)


async def _waiting(redis: Redis, keys: ShardKeys) -> _ShardBacklog:
    pipe = redis.pipeline(transaction=False)
    pipe.scard(keys.changed)
    pipe.scard(keys.taken)
    pipe.get(keys.drained_at)
    pipe.hmget(keys.state, "segment", "confirmed", "warehouse")
    pipe.hget(f"{keys.prefix}h", "clock")
    pipe.hgetall(keys.processes)
    pipe.exists(keys.unreplicated)
    changed, taken, at, state, clock, processes, alone = await pipe.execute()
    drained_at = None if at is None else float(at)
    entries, oldest = await _events(redis, keys)
    standing, silent = _standing(state, bool(alone)), _silent(int(clock or 0), processes)
    return _ShardBacklog(changed + taken, drained_at, entries, oldest, standing, silent)


def _silent(clock: int, processes: Mapping[bytes, bytes]) -> dict[bytes, int]:
    """Return how much longer (ms) expired holds are kept for each silent process (clock.lua).

    Leaves out processes for which holds are no longer kept, although the ledger lists these
    processes until its next write.
    """
    ages = {token: clock - int(marks.split()[1]) for token, marks in processes.items()}
    return {
        token: SPOOL_GIVEN_UP_MS - age
        for token, age in ages.items()
        if SILENT_MS < age < SPOOL_GIVEN_UP_MS
    }


async def _events(redis: Redis, keys: ShardKeys) -> tuple[int, int | None]:
    """Return the length of a shard's event stream, and the time of its oldest entry (epoch ms).

    The time is None if the stream is empty.
    """
    pipe = redis.pipeline(transaction=False)
    pipe.xlen(keys.events)
    pipe.xrange(keys.events, count=1)
    entries, oldest = await pipe.execute()
    return entries, int(oldest[0][0].partition(b"-")[0]) if oldest else None


def _standing(state: Sequence[bytes | None], is_unreplicated: bool) -> Standing:
    segment, confirmed, owner = state
    is_confirmed = segment is not None and segment == confirmed
    return Standing((owner or b"").decode(), is_confirmed, is_unreplicated)


async def traffic(
    redis: Redis, shard: int, day: datetime.date, numbers: Sequence[int]
) -> dict[int, Traffic]:
    """Read a shard's counters for a day, by SSP number. Raises RedisError."""
    totals: dict[int, Traffic] = dict.fromkeys(numbers, NOTHING)
    keys = ShardKeys(shard)
    segments = await fetch_segments(redis, keys)
    hashes = [keys.counters(segment, day.isoformat()) for segment in segments]
    for batch, key in product(_batched(numbers), hashes):
        fields = [b"%b:%d" % (kind, number) for number in batch for kind in FIELDS]
        values: Any = await redis.hmget(key, fields)
        for index, number in enumerate(batch):
            own = values[index * len(FIELDS) : (index + 1) * len(FIELDS)]
            totals[number] = totals[number].plus(Traffic(*(int(value or 0) for value in own)))
    return totals


class SspTraffic(NamedTuple):
    """An SSP's traffic today (UTC), and since this process started."""

    today: Traffic
    since: Traffic


class TrafficReader:
    """Reads SSPs' traffic repeatedly; an unavailable shard keeps its last known figures."""

    def __init__(self, redis: Redis, shards: int) -> None:
        self._redis = redis
        self._totals = [RunningTotals() for _ in range(shards)]
        never: tuple[datetime.date, Mapping[int, Traffic]] = (datetime.date.min, {})
        self._today = [never] * shards

    async def fetch(
        self, today: datetime.date, names: Mapping[int, str], drained: Mapping[int, Traffic]
    ) -> dict[str, SspTraffic]:
        """Return SSPs' traffic by name. Raises RedisError or OSError if no shard answers.

        `drained`: today's counts in the warehouse, by SSP number. Redis is ahead of them, unless
        the ledger has moved or lost its data today and so lacks earlier counts. For each of
        today's counts, the higher one is returned.
        """
        numbers = list(names)
        days = (today - datetime.timedelta(days=1), today)  # late notices count for yesterday

        async def ask(shard: int) -> dict[datetime.date, dict[int, Traffic]]:
            return {day: await traffic(self._redis, shard, day, numbers) for day in days}

        for shard, known in enumerate(await of_each(len(self._totals), ask)):
            if known is not None:
                self._totals[shard].add(known)
                self._today[shard] = today, known[today]
        of_today = [known for day, known in self._today if day == today]
        since = [totals.sums for totals in self._totals]
        return {
            name: SspTraffic(
                _sum(of_today, number).at_least(drained.get(number, NOTHING)), _sum(since, number)
            )
            for number, name in names.items()
        }


def _sum(shards: Iterable[Mapping[int, Traffic]], number: int) -> Traffic:
    total = NOTHING
    for shard in shards:
        total = total.plus(shard.get(number, NOTHING))
    return total


class RunningTotals:
    """Turns daily counters into totals that never decrease, counted from the first call."""

    def __init__(self) -> None:
        self._previous: dict[tuple[datetime.date, int], Traffic] | None = None
        self.sums: dict[int, Traffic] = {}  # by SSP number

    def add(self, days: Mapping[datetime.date, Mapping[int, Traffic]]) -> dict[int, Traffic]:
        """Add the counters' growth since the last call; return the totals by SSP number."""
        current = {
            (day, number): traffic for day, ssps in days.items() for number, traffic in ssps.items()
        }
        for key, now in current.items():
            before = now if self._previous is None else self._previous.get(key, NOTHING)
            if before.bids > now.bids:  # Redis has lost its data
                before = NOTHING
            grown = Traffic(*(max(b - a, 0) for a, b in zip(before, now, strict=True)))
            self.sums[key[1]] = self.sums.get(key[1], NOTHING).plus(grown)
        self._previous = current
        return self.sums


def _batched(numbers: Sequence[int]) -> list[Sequence[int]]:
    return [numbers[start : start + SSPS_AT_ONCE] for start in range(0, len(numbers), SSPS_AT_ONCE)]
