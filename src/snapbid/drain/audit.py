"""The self-audit (contract 11): compares what is kept twice, and publishes what differs.

    counters    each counter of the ledger, and what the warehouse has absorbed of it
    reports     the absorbed counters, and the rows of the report tables
    campaigns   wins, CPMs and impressions of all SSPs, and of all campaigns, by day
    budgets     what the ledger says that a campaign has spent, and what the warehouse says

Counts in transit make figures differ for a while. So a difference is reported only once two audits
in a row have found it with the same figures: on a closed day that is any lasting one, and today one
whose figures have not moved for a minute.

`python -m snapbid.drain.audit` is a process beside each drain, which ends when its standard input
closes. One at a time audits: the one with the lease.
"""

import asyncio
import contextlib
import datetime
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from time import time
from typing import Any, Final

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from snapbid.base.child import ChildProcess
from snapbid.base.logs import log_to_stderr
from snapbid.base.redis_keys import ShardKeys
from snapbid.base.repeats import RepeatedLog
from snapbid.base.settings import StoreSettings, load, require_stores, to_environ
from snapbid.drain.names import CounterField, format_field, parse_field
from snapbid.drain.tidy import KEPT_DAYS
from snapbid.ledger.admin.audits import SHOWN, AuditReport, Difference, write_audit
from snapbid.ledger.bids.clock import compare
from snapbid.ledger.bids.segment import fetch_segments
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.redisclient.connection import Connections
from snapbid.warehouse import absorb, comparison, fence, leases
from snapbid.warehouse.unavailable import UNAVAILABLE

AFTER_S: Final = 10.0  # a drain that has just started has other work
EVERY_S: Final = 60.0
STOP_S: Final = 5.0
SETTINGS: Final = frozenset({"redis_url", "redis_replicas", "database_url", "ledger_shards"})
CONNECT_S: Final = 5.0
COMMAND_S: Final = 30.0
SCANNED: Final = 1_000  # fields of a hash in one command
CAMPAIGNS: Final = 2_000  # whose budgets one audit reads, in turns if there are more
NICE: Final = 10
NO_SOURCE: Final = 0  # of a run of Redis of which nothing was absorbed
DAY: Final = datetime.timedelta(days=1)
COMPARISONS: Final = ("counters", "reports", "campaigns", "budgets")

logger = logging.getLogger("snapbid.drain.audit")  # not __main__
repeated = RepeatedLog(logger)


class Auditor:
    """Audits the ledger's shards and the warehouse; call `audit` repeatedly.

    `clock`: epoch seconds.
    """

    def __init__(self, redis: Redis, shards: int, clock: Callable[[], float] = time) -> None:
        self._redis = redis
        self._clock = clock
        self._shards = [ShardKeys(number) for number in range(shards)]
        self._budgets = Budgets(redis, shards, clock)
        self._before: set[Difference] = set()
        self._next_campaign = 0

    async def audit(self, connection: asyncpg.Connection) -> list[Difference]:
        """Return the differences that the previous audit found as well.

        Raises what the stores raise; an audit cut short finds nothing.
        """
        today = datetime.datetime.fromtimestamp(self._clock(), datetime.UTC).date()
        found = [each async for each in self._counters(connection, today)]
        found += _named("reports", await comparison.compare_reports(connection))
        since = today - KEPT_DAYS * DAY
        found += _named("campaigns", await comparison.compare_campaigns(connection, since))
        found += await self._spend(connection)
        lasting = [each for each in found if each in self._before]
        self._before = set(found)
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
        """Read the counters of a day, without those that are 0."""
        counted: dict[CounterField, int] = {}
        scan = self._redis.hscan_iter(keys.counters(segment, str(day)), count=SCANNED)
        async for name, value in scan:
            field = parse_field(name)
            if field is not None and int(value):
                counted[field] = int(value)
        return counted

    async def _spend(self, connection: asyncpg.Connection) -> list[Difference]:
        """Compare what some campaigns have spent, others the next time."""
        known = await fence.spend_of_day(connection, 0)
        numbers = sorted(known)
        if len(numbers) > CAMPAIGNS:
            start = next((i for i, n in enumerate(numbers) if n >= self._next_campaign), 0)
            numbers = (numbers[start:] + numbers[:start])[:CAMPAIGNS]
            self._next_campaign = numbers[-1] + 1
        states = await self._budgets.states(numbers)
        return [
            Difference("budgets", f"campaign number {number}, spent in all", spent, total)
            for number, state in states.items()
            if (spent := state.used - state.held) != (total := known[number][0])
        ]


