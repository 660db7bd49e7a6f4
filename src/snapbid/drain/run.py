"""`snapbid drain`: the process, which outlasts its stores and leaves its place to another."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import asyncpg
from redis.exceptions import RedisError

from snapbid.base.errors import log_to_stderr, where
from snapbid.base.reasons import reason
from snapbid.base.repeats import RepeatedLog
from snapbid.base.risks import RiskLog
from snapbid.base.settings import StoreSettings
from snapbid.base.tasks import end
from snapbid.base.version import version
from snapbid.drain.counters import ShardCounters, ShardsAwayError, SupersededError
from snapbid.drain.demand import DemandMaker
from snapbid.drain.drain import Drain
from snapbid.drain.events import EventDrain
from snapbid.drain.evidence import EvidenceDrain
from snapbid.drain.fence import UnrelatedStoresError
from snapbid.drain.leases import GIVEN_UP_S, IdleError
from snapbid.drain.reporter import report
from snapbid.drain.suspensions import SuspensionKeeper
from snapbid.drain.watch import APPLICATION, WatchedConnection, connect, watch
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.metrics import Metrics
from snapbid.operations import preflight
from snapbid.operations.golive.store import EvidenceStore
from snapbid.redisclient import connection as ledger
from snapbid.reference import history
from snapbid.reference.geo import DEFAULT_PATH, GeoDatabase, GeoDatabaseError
from snapbid.warehouse import demand, diagnosis, events, suspensions
from snapbid.warehouse.away import AWAY, NO_SCHEMA, OUTDATED
from snapbid.warehouse.suspensions import SuspensionRule

# What it needs of the settings; `load` compares the two ports.
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
PAUSE_S: Final = 0.5  # between rounds, and between looks whether the other drain has gone
RETRY_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
CONNECT_S: Final = 5.0
COMMAND_S: Final = 60.0  # however busy the warehouse is with it
FROZEN_S: Final = 10.0  # amid a transaction, whose locks others wait for
SILENT_S: Final = 30.0  # between statements, after which PostgreSQL ends the session
KEPT_ALIVE: Final = 3  # statements in that time, where there is nothing to do
YIELDED_S: Final = 2 * PAUSE_S  # in which it can take it
WAREHOUSE: Final = "the warehouse"
LAST_ROUND_S: Final = 20.0  # when told to stop, however busy machine and disk are

T = TypeVar("T")

logger = logging.getLogger("snapbid")
repeated = RepeatedLog(logger)


class Rounds(Protocol):
    """What is done over and over on a connection to the warehouse: `Drain`, `EventDrain`, …"""

    async def begin(self) -> None: ...

    async def round(self, connection: asyncpg.Connection) -> int: ...


class Duty(NamedTuple):
    """What one drain at a time carries: how to become that one, and what the log says of it.

    Counters and events are shared shard by shard (leases.py): nobody is the only one to carry them.
    """

    become: Callable[[asyncpg.Connection], Awaitable[bool]] | None
    waits: str  # formatted with the name of the store
    another: str
    again: str
    quotes: bool  # whether an error's text may be told: it may hold what partners sent


COUNTERS: Final = Duty(
    None,
    "%s is away, the drain waits",
    "another drain is at work, this one waits",
    "the drain is at work again",
    quotes=True,
)
EVENTS: Final = Duty(
    events.join,
    "%s does not answer, events wait",
    "another drain carries events, this one waits",
    "events are carried again",
    quotes=False,
)
EVIDENCE: Final = Duty(
    diagnosis.become_the_drain,
    "%s does not answer, the SSPs' diagnosis waits",
    "another drain carries the SSPs' diagnosis, this one waits",
    "the SSPs' diagnosis is carried again",
    quotes=False,
)
DEMAND: Final = Duty(
    demand.become_the_maker,
    "%s does not answer, demand signals wait",
    "another drain makes demand signals, this one waits",
    "demand signals are made again",
    quotes=False,
)
SUSPENSIONS: Final = Duty(
    suspensions.acquire_lease,
    "%s does not answer, rejected creatives go on",
    "another drain suspends rejected creatives, this one waits",
    "rejected creatives are suspended again",
    quotes=False,
)


def run(settings: StoreSettings, metrics: Path) -> int:
    """Drain until SIGTERM, SIGINT or SIGHUP: the exit status."""
    log_to_stderr()
    try:
        counts = Metrics(metrics)
    except OSError as error:
        print(f"{metrics} cannot be used: {error.strerror}", file=sys.stderr)
        return 1
    try:
        geo = GeoDatabase(settings.geo_db or DEFAULT_PATH)
    except GeoDatabaseError as error:
        print(f"SNAPBID_GEO_DB: {error}", file=sys.stderr)
        return 2
    try:
        asyncio.run(_run(settings, counts, geo))
    except preflight.VolatileStoreError as error:
        print(error, file=sys.stderr)
        return error.status
    finally:
        counts.close()
        geo.close()
    return 0


async def _run(settings: StoreSettings, metrics: Metrics, geo: GeoDatabase) -> None:
    dsn = settings.database_url
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup asks for
            loop.add_signal_handler(number, stopping.set)
    risks = RiskLog()
    await preflight.check(settings, risks)
    logger.info("the drain of snapbid %s begins", version())
    looking = asyncio.create_task(preflight.watch(settings, risks))
    stores = ledger.Connections(settings.redis_url, settings.redis_replicas)
    redis = stores.client()
    try:
        numbers = range(settings.ledger_shards)
        shards = [ShardCounters(redis, number, stores.replicate) for number in numbers]
        budgets = Budgets(redis, len(shards), time)
        evidence = EvidenceStore(redis)
        keeper = SuspensionKeeper(
            SuspensionRule(settings.suspend_losses, settings.suspend_share), settings.suspend_s
        )
        counters = Drain(shards, budgets, metrics, evidence=evidence)
        carried = EventDrain(
            redis,
            metrics,
            geo,
            history.load(),
            keep_days=settings.events_days,
            shards=settings.ledger_shards,
        )
        troubles: dict[Duty, str] = {}
        reporting = asyncio.create_task(report(redis, troubles))

        def process(duty: Duty, drain: Rounds) -> Process:
            return Process(duty, drain, dsn, stopping, troubles)

        async with asyncio.TaskGroup() as group:
            group.create_task(process(COUNTERS, counters).run())
            group.create_task(process(EVENTS, carried).outlast())
            group.create_task(process(EVIDENCE, EvidenceDrain(evidence)).outlast())
            group.create_task(process(SUSPENSIONS, keeper).outlast())
            group.create_task(process(DEMAND, DemandMaker(dsn)).outlast())
    finally:
        await end(looking, reporting)
        await redis.aclose()


class Process:
    """Runs a drain whenever both stores are there and no other drain is at work.

    What keeps it from that is in `troubles` meanwhile.
    """

    def __init__(
        self,
        duty: Duty,
        drain: Rounds,
        dsn: str,
        stopping: asyncio.Event,
        troubles: MutableMapping[Duty, str] | None = None,
    ) -> None:
        self._troubles = {} if troubles is None else troubles
        self._duty = duty
        self._drain = drain
        self._dsn = dsn
        self._stopping = stopping
        self._failures = 0
        self._told: str | None = None

    async def outlast(self) -> None:
        """As `run`, and again whatever happens: this part must not take the other with it."""
        while not self._stopping.is_set():
            try:
                await self.run()
            except Exception as error:
                repeated.error("%s; trying again", where(error))
                await self._pause(RETRY_S[-1])

    async def run(self) -> None:
        """Return when `stopping` is set, what is under way being finished."""
        while not self._stopping.is_set():
            try:
                async with self._place() as connection:
                    if connection is not None:
                        await self._drain_on(connection)
                await self._pause(YIELDED_S)
            except SupersededError as error:
                logger.info("%s: beginning anew", error)
                await self._pause(PAUSE_S)
            except AWAY as error:
                await self._fail(WAREHOUSE, error)

    @contextlib.asynccontextmanager
    async def _place(self) -> AsyncIterator[WatchedConnection | None]:
        """A connection that holds the drain's place; None where it is time to stop."""
        connection = await self._unless_stopped(self._connect())
        if connection is None:
            yield None
            return
        watching = asyncio.create_task(watch(connection, self._dsn))
        try:
            become = self._duty.become
            while become is not None and not await become(connection):
                self._tell(self._duty.another, logging.INFO)
                await self._pause(PAUSE_S)
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
            command_timeout=COMMAND_S,
            server_settings={
                "application_name": APPLICATION,
                "plan_cache_mode": "force_custom_plan",  # ten counters or thousands: each its plan
                # So that the place of one that is frozen, or whose machine has gone, becomes free.
                "idle_in_transaction_session_timeout": f"{FROZEN_S * 1000:.0f}",
                "idle_session_timeout": f"{SILENT_S * 1000:.0f}",
                "tcp_keepalives_idle": "10",
                "tcp_keepalives_interval": "5",
                "tcp_keepalives_count": "3",
            },
        )

    async def _drain_on(self, connection: WatchedConnection) -> None:
        """Do rounds until told to stop, or until Redis was away for so long that another drain,
        which may reach it, had better have the place.
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
                if isinstance(error, ShardsAwayError):  # the others were carried
                    read_at = now()
                    self._tell(self._duty.waits % "a part of Redis", logging.WARNING, str(error))
                    await self._pause(PAUSE_S)
                else:
                    begun = False
                    await self._fail("Redis", error)
                continue
            except IdleError:
                if last:
                    return
                read_at = now()
                self._tell(self._duty.another, logging.INFO)
                await self._pause(PAUSE_S)
                continue
            except UnrelatedStoresError as error:
                if last:
                    return
                begun = False
                self._tell(str(error), logging.ERROR)
                await self._pause(PAUSE_S)
                continue
            await connection.keep_alive(SILENT_S / KEPT_ALIVE)
            self._recover()
            read_at = now()
            await self._pause(PAUSE_S)

    # -- waiting -----------------------------------------------------------------------------

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, or None where it is time to stop before."""
        task = asyncio.create_task(work)
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            await end(task, stop)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _fail(self, store: str, error: Exception) -> None:
        """Tell once what is away, and wait a little longer each time."""
        if isinstance(error, OUTDATED):
            if self._duty.quotes:  # the other duty need not say it again
                self._tell(NO_SCHEMA, logging.WARNING)
        elif not self._stopping.is_set():
            self._tell(self._duty.waits % store, logging.WARNING, self._why(store, error))
        pause = RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1
        await self._pause(pause)

    def _recover(self) -> None:
        if self._failures:
            logger.info(self._duty.again)
        self._failures, self._told = 0, None
        self._troubles.pop(self._duty, None)

    def _why(self, store: str, error: Exception) -> str:
        if not self._duty.quotes:
            return type(error).__name__
        return reason(error, self._dsn) if store == WAREHOUSE else str(error)

    def _tell(self, what: str, level: int, why: str = "") -> None:
        text = f"{what}: {why}" if why else what
        if level >= logging.WARNING:
            self._troubles[self._duty] = text
        else:
            self._troubles.pop(self._duty, None)
        if self._told != what:
            self._told = what
            logger.log(level, "%s", text)
