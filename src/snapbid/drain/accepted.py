"""Compare accepted events with stored events, for the self-audit.

Workers count the events they acknowledge, by minute of receipt and product (queues/queue.py). The
drain subtracts the events that get no row: repeats, conflicts and dead letters. All other counted
events must be in the warehouse once they have left the streams. The warehouse may have more: a
worker that dies loses its last counts, the drain may subtract the same events twice after a crash,
and replayed dead letters are not counted again.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import asyncpg
from redis.asyncio import Redis

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.admin.audits import Difference
from snapbid.queues.queue import parse_minute
from snapbid.queues.queues import fetch_leftovers
from snapbid.warehouse import comparison

COMPARED: Final = 60  # minutes for which counts are kept
DIFFERING: Final = 24 * 60  # minutes for which differing counts are kept
SCANNED: Final = 1_000  # fields of a hash in one command

Minute = tuple[int, str]  # since 1970, and a product
EntryId = tuple[int, int]  # of a stream


class _Look(NamedTuple):
    """A shard's counts of accepted events, and the oldest and newest entry of its event stream."""

    counts: Counter[Minute]
    oldest: EntryId | None
    newest: EntryId | None


class AcceptedEvents:
    """Compares recently accepted events with stored ones; `clock` returns epoch seconds."""

    def __init__(self, redis: Redis, shards: int, clock: Callable[[], float]) -> None:
        self._redis = redis
        self._shards = shards
        self._clock = clock
        self._before: dict[int, _Look] = {}
        self._found: list[Difference] = []

    async def compare(self, connection: asyncpg.Connection) -> list[Difference]:
        """Compare the events accepted before the previous call with the stored events.

        Returns a Difference for each minute and product that lacks stored events. While events from
        before the previous call may still be queued, returns the previous result. Raises the
        stores' errors.
        """
        looks = {number: await self._look_at(ShardKeys(number)) for number in await self._numbers()}
        if any(_waits(look, looks.get(number)) for number, look in self._before.items()):
            return self._found
        expected = _sum(self._before) & _sum(looks)
        stored = await self._fetch_stored(connection, expected)
        missing = expected - stored
        self._before = looks
        self._found = [
            Difference("events", _name(*minute), expected[minute], stored[minute])
            for minute in sorted(missing)
        ]
        await self._drop(expected.keys() - missing.keys(), int(self._clock() // 60))
        return self._found

    async def _numbers(self) -> list[int]:
        return [*range(self._shards), *await fetch_leftovers(self._redis, self._shards)]

    async def _look_at(self, keys: ShardKeys) -> _Look:
        """Read a shard's oldest stream entry, its counts and its newest entry, in this order.

        So any counted event that is still queued lies between the two entries.
        """
        oldest: Any = await self._redis.xrange(keys.events, count=1)
        scan = self._redis.hscan_iter(keys.accepted, count=SCANNED)
        counts = Counter({parse_minute(field): int(count) async for field, count in scan})
        newest: Any = await self._redis.xrevrange(keys.events, count=1)
        return _Look(counts, _id_of(oldest), _id_of(newest))

    async def _fetch_stored(
        self, connection: asyncpg.Connection, minutes: Iterable[Minute]
    ) -> Counter[Minute]:
        """Count stored events by minute and product, in each hour that includes a given minute."""
        stored = Counter[Minute]()
        for hour in sorted({minute // 60 for minute, _ in minutes}):
            stored.update(await comparison.count_events(connection, hour))
        return stored

    async def _drop(self, stored: Collection[Minute], now: int) -> None:
        """Drop the counts of old minutes.

        The counts of a minute in `stored` (all its events are stored) are dropped after COMPARED
        minutes, all others after DIFFERING minutes. `now`: the time in minutes since 1970.
        """
        for number, look in self._before.items():
            gone = [
                f"{minute} {product}"
                for minute, product in look.counts
                if minute < now - (COMPARED if (minute, product) in stored else DIFFERING)
            ]
            if gone:
                await self._redis.hdel(ShardKeys(number).accepted, *gone)


def _waits(before: _Look, now: _Look | None) -> bool:
    """Return whether an entry that a stream had at `before` may still be in it at `now`."""
    if before.newest is None or now is None or now.oldest is None:
        return False
    return now.oldest <= before.newest


def _sum(looks: Mapping[int, _Look]) -> Counter[Minute]:
    total = Counter[Minute]()
    for look in looks.values():
        total.update(look.counts)
    return total


def _id_of(entries: Any) -> EntryId | None:
    if not entries:
        return None
    time, _, number = entries[0][0].partition(b"-")
    return int(time), int(number)


def _name(minute: int, product: str) -> str:
    at = datetime.datetime.fromtimestamp(minute * 60, datetime.UTC)
    return f"events of {product} at {at:%Y-%m-%d %H:%M}"
