"""The private port: the page's data and the metrics, from what a running system has counted."""

import asyncio
import contextlib
import datetime
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time
from typing import Any, ClassVar

import msgspec
import pytest
import redis
import redis.asyncio as asyncio_redis
from support import sending
from support.commands import invoke, succeed
from support.draining import Bench
from support.ops import ask, await_catalogs, bid, data, prepare, samples
from support.processes import eventually
from support.stack import Stack, draining, execute

from snapbid.base.redis_keys import DRAINS
from snapbid.base.risks import RiskLog
from snapbid.base.settings import Settings, StoreSettings, load
from snapbid.embedded import Postgres, Redis
from snapbid.ledger.admin.audits import AuditReport, write_audit
from snapbid.ledger.admin.drains import DrainReport
from snapbid.operations.dashboard import gauges, watch
from snapbid.operations.dashboard.counts import FEW
from snapbid.operations.dashboard.ledger import NOTHING, SspTraffic, Traffic
from snapbid.operations.dashboard.snapshot import OpsSnapshot
from snapbid.operations.dashboard.view import page
from snapbid.operations.dashboard.watch import Watch
from snapbid.warehouse.unavailable import UNAVAILABLE


@pytest.fixture
def served(database: str, start_stack: Callable[..., Stack]) -> Stack:
    """With an SSP and a campaign that has a budget."""
    prepare(database)
    stack = start_stack(SNAPBID_WORKERS="2")
    await_catalogs(stack, 2)
    assert bid(stack, "first")[0] == 200
    return stack


def test_traffic_is_on_the_page_and_among_the_metrics(served: Stack) -> None:
    eventually(lambda: data(served)["bids_today"] is not None, "the SSP to be known")
    eventually(lambda: data(served)["now"] is not None, "two samples")
    for number in range(20):
        assert bid(served, f"a{number}")[0] == 200
    assert bid(served, "floor", imp=[{"id": "1", "banner": {"w": 1, "h": 1}}])[0] == 204
    for path in ("/rtb/win?id=a0&impId=1", "/rtb/win?id=a0&impId=1", "/rtb/bill?id=a0&impId=1",
                 "/rtb/loss?id=a1&impId=1&nbr=102", "/rtb/win?id=nobody&impId=1"):  # fmt: skip
        assert ask(served, "GET", path)[0] == 200
    seen: dict[str, Any] = {}
    wins, losses = Counter(counted=1, duplicate=1, unknown=1), Counter(counted=1)

    def complete() -> bool:
        seen.update(data(served))
        (ssp,) = seen["ssps"]
        return (
            (ssp["bids_today"], ssp["wins_today"], ssp["imps_today"]) == (21, 1, 1)
            and match_unless_spooled(seen["notices"].get("win", {}), wins)
            and match_unless_spooled(seen["notices"].get("loss", {}), losses)
        )

    eventually(complete, "the bids and notices")
    (ssp,) = seen["ssps"]
    assert ssp["spend_today"] == 0.002
    assert (seen["bids_today"], seen["imps_today"], seen["spent_today"]) == (21, 1, 0.002)
    assert ssp["outcomes"]["bid"] >= 20
    assert ssp["outcomes"]["no_campaign"] >= 1
    assert (seen["redis"], seen["warehouse"], seen["campaigns"]) == (True, True, 1)
    (whole, *_) = seen["latency"]
    assert whole["step"] == "whole"
    assert len(whole["seconds"]) == len(seen["quantiles"])
    (budget,) = seen["budgets"]
    assert (budget["campaign"], budget["daily"], budget["total"]) == ("<b>shoes</b>", 0.2, 10.0)
    assert budget["spent_today"] == 0.002
    assert budget["state"] == "open"
    sampled = samples(served)
    acme = (("ssp", "acme"),)
    assert sampled["snapbid_ssp_wins_total"][acme] == 1
    assert sampled["snapbid_ssp_impressions_total"][acme] == 1
    assert sampled["snapbid_ssp_spend_usd_total"][acme] == pytest.approx(0.002)
    day = (("campaign", "<b>shoes</b>"), ("window", "day"))
    assert sampled["snapbid_campaign_spent_usd"][day] == 0.002
    assert sampled["snapbid_campaign_budget_usd"][day] == 0.2
    assert sampled["snapbid_campaign_held_usd"][day[:1]] > 0
    assert sampled["snapbid_budget_state"][(("state", "open"),)] == 1
    assert sampled["snapbid_catalog_campaigns"][()] == 1