def _unlike(
    counted: Mapping[CounterField, int], absorbed: Mapping[tuple[str, int, int], int]
) -> Iterator[tuple[str, int, int]]:
    """Yield the names of counters that differ, with both values."""
    for field in counted.keys() | map(CounterField._make, absorbed):
        value, known = counted.get(field, 0), absorbed.get(field, 0)
        if value != known:
            yield format_field(field).decode(), value, known


def report_of(differences: Sequence[Difference], at: float) -> AuditReport:
    """Return the report of an audit."""
    counts = dict.fromkeys(COMPARISONS, 0)
    for each in differences:
        counts[each.comparison] += 1
    return AuditReport(at, counts, list(differences[:SHOWN]))


async def run(settings: StoreSettings, ended: asyncio.Event) -> None:
    """Audit each minute until `ended`, while this process has the lease and both stores answer."""
    redis = Connections(settings.redis_url, settings.redis_replicas).client()
    auditor = Auditor(redis, settings.shards)
    try:
        while not ended.is_set():
            try:
                await _audit_on_lease(settings.database_url, redis, auditor, ended)
            except (*UNAVAILABLE, RedisError, OSError) as error:
                repeated.warning(
                    "paused the audit: %(reason)s, retrying", {"reason": type(error).__name__}
                )
                await _pause(ended)
    finally:
        await redis.aclose()


async def _audit_on_lease(dsn: str, redis: Redis, auditor: Auditor, ended: asyncio.Event) -> None:
    connection = await asyncpg.connect(dsn, timeout=CONNECT_S, command_timeout=COMMAND_S)
    logged: set[Difference] = set()
    try:
        while not await leases.acquire(connection, leases.AUDIT):
            await _pause(ended)
            if ended.is_set():
                return
        while not ended.is_set():
            found = await auditor.audit(connection)
            ahead_s = (await compare(redis, 0)).ahead_s
            await write_audit(redis, report_of(found, time() - ahead_s))
            _log(each for each in found if each not in logged)
            logged = set(found)
            await _pause(ended)
    finally:
        connection.terminate()


def _log(differences: Iterable[Difference]) -> None:
    for each in list(differences)[:SHOWN]:
        logger.error(
            "audit found a difference: %(comparison)s: %(what)s: %(first)d against %(second)d",
            {
                "comparison": each.comparison,
                "what": each.what,
                "first": each.first,
                "second": each.second,
            },
        )


async def _pause(ended: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ended.wait(), EVERY_S)


def _named(name: str, differing: Iterable[comparison.Differing]) -> list[Difference]:
    return [
        Difference(name, f"{each.what} on {each.day}", each.first, each.second)
        for each in differing
    ]


def child_of(settings: StoreSettings) -> ChildProcess:
    """Return the auditor's process, for a drain with these settings."""
    environ = to_environ(settings, SETTINGS)
    module = "snapbid.drain.audit"
    return ChildProcess("audit", module, stop_s=STOP_S, after_s=AFTER_S, environ=environ)


async def _main() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)  # it closes with the drain
    await run(require_stores(load(os.environ)), ended)


if __name__ == "__main__":
    log_to_stderr()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # for the drain, which closes our standard input
    with contextlib.suppress(OSError):
        os.nice(NICE)
    asyncio.run(_main())
