"""What the private port shows beyond the workers' counters: looked at by a thread of its own.

Every few seconds, whether or not anybody asks, so that the cost does not depend on who does. What
cannot be read is None and shown as unknown; the rest goes on.
"""

import asyncio
import contextlib
import datetime
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic, time
from typing import Final, NamedTuple, Protocol

import asyncpg
import msgspec
from redis.exceptions import RedisError

from snapbid import metrics
from snapbid.exchange import spending
from snapbid.exchange.spending import Spending
from snapbid.ledger import connection
from snapbid.ops import ledger
from snapbid.ops.counts import History
from snapbid.ops.ledger import Totals, Traffic, Waiting
from snapbid.settings import StoreSettings
from snapbid.tasks import end
from snapbid.warehouse import registry, watching

LOOK_S: Final = 2.0  # at the counters and at Redis
MONEY_S: Final = 5.0  # at budgets and SSPs in Redis
WAREHOUSE_S: Final = 60.0  # or when the catalog changes
RETRY_S: Final = 5.0
PATIENCE_S: Final = 5.0  # with the warehouse
SHARE: Final = 10  # a look that takes long is repeated after so many times as long
CAMPAIGNS: Final = 200
AT_ONCE: Final = 20  # campaigns in one script call
SSPS: Final = 1_000

logger = logging.getLogger("snapbid")


class Places(NamedTuple):
    """Directories: the slots of the counters, the spool of notices."""

    counts: Path
    spool: Path


class Publishes(Protocol):
    """Who publishes the catalog. Times are epoch s, None where it has not happened yet."""

    @property
    def published_at(self) -> float | None: ...

    @property
    def checked_at(self) -> float | None: ...


class Known(NamedTuple):
    """What the warehouse told last: SSPs by the ledger's number, campaigns with budgets."""

    ssps: dict[int, str]
    budgeted: watching.Budgeted


class Ssp(NamedTuple):
    """An SSP's traffic of the day (UTC), and since this process looks."""

    today: Traffic
    since: Traffic


class Money(NamedTuple):
    """A budgeted campaign's money, and the cost of one of its bids in USD."""

    of: Spending
    cost: float


class Seen(msgspec.Struct, frozen=True):
    """The last look; None is unknown: not looked at yet, or not to be read now."""

    redis: bool | None = None
    warehouse: bool | None = None
    waiting: Waiting | None = None
    ssps: dict[str, Ssp] | None = None
    campaigns: int | None = None  # when the warehouse last told
    budgeted: int | None = None
    money: list[Money] | None = None


class Watch:
    """Looks until stopped; `seen` and `history` are for other threads to read."""

    def __init__(self, settings: StoreSettings, places: Places, publisher: Publishes) -> None:
        self._settings = settings
        self._known: Known | None = None
        self._known_at = 0.0  # monotonic
        self._known_of: float | None = None  # when the catalog of then was published
        self._totals = Totals()
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.places = places
        self.publisher = publisher
        self.history = History()
        self.seen = Seen()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def spool_bytes(self) -> int:
        """Size of the notices that wait on this machine's disk."""
        size = 0
        for path in self.places.spool.glob("*.spool"):
            with contextlib.suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    def _run(self) -> None:
        self._loop.run_until_complete(self._look())
        self._loop.close()

    async def _look(self) -> None:
        self._redis = connection.connect(self._settings.redis_url)
        looks = [
            asyncio.create_task(again_and_again(look, every_s))
            for look, every_s in (
                (self._look_at_counters, LOOK_S),
                (self._look_at_redis, LOOK_S),
                (self._look_at_warehouse, RETRY_S),
                (self._look_at_money, MONEY_S),
            )
        ]
        await self._stopping.wait()
        await end(*looks)
        await self._redis.aclose()

    # Each gives whether it could look.

    async def _look_at_counters(self) -> bool:
        self.history.add(time(), await asyncio.to_thread(metrics.read, self.places.counts))
        return True

    async def _look_at_redis(self) -> bool:
        try:
            found = await ledger.waiting(self._redis, self._settings.ledger_shards, time())
        except (RedisError, OSError):
            self._see(redis=False, waiting=None)
            return False
        self._see(redis=True, waiting=found)
        return True

    async def _look_at_warehouse(self) -> bool:
        published, started = self.publisher.published_at, monotonic()
        same = self._known is not None and published == self._known_of
        if same and started - self._known_at < WAREHOUSE_S:
            return True
        today = datetime.datetime.now(datetime.UTC).date()
        try:
            async with asyncio.timeout(PATIENCE_S):
                connection = await asyncpg.connect(self._settings.database_url)
                try:
                    numbered = await registry.fetch_numbered(connection)
                    budgeted = await watching.fetch_budgeted(connection, today, CAMPAIGNS)
                    campaigns = await watching.count_campaigns(connection)
                finally:
                    connection.terminate()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # TimeoutError is one
            self._see(warehouse=False, budgeted=None)
            return False
        ssps = {number: name for name, (_, number) in list(numbered.items())[:SSPS]}
        self._known = Known(ssps, budgeted)
        self._known_at, self._known_of = started, published
        self._see(warehouse=True, campaigns=campaigns, budgeted=budgeted.known)
        return True

    async def _look_at_money(self) -> bool:
        """Traffic of SSPs and money of campaigns, of those that the warehouse last told of."""
        if self._known is None:
            return False
        try:
            ssps = await self._ssps(self._known.ssps)
            most = self._known.budgeted.most
            found = await spending.fetch_batched(self._redis, self._settings, most, AT_ONCE)
        except (RedisError, OSError):
            self._see(ssps=None, money=None)
            return False
        costs = {each.id: _cost(each.document) for each in most if each.id in found}
        self._see(ssps=ssps, money=[Money(of, costs[name]) for name, of in found.items()])
        return True

    async def _ssps(self, names: dict[int, str]) -> dict[str, Ssp]:
        today = datetime.datetime.now(datetime.UTC).date()
        days = {}
        for day in (today - datetime.timedelta(days=1), today):  # late notices count for yesterday
            shards = self._settings.ledger_shards
            days[day] = await ledger.traffic(self._redis, shards, day, list(names))
        sums = self._totals.add(days)
        return {name: Ssp(days[today][number], sums[number]) for number, name in names.items()}

    def _see(self, **changes: object) -> None:
        self.seen = msgspec.structs.replace(self.seen, **changes)


class _Priced(msgspec.Struct):
    cpm: float


def _cost(document: str) -> float:
    return msgspec.json.decode(document, type=_Priced).cpm / 1000


async def again_and_again(look: Callable[[], Awaitable[bool]], every_s: float) -> None:
    """Look for ever; sooner again where it could not, later where it takes long."""
    while True:
        started = monotonic()
        try:
            done = await look()
        except Exception:
            logger.exception("the operator's page is without some figures")
            done = False
        took_s = monotonic() - started
        await asyncio.sleep(max(every_s, took_s * SHARE) if done else min(every_s, RETRY_S))
