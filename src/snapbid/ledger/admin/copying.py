"""Copy a closed ledger into an empty closed one, possibly with a different number of shards.

A shard moves as a whole, to its number modulo the new number of shards, so records stay with the
money held for them, and batches of bids can still be rolled back. Impressions move to the shards of
their users. Counters and grants are not copied: the drain has already carried the counters, and
allocators issue new grants, which include the amounts that the copied allowances have used.
"""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.redis_keys import GOLIVE, ShardKeys
from snapbid.ledger.admin import closing
from snapbid.ledger.bids.records import user_shard
from snapbid.queues import queue
from snapbid.queues.queues import stream_of
from snapbid.redisclient.connection import scan

AT_ONCE: Final = 500  # keys read, or commands written, in one round trip
ENTRIES: Final = 100  # of an event stream, in one round trip
OVER_S: Final = 600  # a time bucket that expires this soon has no live records


class CopyError(RedisError):
    """The copied ledger differs from the original."""


class ShardClocks(NamedTuple):
    """A shard's hold clock, and its records of processes; all times are in ms by this clock.

    `processes` maps the token of a process to the time up to which its notices are settled, and the
    time of its last heartbeat.
    """

    now: int
    processes: Mapping[bytes, tuple[int, int]]


class Moved(NamedTuple):
    """Counts of the copied bid records, allowances, impressions of users, and event requests."""

    records: int
    allowances: int
    impressions: int
    events: int


