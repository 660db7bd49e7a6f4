"""The composition root of a worker: builds stores and endpoints from the settings."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from time import monotonic
from typing import Final

from snapbid.auctionlog.log import AuctionLog, LoggedNotices
from snapbid.base.access import parse_networks
from snapbid.base.http import BodyDeadline, Handler, RequestHandler
from snapbid.base.redis_keys import BID_RATE, DEMAND_RATE, DIAGNOSIS_RATE
from snapbid.base.settings import ServingSettings
from snapbid.base.tasks import end
from snapbid.bidding.endpoint import Bidding
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.notice import NoticeEndpoint
from snapbid.bidding.reactivation import Reactivation
from snapbid.bidding.rejections import Rejections
from snapbid.bidding.response import response_writer
from snapbid.bidding.routes import BID_ROUTE, NOTICE_KINDS, SIGNED_PREFIX
from snapbid.bidding.routes import ROUTES as NOTICE_ROUTES
from snapbid.bidding.signing import NoticeSigner
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog._members import MemberBook
from snapbid.catalog.catalog import Catalog
from snapbid.events.endpoint import ROUTES as EVENT_ROUTES
from snapbid.events.endpoint import EventEndpoints, is_event_path
from snapbid.ledger.admin import parts
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.shard import observer_of
from snapbid.ledger.budgets.releases import ReleaseReader, releases_path
from snapbid.metrics import Counters, Metrics
from snapbid.operations.golive.store import RequestStatsStore
from snapbid.operations.golive.writer import Outcomes, RequestStatsWriter
from snapbid.operations.recording.recorder import Recorder
from snapbid.partners.demand.endpoint import ROUTE as DEMAND_ROUTE
from snapbid.partners.demand.endpoint import DemandEndpoint
from snapbid.partners.diagnosis.endpoint import ROUTE as DIAGNOSIS_ROUTE
from snapbid.partners.diagnosis.endpoint import DiagnosisEndpoint
from snapbid.partners.docs.endpoint import pages
from snapbid.partners.docs.routes import ROUTE as PAGE_ROUTE
from snapbid.queues.permits import Permits
from snapbid.queues.queues import EventQueues
from snapbid.queues.rate import RateLimiter
from snapbid.redisclient import pipelined
from snapbid.reference import agents, history
from snapbid.reference.geo import GeoDatabase
from snapbid.report.endpoint import PREFIX, ReportEndpoint, ssp_of
from snapbid.report.endpoint import ROUTE as REPORT_ROUTE
from snapbid.report.gate import TokenGate
from snapbid.server.app import HEALTH_ROUTE
from snapbid.server.bids import BidEndpoints
from snapbid.server.catalog import CatalogFollower
from snapbid.server.connections import ConnectionKeeper, most
from snapbid.server.routes import UNKNOWN, Resolver, Route, Routes, not_found
from snapbid.warehouse.reports import open_pool

SETTLE_S: Final = 2.0
SETTLE_POLL_S: Final = 0.01
ROUTE_NAMES: Final = (
    BID_ROUTE,
    *NOTICE_ROUTES.values(),
    *EVENT_ROUTES.values(),
    REPORT_ROUTE,
    DIAGNOSIS_ROUTE,
    DEMAND_ROUTE,
    PAGE_ROUTE,
    HEALTH_ROUTE,
    UNKNOWN.name,
)


class Worker:
    """The resources of a worker process; implements `server.app.Resources`."""

    count: Callable[[str, int], None]

    def __init__(self, settings: ServingSettings) -> None:
        self.bid_endpoints: Mapping[str, RequestHandler] = {}
        self.routes = Routes({})
        self._settings = settings
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        """Open all resources; if one fails to open, close those already open."""
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()

    async def close(self) -> None:
        """Close all resources, in reverse order of opening."""
        await self._stack.aclose()

    async def missing(self) -> list[str]:
        missing = [] if self._follower.snapshot is not None else ["campaigns"]
        if self._ledger.is_foreign:
            missing.append("a ledger of this warehouse")
        elif len(self._ledger.unavailable) == self._settings.shards:
            missing.append("redis")
        return missing

    def unavailable(self) -> list[str]:
        return [parts.name(number) for number in self._ledger.unavailable]

    def unreplicated(self) -> list[str]:
        return [parts.name(number) for number in self._ledger.unreplicated]

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        metrics = Metrics(settings.metrics_path)
        stack.callback(metrics.close)
        self.count = _counts_of_requests(metrics)
        recorder = _open_recorder(settings)
        if recorder is not None:
            stack.callback(recorder.close)
        geo = GeoDatabase(settings.geo_db)
        stack.callback(geo.close)
        agents.load()
        self._redis = pipelined.connect(settings.redis_url)
        stack.push_async_callback(self._redis.aclose)
        pool = await open_pool(settings.database_url)
        stack.callback(pool.terminate)
        log = None
        if settings.auction_log is not None:
            log = AuctionLog(settings.auction_log, metrics, settings.workers)
            await log.open()
            stack.push_async_callback(log.close)
        self._ledger = ledger = _ledger(settings, metrics, log)
        await ledger.open()
        stack.push_async_callback(ledger.close)
        queues = EventQueues(settings.redis_url, settings.redis_replicas, shards=settings.shards)
        await queues.open()
        stack.push_async_callback(queues.close)

        stats_writer = RequestStatsWriter(
            RequestStatsStore(self._redis), outcomes=Outcomes(metrics)
        )
        body_deadline = BodyDeadline()
        signer = NoticeSigner(settings.jwt_secret.key())
        rejections = Rejections(ledger, parse_networks(settings.trusted_proxies))
        stack.push_async_callback(rejections.stop)
        notices = {
            path: NoticeEndpoint(
                kind,
                ledger if log is None else LoggedNotices(ledger, log.rows, signer.canonical),
                metrics,
                stats_writer.unknown_notice,
                rejections,
                signer,
                only_signed=settings.signed_notices,
            )
            for path, kind in NOTICE_KINDS.items()
        }
        bids = BidEndpoints(
            _bidding(settings, ledger, metrics, log, signer, body_deadline),
            stats_writer,
            recorder,
            proxies=parse_networks(settings.trusted_proxies),
            permits=lambda number, qps: Permits(self._redis, f"{BID_RATE}{number}", qps),
            signs_all=settings.signed_notices,
        )
        limiter = RateLimiter(self._redis)
        own_events = _OwnEvents(ledger, queues)
        events = EventEndpoints(
            own_events, limiter, metrics, geo, history.load(), pool, body_deadline
        )
        gate = partial(
            TokenGate, self._redis, key=settings.jwt_secret.key(), issuer=settings.jwt_issuer
        )
        report = ReportEndpoint(pool, self._redis, gate(registry=self._reported))
        diagnosis = DiagnosisEndpoint(
            pool,
            self._redis,
            gate(registry=self._registry, rate=DIAGNOSIS_RATE, basic=True),
            registry=self._registry,
            numbers=self._ssp_numbers,
            base_url=settings.base_url,
        )
        demand = DemandEndpoint(pool, gate(registry=self._registry, rate=DEMAND_RATE))

        def use(snapshot: CatalogSnapshot, before: CatalogSnapshot | None) -> None:
            ledger.belong_to(snapshot.catalog.warehouse, snapshot.catalog.ledger)
            ledger.use_families(snapshot.catalog.families)
            rejections.use(snapshot.catalog.access, snapshot.catalog.ssp_numbers)
            events.take_up(snapshot.catalog.events)
            if before is None or before.catalog.reported != snapshot.catalog.reported:
                signer.use_families(snapshot.catalog.reported.values())
            bids.set_snapshot(snapshot, before)

        book = MemberBook()
        self._follower = CatalogFollower(
            settings.catalog_path,
            metrics,
            partial(_snapshot, settings, geo, book),
            use,
            book,
        )
        self.bid_endpoints = bids.handlers
        self.routes = Routes(
            {
                **{
                    path: Route(NOTICE_ROUTES[path], endpoint.unsigned, paced=False)
                    for path, endpoint in notices.items()
                },
                **{path: Route(name, events, methods=()) for path, name in EVENT_ROUTES.items()},
                **{path: Route(PAGE_ROUTE, page) for path, page in pages(settings).items()},
            },
            [
                _signed_resolver(notices),
                _event_resolver(events),
                _partner_resolver(
                    {REPORT_ROUTE: report, DIAGNOSIS_ROUTE: diagnosis, DEMAND_ROUTE: demand}
                ),
                bids.resolve,
            ],
        )
        await self._settle(ledger)
        keeper = ConnectionKeeper(settings.port, metrics, most=most())
        for work in (body_deadline.keep(settings.body_timeout_s), keeper.keep()):
            stack.push_async_callback(end, asyncio.create_task(work))
        self._follower.start()
        stack.push_async_callback(self._follower.stop)
        stats_writer.start()
        stack.push_async_callback(stats_writer.stop)
        reader = ReleaseReader(releases_path(settings.runtime_dir))
        stack.callback(reader.close)
        reactivation = Reactivation(reader.read, lambda: self._follower.snapshot)
        reactivation.start()
        stack.push_async_callback(reactivation.stop)

    def _registry(self) -> Mapping[str, str] | None:
        snapshot = self._follower.snapshot
        return None if snapshot is None else snapshot.catalog.ssps

    def _reported(self) -> Mapping[str, str] | None:
        snapshot = self._follower.snapshot
        return None if snapshot is None else snapshot.catalog.reported

    def _ssp_numbers(self) -> Mapping[str, int]:
        snapshot = self._follower.snapshot
        return {} if snapshot is None else snapshot.catalog.ssp_numbers

    async def _settle(self, ledger: Ledger) -> None:
        """Wait up to SETTLE_S for a catalog and the ledger, which may just be starting.

        Without them, this worker would answer 204 while other workers bid.
        """
        deadline = monotonic() + SETTLE_S
        while not (self._follower.snapshot and ledger.connected) and monotonic() < deadline:
            await self._follower.look()
            await asyncio.sleep(SETTLE_POLL_S)


class _OwnEvents:
    """Accepts events only while the ledger belongs to this warehouse, whose drain stores them."""

    def __init__(self, ledger: Ledger, queues: EventQueues) -> None:
        self._ledger = ledger
        self._sink = queues.sink

    async def put(
        self, received_at_ms: int, product: str, events: Sequence[tuple[str, bytes]]
    ) -> bool:
        """Queue events (see `EventQueue.put`); return False if the ledger is foreign."""
        return not self._ledger.is_foreign and await self._sink.put(received_at_ms, product, events)


def _counts_of_requests(metrics: Metrics) -> Callable[[str, int], None]:
    """Return the function that counts an answered request by route and status.

    The series for status 500 exist from the start: Prometheus' `increase` misses the first value
    of a new series, and even a single 500 must show up.
    """
    name = "snapbid_http_requests_total"
    for route in ROUTE_NAMES:
        metrics.counter(name, route=route, status=500)
    return Counters(metrics, name, "route", "status").inc


def _snapshot(
    settings: ServingSettings,
    geo: GeoDatabase,
    book: MemberBook,
    catalog: Catalog,
    before: CatalogSnapshot | None,
) -> CatalogSnapshot:
    shards = settings.shards
    lookups = Lookups(
        geo,
        catalog.rates,
        gvl_id=settings.gvl_id,
        suppression=catalog.suppression,
        max_quantity=settings.max_quantity,
        members=book,
        former_ids=catalog.former_ids,
        click_key=catalog.click_key,
    )
    return CatalogSnapshot(catalog, lookups, shards, before)


def _open_recorder(settings: ServingSettings) -> Recorder | None:
    if settings.record is None:
        return None
    return Recorder(
        settings.record,
        settings.record_sample,
        settings.record_max_bytes,
        settings.jwt_secret.key(),
        settings.gvl_id,
    )


def _ledger(settings: ServingSettings, metrics: Metrics, log: AuctionLog | None) -> Ledger:
    return Ledger(
        settings.redis_url,
        settings.spool_path,
        shards=settings.shards,
        ttl_s=settings.bid_ttl_s,
        spool_max_bytes=settings.spool_max_bytes,
        hold_s=settings.hold_s,
        replicas=settings.redis_replicas,
        observe=observer_of(metrics),
        replayed=None if log is None else log.replayed,
    )


def _bidding(
    settings: ServingSettings,
    ledger: Ledger,
    metrics: Metrics,
    log: AuctionLog | None,
    signer: NoticeSigner,
    body_deadline: BodyDeadline,
) -> Bidding:
    return Bidding(
        response_writer(settings.base_url),
        ledger,
        metrics,
        max_bytes=settings.bid_max_bytes,
        tmax_ms=settings.tmax_ms,
        processor_ms=settings.bid_cpu_ms,
        body_deadline=body_deadline,
        log=None if log is None else log.rows,
        signer=signer,
    )


def _signed_resolver(notices: Mapping[str, NoticeEndpoint]) -> Resolver:
    """Return a resolver for signed notice paths, which begin with a token."""

    def resolve(path: str) -> Route | None:
        if not path.startswith(SIGNED_PREFIX):
            return None
        token, _, rest = path.removeprefix(SIGNED_PREFIX).partition("/")
        endpoint = notices.get(f"/{rest}")
        if endpoint is None:
            return None
        return Route(NOTICE_ROUTES[f"/{rest}"], endpoint.signed(token), paced=False)

    return resolve


def _event_resolver(events: EventEndpoints) -> Resolver:
    """Return a resolver that gives unknown event paths the 404 of the events API."""
    other = Route("other", events, methods=())
    return lambda path: other if is_event_path(path) else None


def _partner_resolver(endpoints: Mapping[str, Handler]) -> Resolver:
    """Return a resolver for paths that end in the name of an endpoint, such as `report`."""
    routes = {f"/{name}": Route(name, endpoint) for name, endpoint in endpoints.items()}
    other = Route(REPORT_ROUTE, not_found, methods=())

    def resolve(path: str) -> Route | None:
        for suffix, route in routes.items():
            if ssp_of(path, suffix) is not None:
                return route
        return other if path.startswith(PREFIX) else None

    return resolve
