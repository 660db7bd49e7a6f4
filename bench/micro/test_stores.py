"""Whole ASGI calls of an open worker on real stores, and the ledger's group commit alone.

`AT_ONCE` calls wait together, as over that many connections. The time that Redis and PostgreSQL
take on the other core is left out, and so is the wait for them if the timer counts processor time.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import pytest
import redis
import uvloop

from bench import events, served
from bench.client import as_new_auctions
from bench.contenders import CAMPAIGNS, answered
from bench.ledger_run import many, remember
from bench.processes import ServerProcess
from bench.snapshot import SSP
from bench.together_run import batch, issue_key, until_known
from snapbid.base.settings import load, require_serving
from snapbid.bidding.routes import bid_path
from snapbid.ledger.bids.ledger import Ledger
from snapbid.operations.preflight import with_shards
from snapbid.partners.diagnosis.endpoint import SUFFIX as DIAGNOSIS
from snapbid.report import tokens
from snapbid.report.endpoint import PREFIX, SUFFIX
from snapbid.server.app import Application
from snapbid.server.worker import Worker
from workload import requests

AT_ONCE: Final = 64
ROUNDS: Final = 20
CONNECTED_S: Final = 30.0
BIDS: Final = 2_000  # remembered in a round
TODAY: Final = datetime.now(UTC).date()
REPORT: Final = f"{PREFIX}acme{SUFFIX}"
DAYS: Final = 60  # of figures in the warehouse
YEAR_OF_COUNTS: Final = f"""
create temporary view year as select current_date - ago as day, ssp, ago
from generate_series(0, 364) as ago,
    unnest('{{acme,acme-eu,nova,a,b,c,d,e,f,g}}'::text[]) as ssp;
insert into request_daily select day, ssp, 'redis', 1000000, (
    select jsonb_object_agg('outcome:' || n, 10000) || jsonb_object_agg('broken:' || n, 10)
        || '{{"requests": 1000000, "country": 900000, "ua": 990000, "ip": 990000}}'
    from generate_series(1, 30) as n), '{{"imp[].id is the same": "$.imp[1].id"}}' from year;
insert into impression_daily (day, ssp, imps) select day, ssp, 9000 from year;
insert into loss_daily (day, descriptor, reason, losses)
    select day, ssp, reason, 500 from year, generate_series(-1, 18) as reason;
insert into anomaly_daily (day, descriptor, anomaly, times)
    select day, ssp, 'anomaly-' || n, 5 from year, generate_series(1, 10) as n;
insert into bid_daily (day, descriptor, bids, wins, win_cpm_micros)
    select day, ssp, 1000000, 100000, 123456789 from year where ago >= {DAYS} or length(ssp) = 1;
analyze;
"""
WINDOWS: Final = [TODAY - timedelta(n) for n in range(50)]  # their last days

Call = tuple[dict[str, Any], bytes]  # an HTTP scope and its body
Header = tuple[bytes, bytes]


class Opened(NamedTuple):
    """A worker's application on its event loop, and data that is in its stores."""

    app: Application
    loop: asyncio.AbstractEventLoop
    key: str  # of the events
    redis_url: str
    auctions: list[requests.Request]  # that are answered with a bid

    def run(self, calls: list[Call], status: int) -> None:
        """Make all calls, `AT_ONCE` at a time; each must be answered with this status."""
        assert self.statuses(calls) == {status}

    def statuses(self, calls: list[Call]) -> set[int]:
        return self.loop.run_until_complete(self._call(calls))

    async def _call(self, calls: list[Call]) -> set[int]:
        left = iter(calls)
        seen: set[int] = set()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                seen.add(message["status"])

        async def lane() -> None:
            for scope, body in left:
                message = {"type": "http.request", "body": body, "more_body": False}

                async def receive(message: Any = message) -> Any:
                    return message

                await self.app(scope, receive, send)

        await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
        return seen


