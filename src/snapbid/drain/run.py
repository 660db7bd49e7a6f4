"""The `snapbid drain` process; it survives outages of its stores and hands over its leases."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from functools import partial
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import asyncpg
from redis.exceptions import RedisError

from snapbid.base.errors import where
from snapbid.base.logs import log_to_stderr
from snapbid.base.reasons import CLOSED, is_closed, reason, text_of, unreadable_file
from snapbid.base.repeats import RepeatedLog
from snapbid.base.risks import RiskLog
from snapbid.base.settings import StoreSettings
from snapbid.base.tasks import end, pause
from snapbid.base.version import version
from snapbid.drain import audit
from snapbid.drain.counters import ShardCounters, ShardsUnavailableError, SupersededError
from snapbid.drain.demand import DemandBuilder
from snapbid.drain.drain import Drain
from snapbid.drain.events import EventDrain
from snapbid.drain.fence import UnrelatedStoresError
from snapbid.drain.leases import GIVEN_UP_S, IdleError
from snapbid.drain.request_stats import RequestStatsDrain
from snapbid.drain.suspensions import SuspensionRounds
from snapbid.drain.watch import APPLICATION, WatchedConnection, connect, watch
from snapbid.ledger.admin.drains import report
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.metrics import Metrics
from snapbid.operations import preflight
from snapbid.operations.golive.store import RequestStatsStore
from snapbid.redisclient import connection as ledger
from snapbid.reference import history
from snapbid.reference.geo import GeoDatabase, GeoDatabaseError
from snapbid.warehouse import events, leases
from snapbid.warehouse.suspensions import SuspensionRule
from snapbid.warehouse.unavailable import NO_SCHEMA, OUTDATED, UNAVAILABLE

# The settings that the drain needs; loading them compares the two ports.
SETTINGS: Final = frozenset(
    {
        "redis_url",
        "redis_replicas",
        "database_url",
        "home",
        "port",
        "ops_port",
        "geo_db",
        "ledger_shards",
        "suspend_losses",
        "suspend_share",
        "suspend_s",
        "events_days",
        "allow_volatile",
    }
)
PAUSE_S: Final = 0.5  # between rounds, and between attempts to acquire the lease
RETRY_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
CONNECT_S: Final = 5.0
COMMAND_S: Final = 60.0  # for a statement, however busy the warehouse is
FROZEN_S: Final = 10.0  # idle in a transaction, before PostgreSQL ends the session and its locks
SILENT_S: Final = 30.0  # idle between statements, before PostgreSQL ends the session
KEPT_ALIVE: Final = 3  # statements in SILENT_S when there is nothing to do
YIELDED_S: Final = 2 * PAUSE_S  # for another drain to take the lease that this one released
WAREHOUSE: Final = "the warehouse"
LAST_ROUND_S: Final = 20.0  # for the last round after a signal, however busy the machine is

T = TypeVar("T")

STORE_UNAVAILABLE: Final = "%(store)s is unavailable (%(reason)s); retrying"

SESSION: Final = {  # settings of the warehouse session
    "plan_cache_mode": "force_custom_plan",  # batches are of ten counters or thousands
    # These free the leases of a drain that hangs, or whose machine is gone.
    "idle_in_transaction_session_timeout": f"{FROZEN_S * 1000:.0f}",
    "idle_session_timeout": f"{SILENT_S * 1000:.0f}",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

logger = logging.getLogger(__name__)
repeated = RepeatedLog(logger)


class Rounds(Protocol):
    """Work done in rounds on a connection to the warehouse: `Drain`, `EventDrain`, …"""

    async def begin(self) -> None: ...

    async def round(self, connection: asyncpg.Connection) -> int: ...


class Duty(NamedTuple):
    """A task of the drain; `name` is its name in the log.

    `acquire`, if set, prepares the database session; if the task needs a lease, it acquires the
    lease. Counters and events are not leased as a whole: drains share them by shard (leases.py).
    """

    acquire: Callable[[asyncpg.Connection], Awaitable[bool]] | None
    name: str
    quotes: bool  # whether an error's text may be logged: it may quote what partners sent


def _sole(lease: int) -> Callable[[asyncpg.Connection], Awaitable[bool]]:
    return partial(leases.acquire, sole=lease)


COUNTERS: Final = Duty(None, "draining counters", quotes=True)
EVENTS: Final = Duty(events.join, "draining events", quotes=False)
REQUEST_STATS: Final = Duty(
    _sole(leases.REQUEST_STATS), "draining request statistics", quotes=False
)
DEMAND: Final = Duty(_sole(leases.DEMAND), "building demand signals", quotes=False)
SUSPENSIONS: Final = Duty(_sole(leases.SUSPENSIONS), "suspending rejected creatives", quotes=False)


def run(settings: StoreSettings, metrics: Path) -> int:
    """Drain until SIGTERM, SIGINT or SIGHUP; return the exit status."""
    log_to_stderr()
    try:
        counts = Metrics(metrics)
    except OSError as error:
        print(f"{metrics} cannot be used: {error.strerror}", file=sys.stderr)
        return 1
    try:
        geo = GeoDatabase(settings.geo_db)
    except GeoDatabaseError as error:
        print(f"SNAPBID_GEO_DB: {error}", file=sys.stderr)
        return 2
    risks = RiskLog()
    try:
        settings = asyncio.run(preflight.check(settings, risks))
    except preflight.VolatileStoreError as error:
        print(error, file=sys.stderr)
        return error.status
    auditor = audit.child_of(settings)
    auditor.start()
    try:
        asyncio.run(_run(settings, counts, geo, risks))
    finally:
        auditor.stop()
        counts.close()
        geo.close()
    return 0


async def _run(settings: StoreSettings, metrics: Metrics, geo: GeoDatabase, risks: RiskLog) -> None:
    dsn = settings.database_url
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            loop.add_signal_handler(number, stopping.set)
    logger.info("started snapbid drain %(version)s", {"version": version()})
    looking = asyncio.create_task(preflight.watch(settings, risks))
    stores = ledger.Connections(settings.redis_url, settings.redis_replicas)
    redis = stores.client()
    try:
        numbers = range(settings.shards)
        shards = [ShardCounters(redis, number, stores.replicate) for number in numbers]
        budgets = Budgets(redis, len(shards), time)
        request_stats = RequestStatsStore(redis)
        suspending = SuspensionRounds(
            SuspensionRule(settings.suspend_losses, settings.suspend_share), settings.suspend_s
        )
        counters = Drain(shards, budgets, metrics, request_stats=request_stats)
        event_drain = EventDrain(
            redis,
            metrics,
            geo,
            history.load(),
            keep_days=settings.events_days,
            shards=settings.shards,
        )
        troubles: dict[Duty, str] = {}
        reporting = asyncio.create_task(report(redis, troubles))

        def process(duty: Duty, drain: Rounds) -> Process:
            return Process(duty, drain, dsn, stopping, troubles, settings.redis_url)

        async with asyncio.TaskGroup() as group:
            group.create_task(process(COUNTERS, counters).run())
            group.create_task(process(EVENTS, event_drain).outlast())
            group.create_task(process(REQUEST_STATS, RequestStatsDrain(request_stats)).outlast())
            group.create_task(process(SUSPENSIONS, suspending).outlast())
            group.create_task(process(DEMAND, DemandBuilder(dsn)).outlast())
    finally:
        await end(looking, reporting)
        await redis.aclose()


class Process:
    """A loop that runs a duty's rounds whenever both stores are available and the lease is free.

    `troubles`: by duty, the problem that currently prevents its rounds. `redis_url`: for messages.
    """

    def __init__(
        self,
        duty: Duty,
        drain: Rounds,
        dsn: str,
        stopping: asyncio.Event,
        troubles: MutableMapping[Duty, str],
        redis_url: str = "",
    ) -> None:
        self._troubles = troubles
        self._duty = duty
        self._drain = drain
        self._dsn = dsn
        self._redis_url = redis_url
        self._stopping = stopping
        self._failures = 0
        self._logged: str | None = None

    async def outlast(self) -> None:
        """Call `run` again after any error, so that the drain's other tasks go on."""
        while not self._stopping.is_set():
            try:
                await self.run()
            except Exception as error:
                repeated.error(
                    "failed while %(duty)s: %(reason)s; retrying",
                    {"duty": self._duty.name, "reason": where(error)},
                )
                await pause(self._stopping, RETRY_S[-1])

    async def run(self) -> None:
        """Run until `stopping` is set and the current round has finished."""
        while not self._stopping.is_set():
            try:
                async with self._leased_connection() as connection:
                    if connection is not None:
                        await self._drain_on(connection)
                await pause(self._stopping, YIELDED_S)
            except SupersededError as error:
                logger.info(
                    "restarted %(duty)s: %(reason)s",
                    {"duty": self._duty.name, "reason": error},
                )
                await pause(self._stopping, PAUSE_S)
            except UNAVAILABLE as error:
                await self._fail(WAREHOUSE, error)

    @contextlib.asynccontextmanager
    async def _leased_connection(self) -> AsyncIterator[WatchedConnection | None]:
        """Yield a connection for this process's duty; None if told to stop.

        If the duty has a lease, the connection holds it.
        """
        connection = await self._unless_stopped(self._connect())
        if connection is None:
            yield None
            return
        watching = asyncio.create_task(watch(connection, self._dsn))
        try:
            acquire = self._duty.acquire
            while acquire is not None and not await acquire(connection):
                self._stand_by()
                await pause(self._stopping, PAUSE_S)
                if self._stopping.is_set():
                    yield None
                    return
            yield connection
        finally:
            connection.terminate()
            await end(watching)

    async def _connect(self) -> WatchedConnection:
        return await connect(
            self._dsn,
            CONNECT_S,
            SESSION,
            command_timeout=COMMAND_S,
            server_settings={"application_name": APPLICATION},
        )

    async def _drain_on(self, connection: WatchedConnection) -> None:
        """Run rounds until stopped.

        Also return once Redis has been unavailable for GIVEN_UP_S, so that another drain, which may
        reach Redis, gets the lease.
        """
        now = asyncio.get_running_loop().time
        begun, read_at = False, now()
        while now() - read_at < GIVEN_UP_S:
            last = self._stopping.is_set()
            try:
                if not begun:
                    await self._drain.begin()
                    begun = True
                if last:
                    async with asyncio.timeout(LAST_ROUND_S):
                        await self._drain.round(connection)
                    return
                await self._drain.round(connection)
            except RedisError as error:
                if last:
                    return
                if isinstance(error, ShardsUnavailableError):  # the others were drained
                    read_at = now()
                    self._log(
                        f"paused %(duty)s of some shards: {STORE_UNAVAILABLE}",
                        logging.WARNING,
                        store="Redis",
                        reason=str(error),
                    )
                    await pause(self._stopping, PAUSE_S)
                else:
                    begun = False
                    await self._fail("Redis", error)
                continue
            except IdleError:
                if last:
                    return
                read_at = now()
                self._stand_by()
                await pause(self._stopping, PAUSE_S)
                continue
            except UnrelatedStoresError as error:
                if last:
                    return
                begun = False
                self._log("paused %(duty)s: %(problem)s", logging.ERROR, problem=str(error))
                await pause(self._stopping, PAUSE_S)
                continue
            await connection.keep_alive(SILENT_S / KEPT_ALIVE)
            self._recover()
            read_at = now()
            await pause(self._stopping, PAUSE_S)

    # -- waiting -----------------------------------------------------------------------------

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await `work`; return None if `stopping` is set before it is done."""
        task = asyncio.create_task(work)
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            await end(task, stop)

    async def _fail(self, store: str, error: Exception) -> None:
        """Log that a store is unavailable, once per outage; pause, longer after each failure."""
        if isinstance(error, OUTDATED):
            if self._duty.quotes:  # one duty logs it for all
                self._log("paused %(duty)s: %(problem)s", logging.WARNING, problem=NO_SCHEMA)
        elif not self._stopping.is_set():
            self._log(
                f"paused %(duty)s: {STORE_UNAVAILABLE}",
                logging.WARNING,
                store=store,
                reason=self._why(store, error),
            )
        retry_s = RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1
        await pause(self._stopping, retry_s)

    def _recover(self) -> None:
        if self._failures:
            logger.info("resumed %(duty)s", {"duty": self._duty.name})
        self._failures, self._logged = 0, None
        self._troubles.pop(self._duty, None)

    def _why(self, store: str, error: Exception) -> str:
        if not self._duty.quotes:
            return CLOSED if is_closed(error) else type(error).__name__
        if store == WAREHOUSE:
            return reason(error, self._dsn)
        return unreadable_file(error, self._redis_url) or text_of(error)

    def _stand_by(self) -> None:
        self._log("on standby for %(duty)s: another drain has the lease", logging.INFO)

    def _log(self, message: str, level: int, **fields: str) -> None:
        """Log a message, unless the last one logged was the same apart from its `reason`.

        A warning or error is also recorded in `troubles` under the process's duty; any other
        message removes that record.
        """
        fields["duty"] = self._duty.name
        text = message % fields
        without_reason = message % (fields | {"reason": ""})
        if level >= logging.WARNING:
            self._troubles[self._duty] = text
        else:
            self._troubles.pop(self._duty, None)
        if self._logged != without_reason:
            self._logged = without_reason
            logger.log(level, message, fields)
