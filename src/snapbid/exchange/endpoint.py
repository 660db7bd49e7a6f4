"""`POST /api/v1/openrtb2/{sspId}/bid` over HTTP (document 2; contract 4)."""

from time import perf_counter, time_ns
from typing import Final

from snapbid.exchange.bid import Bidder, Market, NoBid, Reason
from snapbid.exchange.request import decode
from snapbid.http import (
    JSON,
    Answer,
    Headers,
    Receive,
    accepts_gzip,
    answer,
    deflate,
    read_json_body,
)
from snapbid.metrics import Metrics

GZIP_FROM: Final = 1024  # bytes of a response
SECONDS: Final = (0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1)
NO_CONTENT: Final = answer(204)


class BidEndpoint:
    """Answers one SSP's bid requests; counted by outcome."""

    def __init__(
        self,
        ssp: str,
        bidder: Bidder,
        market: Market,
        metrics: Metrics,
        *,
        max_bytes: int,
        tmax_ms: int,
    ) -> None:
        self._ssp = ssp
        self._bidder = bidder
        self._market = market
        self._max_bytes = max_bytes
        self._tmax_ms = tmax_ms
        name = "snapbid_bid_requests_total"
        self._bids = metrics.counter(name, ssp=ssp, outcome="bid")
        self._no_bids = {
            reason: metrics.counter(name, ssp=ssp, outcome=reason.value) for reason in Reason
        }
        self._seconds = metrics.histogram("snapbid_bid_seconds", SECONDS)

    async def __call__(self, headers: Headers, receive: Receive) -> Answer:
        """Raises Problem for what is answered with an error."""
        started = perf_counter()
        body = await read_json_body(headers, receive, self._max_bytes)
        request = decode(body)
        tmax = request.tmax
        allowed = tmax if tmax is not None and tmax > 0 else self._tmax_ms
        if (perf_counter() - started) * 1000 > allowed:
            result: bytes | NoBid = NoBid(Reason.LATE)
        else:
            result = self._bidder.respond(
                request, self._ssp, self._market, time_ns() // 1_000_000
            )
        self._seconds.observe(perf_counter() - started)
        if isinstance(result, NoBid):
            self._no_bids[result.reason].inc()
            return NO_CONTENT
        self._bids.inc()
        if len(result) > GZIP_FROM and accepts_gzip(headers.get(b"accept-encoding", b"")):
            return answer(200, deflate(result), JSON, ((b"content-encoding", b"gzip"),))
        return answer(200, result)
