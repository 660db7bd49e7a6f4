"""`POST /api/v1/openrtb2/{sspId}/bid` over HTTP (document 2; contract 4)."""

from collections.abc import Awaitable, Callable
from copy import copy
from functools import partial
from time import perf_counter
from typing import Final, Protocol

from snapbid.base import http
from snapbid.base.errors import BodyTimeout, Problem
from snapbid.base.http import (
    JSON,
    Answer,
    AwaitedMessages,
    Disconnected,
    HeaderList,
    Message,
    Receive,
    accepted_encoding,
    answer,
    compress,
    drain,
    json_body,
    leave_body,
    read_json_body,
    read_rest,
)
from snapbid.bidding._bid_path import AdmissionControl, BidAnswering, Outcome
from snapbid.bidding.bid import DECIDER, Bidder, CatalogSnapshot, Proposal, Reason
from snapbid.bidding.bounds import MAX_VALUES
from snapbid.bidding.limits import RemembersBids, replace_refused
from snapbid.bidding.request import BidRequest, check, decode, decode_plain
from snapbid.bidding.request_stats import RequestStats
from snapbid.bidding.response import MAX_ANSWER, Bid
from snapbid.bidding.signing import FamilyLedger, NoticeSigner, family_of
from snapbid.bidding.timing import BidTimings
from snapbid.ledger.bids.records import BidVerdict
from snapbid.metrics import Counters, Metrics

GZIP_FROM: Final = 1024  # bytes of a response
GZIP_TO: Final = 2 * MAX_ANSWER  # a longer one is a single bid, and takes too long to compress
LARGE: Final = 16_384  # bytes of a body, from which on decoding counts against the processor time
CONTENT_TYPE: Final = b"content-type"
NO_CONTENT: Final = answer(204)


class LogsBids(Protocol):
    """The auction log, as bidding uses it; see `auctionlog.log.AuctionLog`."""

    def begin(self, count: int) -> int: ...

    def end(self, count: int) -> None: ...

    def bids(
        self,
        time_ms: int,
        source: tuple[str, str],
        request: BidRequest,
        bids: list[Bid],
        currency: str,
        test: bool,
    ) -> None: ...


class Bidding:
    """State shared by the bid endpoints of a worker.

    `max_bytes` limits a decompressed body; `tmax_ms` is the default for requests without `tmax`;
    `processor_ms` is the processor time allowed per request; `clock` (UTC epoch ms) and `timer`
    (seconds) replace the system's.
    """

    decider: Final = DECIDER
    recover: Final = staticmethod(decode)
    decode: Final = staticmethod(decode_plain)
    check: Final = staticmethod(check)
    answer: Final = Answer
    no_content: Final = NO_CONTENT
    kept: Final = BidVerdict.KEPT.value
    late: Final = Reason.LATE
    overload: Final = Reason.OVERLOAD
    store_down: Final = Reason.STORE_DOWN
    most_values: Final = MAX_VALUES
    large: Final = LARGE
    gzip_from: Final = GZIP_FROM
    gzip_to: Final = GZIP_TO

    def __init__(
        self,
        bidder: Bidder,
        ledger: RemembersBids,
        metrics: Metrics,
        *,
        max_bytes: int,
        tmax_ms: int,
        processor_ms: int = 10,
        log: LogsBids | None = None,
        signer: NoticeSigner | None = None,
        clock: Callable[[], int] | None = None,
        timer: Callable[[], float] | None = None,
    ) -> None:
        self.bidder = bidder
        self.ledger = ledger
        self.metrics = metrics
        self.admission = AdmissionControl(perf_counter())
        self.timings = BidTimings(metrics)
        self.body_deadline = http.BODY_DEADLINE
        self.max_bytes = max_bytes
        self.tmax_ms = tmax_ms
        self.processor_s = processor_ms / 1000
        self.log = log
        self.clock = clock
        self.timer = timer
        self.signer = signer

    def signed(self, canonical: str) -> "Bidding":
        """Return a copy for a family of SSPs whose notices are signed; needs `signer`."""
        assert self.signer is not None
        family = family_of(canonical)
        own = copy(self)
        own.bidder = Bidder(self.bidder.base_url, self.signer.signs(family), self.bidder.ids)
        own.ledger = FamilyLedger(self.ledger, family)
        return own


