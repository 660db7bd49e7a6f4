"""Bid endpoints of registered SSPs by path, and the answer to unregistered ones."""

from collections.abc import Callable, Sequence
from typing import Final

from snapbid.base.access import Network, SspAccess, parse_networks
from snapbid.base.errors import UnknownSsp
from snapbid.base.http import Answer, Receive, RequestHandler, Scope, answer, drain, refused
from snapbid.bidding.endpoint import Bidding, BidEndpoint
from snapbid.bidding.guard import GuardedBids
from snapbid.bidding.request_stats import RequestStats
from snapbid.bidding.routes import BID_PREFIX, BID_ROUTE, bid_path, ssp_of
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.operations.golive.writer import RequestStatsWriter
from snapbid.operations.recording.recorder import Recorder
from snapbid.queues.permits import Permits
from snapbid.server.routes import Route, not_found

_NOT_FOUND: Final = Route(BID_ROUTE, not_found, methods=())


class BidEndpoints:
    """One endpoint for each SSP of the current snapshot.

    `handlers`, updated in place, has the handlers of SSPs without network or rate limits; requests
    of other SSPs go through `resolve`. `permits` creates a rate limiter from an SSP's number and
    limit. `signs_all`: whether to sign the notices of all SSPs, not only of SSPs configured for it.
    """

    def __init__(
        self,
        bidding: Bidding,
        stats_writer: RequestStatsWriter | None = None,
        recorder: Recorder | None = None,
        proxies: Sequence[Network] = (),
        permits: Callable[[int, int], Permits] | None = None,
        signs_all: bool = False,
    ) -> None:
        self.handlers: dict[str, RequestHandler] = {}
        self._bidding = bidding
        self._stats_writer = stats_writer
        self._recorder = recorder
        self._proxies = proxies
        self._new_permits = permits
        self._signs_all = signs_all
        self._permits: dict[int, Permits] = {}
        self._guarded: dict[str, Route] = {}
        self._endpoints: list[BidEndpoint] = []
        self._has_snapshot = False
        self._unregistered = Route(BID_ROUTE, self._answer_unregistered, methods=("POST",))

    def set_snapshot(self, snapshot: CatalogSnapshot, before: CatalogSnapshot | None) -> None:
        """Bid from this snapshot; rebuild endpoints only if SSPs have changed since `before`."""
        catalog = snapshot.catalog
        if (
            before is None
            or catalog.ssp_numbers != before.catalog.ssp_numbers
            or catalog.access != before.catalog.access
        ):
            self._endpoints.clear()
            handlers = {ssp: self._handler(ssp, snapshot) for ssp in catalog.ssps}
            self._guarded = {
                bid_path(ssp): self._guard(ssp, snapshot, *handlers.pop(ssp))
                for ssp, access in catalog.access.items()
                if access.is_narrowed and ssp in handlers
            }
            self.handlers.clear()
            self.handlers.update({bid_path(ssp): made for ssp, (_, made) in handlers.items()})
        for endpoint in self._endpoints:
            endpoint.use(snapshot)
        self._has_snapshot = True

    def resolve(self, path: str) -> Route | None:
        """Return the route of a path below BID_PREFIX; None for other paths.

        Called for requests that `handlers` cannot answer: those for limited or unregistered SSPs
        or unknown paths, and those with a method other than POST.
        """
        if not path.startswith(BID_PREFIX):
            return None
        guarded = self._guarded.get(path)
        if guarded is not None:
            return guarded
        return _NOT_FOUND if ssp_of(path) is None else self._unregistered

    def _handler(self, ssp: str, snapshot: CatalogSnapshot) -> tuple[BidEndpoint, RequestHandler]:
        number = snapshot.catalog.ssp_numbers[ssp]
        stats_writer = self._stats_writer
        request_stats = RequestStats() if stats_writer is None else stats_writer.of(number, ssp)
        bidding = self._bidding
        if bidding.signer is not None and (
            self._signs_all or snapshot.catalog.access.get(ssp, SspAccess()).signed
        ):
            bidding = bidding.signed(snapshot.catalog.ssps[ssp])
        endpoint = BidEndpoint(ssp, snapshot, bidding, request_stats)
        self._endpoints.append(endpoint)
        recorder = self._recorder
        # The bound method: calling the object itself would cost as much as ten lines of it.
        handler = endpoint.__call__
        return endpoint, handler if recorder is None else recorder.watch(ssp, handler)

    def _guard(
        self, ssp: str, snapshot: CatalogSnapshot, endpoint: BidEndpoint, handler: RequestHandler
    ) -> Route:
        allow, qps, _ = snapshot.catalog.access[ssp]
        permits = None
        if qps is not None and self._new_permits is not None:
            number = snapshot.catalog.ssp_numbers[ssp]
            permits = self._permits.get(number)
            if permits is None or permits.limit != qps:
                permits = self._permits[number] = self._new_permits(number, qps)
        guard = GuardedBids(endpoint, handler, parse_networks(allow), self._proxies, permits)
        return Route(BID_ROUTE, guard, methods=("POST",), paced=False)

    async def _answer_unregistered(self, scope: Scope, receive: Receive) -> Answer:
        if not self._has_snapshot:  # the SSP may be registered
            await drain(receive)
            return answer(204)
        ssp = ssp_of(scope["path"])
        if self._stats_writer is not None and ssp is not None:
            self._stats_writer.stray(ssp)
        raise await refused(UnknownSsp("the SSP id in the path is not registered"), receive)
