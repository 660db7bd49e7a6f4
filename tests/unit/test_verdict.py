"""The verdict of the operator's page: its state, since when, and its causes."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from snapbid.base import errors
from snapbid.base.risks import Risk, StoreName
from snapbid.bidding.reasons import Reason
from snapbid.ledger.admin.audits import AuditReport
from snapbid.ledger.admin.drains import DrainReport
from snapbid.operations.dashboard.clocks import ClockDifference
from snapbid.operations.dashboard.counts import CountWindow
from snapbid.operations.dashboard.guard import Answers, SspStanding
from snapbid.operations.dashboard.ledger import (
    NOTHING,
    Backlog,
    SilentProcesses,
    SspTraffic,
    Standing,
    Traffic,
)
from snapbid.operations.dashboard.snapshot import Disk, OpsSnapshot
from snapbid.operations.dashboard.trends import Rates, Trends
from snapbid.operations.dashboard.verdict import Judge
from snapbid.operations.dashboard.view import MEANINGS

OURS = Standing("w1", is_confirmed=True)
NOW = 1000.0
AUDIT = AuditReport(NOW - 30.0, {"counters": 0}, [])
GOOD = OpsSnapshot(
    started_at=NOW - 9.0,
    redis=True,
    warehouse=True,
    identity="w1",
    waiting=Backlog(0, 0.0, 0, 0.0, [OURS]),
    campaigns=1,
    registered={"acme"},
    checked_at=NOW - 1.0,
)


def window(**outcomes: int) -> CountWindow:
    now = {
        f'snapbid_bid_requests_total{{outcome="{name}",ssp="a"}}': count
        for name, count in outcomes.items()
    }
    return CountWindow(60, {}, now)


def standing(late: int) -> SspStanding:
    return SspStanding("acme", {"1m": Answers(100, late // 10), "15m": Answers(1000, late)})


def billed(imps: int, wins: int) -> SspTraffic:
    return SspTraffic(Traffic(2000, wins, wins * 1000, imps), NOTHING)


def risks(store: Any, name: str, severity: Any) -> dict[StoreName, list[Risk]]:
    return {store: [Risk(store, name, severity, "it is so", "stop it")]}


def disk(free_mib: int, files: int | None, setting: str = "SNAPBID_HOME") -> Disk:
    return Disk(setting, Path("/var/lib/snapbid"), free_mib * 2**20, 64 * 2**20, files)


def drain(*troubles: str) -> DrainReport:
    return DrainReport("east", "1.0", 0.0, 0.0, list(troubles))


@pytest.mark.parametrize(
    ("change", "state", "keys"),
    [
        ({}, "bidding", []),
        ({"redis": None}, "unknown", []),
        ({"redis": False}, "not bidding", ["redis"]),
        ({"warehouse": False}, "degraded", ["warehouse"]),
        ({"registered": set()}, "not bidding", ["ssps"]),
        ({"answers": True}, "bidding", []),
        ({"answers": False}, "not bidding", ["port"]),
        ({"answers": True, "missing": ["campaigns"]}, "not bidding", ["not ready"]),
        ({"warehouse": False, "missing": ["campaigns"]}, "not bidding", ["not ready", "warehouse"]),
        ({"redis": False, "missing": ["redis"]}, "not bidding", ["redis"]),
        ({"campaigns": 0}, "not bidding", ["campaigns"]),
        ({"checked_at": NOW - 121.0}, "degraded", ["stale"]),
        ({"checked_at": NOW - 121.0, "warehouse": False}, "degraded", ["warehouse"]),
        ({"checked_at": None}, "bidding", []),
        ({"checked_at": None, "started_at": NOW - 121.0}, "degraded", ["stale"]),
        (
            {"checked_at": None, "started_at": NOW - 121.0, "missing": ["campaigns"]},
            "not bidding",
            ["not ready"],
        ),
        ({"spool_bytes": 9}, "degraded", ["spool"]),
        ({"risks": risks("redis", "eviction", "volatile")}, "degraded", ["risk eviction"]),
        ({"risks": risks("redis", "memory", "weak")}, "degraded", ["risk memory"]),
        ({"risks": risks("redis", "memory", "readonly")}, "not bidding", ["risk memory"]),
        ({"risks": risks("warehouse", "read_only", "readonly")}, "degraded", ["risk read_only"]),
        (
            {
                "risks": risks("redis", "ledger", "unsupported"),
                "waiting": Backlog(0, 0.0, 0, 0.0, [Standing("w1", is_confirmed=False)]),
            },
            "not bidding",
            ["risk ledger"],
        ),
        ({"disks": [disk(64, 1000)]}, "bidding", []),
        ({"disks": [disk(64, None)]}, "bidding", []),
        ({"disks": [disk(63, 1000)]}, "degraded", ["disk SNAPBID_HOME"]),
        ({"disks": [disk(64, 99)]}, "degraded", ["disk SNAPBID_HOME"]),
        (
            {"differences": [ClockDifference(("Redis",), 2.0, ("this machine",))]},
            "degraded",
            ["clock Redis"],
        ),
        ({"ssps": {"acme": billed(1000, wins=981)}}, "bidding", []),
        ({"ssps": {"acme": billed(19, wins=0)}}, "bidding", []),
        ({"ssps": {"acme": billed(20, wins=0)}}, "degraded", ["unwon acme"]),
        ({"ssps": {"acme": billed(1000, wins=980)}}, "degraded", ["unwon acme"]),
        ({"drains": [drain()]}, "bidding", []),
        ({"drains": [drain("it waits")]}, "degraded", ["drain east 0"]),
        ({"drains": [drain()], "started_at": NOW - 301.0}, "degraded", ["audit age"]),
        ({"started_at": NOW - 301.0}, "bidding", []),
        ({"drains": [drain()], "audit": AUDIT, "started_at": NOW - 301.0}, "bidding", []),
        ({"drains": [drain()], "audit": replace(AUDIT, at=NOW - 301.0)}, "degraded", ["audit age"]),
        (
            {"drains": [drain()], "audit": replace(AUDIT, at=NOW - 301.0), "ahead_s": 2.0},
            "bidding",
            [],
        ),
        ({"waiting": Backlog(3, None, 0, 0.0, [OURS])}, "degraded", ["drain"]),
        (
            {"waiting": Backlog(0, 0.0, 0, 0.0, [OURS], SilentProcesses(1, 90.0))},
            "degraded",
            ["silent"],
        ),
        ({"waiting": Backlog(3, 59.0, 0, 0.0, [OURS])}, "bidding", []),
        ({"waiting": Backlog(3, 61.0, 0, 0.0, [OURS])}, "degraded", ["drain"]),
        ({"waiting": Backlog(0, 0.0, 5, 61.0, [OURS])}, "degraded", ["drain"]),
        (
            {"waiting": Backlog(0, 0.0, 0, 0.0, [Standing("w1", is_confirmed=False)])},
            "degraded",
            ["unconfirmed"],
        ),
        (
            {"waiting": Backlog(0, 0.0, 0, 0.0, [Standing("w2", is_confirmed=False)])},
            "not bidding",
            ["foreign"],
        ),
        (
            {"waiting": Backlog(0, 0.0, 0, 0.0, [OURS, Standing("w2", is_confirmed=True)])},
            "degraded",
            ["foreign"],
        ),
        ({"waiting": Backlog(0, 0.0, 0, 0.0, [None, OURS])}, "degraded", ["shards"]),
        (
            {"waiting": Backlog(0, 0.0, 0, 0.0, [None, Standing("w2", is_confirmed=True)])},
            "not bidding",
            ["foreign", "shards"],
        ),
        ({"standings": [standing(49)]}, "bidding", []),
        ({"standings": [standing(50)]}, "degraded", ["guard acme"]),
        ({"window": window(bid=97, late=3)}, "degraded", ["late"]),
        ({"window": window(bid=98, late=2)}, "bidding", []),
        ({"window": window(bid=10, late=9)}, "bidding", []),  # too few to say
        ({"window": window(bid=90, store_down=10)}, "degraded", ["store_down"]),
        ({"redis": False, "window": window(bid=90, store_down=10)}, "not bidding", ["redis"]),
        ({"redis": False, "warehouse": False}, "not bidding", ["redis", "warehouse"]),
    ],
)
def test_states(change: dict[str, Any], state: str, keys: list[str]) -> None:
    verdict = Judge().judge(NOW, replace(GOOD, **change))
    assert (verdict.state, [cause.key for cause in verdict.causes]) == (state, keys)
    assert all(cause.text and cause.remedy for cause in verdict.causes)


@pytest.mark.parametrize(
    ("answers", "remedy"),
    [
        (Answers(100, late=9), "add workers, ask the SSP for a longer tmax"),
        (Answers(100, late=2, overload=7), "add workers, or take fewer of its requests"),
        (Answers(100, late=2, store_down=7), "check Redis"),
        (Answers(100, store_down=2, internal=7), "check the log of serve"),
    ],
)
def test_advice_fits_the_cause(answers: Answers, remedy: str) -> None:
    standing = SspStanding("acme", {"1m": answers, "15m": answers})
    (cause,) = Judge().judge(1.0, replace(GOOD, standings=[standing])).causes
    assert remedy in cause.remedy


@pytest.mark.parametrize(
    ("change", "text", "remedy"),
    [
        (
            {"disks": [disk(0, None)]},
            "the disk of SNAPBID_HOME",
            "free space there (df -h, df -i): notices cannot be spooled while Redis is unavailable,"
            " and changed campaigns do not reach the workers",
        ),
        (
            {"disks": [disk(0, None, "SNAPBID_AUCTION_LOG")]},
            "the disk of SNAPBID_AUCTION_LOG",
            "free space there (df -h, df -i): rows of the auction log are lost",
        ),
        (
            {"drains": [drain("paused the counters: Redis is unavailable (no answer); retrying")]},
            "the drain on east: paused the counters: Redis is unavailable (no answer); retrying",
            "nothing is lost, the drain catches up afterwards; remove the cause: a full disk"
            " (df -h), a lock, a store or a network that is down",
        ),
        (
            {"drains": [drain("paused the counters: the ledger belongs to w2: set the URLs")]},
            "the drain on east: paused the counters: the ledger belongs to w2",
            "set the URLs",
        ),
    ],
)
def test_the_remedy_is_that_of_the_cause(change: dict[str, Any], text: str, remedy: str) -> None:
    (cause,) = Judge().judge(1.0, replace(GOOD, **change)).causes
    assert cause.text.startswith(text)
    assert cause.remedy == remedy


def test_an_outage_that_is_over_is_a_note() -> None:
    """Exchanges look at a quarter of an hour, so the guard does; there is nothing to be done."""
    after = SspStanding("acme", {"1m": Answers(100), "15m": Answers(1000, store_down=120)})
    assert after.level == 2
    some = window(bid=100)
    verdict = Judge().judge(1.0, replace(GOOD, standings=[after], window=some))
    assert (verdict.state, verdict.causes) == ("bidding", [])
    assert (
        verdict.note == "12% of the requests of acme in 15 min were late or failed; this has passed"
    )


def test_the_reason_a_store_is_unavailable_is_named() -> None:
    facts = replace(GOOD, redis=False, redis_why="LOADING", warehouse=False, warehouse_why="full")
    redis, warehouse = Judge().judge(1.0, facts).causes
    assert redis.text.startswith("Redis does not answer (LOADING): ")
    assert warehouse.text.startswith("PostgreSQL does not answer (full): ")


def test_a_closed_ledger_is_not_reported_as_unavailable_redis() -> None:
    facts = replace(GOOD, redis=False, redis_why="WRONGTYPE", closed="moved to 10.0.0.7 (3 shards)")
    verdict = Judge().judge(1.0, facts)
    assert verdict.state == "not bidding"
    (closed,) = verdict.causes
    named = "the ledger of SNAPBID_REDIS_URL is closed, moved to 10.0.0.7 (3 shards): "
    assert closed.text.startswith(named)
    assert "snapbid ledger move" in closed.remedy


def test_5xx_but_those_of_readiness() -> None:
    key = 'snapbid_http_requests_total{route="%s",status="%d"}'
    counts = {key % ("health", 503): 9, key % ("bid", 200): 9}
    judge = Judge()
    assert judge.judge(1.0, replace(GOOD, window=CountWindow(60, {}, counts))).causes == []
    counts |= {key % ("report", 500): 2}
    (cause,) = judge.judge(2.0, replace(GOOD, window=CountWindow(60, {}, counts))).causes
    assert cause.text.startswith("2 requests failed with a 5xx")


def test_since_when() -> None:
    judge = Judge()
    assert judge.judge(100.0, GOOD).since == 100.0
    assert judge.judge(110.0, GOOD).since == 100.0
    unavailable = judge.judge(120.0, replace(GOOD, warehouse=False))
    assert (unavailable.state, unavailable.since, unavailable.causes[0].since) == (
        "degraded",
        120.0,
        120.0,
    )
    both = judge.judge(130.0, replace(GOOD, warehouse=False, redis=False))
    assert (both.state, both.since) == ("not bidding", 130.0)
    assert [(cause.key, cause.since) for cause in both.causes] == [
        ("redis", 130.0), ("warehouse", 120.0),
    ]  # fmt: skip
    assert judge.judge(140.0, GOOD).since == 140.0
    again = judge.judge(150.0, replace(GOOD, warehouse=False))
    assert again.causes[0].since == 150.0
    assert judge.judge(151.0, replace(GOOD, window=window())).note is not None


def test_drain_messages_follow_their_cause() -> None:
    judge = Judge()
    judge.judge(100.0, replace(GOOD, drains=[drain("it waits")]))
    read_only = risks("warehouse", "read_only", "readonly")
    found = judge.judge(110.0, replace(GOOD, drains=[drain("it waits")], risks=read_only))
    assert [cause.key for cause in found.causes] == ["risk read_only", "drain east 0"]


def test_every_outcome_has_a_meaning() -> None:
    codes = {"bad_request", "too_large", "unsupported_media_type", "request_timeout", "forbidden"}
    assert codes < {problem.code for problem in vars(errors).values() if hasattr(problem, "code")}
    assert {reason.value for reason in Reason} | codes <= set(MEANINGS)


def counts(requests: int, fast: int, slow: int, errors: int = 0) -> dict[str, int]:
    return {
        'snapbid_bid_requests_total{outcome="bid",ssp="a"}': requests,
        'snapbid_bid_seconds_bucket{le="0.001"}': fast,
        'snapbid_bid_seconds_bucket{le="0.002"}': slow,
        'snapbid_http_requests_total{route="bid",status="500"}': errors,
        'snapbid_http_requests_total{route="health",status="503"}': errors * 7,
        'snapbid_notices_total{kind="win",outcome="counted"}': requests // 2,
        "snapbid_events_accepted_total": requests * 3,
    }


def test_trends_are_rates_and_latency_and_survive_a_restart(tmp_path: Any) -> None:
    trends = Trends(tmp_path)
    for second in range(0, 121, 2):
        trends.add(1000.0 + second, counts(second * 10, second * 5, second * 5, second))
    points = trends.points(1120.0)
    assert len(points["5 minutes"]) == 60
    age, requests, bids, errors, p50, p99 = points["5 minutes"][-1]
    assert (age, requests, bids, errors) == (0.0, 10.0, 10.0, 1.0)
    assert p50 == pytest.approx(0.001)
    assert p99 == pytest.approx(0.00198)
    assert [point.requests for point in points["hour"]] == [10.0] * 4
    assert points["day"] == []
    again = Trends(tmp_path)
    assert again.points(1120.0)["hour"] == points["hour"]
    for at in (1150.0, 1180.0):  # nothing came between these
        again.add(at, counts(1200, 600, 600, 120))
    (*_, last) = again.points(1180.0)["hour"]
    assert (last.requests, last.p50) == (0.0, None)
    assert again.points(1180.0 + 3601)["hour"] == []  # too long ago
    (tmp_path / "trends").write_bytes(b"rubbish")
    assert Trends(tmp_path).points(0.0)["hour"] == []


def test_rates_of_the_last_seconds(tmp_path: Path) -> None:
    trends = Trends(tmp_path)
    trends.add(1000.0, counts(0, 0, 0))
    assert trends.rates(10.0) is None
    trends.add(1002.0, counts(200, 0, 0))
    assert trends.rates(10.0) == Rates(100.0, 100.0, 50.0, 300.0, 1.0)
    for second in range(4, 31, 2):
        trends.add(1000.0 + second, counts(200 + second * 10, 0, 0))
    assert trends.rates(10.0) == Rates(10.0, 10.0, 5.0, 30.0, 1.0)
    trends.add(1021.9, counts(7, 0, 0))  # the clock was set back, and a slot began anew
    assert trends.rates(10.0) == Rates(0.0, 0.0, 0.0, 0.0, None)
    assert [point.age for point in trends.points(1021.9)["5 minutes"][-2:]] == [1.9, 0.0]
