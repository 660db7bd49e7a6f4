"""Figures from Redis, of all machines: SSPs' traffic, and the backlog of the drain.

Nothing here takes Redis more than a fraction
of a millisecond at a time: counts are asked for by name, never a whole day.
"""

import datetime
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis

from snapbid.ledger.keys import EVENT_STREAM, ShardKeys
from snapbid.ledger.segment import fetch_segments

FIELDS: Final = (b"b", b"w", b"p", b"i")  # as settle.lua and batch.py name an SSP's counters
SSPS_AT_ONCE: Final = 100


class Standing(NamedTuple):
    """Whose numbers a shard has ("": nobody has said so), and whether budgets may bid."""

    warehouse: str
    is_confirmed: bool


def is_foreign(shard: Standing, warehouse: str | None) -> bool:
    """Whether a shard is known to belong to another warehouse than this one."""
    return bool(warehouse and shard.warehouse and shard.warehouse != warehouse)


class Backlog(NamedTuple):
    """`counters` and stream `entries` that the drain has yet to carry, and how old they may be (s).

    `behind_s` is None where no drain has recorded when it finished.
    """

    counters: int
    behind_s: float | None
    entries: int
    oldest_s: float
    shards: list[Standing]


class Traffic(NamedTuple):
    """An SSP's answers with bids, wins, sum of their CPM in micro-USD, and impressions."""

    bids: int
    wins: int
    cpm_micros: int
    imps: int

    def plus(self, other: "Traffic") -> "Traffic":
        return Traffic(*(a + b for a, b in zip(self, other, strict=True)))


NOTHING: Final = Traffic(0, 0, 0, 0)


async def waiting(redis: Redis, shards: int, now: float) -> Backlog:
    """Return what waits at `now` (epoch s). Raises RedisError."""
    counters, behind, standing = 0, [0.0], []
    unknown = False
    for keys in map(ShardKeys, range(shards)):
        pipe = redis.pipeline(transaction=False)
        pipe.scard(keys.changed)
        pipe.scard(keys.taken)
        pipe.get(keys.drained_at)
        pipe.hmget(keys.state, "segment", "confirmed", "warehouse")
        changed, taken, at, state = await pipe.execute()
        standing.append(_standing(*state))
        if changed or taken:
            counters += changed + taken
            unknown = unknown or at is None
            behind.append(now - float(at or now))
    pipe = redis.pipeline(transaction=False)
    pipe.xlen(EVENT_STREAM)
    pipe.xrange(EVENT_STREAM, count=1)
    entries, oldest = await pipe.execute()
    age = now - int(oldest[0][0].partition(b"-")[0]) / 1000 if oldest else 0.0
    behind_s = None if unknown else max(behind)
    return Backlog(counters, behind_s, entries, max(age, 0.0), standing)


def _standing(segment: bytes | None, confirmed: bytes | None, owner: bytes | None) -> Standing:
    is_confirmed = segment is not None and segment == confirmed
    return Standing((owner or b"").decode(), is_confirmed)


async def traffic(
    redis: Redis, shards: int, day: datetime.date, numbers: Sequence[int]
) -> dict[int, Traffic]:
    """Return a day's counters of SSPs, by number. Raises RedisError."""
    totals: dict[int, Traffic] = dict.fromkeys(numbers, NOTHING)
    for shard in range(shards):
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


class RunningTotals:
    """Adds up the days' counters into counts that only grow, starting with the first call."""

    def __init__(self) -> None:
        self._previous: dict[tuple[datetime.date, int], Traffic] | None = None
        self._sums: defaultdict[int, Traffic] = defaultdict(lambda: NOTHING)

    def add(self, days: Mapping[datetime.date, Mapping[int, Traffic]]) -> dict[int, Traffic]:
        """Add the counters of some days; return the sums by SSP number."""
        current = {
            (day, number): traffic for day, ssps in days.items() for number, traffic in ssps.items()
        }
        for key, now in current.items():
            before = now if self._previous is None else self._previous.get(key, NOTHING)
            if before.bids > now.bids:  # Redis has lost its data
                before = NOTHING
            grown = Traffic(*(max(b - a, 0) for a, b in zip(before, now, strict=True)))
            self._sums[key[1]] = self._sums[key[1]].plus(grown)
        self._previous = current
        return dict(self._sums)


def _batched(numbers: Sequence[int]) -> list[Sequence[int]]:
    return [numbers[start : start + SSPS_AT_ONCE] for start in range(0, len(numbers), SSPS_AT_ONCE)]
