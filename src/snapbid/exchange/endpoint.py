"""`POST /api/v1/openrtb2/{sspId}/bid` over HTTP (document 2; contract 4)."""

from collections.abc import Awaitable
from functools import partial
from time import perf_counter, thread_time, time_ns
from typing import Final, Protocol, final

from msgspec import Struct

from snapbid.errors import Problem
from snapbid.exchange._admission import AdmissionControl
from snapbid.exchange._head import plain_length, value_of
from snapbid.exchange._outcome import Outcome
from snapbid.exchange.bid import MAX_TMAX_MS, Bidder, Market, NoBid, Proposal, Reason
from snapbid.exchange.limits import RemembersBids, ledger_bids, replace_refused
from snapbid.exchange.request import decode
from snapbid.exchange.response import MAX_ANSWER, Bid
from snapbid.exchange.sightings import Sightings
from snapbid.exchange.timing import BidTimings, StepTimer
from snapbid.http import (
    JSON,
    Answer,
    Disconnected,
    HeaderList,
    Receive,
    accepts_gzip,
    answer,
    deflate,
    drain,
    json_body,
    leave_body,
    read_body,
    read_json_body,
)
from snapbid.ledger.records import BidVerdict
from snapbid.metrics import Counters, Metrics

GZIP_FROM: Final = 1024  # bytes of a response
GZIP_TO: Final = 2 * MAX_ANSWER  # a longer one is of a single bid, and would take too much time
MARGIN_S: Final = 0.01  # of `tmax`, kept for the answer to travel
LARGE: Final = 16_384  # bytes of a body whose decoding is a share of the request's processor time
LEAST_SHARE: Final = 0.2  # of a request's processor time that decoding leaves for the search
NO_CONTENT: Final = answer(204)
KEPT: Final = BidVerdict.KEPT.value
_LATE: Final = Reason.LATE  # looking up an enumeration's member is a call of Python
_OVERLOAD: Final = Reason.OVERLOAD


@final
class PendingAnswer(Struct):
    """A response's body, to be sent if the ledger keeps all its bids by `deadline`.

    `verdicts` gives its decision; `deadline` is in seconds of `perf_counter`. `proposal` is there
    where a bid may be refused, or is logged.
    """

    body: bytes
    verdicts: Awaitable[str]
    proposal: Proposal | None
    market: Market
    test: bool
    deadline: float
    began_ms: int


class LogsBids(Protocol):
    """Takes rows for the auction log; see `auction_log.AuctionLog`."""

    def begin(self, count: int) -> int: ...

    def end(self, count: int) -> None: ...

    def bids(
        self,
        time_ms: int,
        source: tuple[str, str],
        auction_id: str,
        bids: list[Bid],
        currency: str,
        test: bool,
    ) -> None: ...


class Bidding:
    """What the bid endpoints of a worker share.

    `max_bytes` limits a decompressed body; `tmax_ms` stands in where a request has no `tmax`;
    `processor_ms` is the processor time that a request may take.
    """

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
    ) -> None:
        self.bidder = bidder
        self.ledger = ledger
        self.metrics = metrics
        self.admission = AdmissionControl(perf_counter())
        self.timings = BidTimings(metrics)
        self.max_bytes = max_bytes
        self.tmax_ms = tmax_ms
        self.processor_s = processor_ms / 1000
        self.log = log


