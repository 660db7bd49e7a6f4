"""The bid endpoints of the registered SSPs by path, and the answer at the path of any other."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from snapbid.errors import UnknownSsp
from snapbid.exchange.endpoint import Bidding, BidEndpoint
from snapbid.exchange.market import Market
from snapbid.exchange.routes import BID_PREFIX, BID_ROUTE, bid_path, ssp_of
from snapbid.golive.evidence import Evidence
from snapbid.http import Answer, Headers, Receive, Scope, answer, drain, refused
from snapbid.recording.recorder import Recorder
from snapbid.server.routes import Route, not_found

BidHandler: TypeAlias = Callable[[Headers, Receive], Awaitable[Answer]]

_NOT_FOUND: Final = Route(BID_ROUTE, not_found, methods=())


class BidEndpoints:
    """One endpoint for each SSP of the current market.

    `handlers` is always the same dictionary, so that the application need not ask for it again.
    """

    def __init__(
        self, bidding: Bidding, evidence: Evidence | None = None, recorder: Recorder | None = None
    ) -> None:
        self.handlers: dict[str, BidHandler] = {}
        self._bidding = bidding
        self._evidence = evidence
        self._recorder = recorder
        self._endpoints: list[BidEndpoint] = []
        self._has_market = False
        self._unregistered = Route(BID_ROUTE, self._answer_unregistered, methods=("POST",))

    def set_market(self, market: Market, before: Market | None) -> None:
        """Bid from this market from now on; endpoints are kept while the SSPs are the same."""
        if before is None or market.catalog.ssp_numbers != before.catalog.ssp_numbers:
            self._endpoints.clear()
            handlers = {bid_path(ssp): self._handler(ssp, market) for ssp in market.catalog.ssps}
            self.handlers.clear()
            self.handlers.update(handlers)
        for endpoint in self._endpoints:
            endpoint.market = market
        self._has_market = True

    def resolve(self, path: str) -> Route | None:
        """Return the route of a bid path that has no handler, or is not asked with POST."""
        if not path.startswith(BID_PREFIX):
            return None
        return _NOT_FOUND if ssp_of(path) is None else self._unregistered

    def _handler(self, ssp: str, market: Market) -> BidHandler:
        number = market.catalog.ssp_numbers[ssp]
        sightings = None if self._evidence is None else self._evidence.of(number)
        endpoint = BidEndpoint(ssp, market, self._bidding, sightings)
        self._endpoints.append(endpoint)
        return endpoint if self._recorder is None else self._recorder.watch(ssp, endpoint)

    async def _answer_unregistered(self, scope: Scope, receive: Receive) -> Answer:
        if not self._has_market:  # the SSP may well be registered
            await drain(receive)
            return answer(204)
        ssp = ssp_of(scope["path"])
        if self._evidence is not None and ssp is not None:
            self._evidence.stray(ssp)
        raise await refused(UnknownSsp("the SSP id in the path is not registered"), receive)
