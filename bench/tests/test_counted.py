"""Tests that figures of bids and wins fail unless Redis counted each of them."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bench.micro import test_stores
from snapbid.embedded import Home, Redis
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import WIN
from workload import requests


class Benchmark:
    """A benchmark that calls what it should measure once."""

    def __init__(self) -> None:
        self.extra_info: dict[str, int] = {}

    def pedantic(self, target: Any, setup: Any, **_: int) -> None:
        arguments, named = setup() if setup else ((), {})
        target(*arguments, **named)


class Stores:
    """A stand-in for the open worker: it remembers bids and settles wins by a ledger."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ledger: Ledger, redis_url: str) -> None:
        self.loop = loop
        self.redis_url = redis_url
        self.auctions = requests.make(20)
        self.ledger = ledger

    def run(self, calls: list[Any], status: int) -> None:
        self.loop.run_until_complete(self._call(calls))

    async def _call(self, calls: list[Any]) -> None:
        for scope, body in calls:
            await (self._win(scope) if scope["method"] == "GET" else self._bid(body))

    async def _bid(self, body: bytes) -> None:
        auction = json.loads(body)["id"].encode()
        done = self.ledger.remember(auction, 1, [(b"1", 7, 1_000, None)], None, 10.0)
        assert done is not None
        assert await done

    async def _win(self, scope: dict[str, Any]) -> None:
        auction = scope["query_string"].partition(b"id=")[2].partition(b"&")[0]
        assert await self.ledger.settle(WIN, auction, b"1")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    loop = uvloop.new_event_loop()
    with Home(tmp_path / "home") as home:
        server = Redis(home)
        server.start()
        ledger = Ledger(
            server.url, tmp_path / "spool", shards=1, ttl_s=7200, spool_max_bytes=1 << 20
        )
        loop.run_until_complete(ledger.open())
        while not ledger.connected:
            loop.run_until_complete(asyncio.sleep(0.01))
        yield Stores(loop, ledger, server.url)
        loop.run_until_complete(ledger.close())
        server.stop()
    loop.close()


Measured = Callable[[Any, Any], None]
MEASURED: list[tuple[Measured, str]] = [
    (test_stores.test_asgi_bid_remembered, "remember"),
    (test_stores.test_asgi_win, "settle"),
    (lambda each, own: test_stores.test_group_commit(each, own, own.ledger, 64), "remember"),
]


@pytest.mark.parametrize(("measured", "faked"), MEASURED, ids=["bid", "win", "group commit"])
def test_what_does_not_reach_redis_has_no_figure(
    stores: Stores, measured: Measured, faked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def succeed(*_: Any) -> str:
        return "k"

    measured(Benchmark(), stores)
    monkeypatch.setattr(stores.ledger, faked, succeed)
    with pytest.raises(AssertionError, match="== "):
        measured(Benchmark(), stores)