@pytest.fixture(scope="module")
def opened(scratch: Path, store_core: int) -> Iterator[Opened]:
    """Open a worker that shares the home, and so the catalog, of an idle server."""
    scratch.chmod(0o711)  # the database runs as another user where this one is root
    loop = uvloop.new_event_loop()
    with served.product(scratch, store_core, store_core, CAMPAIGNS) as server:
        key = loop.run_until_complete(_prepare(server))
        made = [request | {"tmax": 10_000} for request in requests.make(400)]  # none is late
        bodies = {wire.partition(b"\r\n\r\n")[2] for wire in answered(server, made, 200)}
        auctions = [request for request in made if requests.encode([request])[0] in bodies]
        worker = Worker(with_shards(require_serving(load(server.environ)), 1))
        loop.run_until_complete(worker.open())
        opened = Opened(
            Application(worker), loop, key, server.environ["SNAPBID_REDIS_URL"], auctions
        )
        _await_bids(opened)
        yield opened
        loop.run_until_complete(worker.close())
    loop.close()


def _await_bids(opened: Opened) -> None:
    """Wait until the worker's ledger is connected, without which there is no bid."""
    deadline = time.monotonic() + CONNECTED_S
    while opened.statuses(_bids(opened)[:1]) != {200}:
        assert time.monotonic() < deadline
        opened.loop.run_until_complete(asyncio.sleep(0.01))


async def _prepare(server: ServerProcess) -> str:
    """Store figures to report on, and issue a key; return it once the server knows it."""
    connection = await asyncpg.connect(server.environ["SNAPBID_DATABASE_URL"])
    await connection.executemany(
        "insert into bid_daily (day, descriptor, bids, wins, win_cpm_micros)"
        " values ($1, $2, 1000000, 100000, 123456789)",
        [(TODAY - timedelta(n), ssp) for n in range(DAYS) for ssp in ("acme", "acme-eu", "nova")],
    )
    await connection.execute(YEAR_OF_COUNTS)
    await connection.close()
    key = await issue_key(server.environ["SNAPBID_DATABASE_URL"])
    await until_known(server.port, batch(key, 1))
    return key


def _call(method: str, path: str, query: str = "", body: bytes = b"", *headers: Header) -> Call:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1:8000"), *headers],
    }
    return scope, body


def _json(path: str, body: bytes, *headers: Header) -> Call:
    length = (b"content-length", b"%d" % len(body))
    return _call("POST", path, "", body, (b"content-type", b"application/json"), length, *headers)


def _bids(opened: Opened) -> list[Call]:
    """Return a bid request for each auction, with a new auction id."""
    bodies = requests.encode(opened.auctions)
    made = islice(as_new_auctions(bodies), len(bodies))
    return [_json(bid_path(SSP), body) for body in made]


def _measure(benchmark: Any, calls: int, target: Any, setup: Any = None) -> None:
    """Measure `target`, which takes the arguments that `setup` returns."""
    benchmark.extra_info["calls"] = calls
    benchmark.pedantic(target, setup=setup, rounds=ROUNDS, warmup_rounds=1)


def _measure_counted(
    benchmark: Any, redis_url: str, kind: str, calls: int, target: Any, setup: Any = None
) -> None:
    """Measure `target`, and fail unless Redis counts a bid ("B") or win ("W") for each call."""
    rounds, before = 0, _counted(redis_url, kind)

    def count_rounds(*arguments: Any) -> None:
        nonlocal rounds
        rounds += 1
        target(*arguments)

    _measure(benchmark, calls, count_rounds, setup)
    assert _counted(redis_url, kind) - before == rounds * calls


