"""The self-audit (contract 11): compares figures that are kept twice, and publishes differences.

    counters    the ledger's counters, and their values that the warehouse has absorbed
    reports     the absorbed counters, and the rows of the report tables
    campaigns   wins, CPMs and impressions of all SSPs, and of all campaigns, by day
    budgets     a campaign's spend according to the ledger, and according to the warehouse
    holds       the cost of open bids, and the holds of their campaigns' budgets (holds.py)
    grants      what allowances were granted, and what their account has recorded of it
    outboxes    entries that were posted and not delivered, and those in the outbox
    heartbeats  the last one acknowledged to a process, and the last one on a promoted replica
    events      accepted events, and stored events (accepted.py)
    conversions the daily sums of conversions, and the stored events that they count
    auctions    bids and notices in the auction log, and in the report tables (logged.py)

Counts in transit make figures differ for a while. So most differences are reported only if two
successive audits find them, and neither figure has reached the other's earlier value in between.
Reports and absorbed counters are read in one snapshot, open bids and their holds in one step, so
nothing is in transit between these. The ledger itself finds differences in grants, outboxes and
heartbeats, and keeps them for an hour (discrepancies.lua).

`python -m snapbid.drain.audit` runs beside each drain, and ends when its standard input closes.
Only the process with the lease audits.
"""

import asyncio
import datetime
import logging
import os
import sys
from bisect import bisect_left
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from time import monotonic, time
from typing import Any, Final

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.child import ChildProcess, begin_child
from snapbid.base.days import utc_day
from snapbid.base.redis_keys import ShardKeys
from snapbid.base.repeats import RepeatedLog
from snapbid.base.settings import StoreSettings, load, require_stores, to_environ
from snapbid.base.tasks import pause
from snapbid.drain.accepted import AcceptedEvents
from snapbid.drain.logged import LoggedAuctions
from snapbid.drain.names import CounterField, format_field, parse_field
from snapbid.drain.tidy import KEPT_DAYS
from snapbid.ledger.admin.audits import (
    COMPARISONS,
    SHOWN,
    AuditReport,
    Difference,
    write_audit,
)
from snapbid.ledger.bids.clock import compare
from snapbid.ledger.bids.segment import fetch_segments
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.ledger.budgets.holds import Holds
from snapbid.redisclient.connection import Connections
from snapbid.warehouse import absorb, comparison, leases
from snapbid.warehouse.unavailable import UNAVAILABLE, session

AFTER_S: Final = 10.0  # a drain that has just started has other work
EVERY_S: Final = 60.0
STOP_S: Final = 5.0
SETTINGS: Final = frozenset(
    {"redis_url", "redis_replicas", "database_url", "ledger_shards", "auction_log"}
)
COMMAND_S: Final = 30.0
SCANNED: Final = 1_000  # fields of a hash in one command
CAMPAIGNS: Final = 10_000  # whose budgets one audit reads, in turns if there are more
SHARE: Final = 0.01  # of the time that a comparison which counts events may take
NO_SOURCE: Final = 0  # of a run of Redis from which nothing was absorbed
DAY: Final = datetime.timedelta(days=1)

logger = logging.getLogger("snapbid.drain.audit")  # not __main__
repeated = RepeatedLog(logger)