class BidEndpoint(BidAnswering):
    """The bid endpoint of one SSP: answers from its current snapshot, and counts by outcome.

    The common path is native (`BidAnswering`); the methods here are the rare steps.
    """

    def __init__(
        self,
        ssp: str,
        snapshot: CatalogSnapshot,
        bidding: Bidding,
        request_stats: RequestStats | None = None,
    ) -> None:
        self._descriptor = ssp
        self._number = snapshot.catalog.ssp_numbers[ssp]
        self._bidding = bidding
        self._source = ssp, snapshot.catalog.ssps[ssp]
        self._request_stats = request_stats = request_stats or RequestStats()
        name, metrics = "snapbid_bid_requests_total", bidding.metrics
        share = bidding.admission.share(snapshot.catalog.ssps[ssp])
        admission, whole = bidding.admission, bidding.timings.whole

        def outcome(value: str, status: int) -> Outcome:
            counter = metrics.counter(name, ssp=ssp, outcome=value)
            return Outcome(counter, request_stats, status, admission, share, whole)

        self._refusals = Counters(metrics, name, "ssp", "outcome")
        self._cut_short = metrics.counter("snapbid_bid_cut_short_total", ssp=ssp)
        super().__init__(
            ssp,
            self._number,
            snapshot,
            bidding,
            request_stats,
            share,
            outcome("bid", 200),
            {reason: outcome(reason.value, 204) for reason in Reason},
        )

    async def refuse(self, reason: Reason, receive: Receive) -> Answer:
        """Refuse a request that was rejected before bidding."""
        await drain(receive)
        return self.no_bid(reason)

    def count_refusal(self, problem: Problem) -> None:
        """Count an error answer to a client that may not be the SSP."""
        self._refusals.inc(self._descriptor, problem.code)

    # -- rare steps, called by BidAnswering ------------------------------------------------------

    def leave(self, headers: HeaderList, receive: Receive) -> Awaitable[None]:
        """Skip the body of a request that is not admitted."""
        return leave_body(dict(headers), receive, self._bidding.admission.waited_s)

    def read_closely(self, headers: HeaderList, receive: Receive) -> Awaitable[bytes]:
        """Read a body with unusual headers; JSON if there is no Content-Type (OpenRTB 2.6, 2.2)."""
        fields = dict(headers)
        if not fields.get(CONTENT_TYPE):
            self._request_stats.untyped()
            fields[CONTENT_TYPE] = JSON
        return read_json_body(fields, receive, self._bidding.max_bytes)

    def read_rest(
        self, message: Message, receive: Receive, length: int, awaited: AwaitedMessages
    ) -> Awaitable[bytes]:
        """Read the rest of a body that arrives in several messages."""
        return read_rest(message, receive, length, self._bidding.max_bytes, awaited)

    def body_timeout(self) -> Problem:
        return BodyTimeout()

    def test(self, request: BidRequest) -> None:
        """Record a test request for the go-live checklist."""
        self._request_stats.test(request)

    def note(self, lists: set[str]) -> None:
        """Count the restricting lists with a meaningless entry, and clear the set."""
        self._request_stats.meaningless(lists)
        lists.clear()

    def cut_short(self, impressions: int) -> None:
        """Count impressions that were not decided in time, or do not fit in the answer."""
        self._cut_short.inc(impressions)

    def count_failure(self, error: BaseException) -> None:
        if isinstance(error, Problem):
            self._refusals.inc(self._descriptor, error.code)
            self._request_stats.refused(error)
        elif isinstance(error, Exception) and not isinstance(error, Disconnected):
            self._request_stats.answered(500)

    def log_bids(self, began_ms: int, proposal: Proposal, bids: list[Bid], test: bool) -> None:
        """Write the bids to the auction log."""
        log, decision = self._bidding.log, proposal.decision
        assert log is not None
        request = decision.query.request
        log.bids(began_ms, self._source, request, bids, decision.lookups.currency, test)

    def end_log(self, count: int) -> None:
        """End the log rows of discarded bids once the ledger is certain: late ones may still count
        until they are rolled back.
        """
        log = self._bidding.log
        assert log is not None
        self._bidding.ledger.when_certain(partial(log.end, count))

    async def replace_refused(
        self,
        proposal: Proposal,
        snapshot: CatalogSnapshot,
        verdicts: str,
        deadline: float,
        test: bool,
        began_ms: int,
    ) -> bytes | Reason:
        """Return the body with the bids that the ledger keeps, or the reason for no bid."""
        bidder = self._bidding.bidder
        kept = await replace_refused(
            bidder,
            self._bidding.ledger,
            self._number,
            proposal,
            snapshot,
            verdicts,
            lambda: deadline - perf_counter(),
            test,
        )
        if isinstance(kept, Reason):
            return kept
        body = bidder.write(proposal.auction_id, kept, proposal.decision.lookups.currency)
        if self._bidding.log is not None:
            self.log_bids(began_ms, proposal, kept, test)
        return body

    def compressed(self, body: bytes, accepted: bytes) -> Answer | None:
        """Return the compressed answer; None if no encoding is accepted or it takes too long."""
        encoding = accepted_encoding(accepted)
        if encoding is None or (compressed := compress(body, encoding)) is None:
            return None
        return answer(200, compressed, JSON, ((b"content-encoding", encoding.encode()),))

    def plain_answer(self, body: bytes) -> Answer:
        return json_body(body)