def match_unless_spooled(outcomes: dict[str, int], wanted: Counter[str]) -> bool:
    """Whether notices had the wanted outcomes, each unless a busy machine has spooled it."""
    missing, more = wanted - Counter(outcomes), Counter(outcomes) - wanted
    return more == Counter(spooled=missing.total())


def test_the_status_in_a_terminal(served: Stack) -> None:
    own = {name: text for name, text in served.environ.items() if name.startswith("SNAPBID_")}
    eventually(lambda: data(served)["bids_today"] is not None, "the SSP to be known")
    eventually(lambda: causes(data(served)) == ["drain"], "the verdict")
    told = invoke(own, "status")
    assert told.returncode == 1, told.stdout
    first, cause, remedy, *rows = told.stdout.splitlines()
    assert first.startswith("degraded since ")
    assert cause.startswith("  no drain has ever run, since ")
    assert remedy == "    to do: start snapbid drain"
    assert [row.split()[0] for row in rows] == [
        "server", "stores", "drain", "audit", "now", "today", "setup",
    ]  # fmt: skip
    assert "Redis up, PostgreSQL up" in rows[1]
    document = json.loads(invoke(own, "status", "--json").stdout)
    assert causes(document) == ["drain"]
    served.stop()
    told = invoke(own, "status")
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith(
        "no server answers on the private port (SNAPBID_OPS_PORT): "
        f"nothing listens at 127.0.0.1:{served.ops_port}"
    )


def test_drain_backlog(served: Stack, database: str, redis_url: str) -> None:
    eventually(lambda: (data(served)["drain_waiting"] or 0) > 0, "counters that wait")
    assert data(served)["drain_behind_s"] is None  # no drain has ever been here
    assert "snapbid_drain_behind_seconds" not in samples(served)
    with draining(served):
        eventually(lambda: data(served)["drain_waiting"] == 0, "the drain to have been here")
        assert data(served)["drain_behind_s"] == 0
        eventually(lambda: data(served)["verdict"]["state"] == "bidding", "the verdict")
        own = {name: text for name, text in served.environ.items() if name.startswith("SNAPBID_")}
        assert succeed(own, "status").startswith("bidding since ")
        rounds = samples(served)["snapbid_drain_rounds_total"][()]
        assert rounds > 0  # a process of its own counts on the same page
        buy_without_a_budget(served, own)
    assert bid(served, "later")[0] == 200
    eventually(lambda: (data(served)["drain_behind_s"] or 0) > 0, "what it left behind")


def buy_without_a_budget(served: Stack, environ: dict[str, str]) -> None:
    """What has no budget is on the page, too, as far as it has bid today."""
    assert data(served)["unlimited"] == []
    creative = {"id": "k", "media": "banner", "w": 11, "h": 22, "adm": "<p></p>"}
    free = {"id": "free", "advertiser": "brand.example", "cpm": 3, "creatives": [creative]}
    idle = {**free, "id": "idle", "creatives": [{**creative, "w": 33}]}
    succeed(environ, "campaign", "import", "-", input=f"{json.dumps(free)}\n{json.dumps(idle)}")
    imp = [{"id": "1", "banner": {"w": 11, "h": 22}}]
    eventually(lambda: bid(served, "free", imp=imp)[0] == 200, "the campaign to bid")
    assert ask(served, "GET", "/rtb/win?id=free&impId=1")[0] == 200
    assert ask(served, "GET", "/rtb/bill?id=free&impId=1")[0] == 200
    stored = "select from campaign_daily where campaign = 'free' having sum(imps) = 1"
    dsn = environ["SNAPBID_DATABASE_URL"]
    eventually(lambda: bool(sending.rows(dsn, stored)), "the drain to have stored it")
    sending.run_sql(
        dsn,
        "insert into conversion_daily (day, campaign, creative, descriptor, event, conversions,"
        " value_micros, first_deposits) values"
        " (utc_today(), 'free', 'k', 'acme', 'register', 2, 0, 0),"
        " (utc_today(), 'free', 'k', 'acme', 'deposit', 3, 1500000, 1);"
        "insert into conversion_daily (day, campaign, creative, descriptor, event, conversions,"
        " value_micros, first_deposits) select utc_today(), format('other%s', number), 'k', 'acme',"
        " 'deposit', 1, 2000000, 1 from generate_series(10, 40) number",
    )
    succeed(environ, "campaign", "pause", "free")  # a change of the catalog: read again at once
    eventually(
        lambda: [row["status"] for row in data(served)["unlimited"]] == ["paused"],
        "the campaign on the page, as it is now",
    )
    assert data(served)["unlimited"] == [
        {
            "campaign": "free",
            "status": "paused",
            "bids_today": 1,
            "wins_today": 1,
            "imps_today": 1,
            "spent_today": 0.003,
        }
    ]
    converted = data(served)["converted"]
    assert (len(converted), converted[1]["campaign"]) == (20, "other10")
    assert converted[0] == (
        {
            "campaign": "free",
            "conversions": 5,
            "registrations": 2,
            "first_deposits": 1,
            "net_deposits": 1.5,
            "gross_revenue": 0.0,
        }
    )
    shown = invoke(environ, "status").stdout
    assert "from clicks: 2 registrations, 32 first deposits, 63.50 USD net deposits" in shown