class Auditor:
    """An auditor of the ledger's shards and the warehouse; call `audit` repeatedly.

    `log`: the directory of the auction log, if there is one; `clock` returns epoch seconds.
    """

    def __init__(
        self, redis: Redis, shards: int, clock: Callable[[], float] = time, log: Path | None = None
    ) -> None:
        self._redis = redis
        self._clock = clock
        self._shards = [ShardKeys(number) for number in range(shards)]
        self._spend = Budgets(redis, shards, clock)
        self._holds = Holds(redis, shards, clock)
        self._events = _Paced(AcceptedEvents(redis, shards, clock).compare)
        self._conversions = _Paced(self._compare_conversions)
        self._auctions = (
            None if log is None else _Paced(LoggedAuctions(log, redis, shards, clock).compare)
        )
        self._before: dict[tuple[str, str], Difference] = {}
        self._next_campaign = 0
        self._differing: set[int] = set()  # campaigns

    async def audit(self, connection: asyncpg.Connection) -> list[Difference]:
        """Return the differences that are not due to counts in transit.

        Raises the stores' errors; an interrupted audit has no result.
        """
        today = utc_day(self._clock())
        found = [each async for each in self._counters(connection, today)]
        found += _named("reports", await comparison.compare_reports(connection))
        since = today - KEPT_DAYS * DAY
        found += _named("campaigns", await comparison.compare_campaigns(connection, since))
        known = await comparison.fetch_spend(connection, today)
        found += [each async for each in self._budgets_of(known, today)]
        lasting = [each for each in found if _lasts(self._before.get(_key(each)), each)]
        self._before = {_key(each): each for each in found}
        lasting += await self._ended_holds(known)
        lasting += await fetch_recorded(self._redis, len(self._shards), known)
        lasting += await self._events(connection)
        lasting += await self._conversions(connection)
        if self._auctions is not None:
            lasting += await self._auctions(connection)
        return lasting

    async def _counters(
        self, connection: asyncpg.Connection, today: datetime.date
    ) -> AsyncIterator[Difference]:
        for number, keys in enumerate(self._shards):
            epoch: Any = await self._redis.get(keys.epoch)
            if epoch is None:
                continue
            outdated: Any = await self._redis.hget(keys.state, "outdated")
            generations: Any = await self._redis.hgetall(keys.generations)
            sources = await absorb.sources_of(connection, epoch.decode(), number)
            for segment in await fetch_segments(self._redis, keys):
                source = sources.get(segment, NO_SOURCE)
                may_be_less = segment.encode() in (outdated or b"").split()
                for before in range(-1, KEPT_DAYS + 1):
                    day = today - before * DAY
                    generation = int(generations.get(f"{segment} {day}".encode(), 0))
                    counted = await self._counted(keys, segment, day)
                    absorbed = await comparison.fetch_absorbed(connection, source, day, generation)
                    for name, value, known in _unlike(counted, absorbed):
                        if value > known or not may_be_less:
                            what = f"shard {number}, {name} on {day}"
                            yield Difference("counters", what, value, known)

    async def _counted(
        self, keys: ShardKeys, segment: str, day: datetime.date
    ) -> dict[CounterField, int]:
        """Read the counters of a day, except those that are 0."""
        counted: dict[CounterField, int] = {}
        scan = self._redis.hscan_iter(keys.counters(segment, str(day)), count=SCANNED)
        async for name, value in scan:
            field = parse_field(name)
            if field is not None and int(value):
                counted[field] = int(value)
        return counted

    async def _budgets_of(
        self, known: Mapping[int, comparison.Spend], today: datetime.date
    ) -> AsyncIterator[Difference]:
        """Yield differences between the ledger's spend and the warehouse's.

        Covers the next CAMPAIGNS campaigns in rotation, and all that differed in the last audit.
        """
        numbers = self._next_of(sorted(known))
        states = await self._spend.states([*{*numbers, *self._differing & known.keys()}])
        self._differing = set()
        for number, state in states.items():
            campaign, total, of_today, may_be_late = known[number]
            spent, spent_today = state.used - state.held, state.used_today - state.held_today
            if spent != total:
                self._differing.add(number)
                yield Difference("budgets", f"spent by {campaign} in all", spent, total)
            if spent_today > of_today or (spent_today < of_today and not may_be_late):
                self._differing.add(number)
                what = f"spent by {campaign} on {today}"
                yield Difference("budgets", what, spent_today, of_today)

    async def _ended_holds(self, known: Mapping[int, comparison.Spend]) -> list[Difference]:
        found = []
        for shard, number, amount in await self._holds.find_ended():
            what = f"shard {shard}, holds of {_name(known, number)} that ended early"
            found.append(Difference("holds", what, amount, 0))
        return found

    async def _compare_conversions(self, connection: asyncpg.Connection) -> list[Difference]:
        differing = []
        for before in range(KEPT_DAYS + 1):
            day = utc_day(self._clock()) - before * DAY
            differing += await comparison.compare_conversions(connection, day)
        return _named("conversions", differing)

    def _next_of(self, numbers: list[int]) -> list[int]:
        """Return the next CAMPAIGNS campaign numbers in rotation; all if there are fewer."""
        if len(numbers) <= CAMPAIGNS:
            return numbers
        start = bisect_left(numbers, self._next_campaign) % len(numbers)
        turn = (numbers[start:] + numbers[:start])[:CAMPAIGNS]
        self._next_campaign = turn[-1] + 1
        return turn


class _Paced:
    """A slow comparison, run so rarely that it takes at most `SHARE` of the time.

    Calls in between return the last result.
    """

    def __init__(
        self, compare: Callable[[asyncpg.Connection], Awaitable[list[Difference]]]
    ) -> None:
        self._compare = compare
        self._found: list[Difference] = []
        self._due_at = 0.0  # monotonic

    async def __call__(self, connection: asyncpg.Connection) -> list[Difference]:
        started = monotonic()
        if started >= self._due_at:
            self._found = await self._compare(connection)
            self._due_at = started + (monotonic() - started) / SHARE - EVERY_S
        return self._found


