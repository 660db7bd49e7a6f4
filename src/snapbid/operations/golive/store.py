"""Request statistics of SSPs in Redis, written by workers for the go-live check and diagnosis.

    {golive}:N:m:MINUTE  counts of the SSP with this number, by minute since the epoch
    {golive}:N:h:HOUR    the same by hour
    {golive}:N:d:YYYY-MM-DD  the same by day
    {golive}:N:at        count -> when it last grew (epoch s); `first`: when counting began
    {golive}:N:answers   the latest answers, newest first: `EPOCH_S STATUS`
    {golive}:N:problems  the latest refusals, newest first: `EPOCH_S STATUS DETAIL`
    {golive}:N:examples  broken rule -> the detail of the latest refusal for it
    {golive}:changed     `N YYYY-MM-DD`: days that have changed since the drain took them
    {golive}:taken       days that the drain is carrying to the warehouse
    {golive}:source      id of this data set in the warehouse
    {golive}:t:DIGEST    number of the SSP whose test request had this auction and impression
    {golive}:w:WRITER    the number of a worker's last batch
    {golive}:strays      unregistered ids in paths, by the time each was last seen
    {golive}:none        never exists, so the script fails while the slot moves (see nodes.py)

These are statistics, not accounting: a killed worker loses its last second. But no batch counts
twice: if its answer is lost, it is sent again with the same number. Notices of remembered bids are
read from the ledger's own counters, and the times when these last grew from `{sbN}:seen`
(drain/counters.py). The drain adds the notices that it absorbs to the counts by minute: `notice:w`,
`notice:l:-1` (losses without a reason, which `notice:l` includes) or, with an anomaly's number,
`anomaly:21`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import product
from typing import Any, Final, NamedTuple

import msgspec
from redis.asyncio import Redis

from snapbid.base.days import utc_day
from snapbid.base.redis_keys import GOLIVE, ShardKeys
from snapbid.bidding.request_stats import KEPT, RequestTotals
from snapbid.ledger.bids.segment import fetch_segments
from snapbid.redisclient.scripts import load

MINUTE_S: Final = 60
HOUR_S: Final = 3600
MINUTES_KEPT_S: Final = 2 * HOUR_S
HOURS_KEPT_S: Final = 8 * 24 * HOUR_S
TEST_KEPT_S: Final = 900
MAX_STRAYS: Final = 100
NOTICE_DAYS: Final = 3  # UTC, including today: as long as the ledger's counters stay in Redis
NO_REASON: Final = -1  # a loss without a valid reason, such as a macro left in place
_REASONS: Final = range(NO_REASON, 10_000)


class SspRequestStats(msgspec.Struct, frozen=True):
    """An SSP's statistics from `since` until `until`. All times are in epoch s."""

    since: int
    until: int
    counts: dict[str, int]
    last_at: dict[str, int]  # when each count last grew, even before `since`
    answers: list[tuple[int, int]]  # time and status, newest first
    problems: list[tuple[int, int, str]]  # time, status and detail, newest first
    notices: dict[str, int]  # the ledger's b, w, i and l; l:-1: losses without a reason
    noticed_at: dict[str, int]  # when these last grew
    strays: dict[str, int]  # unregistered id -> when it was last seen
    noticed_in: str = f"in the last {NOTICE_DAYS} days (UTC)"


class RecentRequestStats(NamedTuple):
    """An SSP's statistics for a recent period; fields as in `SspRequestStats`."""

    counts: dict[str, int]
    last_at: dict[str, int]
    answers: list[tuple[int, int]]
    problems: list[tuple[int, int, str]]
    examples: dict[str, str]  # by broken rule


class DayRequestStats(NamedTuple):
    """An SSP's counts for a day (YYYY-MM-DD), and examples by broken rule."""

    number: int
    day: str
    counts: dict[str, int]
    examples: dict[str, str]