def test_a_removed_ssp_stays_in_todays_sums(served: Stack, database: str) -> None:
    environ = {"SNAPBID_DATABASE_URL": database}

    def bids(ssp: str, auction: str) -> bool:
        request = {"id": auction, "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}]}
        path, body = f"/api/v1/openrtb2/{ssp}/bid", json.dumps(request | {"tmax": 60_000}).encode()
        return ask(served, "POST", path, body, content_type="application/json")[0] == 200

    succeed(environ, "ssp", "add", "leaving")
    eventually(lambda: bids("leaving", "l1"), "the SSP is known")
    assert bids("leaving", "l2")
    eventually(lambda: data(served)["bids_today"] == 3, "its bids are counted")
    succeed(environ, "ssp", "remove", "leaving")
    eventually(lambda: not bids("leaving", "l3"), "it is removed")
    assert bid(served, "last")[0] == 200
    eventually(lambda: data(served)["bids_today"] >= 4, "its bids still count")
    eventually(lambda: data(served)["ssps_known"] == 1, "it is no longer set up")
    seen = data(served)
    assert [row["ssp"] for row in seen["ssps"]] == ["acme"]
    assert seen["bids_today"] >= 4


def test_ownership_of_the_ledger(served: Stack, redis_url: str) -> None:
    def shards() -> dict[str, float]:
        series = samples(served).get("snapbid_ledger_shards", {})
        return {dict(labels)["state"]: number for labels, number in series.items() if number}

    with redis.Redis.from_url(redis_url) as client:
        client.hdel("{sb0}:segment", "confirmed")
        eventually(lambda: shards() == {"waiting": 1}, "a ledger that waits for the drain")
        with draining(served):
            eventually(lambda: shards() == {"confirmed": 1}, "the drain to confirm it")
        own = client.hget("{sb0}:segment", "warehouse")
        assert own is not None
        client.hset("{sb0}:segment", "warehouse", "another")
        eventually(lambda: shards() == {"foreign": 1}, "another warehouse's ledger")
        client.hset("{sb0}:segment", "warehouse", own)


def test_without_redis_the_rest_is_shown(
    database: str, own_redis: Redis, start_stack: Callable[..., Stack]
) -> None:
    prepare(database)
    stack = start_stack(SNAPBID_REDIS_URL=own_redis.url)
    eventually(lambda: data(stack)["redis"] is True, "Redis to be seen")
    own_redis.stop()
    eventually(lambda: data(stack)["redis"] is False, "its absence to be seen")
    seen = data(stack)
    assert (seen["drain_waiting"], seen["event_queue"]) == (None, None)
    eventually(
        lambda: [cause["key"] for cause in data(stack)["verdict"]["causes"]][:1] == ["redis"],
        "the verdict",
    )
    own = {name: text for name, text in stack.environ.items() if name.startswith("SNAPBID_")}
    told = invoke(own, "status")
    assert told.returncode == 1
    first, cause, remedy, *_ = told.stdout.splitlines()
    assert first.startswith("not bidding since ")
    assert cause.startswith("  Redis does not answer")
    assert remedy.startswith("    to do: check Redis")
    assert seen["warehouse"] is True
    eventually(lambda: data(stack)["campaigns"] == 1, "the campaign to be counted")
    assert samples(stack)["snapbid_store_up"][(("store", "redis"),)] == 0
    assert "snapbid_drain_waiting" not in samples(stack)
    assert ask(stack, "GET", "/rtb/win?id=a&impId=1")[0] == 200
    eventually(lambda: data(stack)["spool_bytes"] > 0, "the spooled notice")
    for number in range(FEW):
        assert bid(stack, f"down{number}")[0] == 204
    guarded = (("ssp", "acme"),)
    eventually(lambda: samples(stack)["snapbid_ssp_guard"].get(guarded) == 2, "the guard's alarm")
    failed = (("kind", "failed"), *guarded, ("window", "1m"))
    assert samples(stack)["snapbid_ssp_answers_share"][failed] == 1
    causes = {cause["key"]: cause for cause in data(stack)["verdict"]["causes"]}
    assert "from 15%, exchanges send less to a bidder" in causes["guard acme"]["text"]
    assert causes["guard acme"]["remedy"]
    own_redis.start()
    eventually(lambda: data(stack)["redis"] is True, "Redis to be back")
    eventually(lambda: data(stack)["verdict"]["state"] != "not bidding", "the verdict")
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
    assert () in samples(stack)["snapbid_catalog_checked_seconds"]  # since the start
    own_postgres.start()
    eventually(lambda: data(stack)["ssps_known"] == 1, "the warehouse to be back")


def ask_quietly(stack: Stack) -> bool:
    return stack.get("/ops/data", ops=True)[0] == 200


def test_workers_without_a_catalog_are_not_bidding(
    own_postgres: Postgres, start_stack: Callable[..., Stack]
) -> None:
    """The file is there, but they refuse it, and nobody can write another one."""
    prepare(own_postgres.dsn)
    stack = start_stack(SNAPBID_DATABASE_URL=own_postgres.dsn)
    stack.stop()
    own_postgres.stop()
    settings = load(stack.environ)
    settings.catalog_path.write_bytes(b"of another release")
    stack.launch()
    eventually(lambda: ask_quietly(stack), "the private port")
    eventually(lambda: "not ready" in causes(data(stack)), "the verdict")
    seen = data(stack)["verdict"]
    assert (seen["state"], seen["causes"][0]["key"]) == ("not bidding", "not ready")
    assert seen["causes"][0]["text"].endswith(": campaigns")
    assert samples(stack)["snapbid_ready"] == {(): 0}
    assert bid(stack, "a")[0] == 204
    own_postgres.start()
    eventually(lambda: "not ready" not in causes(data(stack)), "a catalog")
    assert samples(stack)["snapbid_ready"] == {(): 1}


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


def causes(seen: Any) -> list[str]:
    return [cause["key"] for cause in seen["verdict"]["causes"]]


def money(stack: Stack) -> Any:
    return (data(stack)["budgets"] or [{"state": None}])[0]


class Published:
    """A publisher that has published nothing."""

    published_at: float | None = None
    checked_at: float | None = None
    bases: ClassVar[dict[str, int]] = {}


def watch_of(home: Path, redis: str, database: str) -> Watch:
    settings = StoreSettings(
        base_url="", home=home, redis_url=redis, database_url=database, ledger_shards=1
    )
    return Watch(settings, Published(), RiskLog())


@contextlib.contextmanager
def watching(home: Path, redis: str, database: str) -> Iterator[Watch]:
    made = watch_of(home, redis, database)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def test_a_disk_needs_space_for_the_spools_of_all_workers(tmp_path: Path) -> None:
    settings = Settings(base_url="", home=tmp_path, workers=3, spool_max_bytes=1_000)
    assert [disk.needed for disk in watch.find_disks(settings)] == [3_000]


def test_sums_include_the_ssps_for_which_the_table_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_nothing(_: Watch) -> None:
        pass

    monkeypatch.setattr(Watch, "_read_all", read_nothing)
    with watching(tmp_path, "", "") as watched:
        pass
    traffic = SspTraffic(Traffic(7, 5, 2_000_000_000, 3), NOTHING)
    watched.snapshot = OpsSnapshot(
        started_at=0.0,
        ssps={f"ssp-{number}": traffic for number in range(60)},
        registered={f"ssp-{number}" for number in range(55)},
    )
    shown = page(watched)
    assert (len(shown.ssps), shown.ssps_known) == (50, 55)
    sums = shown.bids_today, shown.wins_today, shown.imps_today, shown.spent_today
    assert sums == (60 * 7, 60 * 5, 60 * 3, 60 * 2.0)


async def test_figures_of_the_day_outlast_the_ledger_that_counted_them(
    database: str, fresh_redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty ledger knew of billing notices, but of none of the wins before them."""
    monkeypatch.setattr(watch, "RETRY_S", 0.1)
    monkeypatch.setattr(watch, "MONEY_S", 0.1)
    today = datetime.datetime.now(datetime.UTC).date()
    yesterday = today - datetime.timedelta(days=1)
    wins = {"b:2": 90, "w:2": 60, "p:2": 60_000_000}  # of acme-eu, in the family of acme
    async with Bench.open(database, fresh_redis, tmp_path / "metrics") as bench:
        bench.clock.now = time()
        await bench.ledger.count(yesterday.isoformat(), {"b:2": 1_000})
        await bench.ledger.count(today.isoformat(), {**wins, "b:1": 5, "i:1": 3})
        await bench.drain()
        await bench.ledger.lose()
        await bench.ledger.count(today.isoformat(), {"i:2": 60, "b:1": 1, "b:4": 7})
        with watching(tmp_path, fresh_redis, database) as watched:
            await asyncio.to_thread(
                eventually, lambda: watched.snapshot.ssps is not None, "the SSPs"
            )
            shown = {row.ssp: row for row in page(watched).ssps}
            eu, sums = shown["acme-eu"], page(watched)
            assert (eu.bids_today, eu.wins_today, eu.imps_today) == (90, 60, 60)
            assert eu.spend_today == 0.06
            assert (shown["acme"].bids_today, shown["acme"].imps_today) == (5, 3)
            assert shown["nova"].bids_today == 7
            assert (sums.bids_today, sums.imps_today, sums.spent_today) == (102, 63, 0.06)
            found = watched.judge.judge(time(), watched.snapshot)
            assert "unwon acme-eu" not in {cause.key for cause in found.causes}

            await bench.drain()
            await asyncio.to_thread(
                eventually, lambda: page(watched).bids_today == 103, "what was drained since"
            )
            assert page(watched).imps_today == 63


def test_the_absence_of_the_warehouse_is_seen_between_reads_of_it(
    own_postgres: Postgres, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(own_postgres.dsn)
    monkeypatch.setattr(watch, "WAREHOUSE_S", math.inf)
    monkeypatch.setattr(watch, "RETRY_S", 0.1)
    with watching(tmp_path, redis_url, own_postgres.dsn) as watched:
        eventually(lambda: watched.snapshot.warehouse is True, "the warehouse to be seen")
        own_postgres.stop()
        eventually(lambda: watched.snapshot.warehouse is False, "its absence to be seen")
        own_postgres.start()
        eventually(lambda: watched.snapshot.warehouse is True, "its return to be seen")


@pytest.mark.parametrize("kind", UNAVAILABLE)
def test_however_a_connection_to_the_warehouse_ends_it_is_unavailable(
    kind: type[Exception],
    database: str,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PostgreSQL was killed within an answer, and the page went on to say that it was there."""

    async def fail(*_: object) -> None:
        raise kind("another operation is in progress")

    monkeypatch.setattr(watch, "WAREHOUSE_S", 0)
    monkeypatch.setattr(watch, "RETRY_S", 0.1)
    with watching(tmp_path, redis_url, database) as watched:
        eventually(lambda: watched.snapshot.warehouse is True, "the warehouse to be seen")
        monkeypatch.setattr("snapbid.operations.dashboard.watch.registry.fetch_counted", fail)
        eventually(lambda: watched.snapshot.warehouse is False, "its absence to be seen")
    assert "without some figures" not in caplog.text


async def test_ages_grow_while_nothing_is_read(
    database: str, fresh_redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the catalog and the audit, as a Prometheus alert sees them."""
    hour = 3600.0
    watched = watch_of(tmp_path, fresh_redis, database)

    def age(name: str) -> float | None:
        samples = gauges.gauges(watched.snapshot).get(f"snapbid_{name}_seconds")
        return samples[0][1] if samples else None

    async with asyncio_redis.Redis.from_url(fresh_redis) as client:
        watched.start()
        try:
            assert age("audit_age") is None
            drain = DrainReport("east", "1", time(), 0.0, [])
            await client.hset(DRAINS, "east", msgspec.json.encode(drain))
            await asyncio.to_thread(
                eventually, lambda: age("audit_age") is not None, "an age without an audit"
            )
            monkeypatch.setattr(gauges, "time", lambda: watched.started_at + hour)
            assert (age("audit_age"), age("catalog_checked")) == (hour, hour)
            await write_audit(client, AuditReport(watched.started_at - 30.0, {"counters": 0}, []))
            await asyncio.to_thread(
                eventually, lambda: watched.snapshot.audit is not None, "the audit"
            )
            await client.set(DRAINS, "unreadable")
            assert age("audit_age") == pytest.approx(hour + 30.0, abs=1.0)
            monkeypatch.setattr(gauges, "time", lambda: watched.started_at + 2 * hour)
            assert age("audit_age") == pytest.approx(2 * hour + 30.0, abs=1.0)
        finally:
            watched.stop()
