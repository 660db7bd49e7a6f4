"""The private port: the page's data and the metrics, from what a running system has counted."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.ops import ask, bid, data, prepare
from support.processes import eventually
from support.stack import Stack, execute

from snapbid import metrics
from snapbid.embedded import Postgres, Redis

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]
FILES = ("/ops", "/ops/ops.css", "/ops/ops.js")


@pytest.fixture
def served(database: str, start_stack: Callable[..., Stack]) -> Stack:
    """With an SSP and a campaign that has a budget."""
    stack = start_stack(SNAPBID_WORKERS="2")
    prepare(database)
    eventually(lambda: bid(stack, "first")[0] == 200, "a bid")
    return stack


@pytest.fixture(scope="module")
def module_stack(
    module_database: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    stack = Stack(
        {
            "SNAPBID_HOME": str(tmp_path_factory.mktemp("home")),
            "SNAPBID_DATABASE_URL": module_database,
            "SNAPBID_REDIS_URL": redis_url,
        }
    )
    try:
        stack.start()
        yield stack
    finally:
        stack.close()


def samples(stack: Stack) -> Samples:
    """The metrics page, which must be sound."""
    status, headers, body = ask(stack, "GET", "/metrics", ops=True)
    assert (status, headers["content-type"]) == (200, metrics.CONTENT_TYPE)
    found: Samples = {}
    names = {name.removesuffix("_total") for name in metrics.DEFINITIONS}
    for family in text_string_to_metric_families(body.decode()):
        assert family.name in names
        for sample in family.samples:
            series = found.setdefault(sample.name, {})
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in series, f"{sample.name}{labels} is there twice"
            series[labels] = sample.value
    return found


def test_traffic_is_on_the_page_and_among_the_metrics(served: Stack) -> None:
    eventually(lambda: data(served)["ssps_known"] == 1, "the SSP to be known")
    eventually(lambda: data(served)["now"] is not None, "two samples")
    before = data(served)["ssps"][0]["bids_today"]
    for number in range(20):
        assert bid(served, f"a{number}")[0] == 200
    assert bid(served, "floor", imp=[{"id": "1", "banner": {"w": 1, "h": 1}}])[0] == 204
    for path in ("/rtb/win?id=a0&impId=1", "/rtb/win?id=a0&impId=1", "/rtb/bill?id=a0&impId=1",
                 "/rtb/loss?id=a1&impId=1&nbr=102", "/rtb/win?id=nobody&impId=1"):  # fmt: skip
        assert ask(served, "GET", path)[0] == 200
    eventually(lambda: data(served)["ssps"][0]["wins_today"] == 1, "the win")
    seen = data(served)
    (ssp,) = seen["ssps"]
    assert (ssp["bids_today"], ssp["imps_today"], ssp["spend_today"]) == (before + 20, 1, 0.002)
    assert ssp["outcomes"]["bid"] >= 20
    assert ssp["outcomes"]["no_campaign"] >= 1
    assert seen["notices"]["win"] == {"counted": 1, "duplicate": 1, "unknown": 1}
    assert seen["notices"]["loss"] == {"counted": 1}
    assert (seen["redis"], seen["warehouse"], seen["campaigns"]) == (True, True, 1)
    (whole, *_) = seen["latency"]
    assert whole["step"] == "whole"
    assert len(whole["seconds"]) == len(seen["quantiles"])
    (budget,) = seen["budgets"]
    assert (budget["campaign"], budget["daily"], budget["total"]) == ("<b>shoes</b>", 0.2, 10.0)
    assert budget["spent_today"] == 0.002
    assert budget["state"] == "open"
    found = samples(served)
    acme = (("ssp", "acme"),)
    assert found["snapbid_ssp_wins_total"][acme] == 1
    assert found["snapbid_ssp_impressions_total"][acme] == 1
    assert found["snapbid_ssp_spend_usd_total"][acme] == pytest.approx(0.002)
    day = (("campaign", "<b>shoes</b>"), ("window", "day"))
    assert found["snapbid_campaign_spent_usd"][day] == 0.002
    assert found["snapbid_campaign_budget_usd"][day] == 0.2
    assert found["snapbid_campaign_held_usd"][day[:1]] > 0
    assert found["snapbid_budget_state"][(("state", "open"),)] == 1
    assert found["snapbid_catalog_campaigns"][()] == 1


def test_prometheus_takes_the_metrics(served: Stack) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    eventually(lambda: "snapbid_campaign_spent_usd" in samples(served), "what Redis tells")
    _, _, page = ask(served, "GET", "/metrics", ops=True)
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def latency_of(stack: Stack) -> dict[str, Any]:
    return {one["step"]: one["seconds"] for one in data(stack)["latency"]}


def test_what_workers_count(served: Stack) -> None:
    # Each request is a connection, to either worker: both have the campaign then.
    eventually(lambda: all(bid(served, f"w{n}", test=1)[0] == 200 for n in range(32)), "both bid")
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
    assert after["snapbid_catalog_swaps_total"][(("result", "taken_up"),)] >= 2
    steps_shown = {"whole", "decode", "match", "commit", "round trip to Redis"}
    eventually(lambda: set(latency_of(served)) == steps_shown, "the latencies to be on the page")


def test_what_waits_for_the_drain(served: Stack, database: str, redis_url: str) -> None:
    eventually(lambda: (data(served)["drain_waiting"] or 0) > 0, "counters that wait")
    assert data(served)["drain_behind_s"] is None  # no drain has ever been here
    assert "snapbid_drain_behind_seconds" not in samples(served)
    drain = Stack(served.environ, "drain")
    try:
        drain.launch()
        eventually(lambda: data(served)["drain_waiting"] == 0, "the drain to have been here")
        assert data(served)["drain_behind_s"] == 0
        rounds = samples(served)["snapbid_drain_rounds_total"][()]
        assert rounds > 0  # a process of its own counts on the same page
    finally:
        drain.close()
    assert bid(served, "later")[0] == 200
    eventually(lambda: (data(served)["drain_behind_s"] or 0) > 0, "what it left behind")


def test_without_redis_the_rest_is_shown(
    database: str, own_redis: Redis, start_stack: Callable[..., Stack]
) -> None:
    stack = start_stack(SNAPBID_REDIS_URL=own_redis.url)
    prepare(database)
    eventually(lambda: data(stack)["redis"] is True, "Redis to be seen")
    own_redis.stop()
    eventually(lambda: data(stack)["redis"] is False, "its absence to be seen")
    seen = data(stack)
    assert (seen["drain_waiting"], seen["event_queue"]) == (None, None)
    assert seen["warehouse"] is True
    eventually(lambda: data(stack)["campaigns"] == 1, "the campaign to be counted")
    assert samples(stack)["snapbid_store_up"][(("store", "redis"),)] == 0
    assert "snapbid_drain_waiting" not in samples(stack)
    assert ask(stack, "GET", "/rtb/win?id=a&impId=1")[0] == 200
    eventually(lambda: data(stack)["spool_bytes"] > 0, "the spooled notice")
    own_redis.start()
    eventually(lambda: data(stack)["redis"] is True, "Redis to be back")
    eventually(lambda: data(stack)["spool_bytes"] == 0, "the spool to be empty")


def test_without_the_warehouse_the_rest_is_shown(
    own_postgres: Postgres, start_stack: Callable[..., Stack]
) -> None:
    prepare(own_postgres.dsn)
    stack = start_stack(SNAPBID_DATABASE_URL=own_postgres.dsn)
    eventually(lambda: data(stack)["warehouse"] is True, "the warehouse to be seen")
    own_postgres.stop()
    stack.stop()
    stack.launch()  # with the catalog of before
    eventually(lambda: ask_quietly(stack), "the private port")
    eventually(lambda: data(stack)["warehouse"] is False, "its absence to be seen")
    eventually(lambda: data(stack)["redis"] is True, "Redis to be seen")
    seen = data(stack)
    assert (seen["ssps_known"], seen["budgets"]) == (None, None)
    assert seen["catalog_checked_s"] is None
    assert "snapbid_catalog_checked_seconds" not in samples(stack)
    own_postgres.start()
    eventually(lambda: data(stack)["ssps_known"] == 1, "the warehouse to be back")


def ask_quietly(stack: Stack) -> bool:
    return stack.get("/ops/data", ops=True)[0] == 200


def test_a_spent_budget_is_shown_as_spent(served: Stack, database: str) -> None:
    won: list[str] = []

    def spent() -> bool:
        auction = f"b{len(won)}-{os.urandom(4).hex()}"
        if bid(served, auction)[0] == 200:
            assert ask(served, "GET", f"/rtb/win?id={auction}&impId=1")[0] == 200
            won.append(auction)
        return bool(money(served)["state"] == "spent")

    eventually(spent, "the budget to be spent")
    assert 95 < len(won) <= 100  # the bids before it came up have a hold
    assert money(served)["spent_today"] <= 0.2
    assert samples(served)["snapbid_budget_state"][(("state", "spent"),)] == 1


def test_documents_that_are_no_campaigns_harm_no_other(served: Stack, database: str) -> None:
    for number, document in enumerate(
        ('"budget": {"daily": "x"}', '"budget": 1', '"budget": {}, "cpm": []')
    ):
        document = f'{{"id": "c{number}", {document}}}'
        insert = f"insert into campaign (id, document) values ('c{number}', '{document}')"
        asyncio.run(execute(database, insert))
    eventually(lambda: data(served)["budgeted"] == 4, "the documents to be seen")
    eventually(lambda: money(served)["state"] == "open", "the campaign among them")
    assert len(data(served)["budgets"]) == 1


def money(stack: Stack) -> Any:
    return (data(stack)["budgets"] or [{"state": None}])[0]


def test_pages_and_refusals(start_stack: Callable[..., Stack]) -> None:
    stack = start_stack()
    for path in (*FILES, "/ops/data", "/metrics"):
        status, headers, body = ask(stack, "GET", path, ops=True)
        assert (status, len(body)) == (200, int(headers["content-length"]))
        assert headers["content-security-policy"].startswith("default-src 'none';")
        assert headers["x-content-type-options"] == "nosniff"
        assert ask(stack, "HEAD", path, ops=True)[::2] == (200, b"")
        assert stack.get(path)[0] == 404  # never on the public port
    assert ask(stack, "GET", "/", ops=True)[1]["location"] == "/ops"
    for path in ("/ops/", "/ops/../server.py", "/ops/server.py", "/nothing", "/ops%2fdata"):
        status, _, body = ask(stack, "GET", path, ops=True)
        assert (status, json.loads(body)["error"]) == (404, "not_found")
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        status, headers, body = ask(stack, method, "/ops/data", ops=True)
        assert (status, headers["allow"]) == (405, "GET, HEAD")
        assert json.loads(body)["error"] == "method_not_allowed"
    status, _, body = ask(stack, "BREW", "/ops", ops=True)
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
    ],
)
def test_names_of_elsewhere_are_not_answered(module_stack: Stack, host: str, status: int) -> None:
    for path in ("/metrics", "/ops/data", "/ops"):
        found, _, body = ask(module_stack, "GET", path, ops=True, host=host)
        assert found == status
        assert status == 200 or json.loads(body)["error"] == "misdirected_request"


def test_series_are_bounded(served: Stack, database: str) -> None:
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
    assert not [one for one in after - before if "stranger" in str(one) or "29" in str(one)]
