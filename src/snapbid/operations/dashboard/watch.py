"""The thread that reads the private port's figures into a snapshot.

It reads every few seconds even if no page is open, so the load does not depend on clients. If one
figure cannot be read, the others are still updated.
"""

import asyncio
import contextlib
import datetime
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic, time
from typing import Final, NamedTuple, Protocol

import asyncpg
import msgspec
from redis.exceptions import RedisError

from snapbid import metrics
from snapbid.auctionlog.chunks import count_waiting, spool_of
from snapbid.auctionlog.layout import CHUNK_SIZE
from snapbid.base.reasons import reason
from snapbid.base.redis_keys import ShardKeys
from snapbid.base.risks import Risk, RiskLog, StoreName
from snapbid.base.settings import VARIABLES, Settings, StoreSettings, reachable
from snapbid.base.tasks import LoopThread, end
from snapbid.ledger.admin import closing
from snapbid.ledger.admin.audits import fetch_audit
from snapbid.ledger.admin.drains import fetch_reports
from snapbid.ledger.admin.parts import name, of_each
from snapbid.ledger.bids.clock import OwnClock, compare
from snapbid.operations import preflight
from snapbid.operations.dashboard import ledger
from snapbid.operations.dashboard.clocks import POSTGRES, REDIS, ClockWatch
from snapbid.operations.dashboard.counts import CountHistory
from snapbid.operations.dashboard.guard import Guard
from snapbid.operations.dashboard.ledger import Traffic, TrafficReader
from snapbid.operations.dashboard.snapshot import Disk, OpsSnapshot
from snapbid.operations.dashboard.trends import Trends
from snapbid.operations.dashboard.verdict import Judge
from snapbid.operations.spending import SpendingReader
from snapbid.redisclient import connection
from snapbid.warehouse import fence, registry, suspensions, watching
from snapbid.warehouse import risks as warehouse_risks
from snapbid.warehouse.campaigns import count_all
from snapbid.warehouse.unavailable import OUTDATED, UNAVAILABLE, brief_session

COUNTERS_S: Final = 2.0  # between reads of the counters and of Redis
MONEY_S: Final = 5.0  # between reads of budgets and SSPs in Redis
RISKS_S: Final = 10.0  # between reads of the configuration of Redis
WAREHOUSE_S: Final = 60.0  # or when the catalog changes
RETRY_S: Final = 5.0
PORT_S: Final = 0.5  # between checks of the public port
PORT_PATIENCE_S: Final = 10.0  # for an answer
PATIENCE_S: Final = 5.0  # timeout of the warehouse
SHARE: Final = 10  # a slow read is repeated after this many times its duration
CAMPAIGNS: Final = 200
UNLIMITED: Final = 20  # campaigns without a budget
BATCH: Final = 20  # campaigns in one script call
SSPS: Final = 1_000
LOG_BYTES: Final = 67_108_864  # free space that the auction log needs

logger = logging.getLogger(__name__)


class Publications(Protocol):
    """The times when the catalog was last published and checked (epoch s); None if never.

    `bases` counts the catalog's bases that were `built` here, or `fetched` from another machine.
    """

    @property
    def published_at(self) -> float | None: ...

    @property
    def checked_at(self) -> float | None: ...

    @property
    def bases(self) -> Mapping[str, int]: ...


class WarehouseFacts(NamedTuple):
    """Data last read from the warehouse: SSPs' names by number, and campaigns with budgets."""

    ssps: dict[int, str]
    budgeted: watching.Budgeted