async def fetch_recorded(
    redis: Redis, shards: int, known: Mapping[int, comparison.Spend]
) -> list[Difference]:
    """Fetch the differences that the ledger itself has found and recorded. Raises RedisError.

    `known`: the campaigns that the warehouse knows, by number.
    """
    found = []
    for shard in range(shards):
        recorded: Any = await redis.hgetall(ShardKeys(shard).discrepancies)
        for field, figures in recorded.items():
            kind, _, number = field.decode().partition(" ")
            first, second = map(int, figures.split())
            match kind:
                case "grants":
                    what = f"granted to {_name(known, int(number))}"
                case "outbox":
                    kind, what = "outboxes", f"for users of shard {number}"
                case _:
                    what = "acknowledged"
            found.append(Difference(kind, f"shard {shard}, {what}", first, second))
    return found


def _name(known: Mapping[int, comparison.Spend], number: int) -> str:
    """Return the id of a campaign, or `number N` if the campaign is not in `known`."""
    return known[number].campaign if number in known else f"number {number}"


def _key(of: Difference) -> tuple[str, str]:
    return of.comparison, of.what


def _lasts(before: Difference | None, now: Difference) -> bool:
    """Return whether a difference was found before, and cannot be due to counts in transit.

    Of a budget's two figures, the warehouse's is read first, so counts in transit never make the
    ledger's figure the lower one.
    """
    if before is None:
        return False
    if now.comparison == "reports":
        return True
    if now.comparison == "budgets" and before.first < before.second and now.first < now.second:
        return True
    first, first_to = sorted((before.first, now.first))
    second, second_to = sorted((before.second, now.second))
    return first_to < second or second_to < first


def _unlike(
    counted: Mapping[CounterField, int], absorbed: Mapping[tuple[str, int, int], int]
) -> Iterator[tuple[str, int, int]]:
    """Yield the names of counters that differ, with both values."""
    for field in counted.keys() | map(CounterField._make, absorbed):
        value, known = counted.get(field, 0), absorbed.get(field, 0)
        if value != known:
            yield format_field(field).decode(), value, known


def report_of(differences: Sequence[Difference], at: float) -> AuditReport:
    counts = dict.fromkeys(COMPARISONS, 0)
    for each in differences:
        counts[each.comparison] += 1
    return AuditReport(at, counts, list(differences[:SHOWN]))


async def run(settings: StoreSettings, ended: asyncio.Event) -> None:
    """Audit every minute until `ended`, while this process has the lease and both stores answer."""
    redis = Connections(settings.redis_url, settings.redis_replicas).client()
    auditor = Auditor(redis, settings.shards, log=settings.auction_log)
    try:
        while not ended.is_set():
            try:
                await _audit_on_lease(settings.database_url, redis, auditor, ended)
            except (*UNAVAILABLE, RedisError, OSError) as error:
                repeated.warning(
                    "paused the audit: %(reason)s; retrying", {"reason": type(error).__name__}
                )
                await pause(ended, EVERY_S)
    finally:
        await redis.aclose()


async def _audit_on_lease(dsn: str, redis: Redis, auditor: Auditor, ended: asyncio.Event) -> None:
    logged: set[Difference] = set()
    async with session(dsn, command_timeout=COMMAND_S) as connection:
        while not await leases.acquire(connection, leases.AUDIT):
            await pause(ended, EVERY_S)
            if ended.is_set():
                return
        while not ended.is_set():
            found = await auditor.audit(connection)
            ahead_s = (await compare(redis, 0)).ahead_s
            await write_audit(redis, report_of(found, time() - ahead_s))
            _log(each for each in found if each not in logged)
            logged = set(found)
            await pause(ended, EVERY_S)


def _log(differences: Iterable[Difference]) -> None:
    for each in list(differences)[:SHOWN]:
        one, other = each.sides
        logger.error(
            "audit found a difference: %(comparison)s: %(what)s: %(first)d in %(one)s, "
            "%(second)d in %(other)s",
            {
                "comparison": each.comparison,
                "what": each.what,
                "first": each.first,
                "one": one,
                "second": each.second,
                "other": other,
            },
        )


def _named(name: str, differing: Iterable[comparison.Differing]) -> list[Difference]:
    return [
        Difference(name, f"{each.what} on {each.day}", each.first, each.second)
        for each in differing
    ]


def child_of(settings: StoreSettings) -> ChildProcess:
    """Return the child process that audits for a drain with these settings."""
    environ = to_environ(settings, SETTINGS)
    module = "snapbid.drain.audit"
    return ChildProcess("audit", module, stop_s=STOP_S, after_s=AFTER_S, environ=environ)


async def _main() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)  # it closes with the drain
    await run(require_stores(load(os.environ)), ended)


if __name__ == "__main__":
    begin_child()
    asyncio.run(_main())
