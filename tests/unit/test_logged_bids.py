"""What the auction log admits to lack, should the worker be killed while the ledger decides."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.matching_cases import campaign_of
from support.snapshot import RATES, Geo, snapshot_of

from snapbid.auctionlog.log import AuctionLog
from snapbid.base.http import Answer
from snapbid.bidding.endpoint import Bidding, BidEndpoint
from snapbid.bidding.request_stats import RequestStats
from snapbid.bidding.response import response_writer
from snapbid.metrics import Metrics

BODY = (
    b'{"id":"a","at":1,"imp":[{"id":"1","banner":{"w":300,"h":250}},'
    b'{"id":"2","banner":{"w":300,"h":250}},{"id":"3","banner":{"w":300,"h":250}}]}'
)
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


class Deciding:
    """A ledger whose decision the test triggers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.verdicts: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting: list[Callable[[], object]] = []

    def remember(self, *_: Any) -> "asyncio.Future[str]":
        self.asked.set()
        return self.verdicts

    def when_certain(self, then: Callable[[], object]) -> None:
        self.waiting.append(then)


@pytest.mark.parametrize("verdicts", ["kkk", ""])
async def test_every_bid_of_an_answer_is_logged(tmp_path: Path, verdicts: str) -> None:
    metrics, ledger = Metrics(tmp_path / "metrics"), Deciding()
    log = AuctionLog(tmp_path / "log", metrics)
    await log.open()
    own: Any = ledger
    writer = response_writer("http://bid.example")
    bidding = Bidding(writer, own, metrics, max_bytes=1024, tmax_ms=10_000, log=log.rows)
    snapshot = snapshot_of([campaign_of({})], {"acme": "acme"}, RATES, Geo())
    endpoint = BidEndpoint("acme", snapshot, bidding, RequestStats())

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    asking: asyncio.Task[Answer] = asyncio.create_task(endpoint(HEADERS, receive))
    await ledger.asked.wait()
    assert log.rows.in_flight == 3
    ledger.verdicts.set_result(verdicts)
    assert (await asking).start["status"] == (200 if verdicts else 204)
    if not verdicts:  # they may have been counted, and stay so should the worker be killed
        assert log.rows.in_flight == 3
        for then in ledger.waiting:
            then()
    assert log.rows.in_flight == 0
    await log.close()
    metrics.close()