class Copy:
    """A copy of a ledger from `source`, with `before` shards, to `target`, with `shards` shards."""

    def __init__(self, source: Redis, before: int, target: Redis, shards: int) -> None:
        self._source = source
        self._target = target
        self._before = before
        self._shards = shards
        self._writes: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        # By shard of the source and name: the number in the target, and the expiry (epoch s).
        self._time_buckets: dict[int, dict[bytes, tuple[int, int]]] = defaultdict(dict)
        self._records: Counter[int] = Counter()  # by shard of the target
        self._spent: Counter[tuple[int, bytes]] = Counter()  # by shard of the target, campaign
        self._impressions = self._events = 0
        self.expires = 0  # when the last time bucket expires (epoch s)

    async def shard(self, number: int, clocks: Sequence[ShardClocks]) -> None:
        """Copy a shard, after `time_buckets`. `clocks`: the clocks of all source shards."""
        keys = ShardKeys(number)
        begun = merged_clocks(clocks, self._shards)
        async for names in _batches(self._source, keys.prefix):
            by_kind: dict[bytes, list[bytes]] = defaultdict(list)
            for name in names:
                by_kind[name[len(keys.prefix) :].split(b":", 1)[0]].append(name)
            await self._copy_records(number, keys, by_kind[b"r"])
            await self._copy_allowances(number, keys, by_kind[b"m"])
            await self._copy_writers(number, keys, by_kind[b"w"])
            shifts = [own.now - clocks[number].now for own in begun]
            await self._copy_users(keys, by_kind[b"fe"], shifts)
            await self._copy_users(keys, by_kind[b"fc"], [0] * self._shards)
        await self._copy_latest(number, "seen")
        await self._copy_latest(number, "ttl")
        await self._flush()

    async def time_buckets(self, now: int) -> None:
        """Copy the shards' registries of time buckets; `now`: epoch s."""
        for to in range(self._shards):
            await self._copy_time_buckets(to, now)
        await self._flush()

    async def _copy_time_buckets(self, to: int, now: int) -> None:
        """Copy the registries of the shards that become shard `to`.

        Their time buckets are numbered in the order of opening, so that of the bids on an auction
        the newest is found first, even if it was made in another shard than the others. Time
        buckets that release 0.1.0 has copied have no time of opening: they are older than others.
        """
        live = list[tuple[int, int, int, Mapping[bytes, bytes]]]()
        for shard in range(to, self._before, self._shards):
            known: Any = await self._source.hgetall(closing.time_buckets_key(ShardKeys(shard)))
            opened = 0
            for number in sorted(int(name) for name in known if name.isdigit()):
                opened = max(opened, int(known.get(b"o%d" % number, 0)))  # the clock may be set
                if int(known[b"%d" % number]) > now + OVER_S:
                    live.append((opened, shard, number, known))
        registry = closing.time_buckets_key(ShardKeys(to))
        first = min([number for _, _, number, _ in live], default=1)
        for own, (_, shard, number, known) in enumerate(sorted(live, key=itemgetter(0)), first):
            name, expires = b"%d" % number, int(known[b"%d" % number])
            fields = {b"%s%d" % (of, own): known.get(of + name) for of in (b"", b"b", b"o")}
            present = {field: value for field, value in fields.items() if value is not None}
            await self._write(to, "HSET", registry, *_flat(present))
            self._time_buckets[shard][name] = own, expires
            self.expires = max(self.expires, expires)

    async def _copy_latest(self, number: int, name: str) -> None:
        """Copy a shard's hash of times; of shards that merge, the latest times are kept."""
        to = number % self._shards
        key = f"{ShardKeys(to).prefix}{name}"
        times: Any = await self._source.hgetall(f"{ShardKeys(number).prefix}{name}")
        known: Any = await self._target.hgetall(key)
        if later := {of: at for of, at in times.items() if int(at) > int(known.get(of, -1))}:
            await self._write(to, "HSET", key, *_flat(later))

    async def _copy_records(self, number: int, keys: ShardKeys, names: Sequence[bytes]) -> None:
        to, time_buckets = number % self._shards, self._time_buckets[number]
        prefix = ShardKeys(to).prefix
        wanted = [(n, *n[len(keys.prefix) :].split(b":")[1:]) for n in names]
        present = [(name, *rest) for name, *rest in wanted if rest and rest[0] in time_buckets]
        answers = await self._read([("HGETALL", name) for name, *_ in present])
        for (_, time_bucket, bucket), records in zip(present, answers, strict=True):
            if records:
                own, expires = time_buckets[time_bucket]
                key = f"{prefix}r:{own}:{bucket.decode()}"
                await self._write(to, "HSET", key, *_flat(records))
                await self._write(to, "EXPIREAT", key, expires)
                self._records[to] += len(records)

    async def _copy_allowances(self, number: int, keys: ShardKeys, names: Sequence[bytes]) -> None:
        to = number % self._shards
        prefix = ShardKeys(to).prefix
        allowances = await self._read([("HGETALL", name) for name in names])
        for name, allowance in zip(names, allowances, strict=True):
            campaign = name[len(keys.prefix) + 2 :]
            amounts = {field: amount for field, amount in allowance.items() if field != b"a"}
            if not amounts:  # refused here, and never held
                continue
            for field, amount in amounts.items():
                await self._write(to, "HINCRBY", f"{prefix}m:{campaign.decode()}", field, amount)
                if field[:1] == b"e":  # a hold: its end and its day
                    ends, _, _day = field[1:].partition(b":")
                    await self._write(to, "ZADD", f"{prefix}x:{campaign.decode()}", ends, field[1:])
            self._spent[to, campaign] += int(allowance.get(b"t", 0))

    async def _copy_writers(self, number: int, keys: ShardKeys, names: Sequence[bytes]) -> None:
        to = number % self._shards
        values = await self._read([part for n in names for part in (("GET", n), ("PTTL", n))])
        for name, last, left_ms in zip(names, values[::2], values[1::2], strict=True):
            if last is not None and left_ms > 0:
                key = ShardKeys(to).prefix.encode() + name[len(keys.prefix) :]
                await self._write(to, "SET", key, last, "PX", left_ms)

    async def _copy_users(
        self, keys: ShardKeys, names: Sequence[bytes], shifts: Sequence[int]
    ) -> None:
        """Copy users' holds or impressions (the keys `names`) to the shards of these users.

        `shifts`: how much to add to their times (ms), by target shard.
        """
        reads = [part for n in names for part in (("ZRANGE", n, 0, -1, "WITHSCORES"), ("PTTL", n))]
        values = await self._read(reads)
        for name, members, left_ms in zip(names, values[::2], values[1::2], strict=True):
            own = name[len(keys.prefix) :]
            if not members or left_ms <= 0:
                continue
            to = user_shard(own.split(b":", 2)[2], self._shards)
            key = ShardKeys(to).prefix.encode() + own
            scored = [part for m, at in members for part in (int(at) + shifts[to], m)]
            await self._write(to, "ZADD", key, *scored)
            await self._write(to, "PEXPIRE", key, left_ms)
            self._impressions += len(members)

    async def events(self, key: str) -> None:
        """Copy an event stream, keeping the events of each product in order."""
        first = "-"
        while True:
            entries: Any = await self._source.xrange(key, min=first, count=ENTRIES)
            for _, fields in entries:
                by_stream: dict[int, list[bytes]] = defaultdict(list)
                for packed in fields.values():
                    product = queue.decode(packed).product
                    by_stream[stream_of(product, self._shards)].append(packed)
                for to, requests in by_stream.items():
                    command = queue.add(requests, closing.events_key(ShardKeys(to)))
                    await self._write(to, *command)
                    self._events += len(requests)
            if len(entries) < ENTRIES:
                break
            first = f"({entries[-1][0].decode()}"
        await self._flush()

    async def golive(self) -> None:
        """Copy the request statistics of SSPs (operations/golive/store.py)."""
        async for names in _batches(self._source, GOLIVE):
            kinds = await self._read([("TYPE", name) for name in names], self._source)
            for name, kind in zip(names, kinds, strict=True):
                await self._copy_key(name, kind)
        await self._flush()

    async def _copy_key(self, name: bytes, kind: bytes) -> None:
        (read, *range_of), write = _OF_KIND[kind.decode()]
        value, left_ms = await self._read([(read, name, *range_of), ("PTTL", name)])
        if not value:
            return
        parts = _parts(value)
        await self._write(_GOLIVE, "DEL", name)
        await self._write(_GOLIVE, write, name, *parts)
        if left_ms > 0:
            await self._write(_GOLIVE, "PEXPIRE", name, left_ms)

    async def check(self) -> Moved:
        """Compare the target's bid records and spend with what was copied; return the counts.

        Raises CopyError if they differ.
        """
        for number in range(self._shards):
            keys = ShardKeys(number)
            records, allowances = 0, dict[bytes, int]()
            async for names in _batches(self._target, keys.prefix):
                buckets = [n for n in names if n[len(keys.prefix) :].startswith(b"r:")]
                records += sum(await self._read([("HLEN", n) for n in buckets], self._target))
                own = [n for n in names if n[len(keys.prefix) :].startswith(b"m:")]
                totals = await self._read([("HGET", n, "t") for n in own], self._target)
                for name, total in zip(own, totals, strict=True):
                    allowances[name[len(keys.prefix) + 2 :]] = int(total or 0)
            wanted = {of: spent for (to, of), spent in self._spent.items() if to == number}
            if records != self._records[number]:
                raise CopyError(
                    f"shard {number} has {records} bid records, but {self._records[number]} were"
                    " copied"
                )
            if allowances != wanted:
                raise CopyError(f"campaigns' spend in shard {number} differs from what was copied")
        return Moved(self._records.total(), len(self._spent), self._impressions, self._events)

    # -- Redis ------------------------------------------------------------------------------------

    async def _read(self, commands: Sequence[tuple[Any, ...]], redis: Redis | None = None) -> Any:
        if not commands:
            return []
        pipe = (redis or self._source).pipeline(transaction=False)
        for command in commands:
            if command[-1] == "WITHSCORES":
                pipe.zrange(command[1], 0, -1, withscores=True)
            else:
                pipe.execute_command(*command)
        return await pipe.execute()

    async def _write(self, shard: int, *command: Any) -> None:
        """Queue a write to a shard of the target."""
        writes = self._writes[shard]
        writes.append(command)
        if len(writes) >= AT_ONCE:
            await self._flush_shard(shard)

    async def _flush(self) -> None:
        for shard in list(self._writes):
            await self._flush_shard(shard)

    async def _flush_shard(self, shard: int) -> None:
        await self._read(self._writes.pop(shard, []), self._target)


