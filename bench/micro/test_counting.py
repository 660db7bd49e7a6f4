"""The cost of counting for a bid: everything that is counted for a request answered with a bid.

These are `snapbid_http_requests_total`, `snapbid_bid_requests_total`, `snapbid_bid_seconds`, the
answer's status and the share of time that it leaves. For one request in 16 the steps are counted,
too. The counts of a round trip to Redis are made once for its batch.
"""

from pathlib import Path
from time import perf_counter

import pytest

from bench.micro.conftest import Each
from snapbid.bidding._bid_path import AdmissionControl, Outcome, RequestCounts
from snapbid.bidding.endpoint import BidTimings
from snapbid.bidding.routes import BID_ROUTE
from snapbid.metrics import Counters, Metrics

SSPS = 20


@pytest.fixture
def metrics(scratch: Path) -> Metrics:
    return Metrics(scratch / "counting")


def test_counting_a_bid(each: Each, metrics: Metrics) -> None:
    requests = Counters(metrics, "snapbid_http_requests_total", "route", "status")
    whole, admission = BidTimings(metrics).whole, AdmissionControl(perf_counter())
    name, share = "snapbid_bid_requests_total", admission.share("ssp")
    outcomes = [
        Outcome(
            metrics.counter(name, ssp=f"ssp-{n}", outcome="bid"),
            RequestCounts(3),
            200,
            admission,
            share,
            whole,
        )
        for n in range(SSPS)
    ]

    def count(n: int) -> None:
        started = perf_counter()
        admission.enter(share, started)
        admission.has_body(share, started, started)
        outcomes[n].end(perf_counter() - started)
        requests.inc(BID_ROUTE, 200)

    each(count, [(n % SSPS,) for n in range(400)])
    metrics.close()
