"""The bid endpoint in this process: the application over a catalog, called without a socket.

Bids are remembered in the tests' Redis, as in production.
"""

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import redis

from snapbid.base.http import BodyDeadline, Message
from snapbid.bidding.endpoint import Bidding
from snapbid.bidding.response import response_writer
from snapbid.bidding.routes import bid_path
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.ledger.bids.ledger import Ledger
from snapbid.metrics import Metrics, slots
from snapbid.metrics.keys import key_of
from snapbid.server.app import Application
from snapbid.server.bids import BidEndpoints
from snapbid.server.routes import Routes
from support.http import Reply
from workload.serving import confirm_budgets

T = TypeVar("T")
BASE_URL = "http://bid.example"
JSON_HEADERS = {"content-type": "application/json"}


class LocalResources:
    """The resources of `app.Application`: a snapshot, its SSPs, and the ledger."""

    def __init__(
        self,
        snapshot: CatalogSnapshot | None,
        redis_url: str,
        *,
        max_bytes: int = 262_144,
        tmax_ms: int = 10_000,  # so that a busy machine does not make bids late
        processor_ms: int = 10,
        body_deadline: BodyDeadline | None = None,
        base_url: str = BASE_URL,
        clock: Callable[[], int] | None = None,
        timer: Callable[[], float] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="snapbid-test-")
        folder = Path(self._folder.name)
        self._metrics = Metrics(folder)
        self._ledger = Ledger(
            redis_url, folder / "spool", shards=1, ttl_s=60, spool_max_bytes=1 << 20
        )
        self._has_snapshot = snapshot is not None
        bidding = Bidding(
            response_writer(base_url),
            self._ledger,
            self._metrics,
            max_bytes=max_bytes,
            tmax_ms=tmax_ms,
            processor_ms=processor_ms,
            body_deadline=body_deadline,
            clock=clock,
            timer=timer,
        )
        bids = BidEndpoints(bidding)
        if snapshot is not None:
            bids.set_snapshot(snapshot, None)
        self.bid_endpoints = bids.handlers
        self.routes = Routes({}, [bids.resolve])

    def count(self, route: str, status: int) -> None:
        pass

    def counted(self, name: str, labels: dict[str, str]) -> int:
        return slots.read(self._folder.name).get(key_of(name, labels), 0)

    async def open(self) -> None:
        await self._ledger.open()
        while not self._ledger.connected:
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self._ledger.close()
        self._metrics.close()
        self._folder.cleanup()

    def unavailable(self) -> list[str]:
        return []

    def unreplicated(self) -> list[str]:
        return []

    async def missing(self) -> list[str]:
        return [] if self._has_snapshot else ["campaigns"]


class LocalApp:
    """The application over local resources; close it after use."""

    def __init__(self, snapshot: CatalogSnapshot | None, redis_url: str, **settings: Any) -> None:
        self._resources = LocalResources(snapshot, redis_url, **settings)
        self._redis_url = redis_url
        self._runner = asyncio.Runner()
        self.app = Application(self._resources)

    def __enter__(self) -> "LocalApp":
        self._runner.run(self._resources.open())
        with contextlib.suppress(redis.RedisError):
            confirm_budgets(self._redis_url)
        return self

    def __exit__(self, *_: object) -> None:
        with self._runner:
            self._runner.run(self._resources.close())

    def run(self, of: Coroutine[Any, Any, T]) -> T:
        """Run what calls the application in its loop."""
        return self._runner.run(of)

    def counted(self, name: str, **labels: str) -> int:
        """What a counter has counted."""
        return self._resources.counted(name, labels)

    def call(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes | Sequence[bytes] = b"",
    ) -> Reply:
        """Make a request; a list is a body that arrives in parts."""
        return self._runner.run(call(self.app, method, path, headers, body))

    def bid(
        self,
        body: bytes | Sequence[bytes],
        ssp: str = "acme",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Make a bid request with the content type of JSON."""
        return self.call("POST", bid_path(ssp), {**JSON_HEADERS, **(headers or {})}, body)


async def call(
    app: Application,
    method: str,
    path: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    body: bytes | Sequence[bytes] = b"",
) -> Reply:
    """Call an ASGI application. Fails unless the answer is complete and in order."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    parts = [body] if isinstance(body, bytes) else body
    messages = iter([*messages_of(parts), {"type": "http.disconnect"}])
    sent: list[Message] = []

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs],
    }
    await app(scope, receive, send)
    start, *rest = sent
    assert start["type"] == "http.response.start"
    assert [message["type"] for message in rest] == ["http.response.body"]
    assert not rest[0].get("more_body")
    named = {name.decode(): value.decode() for name, value in start["headers"]}
    assert len(named) == len(start["headers"]), "a header is sent twice"
    return Reply(start["status"], named, rest[0]["body"])


def messages_of(parts: Sequence[bytes]) -> Iterable[Message]:
    """The ASGI messages of a body in parts."""
    for part, following in itertools.pairwise([*parts, None]):
        yield {"type": "http.request", "body": part, "more_body": following is not None}
