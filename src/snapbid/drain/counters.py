"""One shard's counters in Redis, as the drain reads them (`base/redis_keys.py` lists the keys).

Names of changed counters are set aside before the counters are read, so a later change adds the
name again.

Batches of counters are numbered. Redis keeps the numbers of the last batch read and of the last one
whose names were removed; the warehouse keeps the number of the last one absorbed (fence.py). A
batch's number is written to Redis after its counters are read, so a data set with that number has
everything that the warehouse can have absorbed up to that batch.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError, WatchError

from snapbid.base.redis_keys import ShardKeys
from snapbid.drain import names as counter_names
from snapbid.drain.names import parse_field, parse_head
from snapbid.ledger.bids.segment import ShardState, fetch_segments
from snapbid.ledger.scripts import script
from snapbid.redisclient.scripts import load
from snapbid.warehouse.absorb import CounterValue

BATCH: Final = 5_000  # counters; a script that reads more would delay bids
START: Final = b"0"  # the cursor at the start of a scan, and at its end


class SupersededError(Exception):
    """Another drain has taken over, or the data in Redis was replaced; the round starts over."""


class ShardsUnavailableError(RedisError):
    """Some shards cannot be used for now; the message has the error of each."""

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        reasons = (f"shard {number}: {error}" for number, error in sorted(errors.items()))
        super().__init__("; ".join(reasons))


class SegmentReading(NamedTuple):
    """The counters read from one run."""

    segment: str
    counters: list[CounterValue]


class Reading(NamedTuple):
    """A batch of counters of one data set, read atomically."""

    epoch: str
    segments: list[SegmentReading]
    segment: str = ""  # the run that was current
    at: float = 0.0  # the time, by the clock of Redis (epoch s)
    run: bytes = b""  # the run of Redis, for which alone `cursor` is valid
    cursor: bytes = START  # where the next batch begins
    size: int = 0  # number of names read
    is_left: bool = False  # an earlier round set the names aside; more may have changed since
    malformed: Sequence[bytes] = ()  # names of no counter


NOTHING: Final = Reading("", [])
Check = Callable[[Sequence[CounterValue]], Awaitable[list[int]]]


class ShardCounters:
    """The counters of one shard, read by one drain, which must call `claim` first.

    `replicate` waits until replicas have the writes (Connections.replicate), so that a failover
    cannot roll back counters that the warehouse has absorbed.
    """

    def __init__(
        self,
        redis: Redis,
        number: int,
        replicate: Callable[[Redis, ShardKeys], Awaitable[None]] | None = None,
    ) -> None:
        self.number = number
        self._redis = redis
        self._replicate = replicate
        self._keys = ShardKeys(number)
        self._token = secrets.token_hex(8)
        self._read = redis.register_script(load(__package__, "read"))
        self._release = redis.register_script(load(__package__, "release"))
        self._change = redis.register_script(load(__package__, "change"))
        self._begin = redis.register_script(script("begin"))
        self._carry = redis.register_script(script("carry"))

    async def claim(self) -> None:
        """Register this drain as the shard's owner."""
        await self._redis.set(self._keys.owner, self._token)

    async def probe(self) -> None:
        """Raise RedisError if the shard cannot be read."""
        await self._redis.get(self._keys.epoch)

    async def fetch_state(self) -> ShardState:
        """Fetch the shard's state; begin a run if none has begun since Redis started."""
        return ShardState.parse(await self._begin(keys=self._keys.script_keys))

    # -- a round -----------------------------------------------------------------------------

    async def finish(self, taken_at: float) -> None:
        """Record that all changes before `taken_at` are in the warehouse.

        `taken_at` is epoch s by the clock of Redis, since readers compare it with that clock.
        """
        await self._redis.set(self._keys.drained_at, f"{taken_at:.3f}")

    async def drained_at(self) -> object:
        """Fetch the time before which all changes are in the warehouse, as recorded by `finish`."""
        at: Any = await self._redis.get(self._keys.drained_at)
        return at

    async def read(self, batch: int, after: Reading = NOTHING) -> Reading:
        """Read changed counters as batch number `batch`, continuing where `after` ended.

        Counters left over from an earlier, unfinished round come first. Counters that no longer
        exist are skipped. Raises SupersededError if the data was replaced since the previous batch.
        """
        keys = self._keys
        reply: Any = await self._read(
            keys=[*keys.script_keys, keys.changed, keys.taken, keys.state, keys.generations],
            args=[batch, BATCH, after.cursor, after.run],
        )
        if reply is None:
            raise SupersededError(f"the data of shard {self.number} was replaced")
        await self._await_replicas()
        epoch, own, ms, run, cursor, is_left, count, malformed, *hashes = reply
        segments: dict[str, SegmentReading] = {}
        for head, generation, fields, values in hashes:
            where, number = parse_head(head), int(generation)
            if where is None:
                malformed += (head + b" " + field for field in fields)
                continue
            segment, day = where
            reading = segments.setdefault(segment, SegmentReading(segment, []))
            for field, parsed, value in zip(fields, map(parse_field, fields), values, strict=True):
                if parsed is None:
                    malformed.append(head + b" " + field)
                elif value:
                    reading.counters.append(CounterValue(day, number, *parsed, int(value)))
        found = [segment for segment in segments.values() if segment.counters]
        more = run, cursor, count, bool(is_left), malformed
        return Reading(epoch.decode(), found, own.decode(), ms / 1000, *more)

    async def note_seen(self, reading: Reading, now: float) -> None:
        """Record, for the go-live check, that SSPs in `reading` had notices at `now` (epoch s)."""
        seen: dict[Any, Any] = {
            f"{counter.kind}:{counter.number}": int(now)
            for segment in reading.segments
            for counter in segment.counters
            if counter.kind in ("w", "i", "l")
        }
        if seen:
            await self._redis.hset(self._keys.seen, mapping=seen)

    async def release(
        self, last: Reading, count: int, absorbed: int, again: Sequence[bytes] = ()
    ) -> None:
        """Remove the `count` counter names set aside; mark those in `again` as changed once more.

        Call it once the warehouse has absorbed the `last` batch (number `absorbed`). Raises
        SupersededError, with nothing removed, if this drain has been superseded.
        """
        if again:
            await self._redis.sadd(self._keys.changed, *again)
        keys = [*self._keys.script_keys, self._keys.owner, self._keys.taken, self._keys.state]
        if not await self._release(keys=keys, args=[self._token, absorbed, last.run, count]):
            raise SupersededError(
                f"shard {self.number} was taken over by another drain, or its data was replaced"
            )

    # -- segments ----------------------------------------------------------------------------

    async def change(self, segment: str, **fields: str | int) -> None:
        """Set fields of the shard's state; "" removes a field.

        Raises SupersededError if a run after `segment` has begun.
        """
        args: list[str | int] = [segment]
        for name, value in fields.items():
            args += (name, value)
        if not await self._change(keys=[self._keys.state], args=args):
            raise SupersededError(f"another run has begun in shard {self.number}")

    async def add_spend(self, segment: str, day: int, rows: Iterable[tuple[int, int, int]]) -> None:
        """Add spend to budgets: rows of (campaign, nano-USD in total, nano-USD of the day).

        `day` is a number of days since 1970-01-01. Raises SupersededError if a run after `segment`
        has begun.
        """
        args: list[str | int] = [segment, day, *(value for row in rows for value in row)]
        if not await self._carry(keys=self._keys.script_keys, args=args):
            raise SupersededError(f"another run has begun in shard {self.number}")

    async def begin_segment(self, segment: str) -> ShardState:
        """End this run and begin another without a restart of Redis; return the new state.

        Raises SupersededError if a run after `segment` has begun.
        """
        await self.change(segment, run="another")
        return await self.fetch_state()

    async def forget_processes(self) -> None:
        """Clear the list of processes that may have spooled notices, so no hold waits for them.

        Running processes register again.
        """
        await self._redis.delete(self._keys.processes)

    async def read_when_left(self, segment: str) -> int:
        """Fetch the number of the last batch that a drain had read before the run `segment` ended.

        Returns -1 if no such run has ended in the current data set.
        """
        number: Any = await self._redis.hget(self._keys.left, segment)
        return -1 if number is None else int(number)

    async def fetch_former_batches(self) -> list[tuple[str, int]]:
        """Fetch the last batch of each shard of the ledger from which this one was moved.

        Returns the shards' data sets and the batches' numbers, by shard. Only shard 0 has them.
        """
        text: Any = await self._redis.hget(self._keys.state, "moved_batches")
        pairs = (pair.split(":") for pair in (text or b"").decode().split())
        return [(epoch, int(number)) for epoch, number in pairs]

    async def fetch_segments(self) -> list[str]:
        """List the runs that may have counters."""
        return await fetch_segments(self._redis, self._keys)

    async def drop_segments(self, segments: Iterable[str]) -> None:
        """Forget runs that have no counters left, and their generations (see `remove_day`)."""
        gone = set(segments)
        kept: Any = await self._redis.hkeys(self._keys.generations)
        fields = [field for field in kept if field.decode().rpartition(" ")[0] in gone]
        async with self._redis.pipeline() as pipe:
            pipe.hdel(self._keys.segments, *gone)
            if fields:
                pipe.hdel(self._keys.generations, *fields)
            await pipe.execute()

    async def name_all(self) -> None:
        """Mark all existing counters as changed, and wait until replicas have the marks."""
        prefix = f"{self._keys.prefix}c:"
        async for key in self._redis.scan_iter(match=f"{prefix}*", count=1000):
            segment, _, day = key.decode().removeprefix(prefix).rpartition(":")
            cursor: int | None = None
            while cursor != 0:
                fields: Any
                cursor, fields = await self._redis.hscan(key, cursor or 0, count=BATCH)
                if fields:
                    names = [counter_names.join(segment, day, field) for field in fields]
                    await self._redis.sadd(self._keys.changed, *names)
        await self._await_replicas()

    async def remove_day(self, segment: str, day: date, epoch: str, check: Check) -> int | None:
        """Remove a day's counters if all are absorbed; return their generation, or None if kept.

        A day's first counters are generation 0; each removal begins the next generation. `check`
        returns the indices of counters that are not absorbed; these are marked as changed. The
        day's counters are kept if any is not absorbed or changes meanwhile, or if the shard's data
        set is not `epoch`.
        """
        text = day.isoformat()
        key = self._keys.counters(segment, text)
        which = counter_names.join(segment, text, b"").rstrip()
        async with self._redis.pipeline() as pipe:
            await pipe.watch(self._keys.epoch, self._keys.generations, key)
            if await pipe.get(self._keys.epoch) != epoch.encode():
                return None
            generation = int(await pipe.hget(self._keys.generations, which) or 0)
            cursor: int | None = None
            while cursor != 0:
                fields: Any
                cursor, fields = await pipe.hscan(key, cursor or 0, count=BATCH)
                names, counters = [], []
                for field, value in fields.items():
                    parsed = parse_field(field)
                    if parsed is not None:
                        names.append(counter_names.join(segment, text, field))
                        counters.append(CounterValue(day, generation, *parsed, int(value)))
                left = await check(counters)
                if left:
                    await self._redis.sadd(self._keys.changed, *(names[index] for index in left))
                    return None
            pipe.multi()  # type: ignore[no-untyped-call]
            pipe.hincrby(self._keys.generations, which, 1)
            pipe.unlink(key)
            try:
                await pipe.execute()
            except WatchError:
                return None
        await self._await_replicas()
        return generation

    async def _await_replicas(self) -> None:
        if self._replicate is not None:
            await self._replicate(self._redis, self._keys)
