"""What counting costs a bid: all that is counted of one that is answered with a bid.

`snapbid_http_requests_total`, `snapbid_bid_requests_total`, `snapbid_bid_seconds`, and of one in 16
the steps. What is counted of a round trip to Redis is shared by its batch.
"""

from pathlib import Path
from time import perf_counter

import pytest

from bench.conftest import Each
from snapbid.exchange.routes import BID_ROUTE
from snapbid.exchange.timing import BidTimings, StepTimer
from snapbid.metrics import Counters, Metrics

SSPS = 20


@pytest.fixture
def metrics(scratch: Path) -> Metrics:
    return Metrics(scratch / "counting")


def test_counting_a_bid(each: Each, metrics: Metrics) -> None:
    requests = Counters(metrics, "snapbid_http_requests_total", "route", "status")
    times = BidTimings(metrics)
    name = "snapbid_bid_requests_total"
    outcomes = [metrics.counter(name, ssp=f"ssp-{n}", outcome="bid") for n in range(SSPS)]

    def count(n: int) -> None:
        started = perf_counter()
        steps = StepTimer(times) if times.is_timed() else None
        if steps:
            steps.end("decode")
        if steps:
            steps.end("match")
        if steps:
            steps.end("commit")
        times.whole.observe(perf_counter() - started)
        outcomes[n].inc()
        requests.inc(BID_ROUTE, 200)

    each(count, [(n % SSPS,) for n in range(400)])
    metrics.close()