class Watch:
    """Reads figures until stopped; other threads use `snapshot`, `trends` and `judge.verdict`."""

    def __init__(self, settings: StoreSettings, publisher: Publications, risk_log: RiskLog) -> None:
        self._publisher = publisher
        self._risk_log = risk_log
        self._history = CountHistory()
        self._guard = Guard()
        self._clocks = ClockWatch()
        self._logged_clocks: frozenset[tuple[str, ...]] = frozenset()
        self._known: WarehouseFacts | None = None
        self._drained: tuple[datetime.date, Mapping[int, Traffic]] = datetime.date.min, {}
        self._known_at = 0.0  # monotonic
        self._known_version: float | None = None  # publication time of the catalog at that read
        self._thread = LoopThread("watch", self._read_all)
        self._chunks = settings.auction_log and spool_of(settings.auction_log)
        self.settings = settings
        self.started_at = time()
        self.trends = Trends(settings.metrics_path)
        self.judge = Judge()
        self.snapshot = OpsSnapshot(started_at=self.started_at)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()

    async def _read_all(self) -> None:
        shards = self.settings.shards
        self._redis = connection.connect(self.settings.redis_url)
        self._spending = SpendingReader(self._redis, shards, BATCH)
        self._traffic = TrafficReader(self._redis, shards)
        tasks = [
            asyncio.create_task(repeat(read, every_s))
            for read, every_s in (
                (self._read_port, PORT_S),
                (self._read_counters, COUNTERS_S),
                (self._read_redis, COUNTERS_S),
                (self._read_warehouse, RETRY_S),
                (self._read_money, MONEY_S),
                (self._read_redis_risks, RISKS_S),
                (self._read_drains, COUNTERS_S),
            )
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end(*tasks)
            await self._redis.aclose()

    # Each of these returns whether it succeeded.

    async def _read_port(self) -> bool:
        """Record whether a worker answers on the public port, and what it lacks to bid.

        Returns whether a worker answers.
        """
        settings = self.settings
        found = await fetch_missing(reachable(settings.host), settings.port)
        answers, missing = found is not None, found or []
        if (answers, missing) != (self.snapshot.answers, self.snapshot.missing):
            self._update(answers=answers, missing=missing)
            self.judge.judge(time(), self.snapshot)
        return answers

    async def _read_counters(self) -> bool:
        settings, publisher = self.settings, self._publisher
        now, counts = time(), await asyncio.to_thread(metrics.read, settings.metrics_path)
        self._history.add(now, counts)
        self._guard.add(now, counts)
        await asyncio.to_thread(self.trends.add, now, counts)
        self._look_at_clocks()
        self._update(
            window=self._history.window(),
            standings=self._guard.standings,
            differences=self._clocks.differences,
            disks=find_disks(settings),
            spool_bytes=_size(settings.spool_path, "*.spool"),
            auction_log_bytes=self._chunks
            and count_waiting(self._chunks, settings.workers) * CHUNK_SIZE,
            published_at=publisher.published_at,
            checked_at=publisher.checked_at,
            bases=dict(publisher.bases),
        )
        self.judge.judge(now, self.snapshot)
        return True

    def _look_at_clocks(self) -> None:
        self._clocks.look(self.snapshot.clocks, monotonic())
        differences = {each.names: each for each in self._clocks.differences}
        for names, difference in differences.items():
            if names not in self._logged_clocks:
                logger.warning(
                    "%(difference)s: set the clock and synchronise it with a time service",
                    {"difference": difference, "clocks": " and ".join(names)},
                )
        for names in self._logged_clocks - differences.keys():
            logger.info(
                "resolved: clocks correct again: %(clocks)s",
                {"clocks": ", ".join(names)},
            )
        self._logged_clocks = frozenset(differences)

    async def _read_redis(self) -> bool:
        try:
            now = time() - self.snapshot.ahead_s
            backlog = await ledger.waiting(self._redis, self.settings.shards, now)
        except (RedisError, OSError) as error:
            why, closed = reason(error, self.settings.redis_url), await self._closed()
            self._update(redis=False, redis_why=why, closed=closed, waiting=None, drains=[])
            return False
        self._update(redis=True, closed="", waiting=backlog)
        return True

    async def _closed(self) -> str:
        """Return why the ledger is closed; "" if it is open or unavailable."""
        try:
            return await closing.closed(self._redis, ShardKeys(0))
        except (RedisError, OSError):
            return ""

    async def _read_drains(self) -> bool:
        """Read drains' reports, the last audit and shards' clocks; return whether that worked."""
        shards = self.settings.shards
        try:
            compared = await of_each(shards, partial(compare, self._redis))
            known = [clock for clock in compared if clock is not None]
            ahead_s = known[0].ahead_s
            drains = await fetch_reports(self._redis, time() - ahead_s)
            audit = await fetch_audit(self._redis)
        except (RedisError, OSError):
            return False
        clocks = {
            REDIS if shards == 1 else f"{REDIS} ({name(number)})": clock
            for number, clock in enumerate(compared)
            if clock is not None
        }
        for drain in drains:
            clocks[f"the drain on {drain.host}"] = OwnClock(
                ahead_s - drain.ahead_s, known[0].doubt_s
            )
        if POSTGRES in self.snapshot.clocks:
            clocks[POSTGRES] = self.snapshot.clocks[POSTGRES]
        self._update(clocks=clocks, drains=drains, audit=audit, ahead_s=ahead_s)
        return True

    async def _read_warehouse(self) -> bool:
        published, started = self._publisher.published_at, monotonic()
        same = self._known is not None and published == self._known_version
        is_known = same and started - self._known_at < WAREHOUSE_S
        today = datetime.datetime.now(datetime.UTC).date()
        try:
            async with brief_session(self.settings.database_url, PATIENCE_S) as connection:
                self._update_risks("warehouse", await warehouse_risks.fetch_risks(connection))
                await self._compare_clock(connection)
                drained = await watching.fetch_drained(connection, today)
                self._drained = today, {number: Traffic(*row) for number, *row in drained}
                if is_known:
                    self._update(warehouse=True)
                    return True
                registered = frozenset(await registry.fetch_all(connection))
                counted = await registry.fetch_counted(connection)
                budgeted = await watching.fetch_budgeted(connection, today, CAMPAIGNS)
                unlimited = await watching.fetch_unlimited(connection, today, UNLIMITED)
                converted = await watching.fetch_converted(connection, today, UNLIMITED)
                campaigns = await count_all(connection)
                identity = await fence.identity(connection)
                suspended = await suspensions.fetch_suspended(connection)
        except UNAVAILABLE as error:
            self._known_at = -WAREHOUSE_S  # read everything once it is back
            is_there, why = isinstance(error, OUTDATED), reason(error, self.settings.database_url)
            clocks = {name: of for name, of in self.snapshot.clocks.items() if name != POSTGRES}
            self._update(warehouse=is_there, warehouse_why=why, clocks=clocks)
            self._update(budgeted=None, unlimited=None, converted=None, suspensions=None)
            return False
        ssps = dict(islice(counted.items(), SSPS))
        self._known = WarehouseFacts(ssps, budgeted)
        self._known_at, self._known_version = started, published
        self._update(
            warehouse=True,
            identity=identity,
            registered=registered,
            campaigns=campaigns,
            budgeted=budgeted.known,
            unlimited=unlimited,
            converted=converted,
            suspensions=suspended,
        )
        return True

    async def _compare_clock(self, connection: asyncpg.Connection) -> None:
        asked = time()
        its = await watching.fetch_time(connection)
        clock = OwnClock.compared(asked, its, time())
        self._update(clocks={**self.snapshot.clocks, POSTGRES: clock})

    async def _read_redis_risks(self) -> bool:
        try:
            risks = await preflight.fetch_redis_risks(self.settings)
            risks += await preflight.fetch_ledger_risks(self.settings)
            self._update_risks("redis", risks)
        except (RedisError, OSError):
            return False
        return True

    async def _read_money(self) -> bool:
        """Read the traffic of known SSPs, and the spending of known campaigns with budgets.

        While the warehouse is unavailable, the counts last fetched from it today are used.
        Returns False if the SSPs and campaigns are not known yet, or Redis fails.
        """
        if self._known is None:
            return False
        today = datetime.datetime.now(datetime.UTC).date()
        drained_on, drained = self._drained
        try:
            ssps = await self._traffic.fetch(
                today, self._known.ssps, drained if drained_on == today else {}
            )
            money, _ = await self._spending.fetch(self._known.budgeted.most)
        except (RedisError, OSError):
            self._update(ssps=None, money=None)
            return False
        self._update(ssps=ssps, money=list(money.values()))
        return True

    def _update_risks(self, store: StoreName, risks: list[Risk]) -> None:
        self._risk_log.update(store, risks)
        self._update(risks={**self.snapshot.risks, store: risks})

    def _update(self, **changes: object) -> None:
        self.snapshot = msgspec.structs.replace(self.snapshot, **changes)


class _Readiness(msgspec.Struct):
    missing: list[str] = []


def find_disks(settings: Settings) -> list[Disk]:
    """Return the disks to which the server writes: home directory and auction log."""
    spools = settings.spool_max_bytes * settings.workers
    disks = [Disk.of(VARIABLES["home"], settings.home, spools)]
    if settings.auction_log is not None:
        disks.append(Disk.of(VARIABLES["auction_log"], settings.auction_log, LOG_BYTES))
    return [disk for disk in disks if disk is not None]


async def fetch_missing(host: str, port: int) -> list[str] | None:
    """Ask a worker at this address what it lacks before it can bid (`GET /readyz`).

    Returns None if it does not answer in time.
    """
    try:
        async with asyncio.timeout(PORT_PATIENCE_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(
                    b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
                )
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
        is_known = head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 "))
        return msgspec.json.decode(body, type=_Readiness).missing if is_known else None
    except (OSError, TimeoutError, msgspec.DecodeError):  # perhaps it is another program
        return None


async def repeat(read: Callable[[], Awaitable[bool]], every_s: float) -> None:
    """Call `read` forever, waiting `every_s` after each call.

    The wait is at most RETRY_S after a failure, and at least SHARE times as long as a successful
    read took.
    """
    while True:
        started = monotonic()
        try:
            done = await read()
        except Exception:
            logger.exception("failed to read the dashboard's figures; retrying")
            done = False
        took_s = monotonic() - started
        await asyncio.sleep(max(every_s, took_s * SHARE) if done else min(every_s, RETRY_S))


def _size(folder: Path, pattern: str) -> int:
    """Return the total size (bytes) of the matching files in a folder."""
    size = 0
    for path in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size
