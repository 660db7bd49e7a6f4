"""`POST /api/v1/openrtb2/{sspId}/bid` over HTTP (document 2; contract 4)."""

from collections.abc import Awaitable
from time import perf_counter, time_ns
from typing import Final, Protocol

from snapbid.errors import Problem
from snapbid.exchange.admission import Admission
from snapbid.exchange.bid import Bidder, Market, NoBid, Proposal, Reason
from snapbid.exchange.evidence import Sightings
from snapbid.exchange.limits import Reserves, replace_refused, wanted
from snapbid.exchange.request import decode
from snapbid.exchange.times import Times
from snapbid.http import (
    JSON,
    Answer,
    Disconnected,
    Headers,
    Receive,
    accepts_gzip,
    answer,
    deflate,
    json_body,
    leave_body,
    read_json_body,
)
from snapbid.metrics import Counters, Metrics

GZIP_FROM: Final = 1024  # bytes of a response
MARGIN_S: Final = 0.01  # of a request's time, kept for the way of the answer
NO_CONTENT: Final = answer(204)


class Remembers(Reserves, Protocol):
    """A ledger that remembers bids; see `ledger.Ledger.remember`."""

    def remember(
        self, auction_id: bytes, ssp: int, bids: list[tuple[bytes, int, int]], within_s: float
    ) -> Awaitable[bool] | None: ...


class Bidding:
    """What the endpoints of a worker share. `max_bytes`: of a body, inflated; `tmax_ms`: where a
    request has none.
    """

    def __init__(
        self, bidder: Bidder, ledger: Remembers, metrics: Metrics, *, max_bytes: int, tmax_ms: int
    ) -> None:
        self.bidder = bidder
        self.ledger = ledger
        self.metrics = metrics
        self.admission = Admission()
        self.times = Times(metrics)
        self.max_bytes = max_bytes
        self.tmax_ms = tmax_ms


class BidEndpoint:
    """Answers one SSP's bid requests from a market, which may change; counted by outcome."""

    def __init__(
        self, ssp: str, market: Market, bidding: Bidding, sightings: Sightings | None = None
    ) -> None:
        self.market = market
        self._ssp = ssp
        self._number = market.catalog.ssp_numbers[ssp]
        self._bidder = bidding.bidder
        self._ledger = bidding.ledger
        self._admission = bidding.admission
        self._lane = bidding.admission.lane(market.catalog.ssps[ssp])
        self._times = bidding.times
        self._max_bytes = bidding.max_bytes
        self._tmax_ms = bidding.tmax_ms
        self._sightings = sightings or Sightings()
        name, metrics = "snapbid_bid_requests_total", bidding.metrics
        self._bids = metrics.counter(name, ssp=ssp, outcome="bid")
        self._no_bids = {
            reason: metrics.counter(name, ssp=ssp, outcome=reason.value) for reason in Reason
        }
        self._refusals = Counters(metrics, name, "ssp", "outcome")

    async def __call__(self, headers: Headers, receive: Receive) -> Answer:
        """Raises Problem for what is answered with an error."""
        started = perf_counter()
        admission, lane = self._admission, self._lane
        if not admission.enter(lane, started):
            await leave_body(headers, receive, admission.waited_s)
            return self._no_bid(Reason.OVERLOAD)
        try:
            try:
                body = await read_json_body(headers, receive, self._max_bytes)
            finally:
                admission.has_body(lane, started, perf_counter())
            result = await self._bid(body, started - admission.waited_s)
        except Problem as problem:
            self._refusals.inc(self._ssp, problem.code)
            self._sightings.refused(problem)
            raise
        except Disconnected:
            raise
        except Exception:
            self._sightings.answered(500)
            raise
        finally:
            admission.leave(lane)
        self._times.whole(perf_counter() - started)
        if isinstance(result, Reason):
            return self._no_bid(result)
        self._bids.inc()
        self._sightings.answered(200)
        if len(result) > GZIP_FROM and accepts_gzip(headers.get(b"accept-encoding", b"")):
            return answer(200, deflate(result), JSON, ((b"content-encoding", b"gzip"),))
        return json_body(result)

    def _no_bid(self, reason: Reason) -> Answer:
        self._no_bids[reason].inc()
        self._sightings.answered(204)
        return NO_CONTENT

    async def _bid(self, body: bytes, started: float) -> bytes | Reason:
        """The response's body, once Redis has what it promises (a test promises nothing); or why
        there is none.
        """
        steps = self._times.begin()
        request = decode(body)
        if steps:
            steps.end("decode")
        self._sightings.request(request)
        tmax = request.tmax
        allowed_s = (tmax if tmax is not None and tmax > 0 else self._tmax_ms) / 1000
        if perf_counter() - started > allowed_s:
            return Reason.LATE
        market = self.market  # of this request to its end: ranks are a market's own
        result = self._bidder.propose(request, self._ssp, market, time_ns() // 1_000_000)
        if steps:
            steps.end("match")
        if isinstance(result, NoBid):
            return result.reason
        allowed_s -= min(MARGIN_S, allowed_s / 2)
        if result.limited:
            test = request.test == 1
            kept = await self._bid_within_limits(result, market, test, allowed_s, started)
            if steps:
                steps.end("commit")
            return kept
        answered = self._bidder.write(result.auction_id, result.bids)
        if request.test != 1:
            remembered = self._ledger.remember(
                result.auction_id.encode(),
                self._number,
                [
                    (bid.imp_id.encode(), bid.template.number, bid.template.price_micros)
                    for bid in result.bids
                ],
                allowed_s - (perf_counter() - started),
            )
            if remembered is None:
                return Reason.STORE_DOWN
            if not await remembered:
                return Reason.LATE
            if steps:
                steps.end("commit")
        return answered

    async def _bid_within_limits(
        self, proposal: Proposal, market: Market, test: bool, allowed_s: float, started: float
    ) -> bytes | Reason:
        """As `_bid`; written once it is known what was kept."""
        auction, user = proposal.auction_id.encode(), proposal.decision.user
        within_s = allowed_s - (perf_counter() - started)
        bids = wanted(proposal.bids)
        if test:
            letters = await self._ledger.look(auction, bids, user, within_s)
        else:
            waiting = self._ledger.reserve(auction, self._number, bids, user, within_s, False)
            if waiting is None:
                return Reason.STORE_DOWN
            letters = await waiting
        if not letters:
            return Reason.LATE
        if not letters.strip("k"):
            return self._bidder.write(proposal.auction_id, proposal.bids)
        kept = await replace_refused(
            self._ledger,
            self._number,
            proposal,
            market,
            letters,
            lambda: allowed_s - (perf_counter() - started),
            test,
        )
        return kept if isinstance(kept, Reason) else self._bidder.write(proposal.auction_id, kept)
