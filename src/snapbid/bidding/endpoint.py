"""State shared by a worker's bid endpoints (`POST /api/v1/openrtb2/{sspId}/bid`; document 2)."""

from collections.abc import Callable
from copy import copy
from time import perf_counter
from typing import Final, Protocol

from snapbid.base.http import BodyDeadline
from snapbid.bidding._bid_path import AdmissionControl
from snapbid.bidding._bid_path import BidEndpoint as BidEndpoint
from snapbid.bidding.limits import RemembersBids
from snapbid.bidding.request import BidRequest
from snapbid.bidding.response import Bid, ResponseWriter
from snapbid.bidding.signing import NoticeSigner
from snapbid.ledger.bids.records import family_of
from snapbid.metrics import Metrics

WHOLE_S: Final = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1,
    0.25, 1,
)  # fmt: skip
STEP_S: Final = (
    0.000002, 0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005,
    0.01, 0.02, 0.05, 0.1,
)  # fmt: skip


class BidTimings:
    """A worker's histograms of the time spent on bid requests (s), not counting time in queues.

    `whole` covers every admitted request that ends with a bid or a 204; `steps` (decoding,
    matching, committing) cover one request in 16, so that measuring costs next to nothing.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.whole = metrics.histogram("snapbid_bid_seconds", WHOLE_S)
        self.steps = tuple(
            metrics.histogram("snapbid_bid_step_seconds", STEP_S, step=step)
            for step in ("decode", "match", "commit")
        )


class LogsBids(Protocol):
    """The part of the auction log that bid endpoints use; see `auctionlog.log.AuctionLog`."""

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
    """The stores, settings and counters shared by the bid endpoints of a worker.

    `max_bytes` limits a decompressed body, `processor_ms` a request's processor time. `tmax_ms` is
    the default for requests without `tmax`. `body_deadline` ends requests whose bodies do not
    arrive. `clock` (UTC epoch ms) and `timer` (seconds) replace the system's clocks.
    """

    def __init__(
        self,
        writer: ResponseWriter,
        ledger: RemembersBids,
        metrics: Metrics,
        *,
        max_bytes: int,
        tmax_ms: int,
        processor_ms: int = 10,
        body_deadline: BodyDeadline | None = None,
        log: LogsBids | None = None,
        signer: NoticeSigner | None = None,
        clock: Callable[[], int] | None = None,
        timer: Callable[[], float] | None = None,
    ) -> None:
        self.writer = writer
        self.ledger = ledger
        self.metrics = metrics
        self.admission = AdmissionControl(perf_counter())
        self.timings = BidTimings(metrics)
        self.restricted = metrics.counter("snapbid_restricted_requests_total")
        self.body_deadline = body_deadline or BodyDeadline()
        self.max_bytes = max_bytes
        self.tmax_ms = tmax_ms
        self.processor_s = processor_ms / 1000
        self.log = log
        self.clock = clock
        self.timer = timer
        self.signer = signer
        self.family = b""  # of signed notices: the ledger keeps such bids apart

    def signed(self, canonical: str) -> "Bidding":
        """Return a copy for a family of SSPs whose notices are signed; requires `signer`."""
        assert self.signer is not None
        family = family_of(canonical)
        own = copy(self)
        own.writer = self.writer.signed(self.signer.signs(family))
        own.family = family
        return own
