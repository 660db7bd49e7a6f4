"""The whole ASGI call without a socket: the application called on a uvloop event loop.

Functions that deliver one body and discard the messages stand in for the server, and a ledger that
accepts each bid at once for Redis. `test_asgi_nothing` measures an application that does nothing
else, which is the lower bound of these figures.
"""

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bench.logged import ChunksOnly
from bench.snapshot import SSP
from snapbid.base.http import RequestHandler
from snapbid.bidding.endpoint import Bidding, BidEndpoint
from snapbid.bidding.request_stats import RequestStats
from snapbid.bidding.response import response_writer
from snapbid.bidding.routes import bid_path
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.ledger.bids.records import BidVerdict
from snapbid.metrics import Metrics
from snapbid.server.app import Application
from snapbid.server.routes import Routes

START = {"type": "http.response.start", "status": 204, "headers": []}
END = {"type": "http.response.body", "body": b""}


class Resources:
    """A worker's resources with bid endpoints only, already open."""

    routes = Routes({})

    def __init__(self, endpoints: Mapping[str, RequestHandler]) -> None:
        self.bid_endpoints = endpoints

    def count(self, route: str, status: int) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def unavailable(self) -> list[str]:
        return []

    def unreplicated(self) -> list[str]:
        return []

    async def missing(self) -> list[str]:
        return []


class Remembered(Awaitable[str]):
    """The ledger's verdict on one bid, available as soon as it is awaited."""

    def __await__(self) -> Generator[Any, None, str]:
        yield from ()
        return BidVerdict.KEPT


REMEMBERED = Remembered()


class Ledger:
    """A ledger that accepts every bid at once; the cost of Redis is measured over sockets."""

    def remember(
        self,
        auction_id: bytes,
        ssp: int,
        bids: list[Any],
        user: str | None,
        within_s: float,
        counted: bool = False,
    ) -> Awaitable[str]:
        return REMEMBERED

    async def look(
        self, auction_id: bytes, bids: list[Any], user: str | None, within_s: float
    ) -> str:
        return ""

    def when_certain(self, then: Callable[[], object]) -> None:
        then()

    def shard_of(self, auction_id: bytes) -> int:
        return 0


@contextmanager
def _application(
    snapshot: CatalogSnapshot, folder: Path, log: ChunksOnly | None = None
) -> Iterator[Application]:
    metrics = Metrics(folder)
    writer = response_writer("http://127.0.0.1:8000")
    rows = None if log is None else log.rows
    bidding = Bidding(writer, Ledger(), metrics, max_bytes=262_144, tmax_ms=100, log=rows)
    endpoint = BidEndpoint(SSP, snapshot, bidding, RequestStats())
    yield Application(Resources({bid_path(SSP): endpoint.__call__}))
    metrics.close()


@pytest.fixture(scope="module")
def app(ten_thousand: CatalogSnapshot, scratch: Path) -> Iterator[Application]:
    with _application(ten_thousand, scratch / "metrics") as application:
        yield application


@pytest.fixture(scope="module")
def clicked_app(clicked_campaigns: CatalogSnapshot, scratch: Path) -> Iterator[Application]:
    with _application(clicked_campaigns, scratch / "clicked-metrics") as application:
        yield application


@pytest.fixture
def logging_app(ten_thousand: CatalogSnapshot, scratch: Path) -> Iterator[Application]:
    log = ChunksOnly(scratch / "chunks")
    with _application(ten_thousand, scratch / "logged-metrics", log) as application:
        yield application
    log.close()


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send(START)
    await send(END)


def run(benchmark: Any, app: Any, bodies: list[bytes], status: int, *more: Any) -> None:
    """Measure calls of `app`, one for each body, in sequence on one event loop."""
    calls = [_scope(body, *more) for body in bodies]
    seen: set[int] = set()

    async def send(message: Any) -> None:
        pass

    async def note(message: Any) -> None:
        seen.add(message.get("status", status))

    async def batch(send: Any) -> None:
        for scope, message in calls:

            async def receive(message: Any = message) -> Any:
                return message

            await app(scope, receive, send)

    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(batch(note))
        assert seen == {status}
        benchmark.extra_info["calls"] = len(calls)
        benchmark(lambda: loop.run_until_complete(batch(send)))
    finally:
        loop.close()


def _scope(body: bytes, *more: tuple[bytes, bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    headers = [
        (b"host", b"127.0.0.1:8000"),
        (b"content-type", b"application/json"),
        (b"x-openrtb-version", b"2.5"),
        (b"content-length", b"%d" % len(body)),
        *more,
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": bid_path(SSP),
        "query_string": b"",
        "headers": headers,
    }
    return scope, {"type": "http.request", "body": body, "more_body": False}


def test_asgi_nothing(benchmark: Any, bids: list[bytes]) -> None:
    run(benchmark, nothing, bids, 204)


def test_asgi_bid(benchmark: Any, app: Application, bids: list[bytes]) -> None:
    run(benchmark, app, bids, 200)


def test_asgi_bid_clicked(benchmark: Any, clicked_app: Application, bids: list[bytes]) -> None:
    """A bid with a click id and an excluded audience, to compare with `test_asgi_bid`."""
    run(benchmark, clicked_app, bids, 200)


def test_asgi_bid_logged(benchmark: Any, logging_app: Application, bids: list[bytes]) -> None:
    run(benchmark, logging_app, bids, 200)


def test_asgi_bid_gzip(benchmark: Any, app: Application, bids: list[bytes]) -> None:
    run(benchmark, app, bids, 200, (b"accept-encoding", b"gzip"))


def test_asgi_bid_today(benchmark: Any, app: Application, today: list[bytes]) -> None:
    run(benchmark, app, today, 200)


def test_asgi_no_bid(benchmark: Any, app: Application, no_bids: list[bytes]) -> None:
    run(benchmark, app, no_bids, 204)
