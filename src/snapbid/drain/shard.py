"""One shard of the ledger in Redis, as the drain sees it (`ledger/keys.py` has the keys).

The counters are read after their names were moved aside, so what changes later is named anew.
"""

import datetime
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib import resources
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import ResponseError, WatchError

from snapbid.ledger.keys import ShardKeys
from snapbid.warehouse.absorb import Counter

BATCH: Final = 5_000  # names; one transaction, and what a script's `unpack` takes

_NAME: Final = re.compile(
    rb"(\d{4}-\d\d-\d\d) (?:([bwpiBWPI]):([1-9]\d{0,9})|(l):([1-9]\d{0,9}):(-1|0|[1-9]\d{0,4}))"
)
_MOST: Final = 2**31 - 1


class SupersededError(Exception):
    """Another drain has taken over, or Redis has lost its data: begin anew."""


class Reading(NamedTuple):
    """Counters of one data set, all read in one moment."""

    epoch: str
    names: list[bytes]
    counters: list[Counter]


Check = Callable[[Sequence[Counter]], Awaitable[list[int]]]


class Shard:
    """A shard for one drain, which `claim` must announce first."""

    def __init__(self, redis: Redis, number: int) -> None:
        self.number = number
        self._redis = redis
        self._keys = ShardKeys(number)
        self._token = secrets.token_hex(8)
        script = resources.files(__package__) / "release.lua"
        self._release = redis.register_script(script.read_text(encoding="utf-8"))

    async def claim(self) -> None:
        """Announce this drain as the one at work."""
        await self._redis.set(self._keys.owner, self._token)

    async def epoch(self) -> str:
        """Give the data set's name, made where there is none yet."""
        async with self._redis.pipeline() as pipe:
            self._ask_epoch(pipe)
            _, epoch = await pipe.execute()
        return str(epoch.decode())

    async def take(self) -> tuple[list[bytes], bool]:
        """Move the names aside, unless some are there still; give a first batch of those aside.

        True with it where they were there still: then there may be more to take after them.
        """
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.renamenx(self._keys.changed, self._keys.taken)
            pipe.srandmember(self._keys.taken, BATCH)
            moved, names = await pipe.execute(raise_on_error=False)
        if isinstance(moved, ResponseError) and "no such key" not in str(moved):
            raise moved
        if isinstance(names, Exception):
            raise names
        return list(names), moved is False

    async def more(self) -> list[bytes]:
        """Give the next batch of what was moved aside."""
        names: Any = await self._redis.srandmember(self._keys.taken, BATCH)
        return list(names)

    async def finish(self, taken_at: float) -> None:
        """All that had changed by then (epoch s) is in the warehouse."""
        await self._redis.set(self._keys.drained_at, f"{taken_at:.3f}")

    async def read(self, names: Iterable[bytes]) -> Reading:
        """Read the named counters with their epoch; what is no counter, or is gone, is left out."""
        days: dict[bytes, list[bytes]] = {}
        for name in names:
            if _parse(name):
                day, _, field = name.partition(b" ")
                days.setdefault(day, []).append(field)
        async with self._redis.pipeline() as pipe:
            self._ask_epoch(pipe)
            for day, fields in days.items():
                pipe.hget(self._keys.generations, day)
                pipe.hmget(self._keys.counters(day.decode()), fields)
            _, epoch, *answers = await pipe.execute()
        reading = Reading(epoch.decode(), [], [])
        for (day, fields), generation, values in zip(
            days.items(), answers[::2], answers[1::2], strict=True
        ):
            found = {field: value for field, value in zip(fields, values, strict=True) if value}
            _collect(reading, day, int(generation or 0), found)
        return reading

    async def see(self, reading: Reading, now: float) -> None:
        """Note of which SSPs notices were counted until now (epoch s), for the go-live check."""
        seen: dict[Any, Any] = {
            f"{counter.kind}:{counter.number}": int(now)
            for counter in reading.counters
            if counter.kind in ("w", "i", "l")
        }
        if seen:
            await self._redis.hset(self._keys.seen, mapping=seen)

    async def release(self, names: Sequence[bytes], again: Sequence[bytes] = ()) -> None:
        """The names are done with; those of `again` come back in a later round.

        Raises SupersededError, with nothing removed, where this drain is not at work any more.
        """
        if again:
            await self._redis.sadd(self._keys.changed, *again)
        keys = [self._keys.owner, self._keys.taken]
        if not await self._release(keys=keys, args=[self._token, *names]):
            raise SupersededError(f"shard {self.number} has another drain, or new data")

    async def remove_day(self, day: datetime.date, epoch: str, check: Check) -> int | None:
        """Remove a day's counters if nothing of them is left to absorb: give their generation.

        `check` gives the places of those that are; they are named again, and None is given, as
        where somebody changed them meanwhile.
        """
        text = day.isoformat().encode()
        key = self._keys.counters(text.decode())
        async with self._redis.pipeline() as pipe:
            await pipe.watch(self._keys.epoch, self._keys.generations, key)
            if await pipe.get(self._keys.epoch) != epoch.encode():
                return None
            generation = int(await pipe.hget(self._keys.generations, text) or 0)
            cursor: int | None = None
            while cursor != 0:
                found: Any
                cursor, found = await pipe.hscan(key, cursor or 0, count=BATCH)
                reading = Reading(epoch, [], [])
                _collect(reading, text, generation, found)
                left = await check(reading.counters)
                if left:
                    await self._redis.sadd(
                        self._keys.changed, *(reading.names[place] for place in left)
                    )
                    return None
            pipe.multi()  # type: ignore[no-untyped-call]
            pipe.hincrby(self._keys.generations, text, 1)
            pipe.unlink(key)
            try:
                await pipe.execute()
            except WatchError:
                return None
        return generation

    def _ask_epoch(self, pipe: "Redis") -> None:
        pipe.set(self._keys.epoch, secrets.token_hex(8), nx=True)
        pipe.get(self._keys.epoch)


def is_counter(name: bytes) -> bool:
    """Whether a name can be one of the ledger's: `2026-05-31 w:7`, `2026-05-31 l:7:102`."""
    return _parse(name) is not None


def _collect(reading: Reading, day: bytes, generation: int, found: dict[bytes, bytes]) -> None:
    for field, value in found.items():
        name = day + b" " + field
        parsed = _parse(name)
        if parsed:
            reading.names.append(name)
            date, kind, number, reason = parsed
            reading.counters.append(Counter(date, generation, kind, number, reason, int(value)))


def _parse(name: bytes) -> tuple[datetime.date, str, int, int] | None:
    found = _NAME.fullmatch(name)
    if not found:
        return None
    day, kind, number, loss, loss_number, reason = found.groups()
    try:
        date = datetime.date.fromisoformat(day.decode())
    except ValueError:
        return None
    of = int(number or loss_number)
    return (date, (kind or loss).decode(), of, int(reason or 0)) if of <= _MOST else None
