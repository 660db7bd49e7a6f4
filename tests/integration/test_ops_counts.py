"""The private port of one running system: its pages, and what its workers count."""

import json
import shutil
import subprocess
from collections.abc import Callable
from time import time
from typing import Any

import pytest
from redis.asyncio import Redis
from support.ops import ask, await_catalogs, bid, data, prepare, samples
from support.processes import eventually
from support.stack import Stack

from snapbid.base.redis_keys import ShardKeys
from snapbid.operations.dashboard.ledger import SilentProcesses, waiting

FILES = ("/ops", "/ops/ops.css", "/ops/ops.js")


@pytest.fixture(scope="module")
def served(module_database: str, module_stack: Callable[..., Stack]) -> Stack:
    """With an SSP and a campaign that has a budget."""
    prepare(module_database)
    stack = module_stack(SNAPBID_WORKERS="2")
    await_catalogs(stack, 2)
    assert bid(stack, "first")[0] == 200
    return stack


def test_prometheus_takes_the_metrics(served: Stack) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    eventually(lambda: "snapbid_campaign_spent_usd" in samples(served), "what Redis tells")
    _, _, page = ask(served, "GET", "/metrics", ops=True)
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def latency_of(stack: Stack) -> dict[str, Any]:
    return {step["step"]: step["seconds"] for step in data(stack)["latency"]}


def test_what_workers_count(served: Stack) -> None:
    before = samples(served)
    for number in range(64):  # of two workers one has had 16 requests at least
        assert bid(served, f"a{number}")[0] == 200
    assert bid(served, "", imp=[])[0] == 400
    assert ask(served, "POST", "/api/v1/openrtb2/nobody/bid", b"{}")[0] == 404
    assert ask(served, "GET", "/rtb/win?id=a0&impId=1")[0] == 200
    assert ask(served, "GET", "/rtb/bill")[0] == 400
    assert ask(served, "GET", "/api/v1/ssp/acme/report")[0] == 401
    assert ask(served, "GET", "/docs")[0] == 200
    assert ask(served, "GET", "/openapi.json")[0] == 200
    assert ask(served, "GET", "/nothing")[0] == 404
    after = samples(served)

    def grown(name: str, **labels: str) -> float:
        key = tuple(sorted(labels.items()))
        return after[name].get(key, 0) - before.get(name, {}).get(key, 0)

    requests = "snapbid_http_requests_total"
    assert grown(requests, route="bid", status="200") == 64
    assert grown(requests, route="bid", status="400") == 1
    assert grown(requests, route="bid", status="404") == 1
    assert grown(requests, route="win", status="200") == 1
    assert grown(requests, route="billing", status="400") == 1
    assert grown(requests, route="report", status="401") == 1
    assert grown(requests, route="docs", status="200") == 2
    assert grown(requests, route="other", status="404") == 1
    outcomes = "snapbid_bid_requests_total"
    assert grown(outcomes, ssp="acme", outcome="bid") == 64
    assert grown(outcomes, ssp="acme", outcome="bad_request") == 1
    assert grown("snapbid_bid_seconds_count") == 64
    steps = "snapbid_bid_step_seconds_count"
    (measured,) = {grown(steps, step=step) for step in ("match", "commit")}
    assert 1 <= measured <= grown(steps, step="decode") <= 6
    assert grown("snapbid_commit_batch_size_sum", of="bids") == 64
    assert grown("snapbid_commit_batch_size_sum", of="notices") == 1
    round_trips = grown("snapbid_commit_seconds_count")
    assert grown("snapbid_commit_batch_size_count", of="bids") <= round_trips <= 65
    steps_shown = {"whole", "decode", "match", "commit", "round trip to Redis"}
    eventually(lambda: set(latency_of(served)) == steps_shown, "the latencies to be on the page")


def test_pages_and_refusals(served: Stack) -> None:
    for path in (*FILES, "/ops/data", "/metrics"):
        status, headers, body = ask(served, "GET", path, ops=True)
        assert (status, len(body)) == (200, int(headers["content-length"]))
        assert headers["content-security-policy"].startswith("default-src 'none';")
        assert headers["x-content-type-options"] == "nosniff"
        assert ask(served, "HEAD", path, ops=True)[::2] == (200, b"")
        assert served.get(path)[0] == 404  # never on the public port
    assert ask(served, "GET", "/", ops=True)[1]["location"] == "/ops"
    for path in ("/ops/", "/ops/../server.py", "/ops/server.py", "/nothing", "/ops%2fdata"):
        status, _, body = ask(served, "GET", path, ops=True)
        assert (status, json.loads(body)["error"]) == (404, "not_found")
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        status, headers, body = ask(served, method, "/ops/data", ops=True)
        assert (status, headers["allow"]) == (405, "GET, HEAD")
        assert json.loads(body)["error"] == "method_not_allowed"
    status, _, body = ask(served, "BREW", "/ops", ops=True)
    assert (status, json.loads(body)["error"]) == (501, "bad_request")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8001", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8001", 200),
        ("attacker.example", 421),
        ("127.0.0.1.attacker.example:8001", 421),
        ("localhost.attacker.example", 421),
        ("192.0.2.1", 421),
        ("[::1", 421),
        ("", 421),
        ("[::1]evil.com", 421),
        ("[::1]evil.com:8001", 421),
        ("[::1]:8001.evil.com", 421),
        ("[::1]@evil.com", 421),
        ("[localhost]", 421),
        ("[127.0.0.1]", 421),
        ("::1", 421),
        ("localhost:", 421),
        ("localhost:8001:8001", 421),
        ("localhost:evil", 421),
        ("evil.com@localhost", 421),
        ("localhost/evil.com", 421),
        ("localhost evil.com", 421),
    ],
)
def test_names_of_elsewhere_are_not_answered(served: Stack, host: str, status: int) -> None:
    for path in ("/metrics", "/ops/data", "/ops"):
        answered, _, body = ask(served, "GET", path, ops=True, host=host)
        assert answered == status
        assert status == 200 or json.loads(body)["error"] == "misdirected_request"


def test_series_are_bounded(served: Stack) -> None:
    """Whatever clients send, it makes no series of its own."""
    before = {(name, labels) for name, series in samples(served).items() for labels in series}
    for number in range(30):
        ask(served, "POST", f"/api/v1/openrtb2/stranger-{number}/bid", b"{}")
        ask(served, "GET", f"/nothing/{number}")
        ask(served, "GET", f"/rtb/loss?id=x{number}&impId=1&nbr={number}")
        ask(served, "POST", f"/v3/s2s/{number}")
        ask(served, f"M{number}", "/healthz")
    after = {(name, labels) for name, series in samples(served).items() for labels in series}
    assert len(after - before) < 30
    assert not [entry for entry in after - before if "stranger" in str(entry) or "29" in str(entry)]


async def test_processes_for_which_nothing_waits_are_not_silent(fresh_redis: str) -> None:
    """Marks stay in a ledger that nobody writes to."""
    keys, clock = ShardKeys(0), 10_000_000
    async with Redis.from_url(fresh_redis) as redis:
        await redis.hset(f"{keys.prefix}h", "clock", clock)
        for name, age_ms in (("new", 9_000), ("silent", 100_000), ("gone", 900_000)):
            await redis.hset(keys.processes, name, f"0 {clock - age_ms}")
        backlog = await waiting(redis, 1, time())
    assert backlog.silent == SilentProcesses(1, 800.0)
