"""Requests beyond an SSP's limit (contract 4): their connections stay usable."""

import asyncio
from pathlib import Path
from time import perf_counter
from typing import Any

from support.matching_cases import campaign_of
from support.snapshot import RATES, Geo, snapshot_of

from snapbid.base.http import LEFT_AFTER_S
from snapbid.bidding.endpoint import Bidding, BidEndpoint
from snapbid.bidding.guard import GuardedBids
from snapbid.bidding.request_stats import RequestStats
from snapbid.bidding.response import response_writer
from snapbid.metrics import Metrics

HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"2")]


class NoPermits:
    """A limit that is exhausted."""

    def take(self) -> bool:
        return False


def test_a_refused_request_is_read_to_its_end_however_long_others_waited(tmp_path: Path) -> None:
    """Its body may come after its head; an answer before it costs the client its connection."""
    metrics = Metrics(tmp_path)
    ledger: Any = None
    writer = response_writer("http://bid.example")
    bidding = Bidding(writer, ledger, metrics, max_bytes=1024, tmax_ms=100)
    snapshot = snapshot_of([campaign_of({})], {"acme": "acme"}, RATES, Geo())
    endpoint = BidEndpoint("acme", snapshot, bidding, RequestStats())
    admission, now = bidding.admission, perf_counter()
    share = admission.share("nova")
    for at in (
        now,
        now + 1,
    ):  # in the second interval it is known how long those of the first waited
        assert admission.enter(share, at)
        admission.has_body(share, at, at + 0.5)
        admission.leave(share)
    assert admission.waited_s > LEFT_AFTER_S
    messages = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.request", "body": b"}", "more_body": False},
    ]

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return messages.pop(0)

    permits: Any = NoPermits()
    guarded = GuardedBids(endpoint, endpoint, (), (), permits)
    answer = asyncio.run(guarded({"type": "http", "headers": HEADERS}, receive))
    assert answer.start["status"] == 204
    assert messages == []
    metrics.close()
