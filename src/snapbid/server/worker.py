"""The composition root of a worker: settings -> stores -> rooms -> application."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Final

from snapbid.describe.endpoint import pages
from snapbid.events.endpoint import PREFIX as EVENTS
from snapbid.events.endpoint import EventEndpoints
from snapbid.exchange.bid import Bidder, Market
from snapbid.exchange.endpoint import Bidding, BidEndpoint
from snapbid.exchange.features import References
from snapbid.exchange.limits import Recall
from snapbid.exchange.notice import KINDS, NoticeEndpoint
from snapbid.exchange.routes import bid_path
from snapbid.golive.evidence import Evidence
from snapbid.golive.store import Store as EvidenceStore
from snapbid.ledger import connection
from snapbid.ledger.commits import commits
from snapbid.ledger.ledger import Ledger
from snapbid.ledger.queue import EventQueue
from snapbid.ledger.rate import RateLimiter
from snapbid.match.catalog import Catalog, CatalogError
from snapbid.metrics import Counters, Metrics
from snapbid.recording.recorder import Recorder
from snapbid.reference import agents, history
from snapbid.reference.geo import DEFAULT_PATH, GeoDatabase
from snapbid.report.endpoint import ReportEndpoint, ssp_of
from snapbid.server.app import BidHandler, Page
from snapbid.settings import Settings, require_secret
from snapbid.tasks import end
from snapbid.warehouse.reports import open_pool

LOOK_EVERY_S: Final = 0.1  # at the catalog's file
SETTLE_IN_S: Final = 2.0

logger = logging.getLogger("snapbid")


class Worker:
    """Everything that one worker process holds; see `server.app.Resources`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._endpoints: list[BidEndpoint] = []
        self.bid_endpoints: Mapping[str, BidHandler] = {}
        self._pages: dict[str, Page] = {}
        self._ssps: Mapping[str, str] | None = None
        self._market: Market | None = None
        self._seen: tuple[int, int] | None = None  # the catalog's file
        self._refused: tuple[int, int] | None = None  # one that was none, told once
        self._retired: list[Market] = []

    @property
    def has_catalog(self) -> bool:
        return self._seen is not None

    def stray(self, ssp: str) -> None:
        self._evidence.stray(ssp)

    def count(self, route: str, status: int) -> None:
        self._requests.inc(route, status)

    def page(self, path: str) -> Page | None:
        page = self._pages.get(path)
        if page is not None:
            return page
        if path.startswith(EVENTS):
            return self._events
        return self._report if ssp_of(path) else None

    async def open(self) -> None:
        settings = self._settings
        assert settings.redis_url is not None
        self._metrics = Metrics(settings.metrics_path)
        self._requests = Counters(self._metrics, "snapbid_http_requests_total", "route", "status")
        self._swaps = Counters(self._metrics, "snapbid_catalog_swaps_total", "result")
        self._redis = connection.connect(settings.redis_url)
        self._ledger = Ledger(
            settings.redis_url,
            settings.spool_path,
            shards=settings.ledger_shards,
            ttl_s=settings.bid_ttl_s,
            spool_max_bytes=settings.spool_max_bytes,
            hold_s=settings.hold_s,
            observe=commits(self._metrics),
        )
        self._bidding = Bidding(
            Bidder(settings.base_url),
            self._ledger,
            self._metrics,
            max_bytes=settings.bid_max_bytes,
            tmax_ms=settings.tmax_ms,
        )
        self._evidence = Evidence(EvidenceStore(self._redis))
        self._recorder = _recorder(settings)
        self._recall = Recall(self._ledger.budgets, lambda: self._market)
        assert settings.database_url is not None
        await self._ledger.open()
        self._pool = await open_pool(settings.database_url)
        self._report = ReportEndpoint(
            self._pool,
            self._redis,
            key=require_secret(settings),
            issuer=settings.jwt_issuer,
            registry=lambda: self._ssps,
        )
        self._pages = {
            path: NoticeEndpoint(kind, self._ledger, self._metrics, self._evidence.unknown_notice)
            for path, kind in KINDS.items()
        }
        self._pages |= pages(settings)
        self._geo = GeoDatabase(settings.geo_db or DEFAULT_PATH)
        agents.load()
        self._queue = EventQueue(settings.redis_url)
        await self._queue.open()
        self._events = EventEndpoints(
            self._queue, RateLimiter(self._redis), self._metrics, self._geo, history.load()
        )
        await self._settle_in()
        self._watch = asyncio.create_task(self._keep_looking())
        self._recall.start()
        self._evidence.start()

    async def close(self) -> None:
        await end(self._watch)
        await self._recall.stop()
        await self._evidence.stop()
        await self._queue.close()
        await self._ledger.close()
        await self._redis.aclose()
        self._pool.terminate()
        self._geo.close()
        self._metrics.close()
        if self._recorder is not None:
            self._recorder.close()

    async def missing(self) -> list[str]:
        missing = [] if self.has_catalog else ["campaigns"]
        if not await connection.answers(self._redis):
            missing.append("redis")
        return missing

    async def _settle_in(self) -> None:
        """Waits a little for what bids need, which may just be coming up.

        A worker that opens sooner than that would answer 204 where another one bids.
        """
        until = monotonic() + SETTLE_IN_S
        while not (self.has_catalog and self._ledger.connected) and monotonic() < until:
            await self._look()
            await asyncio.sleep(LOOK_EVERY_S / 10)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self._look()
            except Exception:
                logger.exception("the catalog could not be taken up")

    async def _look(self) -> None:
        """Takes up the catalog if its file is another one than before."""
        path = self._settings.catalog_path
        try:
            status = path.stat()
            seen = (status.st_ino, status.st_mtime_ns)
            if seen == self._seen:
                if self._retired:
                    await asyncio.to_thread(self._retired.clear)
                return
            if seen == self._refused:
                return
            catalog = await asyncio.to_thread(self._open_catalog, path)
        except FileNotFoundError:  # or its base, since there is a new one by now
            return
        except CatalogError as error:
            logger.error("%s is not taken up: %s", path, error)
            self._swaps.inc("refused")
            self._refused = seen
            return
        await self._take_up(catalog)
        self._swaps.inc("taken_up")
        self._seen = seen

    def _open_catalog(self, path: Path) -> Catalog:
        """Maps the catalog. Runs in a thread, as does what unmaps an old one: it takes its time."""
        self._retired.clear()
        return Catalog.open(path, self._market.catalog if self._market else None)

    async def _take_up(self, catalog: Catalog) -> None:
        """Goes over to another catalog in one step, when all is prepared."""
        settings, before = self._settings, self._market
        references = References(
            self._geo,
            catalog.rates,
            needs_user=settings.ledger_shards == 1,
            gvl_id=settings.gvl_id,
        )
        market = Market(catalog, references, settings.ledger_shards, before)
        if before is not None:
            await market.carry_over(before)
            self._retired.append(before)
        if before is None or catalog.events != before.catalog.events:
            self._events.take_up(catalog.events)
        if before is None or catalog.ssp_numbers != before.catalog.ssp_numbers:
            self._endpoints.clear()
            found = {bid_path(ssp): self._endpoint(ssp, market) for ssp in catalog.ssps}
            self.bid_endpoints = found
        self._market, self._ssps = market, catalog.ssps
        for endpoint in self._endpoints:
            endpoint.market = market

    def _endpoint(self, ssp: str, market: Market) -> BidHandler:
        sightings = self._evidence.of(market.catalog.ssp_numbers[ssp])
        endpoint = BidEndpoint(ssp, market, self._bidding, sightings)
        self._endpoints.append(endpoint)
        return endpoint if self._recorder is None else self._recorder.watch(ssp, endpoint)


def _recorder(settings: Settings) -> Recorder | None:
    if settings.record is None:
        return None
    return Recorder(
        settings.record,
        settings.record_sample,
        settings.record_max_bytes,
        require_secret(settings),
    )