class RequestStatsStore:
    """The request statistics in Redis. All methods raise RedisError."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._write = redis.register_script(load(__package__, "request_stats"))

    async def write(
        self, sent: Mapping[int, RequestTotals], now: int, writer: str, number: int
    ) -> None:
        """Add a batch of totals by SSP number, as of `now` (epoch s).

        `number`: the batch's number. A writer's batch is added once, however often it is sent.
        """
        packed: list[Any] = [now, KEPT, MINUTES_KEPT_S, HOURS_KEPT_S, _day(now), writer, number]
        for ssp, totals in sent.items():
            packed += (ssp, len(totals.counts))
            for name, count in totals.counts.items():
                packed += (name, count)
            packed += (len(totals.answers), *totals.answers)
            packed += (len(totals.problems), *totals.problems)
        await self._write(keys=[GOLIVE, f"{GOLIVE}none"], args=packed)
        examples: dict[int, dict[Any, Any]]
        examples = {number: totals.examples for number, totals in sent.items() if totals.examples}
        if examples:
            async with self._redis.pipeline(transaction=False) as pipe:
                for number, own in examples.items():
                    pipe.hset(f"{GOLIVE}{number}:examples", mapping=own)
                    pipe.expire(f"{GOLIVE}{number}:examples", HOURS_KEPT_S)
                await pipe.execute()

    async def write_notices(self, grown: Mapping[Any, int], now: int) -> None:
        """Add counts of notices and anomalies to the minute of `now` (epoch s).

        The keys of `grown` are SSP number, kind and code, as in drain/names.py.
        """
        async with self._redis.pipeline(transaction=False) as pipe:
            for (number, kind, code), more in grown.items():
                key = f"{GOLIVE}{number}:m:{now // MINUTE_S}"
                pipe.hincrby(key, f"anomaly:{code}" if kind == "n" else f"notice:{kind}", more)
                if kind == "l" and code == NO_REASON:
                    pipe.hincrby(key, f"notice:l:{code}", more)
                pipe.expire(key, MINUTES_KEPT_S)
            await pipe.execute()

    async def write_strays(self, ids: Iterable[str], now: int) -> None:
        """Record unregistered SSP ids that requests were sent to, as seen at `now` (epoch s)."""
        key = f"{GOLIVE}strays"
        async with self._redis.pipeline() as pipe:
            pipe.zadd(key, dict.fromkeys(ids, now))
            pipe.zremrangebyrank(key, 0, -MAX_STRAYS - 1)
            pipe.expire(key, HOURS_KEPT_S)
            await pipe.execute()

    async def write_tests(self, tests: Iterable[tuple[bytes, int]]) -> None:
        """Remember test requests (bid digest, number of the SSP) for a few minutes."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for digest, number in tests:
                pipe.set(_test(digest), number, ex=TEST_KEPT_S)
            await pipe.execute()

    async def testers(self, digests: Sequence[bytes]) -> list[int | None]:
        """Look up which SSP sent the test request that led to each bid digest.

        Return the SSPs' numbers, in order; None for a bid that did not come from a test.
        """
        numbers: Any = await self._redis.mget([_test(digest) for digest in digests])
        return [None if number is None else int(number) for number in numbers]

    async def read(self, number: int, shards: int, minutes: int, now: int) -> SspRequestStats:
        """Read an SSP's statistics for at least the last `minutes`.

        They begin with a whole minute, or with a whole hour if `minutes` is over 60.
        """
        unit, name = (MINUTE_S, "m") if minutes <= HOUR_S // MINUTE_S else (HOUR_S, "h")
        first, last = (now - minutes * MINUTE_S) // unit, now // unit
        (recent,) = await self._read([number], [f"{name}:{at}" for at in range(first, last + 1)])
        strays: Any = await self._redis.zrange(f"{GOLIVE}strays", 0, -1, withscores=True)
        notices, noticed_at = await self._notices(number, shards, now)
        return SspRequestStats(
            first * unit,
            now,
            recent.counts,
            recent.last_at,
            recent.answers,
            recent.problems,
            notices,
            noticed_at,
            {id.decode(): int(at) for id, at in strays},
        )

    async def read_recent(
        self, numbers: Sequence[int], minutes: int, now: int
    ) -> dict[int, RecentRequestStats]:
        """Read SSPs' statistics for at least the last `minutes`, beginning with a whole minute.

        Does not read the ledger's counts of notices. If `minutes` is 0, reads no counts at all.
        """
        last = now // MINUTE_S
        times = [f"m:{minute}" for minute in range(last - minutes, last + 1) if minutes]
        return dict(zip(numbers, await self._read(numbers, times), strict=True))

    async def _read(self, numbers: Sequence[int], times: Sequence[str]) -> list[RecentRequestStats]:
        """Read SSPs' statistics, with counts summed over `times` (minutes, hours or days)."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for number in numbers:
                own = f"{GOLIVE}{number}:"
                pipe.hgetall(f"{own}at")
                pipe.lrange(f"{own}answers", 0, -1)
                pipe.lrange(f"{own}problems", 0, -1)
                pipe.hgetall(f"{own}examples")
                for time in times:
                    pipe.hgetall(f"{own}{time}")
            replies = await pipe.execute()
        step, found = 4 + len(times), []
        for start in range(0, len(replies), step):
            last_at, answers, problems, examples, *counts = replies[start : start + step]
            sums: Counter[str] = Counter()
            for fields in counts:
                sums.update(_numbers(fields))
            found.append(
                RecentRequestStats(
                    dict(sums),
                    _numbers(last_at),
                    _answers(answers),
                    _problems(problems),
                    _texts(examples),
                )
            )
        return found

    # -- carrying to the warehouse -------------------------------------------------------------

    async def take_days(self) -> tuple[str, list[DayRequestStats]]:
        """Return the id of the data set, and the days that have changed since they were last taken.

        Calling it again returns the same days until `release_days` is called.
        """
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.renamenx(f"{GOLIVE}changed", f"{GOLIVE}taken")
            pipe.smembers(f"{GOLIVE}taken")
            pipe.get(f"{GOLIVE}source")
            _, taken, source = await pipe.execute(raise_on_error=False)
        for reply in (taken, source):
            if isinstance(reply, Exception):
                raise reply
        days = [(int(number), day) for number, day in (name.decode().split() for name in taken)]
        async with self._redis.pipeline(transaction=False) as pipe:
            for number, day in days:
                pipe.hgetall(f"{GOLIVE}{number}:d:{day}")
                pipe.hgetall(f"{GOLIVE}{number}:examples")
            replies = await pipe.execute()
        found = [
            DayRequestStats(number, day, _numbers(counts), _texts(examples))
            for (number, day), counts, examples in zip(
                days, replies[::2], replies[1::2], strict=True
            )
        ]
        return (source or b"").decode(), found

    async def release_days(self) -> None:
        """Forget the days that `take_days` returned; call this once the warehouse has them."""
        await self._redis.delete(f"{GOLIVE}taken")

    async def _notices(
        self, number: int, shards: int, now: int
    ) -> tuple[dict[str, int], dict[str, int]]:
        kinds = ("b", "w", "i", "l")
        today = utc_day(now)
        days = [today - timedelta(days=ago) for ago in range(NOTICE_DAYS)]
        fields = [f"{kind}:{number}" for kind in kinds[:3]]
        fields += [f"l:{number}:{reason}" for reason in _REASONS]
        sums, at = Counter[str](), Counter[str]()
        for keys in map(ShardKeys, range(shards)):
            segments = await fetch_segments(self._redis, keys)
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.hmget(keys.seen, [f"{kind}:{number}" for kind in kinds])
                for segment, day in product(segments, days):
                    pipe.hmget(keys.counters(segment, day.isoformat()), fields)
                replies = [[int(value or 0) for value in row] for row in await pipe.execute()]
            seen, *of_days = replies
            at |= Counter(dict(zip(kinds, seen, strict=True)))
            for counts in of_days:
                sums.update(b=counts[0], w=counts[1], i=counts[2], l=sum(counts[3:]))
                sums["l:-1"] += counts[3]
        return dict(sums), dict(at)


def _test(digest: bytes) -> bytes:
    return GOLIVE.encode() + b"t:" + digest


def _numbers(fields: Mapping[bytes, bytes]) -> dict[str, int]:
    return {name.decode(): int(value) for name, value in fields.items()}


def _texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): text.decode() for name, text in fields.items()}


def _answers(entries: Iterable[bytes]) -> list[tuple[int, int]]:
    return [(int(at), int(status)) for at, status in map(bytes.split, entries)]


def _problems(entries: Iterable[bytes]) -> list[tuple[int, int, str]]:
    split = (packed.decode().split(" ", 2) for packed in entries)
    return [(int(at), int(status), detail) for at, status, detail in split]


def _day(epoch_s: int) -> str:
    return utc_day(epoch_s).isoformat()
