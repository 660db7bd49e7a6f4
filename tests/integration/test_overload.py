"""More bid requests at once than a worker takes on, and floods of what is not a bid.

The worker stands still while the requests are sent, so that it finds all of them waiting.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import books
from support.lanes import Lane, Reply
from support.machine import is_quiet
from support.processes import eventually, workers_of
from support.remembered import until
from support.stack import Stack, draining
from support.wire import Wire, head

from snapbid.bidding._bid_path import FIRST_LIMIT
from snapbid.embedded import Redis

FLOOD = 4 * FIRST_LIMIT
OTHERS = 32
LONG = 20_000  # bytes of a body that does not come along with its head


@pytest.fixture
def stack(database: str, start_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """One worker and a drain."""
    asyncio.run(books.set_up(database))
    served = start_stack(SNAPBID_BASE_URL=books.BASE_URL)
    with draining(served):
        yield served


@pytest.fixture(scope="module")
def flooded(
    module_database: str, module_stack: Callable[..., Stack], module_own_redis: Redis
) -> Iterator[Stack]:
    """The same, shared by floods of what is not a bid: how many bids it takes on may vary."""
    asyncio.run(books.set_up(module_database))
    own = {"SNAPBID_REDIS_URL": module_own_redis.url}
    served = module_stack(SNAPBID_BASE_URL=books.BASE_URL, **own)
    with draining(served):
        yield served


def bid_request(ssp: str, auction: str, padding: int = 0) -> bytes:
    document = {"id": auction, "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}]}
    body = json.dumps(document | {"ext": "x" * padding}).encode()
    headers = {"host": "x", "content-type": "application/json", "content-length": len(body)}
    return head("POST", f"/api/v1/openrtb2/{ssp}/bid", headers) + body


@contextlib.contextmanager
def standing_still(stack: Stack) -> Iterator[None]:
    assert stack.process
    (worker,) = workers_of(stack.process.pid)
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def outcomes(stack: Stack) -> Counter[tuple[str, str]]:
    """The bid requests that the server has counted, by SSP and outcome."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in stack.get("/metrics", ops=True)[1].decode().splitlines():
        if line.startswith("snapbid_bid_requests_total{"):
            labels, _, value = line.partition("{")[2].partition("} ")
            named = dict(pair.split("=") for pair in labels.split(","))
            counts[named["ssp"].strip('"'), named["outcome"].strip('"')] = int(float(value))
    return +counts


def test_a_flood_is_shed_and_counted_and_others_are_served(
    stack: Stack, database: str, fresh_redis: str, tmp_path: Path
) -> None:
    with ExitStack() as opened:
        flood = [opened.enter_context(Wire(stack.port)) for _ in range(FLOOD)]
        others = [opened.enter_context(Wire(stack.port)) for _ in range(OTHERS)]
        for wire in (*flood, *others):  # so that the server has accepted it
            assert wire.ask("GET", "/healthz").status == 200
        with standing_still(stack):
            for number, wire in enumerate(flood):
                descriptor = ("acme", "acme-eu")[number % 2]
                wire.write(bid_request(descriptor, f"flood-{number}", LONG * (number % 8 == 0)))
            for number, wire in enumerate(others):
                wire.write(bid_request("nova", f"other-{number}"))
        answers = Counter(wire.read().status for wire in flood)
        assert set(answers) == {200, 204}
        assert Counter(wire.read().status for wire in others) == {200: OTHERS}
        eventually(lambda: outcomes(stack).total() == FLOOD + OTHERS, "all are counted")
        counts = outcomes(stack)
        assert counts["acme", "overload"] + counts["acme-eu", "overload"] == answers[204]
        assert counts["acme", "bid"] + counts["acme-eu", "bid"] == answers[200]
        assert counts["nova", "bid"] == OTHERS

        # It comes back at once, on the same connections.
        for number, wire in enumerate(flood):
            wire.write(bid_request("acme", f"after-{number}"))
            assert wire.read().status == 200
    eventually(lambda: is_quiet(fresh_redis, tmp_path), "all that was counted in the warehouse")
    counted = asyncio.run(books.tables(database))
    stored = sum(value for key, value in counted.items() if key[0] == "bids")
    assert stored == answers[200] + OTHERS + FLOOD, "shed requests are not bids"


def test_half_sent_requests_take_no_capacity(stack: Stack) -> None:
    whole = bid_request("acme", "half")
    with ExitStack() as opened:
        for _ in range(FLOOD):
            opened.enter_context(Wire(stack.port)).write(whole[:-1])
        with Wire(stack.port) as wire:

            def answered() -> bool:
                wire.write(bid_request("acme", "whole"))
                return wire.read().status == 200

            # Once the last of them was seen: until then they come in and count for a moment each.
            eventually(lambda: all(answered() for _ in range(100)), "bids beside half-sent ones")


FLOODS = {
    "unknown path": ("GET", "/nothing", 404),
    "report": ("GET", "/api/v1/ssp/acme/report?from=2026-01-01&to=2026-01-01", 401),
    "events": ("POST", "/v3/s2s/event", 401),
    "unknown SSP": ("POST", "/api/v1/openrtb2/nobody/bid", 404),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_other_requests_does_not_keep_bids_out(flooded: Stack, flood: str) -> None:
    method, path, expected = FLOODS[flood]
    statuses: Counter[int] = Counter()

    async def keep_asking(lane: Lane, over: asyncio.Event) -> None:
        while not over.is_set():
            reply = await (lane.get(path) if method == "GET" else lane.post(path, b""))
            assert reply
            statuses[reply.status] += 1
        lane.close()

    async def bids() -> list[Reply | None]:
        over = asyncio.Event()
        asking = [asyncio.create_task(keep_asking(Lane(flooded.port), over)) for _ in range(300)]
        await until(lambda: statuses.total() >= 300)
        lane = Lane(flooded.port)
        body = bid_request("acme", flood.replace(" ", "-")).partition(b"\r\n\r\n")[2]
        replies = [await lane.post("/api/v1/openrtb2/acme/bid", body) for _ in range(100)]
        over.set()
        await asyncio.gather(*asking)
        lane.close()
        return replies

    assert [reply and reply.status for reply in asyncio.run(bids())] == [200] * 100
    assert set(statuses) == {expected}
