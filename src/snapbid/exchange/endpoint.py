"""`POST /api/v1/openrtb2/{sspId}/bid` over HTTP (document 2; contract 4)."""

from collections.abc import Awaitable
from time import perf_counter, time_ns
from typing import Final, Protocol, final

from msgspec import Struct

from snapbid.errors import Problem
from snapbid.exchange.admission import Admission
from snapbid.exchange.bid import Bidder, Market, NoBid, Proposal, Reason
from snapbid.exchange.limits import Reserves, replace_refused, wanted
from snapbid.exchange.request import decode
from snapbid.exchange.sightings import Sightings
from snapbid.exchange.times import Steps, Times
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


@final
class Promised(Struct):
    """A response's body, to be sent if what it promises has been remembered."""

    body: bytes
    remembered: Awaitable[bool]


@final
class Limited(Struct):
    """Bids of which some have limits; `until` is the time (of `perf_counter`) to know by."""

    proposal: Proposal
    market: Market
    test: bool
    until: float


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
            steps = self._times.begin()
            result = self._bid(body, started - admission.waited_s, steps)
            if type(result) is Promised:
                result = result.body if await result.remembered else Reason.LATE
                if steps and result is not Reason.LATE:
                    steps.end("commit")
            elif type(result) is Limited:
                result = await self._bid_within_limits(result)
                if steps:
                    steps.end("commit")
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
        if not isinstance(result, bytes):
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

    def _bid(
        self, body: bytes, started: float, steps: Steps | None
    ) -> bytes | Reason | Promised | Limited:
        """The response's body (a test promises nothing), why there is none, or what Redis must
        answer first.
        """
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
        if type(result) is NoBid:
            return result.reason
        until = started + allowed_s - min(MARGIN_S, allowed_s / 2)
        if result.limited:
            return Limited(result, market, request.test == 1, until)
        answered = self._bidder.write(result.auction_id, result.bids)
        if request.test == 1:
            return answered
        remembered = self._ledger.remember(
            result.auction_id.encode(),
            self._number,
            [
                (bid.imp_id.encode(), bid.template.number, bid.template.price_micros)
                for bid in result.bids
            ],
            until - perf_counter(),
        )
        return Reason.STORE_DOWN if remembered is None else Promised(answered, remembered)

    async def _bid_within_limits(self, limited: Limited) -> bytes | Reason:
        """The response's body, written once it is known what was kept; or why there is none."""
        proposal, test, until = limited.proposal, limited.test, limited.until
        auction, user = proposal.auction_id.encode(), proposal.decision.user
        within_s = until - perf_counter()
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
            limited.market,
            letters,
            lambda: until - perf_counter(),
            test,
        )
        return kept if isinstance(kept, Reason) else self._bidder.write(proposal.auction_id, kept)