_GOLIVE: Final = -1  # instead of a shard
_OF_KIND: Final[Mapping[str, tuple[tuple[Any, ...], str]]] = {
    "string": (("GET",), "SET"),
    "hash": (("HGETALL",), "HSET"),
    "list": (("LRANGE", 0, -1), "RPUSH"),
    "set": (("SMEMBERS",), "SADD"),
    "zset": (("ZRANGE", 0, -1, "WITHSCORES"), "ZADD"),
}


def _parts(value: Any) -> list[Any]:
    """Convert a key's value to arguments for the command that writes it."""
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, dict):
        return _flat(value)
    return [
        part
        for member in value
        for part in ((member[1], member[0]) if isinstance(member, list | tuple) else (member,))
    ]


def _flat(mapping: Mapping[Any, Any]) -> list[Any]:
    return [part for pair in mapping.items() for part in pair]


async def _batches(redis: Redis, prefix: str) -> AsyncIterator[list[bytes]]:
    """Yield the keys with a prefix, in batches.

    A scan may repeat keys; the keys of records (`r:`) and of spend (`m:`) are yielded only once.
    """
    given = set[bytes]()
    async for batch in scan(redis, prefix, AT_ONCE):
        once = dict.fromkeys(key for key in batch if key[len(prefix) :].startswith((b"r:", b"m:")))
        yield [key for key in once if key not in given] + [key for key in batch if key not in once]
        given.update(once)


def merged_clocks(clocks: Sequence[ShardClocks], shards: int) -> list[ShardClocks]:
    """Compute the initial hold clocks of the new ledger's shards.

    A shard that merges several gets the slowest of their clocks, so no hold ends too soon. Holds in
    every shard keep waiting for all processes that may have spooled notices.
    """
    behind: dict[bytes, tuple[int, int]] = {}
    for clock in clocks:
        for token, (settled, seen) in clock.processes.items():
            most = behind.get(token, (0, 0))
            behind[token] = max(most[0], clock.now - settled), max(most[1], clock.now - seen)
    merged = []
    for number in range(shards):
        own = [clock.now for clock in clocks[number::shards]]
        now = min(own) if own else max(clock.now for clock in clocks)
        processes = {
            token: (max(now - settled, 0), max(now - seen, 0))
            for token, (settled, seen) in behind.items()
        }
        merged.append(ShardClocks(now, processes))
    return merged