def _counted(redis_url: str, kind: str) -> int:
    """Return the sum of all campaigns' counters of this kind (`drain/names.py`)."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        days = [client.hgetall(key) for key in client.scan_iter("{sb*}:c:*")]
    return sum(int(n) for day in days for name, n in day.items() if name.startswith(f"{kind}:"))


def test_asgi_bid_remembered(benchmark: Any, opened: Opened) -> None:
    _measure_counted(
        benchmark,
        opened.redis_url,
        "B",
        len(opened.auctions),
        lambda calls: opened.run(calls, 200),
        lambda: ((_bids(opened),), {}),
    )


def test_asgi_win(benchmark: Any, opened: Opened) -> None:
    """Win notices that all count, since each is for a bid that has just been remembered."""

    def bid() -> tuple[tuple[list[Call]], dict[str, Any]]:
        bids = _bids(opened)
        opened.run(bids, 200)
        return ([_win(json.loads(body)) for _, body in bids],), {}

    _measure_counted(
        benchmark,
        opened.redis_url,
        "W",
        len(opened.auctions),
        lambda wins: opened.run(wins, 200),
        bid,
    )


def _win(request: requests.Request) -> Call:
    return _call("GET", "/rtb/win", f"id={request['id']}&impId={request['imp'][0]['id']}")


def _reports(path: str = REPORT) -> list[Call]:
    """Return report requests for all windows of 7 days, with a new token after every ten."""
    calls = []
    for place, last in enumerate(WINDOWS):
        if place % 10 == 0:
            token = tokens.issue("acme", served.SECRET.encode(), "snapbid").encode()
        window = f"from={last - timedelta(6)}&to={last}"
        header = (b"authorization", b"Bearer " + token)
        calls.append(_call("GET", path, window, b"", header))
    return calls


def test_asgi_report_cached(benchmark: Any, opened: Opened) -> None:
    opened.run(_reports(), 200)
    _measure(
        benchmark,
        len(WINDOWS),
        lambda calls: opened.run(calls, 200),
        lambda: ((_reports(),), {}),
    )


def test_asgi_report_uncached(benchmark: Any, opened: Opened) -> None:
    _measure_uncached(benchmark, opened, REPORT)


def test_asgi_diagnosis_uncached(benchmark: Any, opened: Opened) -> None:
    """A diagnosis of 7 days and two descriptors; the warehouse has a year of ten SSPs."""
    _measure_uncached(benchmark, opened, f"{PREFIX}acme{DIAGNOSIS}")


def _measure_uncached(benchmark: Any, opened: Opened, path: str) -> None:
    with redis.Redis.from_url(opened.redis_url) as client:

        def forget() -> tuple[tuple[list[Call]], dict[str, Any]]:
            for key in client.scan_iter("report:cache:*"):
                client.delete(key)
            return (_reports(path),), {}

        _measure(benchmark, len(WINDOWS), lambda calls: opened.run(calls, 200), forget)


def test_asgi_event(benchmark: Any, opened: Opened) -> None:
    key = (b"x-api-key", opened.key.encode())
    calls = [_json("/v3/s2s/event", events.encode(event), key) for event in events.generate()]
    _measure(benchmark, len(calls), lambda: opened.run(calls, 202))


def test_asgi_event_batch(benchmark: Any, opened: Opened) -> None:
    """Batches of events; the figure is for one event, as everywhere else."""
    key = (b"x-api-key", opened.key.encode())
    calls = [
        _json("/v3/s2s/batch", events.encode(events.generate(seed=seed)), key) for seed in range(4)
    ]
    _measure(benchmark, 4 * events.BATCH, lambda: opened.run(calls, 202))


@pytest.fixture(scope="module")
def ledger(opened: Opened, scratch: Path) -> Iterator[Ledger]:
    ledger = Ledger(opened.redis_url, scratch / "spool", shards=1, ttl_s=7200, spool_max_bytes=1)
    opened.loop.run_until_complete(ledger.open())
    while not ledger.connected:
        opened.loop.run_until_complete(asyncio.sleep(0.01))
    yield ledger
    opened.loop.run_until_complete(ledger.close())


@pytest.mark.parametrize("at_once", [1, AT_ONCE], ids="{}_at_once".format)
def test_group_commit(benchmark: Any, opened: Opened, ledger: Ledger, at_once: int) -> None:
    """Bids remembered `at_once` at a time, from the call to Redis' answer."""
    first = count(at_once * 10**7, BIDS)

    def commit() -> None:
        start = next(first)
        work = many(ledger, remember, range(start, start + BIDS), at_once)
        opened.loop.run_until_complete(work)

    _measure_counted(benchmark, opened.redis_url, "B", BIDS, commit)