class BidEndpoint:
    """Answers one SSP's bid requests from its current market, and counts them by outcome."""

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
        self._timings = timings = bidding.timings
        self._is_timed = timings.is_timed
        self._max_bytes = bidding.max_bytes
        self._tmax_ms = bidding.tmax_ms
        self._processor_s = bidding.processor_s
        self._log = bidding.log
        self._source = ssp, market.catalog.ssps[ssp]
        self._sightings = sightings = sightings or Sightings()
        name, metrics = "snapbid_bid_requests_total", bidding.metrics

        def outcome(value: str, status: int) -> Outcome:
            counter = metrics.counter(name, ssp=ssp, outcome=value)
            return Outcome(counter, sightings, status, self._admission, self._lane, timings.whole)

        self._bid_made = outcome("bid", 200)
        self._no_bids = {reason: outcome(reason.value, 204) for reason in Reason}
        self._refusals = Counters(metrics, name, "ssp", "outcome")
        self._cut_short = metrics.counter("snapbid_bid_cut_short_total", ssp=ssp)

    async def __call__(self, headers: HeaderList, receive: Receive) -> Answer:
        """Answer one request. Raises Problem for an error answer."""
        started = perf_counter()
        admission, lane = self._admission, self._lane
        if not admission.enter(lane, started):
            await leave_body(dict(headers), receive, admission.waited_s)
            return self._no_bid(_OVERLOAD)
        try:
            try:
                length, limit = plain_length(headers), self._max_bytes
                if 0 <= length <= limit:
                    body = await read_body(receive, length, limit)
                else:
                    body = await read_json_body(dict(headers), receive, limit)
            finally:
                admission.has_body(lane, started, perf_counter())
            steps = StepTimer(self._timings) if self._is_timed() else None
            result = self._bid(body, started - admission.waited_s, steps)
            del body  # what waits for Redis keeps little, so that memory stays in the caches
            if type(result) is PendingAnswer:
                pending, is_kept = result, False
                try:
                    verdicts = await pending.verdicts
                    if verdicts == KEPT or (verdicts and not verdicts.strip(KEPT)):
                        is_kept, result = True, pending.body
                        if pending.proposal is not None and self._log is not None:
                            self._log_bids(pending, pending.proposal, pending.proposal.bids)
                    elif verdicts:
                        result = await self._replace_refused(pending, verdicts)
                    else:
                        result = _LATE
                finally:
                    if self._log is not None and pending.proposal is not None:
                        count = len(pending.proposal.bids)
                        if is_kept:
                            self._log.end(count)
                        else:  # what is late may count until it is taken back
                            self._ledger.when_certain(partial(self._log.end, count))
                if steps and result is not _LATE:
                    steps.end("commit")
        except BaseException as error:
            admission.leave(lane)
            self._count_failure(error)
            raise
        if type(result) is not bytes:
            self._no_bids[result].end(perf_counter() - started)  # type: ignore[index]
            return NO_CONTENT
        self._bid_made.end(perf_counter() - started)
        if GZIP_FROM < len(result) <= GZIP_TO:
            accepted = accepts_gzip(value_of(headers, b"accept-encoding"))
            if accepted and (deflated := deflate(result)) is not None:
                return answer(200, deflated, JSON, ((b"content-encoding", b"gzip"),))
        return json_body(result)

    async def refuse(self, reason: Reason, receive: Receive) -> Answer:
        """Answer a request that did not come as far as here."""
        await drain(receive)
        return self._no_bid(reason)

    def count_refusal(self, problem: Problem) -> None:
        """Count an error answer to somebody who may not be the SSP."""
        self._refusals.inc(self._ssp, problem.code)

    def _no_bid(self, reason: Reason) -> Answer:
        self._no_bids[reason].count()
        return NO_CONTENT

    def _count_failure(self, error: BaseException) -> None:
        if isinstance(error, Problem):
            self._refusals.inc(self._ssp, error.code)
            self._sightings.refused(error)
        elif isinstance(error, Exception) and not isinstance(error, Disconnected):
            self._sightings.answered(500)

    def _bid(
        self, body: bytes, started: float, steps: StepTimer | None
    ) -> bytes | Reason | PendingAnswer:
        """Decide on a request: the response's body, a reason for no bid, or what awaits Redis.

        The bids of a test request are not remembered, so its body is ready at once unless there
        are limits to look at.
        """
        processor_s = self._processor_s
        if len(body) > LARGE:
            began = thread_time()  # a system call
            request = decode(body)
            left_s = processor_s + began - thread_time()
            processor_s = max(left_s, LEAST_SHARE * processor_s)
        else:
            request = decode(body)
        if steps:
            steps.end("decode")
        test = self._sightings.count(request)
        if test:
            self._sightings.test(request)
        tmax = request.tmax
        if tmax is None or not 0 < tmax <= MAX_TMAX_MS:
            tmax = self._tmax_ms
        allowed_s = tmax / 1000
        now = perf_counter()
        if now - started > allowed_s:
            return _LATE
        market = self.market  # for the whole request: ranks belong to one market
        deadline = started + allowed_s - (MARGIN_S if allowed_s > 2 * MARGIN_S else allowed_s / 2)
        proposal = self._bidder.propose(
            request, self._ssp, market, time_ns() // 1_000_000, deadline - now, processor_s
        )
        if steps:
            steps.end("match")
        if proposal.undecided:
            self._cut_short.inc(proposal.undecided)
        if type(proposal) is NoBid:
            return proposal.reason
        currency = proposal.decision.lookups.currency
        body = self._bidder.write(proposal.auction_id, proposal.bids, currency)
        if without_room := len(proposal.choices) - len(proposal.bids):
            self._cut_short.inc(without_room)
        log = self._log
        began_ms = 0 if log is None else log.begin(len(proposal.bids))
        if test and not proposal.limited:
            if log is not None:
                log.bids(began_ms, self._source, proposal.auction_id, proposal.bids, currency, test)
                log.end(len(proposal.bids))
            return body
        auction, user = proposal.auction_id.encode(), proposal.decision.user
        bids, within_s = ledger_bids(proposal.bids), deadline - perf_counter()
        verdicts: Awaitable[str] | None
        if test:
            verdicts = self._ledger.look(auction, bids, user, within_s)
        else:
            verdicts = self._ledger.remember(auction, self._number, bids, user, within_s)
            if verdicts is None:
                if log is not None:
                    log.end(len(proposal.bids))
                return Reason.STORE_DOWN
        needed = proposal if proposal.limited or log is not None else None
        return PendingAnswer(body, verdicts, needed, market, test, deadline, began_ms)

    def _log_bids(self, pending: PendingAnswer, proposal: Proposal, bids: list[Bid]) -> None:
        assert self._log is not None
        currency = proposal.decision.lookups.currency
        self._log.bids(
            pending.began_ms, self._source, proposal.auction_id, bids, currency, pending.test
        )

    async def _replace_refused(self, pending: PendingAnswer, verdicts: str) -> bytes | Reason:
        """The body with the bids that the ledger keeps, or the reason for no bid."""
        proposal, deadline = pending.proposal, pending.deadline
        assert proposal is not None
        kept = await replace_refused(
            self._bidder,
            self._ledger,
            self._number,
            proposal,
            pending.market,
            verdicts,
            lambda: deadline - perf_counter(),
            pending.test,
        )
        if isinstance(kept, Reason):
            return kept
        body = self._bidder.write(proposal.auction_id, kept, proposal.decision.lookups.currency)
        if self._log is not None:
            self._log_bids(pending, proposal, kept)
        return body
