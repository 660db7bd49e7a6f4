"""What Redis tells of the ledger and of what waits for the drain, over all machines.

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


class Waiting(NamedTuple):
    """`counters` and stream `entries` that the drain has yet to carry, and how old they may be (s).

    `behind_s` is None where no drain has said when it was done.
    """

    counters: int
    behind_s: float | None
    entries: int
    oldest_s: float


class Traffic(NamedTuple):
    """An SSP's answers with bids, wins, sum of their CPM in micro-USD, and impressions."""

    bids: int
    wins: int
    cpm_micros: int
    imps: int

    def plus(self, other: "Traffic") -> "Traffic":
        return Traffic(*(a + b for a, b in zip(self, other, strict=True)))


NOTHING: Final = Traffic(0, 0, 0, 0)


async def waiting(redis: Redis, shards: int, now: float) -> Waiting:
    """What waits at `now` (epoch s). Raises RedisError."""
    pipe = redis.pipeline(transaction=False)
    for shard in range(shards):
        keys = ShardKeys(shard)
        pipe.scard(keys.changed)
        pipe.scard(keys.taken)
        pipe.get(keys.drained_at)
    pipe.xlen(EVENT_STREAM)
    pipe.xrange(EVENT_STREAM, count=1)
    *found, entries, oldest = await pipe.execute()
    counters, behind = 0, [0.0]
    unknown = False
    for changed, taken, at in zip(found[::3], found[1::3], found[2::3], strict=True):
        if changed or taken:
            counters += changed + taken
            unknown = unknown or at is None
            behind.append(now - float(at or now))
    age = now - int(oldest[0][0].partition(b"-")[0]) / 1000 if oldest else 0.0
    return Waiting(counters, None if unknown else max(behind), entries, max(age, 0.0))


async def traffic(
    redis: Redis, shards: int, day: datetime.date, numbers: Sequence[int]
) -> dict[int, Traffic]:
    """A day's counters of SSPs, by number. Raises RedisError."""
    found: dict[int, Traffic] = dict.fromkeys(numbers, NOTHING)
    for shard in range(shards):
        keys = ShardKeys(shard)
        segments = await fetch_segments(redis, keys)
        hashes = [keys.counters(segment, day.isoformat()) for segment in segments]
        for some, key in product(_batched(numbers), hashes):
            fields = [b"%b:%d" % (kind, number) for number in some for kind in FIELDS]
            values: Any = await redis.hmget(key, fields)
            for place, number in enumerate(some):
                own = values[place * len(FIELDS) : (place + 1) * len(FIELDS)]
                found[number] = found[number].plus(Traffic(*(int(each or 0) for each in own)))
    return found


class Totals:
    """Adds up the days' counters into counts that only grow, from the first look on."""

    def __init__(self) -> None:
        self._seen: dict[tuple[datetime.date, int], Traffic] | None = None
        self._sums: defaultdict[int, Traffic] = defaultdict(lambda: NOTHING)

    def add(self, days: Mapping[datetime.date, Mapping[int, Traffic]]) -> dict[int, Traffic]:
        """Take up what was read of some days; give the sums by SSP's number."""
        found = {(day, number): of for day, each in days.items() for number, of in each.items()}
        for place, now in found.items():
            before = now if self._seen is None else self._seen.get(place, NOTHING)
            if before.bids > now.bids:  # Redis has lost its data
                before = NOTHING
            grown = Traffic(*(max(b - a, 0) for a, b in zip(before, now, strict=True)))
            self._sums[place[1]] = self._sums[place[1]].plus(grown)
        self._seen = found
        return dict(self._sums)


def _batched(numbers: Sequence[int]) -> list[Sequence[int]]:
    return [numbers[start : start + SSPS_AT_ONCE] for start in range(0, len(numbers), SSPS_AT_ONCE)]
