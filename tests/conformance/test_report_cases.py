"""The daily report's cases: a sentence of the contract and what it asks for.

A case has a `case`, rows of the warehouse (`bid_daily`, `impression_daily`, in the order of
`support.report.COLUMNS`), `now` and `exchanges`, requests with their expected answers. Each case
starts with empty tables and caches.

- An exchange is a GET of acme's report, with a good token, from 2026-03-01 to 2026-03-04; it is
  sent `times` times (all answers as expected), `after_s` seconds after the one before.
- `ssp` or `path`, `method`, `query` and `rows` (written just before) change that. `token` sets
  claims of the token (null: left out); `jti` names are the buckets of the rate limit. `key`, `alg`
  and `header` say how it is signed, `payload` what stands in place of the claims.
  `authorization` holds the values of the headers themselves, in which `{token}` stands for it.
- `expect`: `status` (200), `error`, `detail` (a part of it, or several), `headers` (null: absent),
  `days` ([date, bids, wins, imps, totalCpmUsd as text] each), `body` (as text).
"""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.clock import SettableClock
from support.http import Reply
from support.report import SSPS, Reporter, fill, report_path, reporter, sign
from support.stack import execute

Document = dict[str, Any]
CASES = Path(__file__).parent / "cases" / "report"
CASE_KEYS = {"case", "now", "bid_daily", "impression_daily", "exchanges"}
SIGNING = {"key", "alg", "header", "payload"}
EXCHANGE_KEYS = {"about", "times", "after_s", "ssp", "path", "method", "query", "rows"} | {
    "token",
    "authorization",
    "expect",
    *SIGNING,
}
EXPECT_KEYS = {"status", "error", "detail", "headers", "days", "body"}
NOW = "2026-03-04T12:00:00+00:00"
QUERY = "from=2026-03-01&to=2026-03-04"
CLAIMS = {"sub": "acme", "iss": "snapbid", "jti": "one"}


def load() -> list[Any]:
    return [
        pytest.param(case, id=f"{path.stem}: {case['case']}")
        for path in sorted(CASES.glob("*.json"))
        for case in json.loads(path.read_text(encoding="utf-8"))
    ]


@pytest.fixture
async def warehouse(module_database: str) -> str:
    await execute(module_database, "truncate bid_daily, impression_daily, ssp")
    await fill(module_database, {"ssp": list(SSPS.items())})
    return module_database


@pytest.mark.usefixtures("patient_stores")
@pytest.mark.parametrize("case", load())
async def test_case(case: Document, warehouse: str, fresh_redis: str) -> None:
    assert case.keys() <= CASE_KEYS
    tables = {name: case.get(name, []) for name in ("bid_daily", "impression_daily")}
    await fill(warehouse, tables)
    clock = SettableClock(datetime.fromisoformat(case.get("now", NOW)))
    async with reporter(warehouse, fresh_redis, clock) as worker:
        for number, exchange in enumerate(case["exchanges"]):
            where = f"[{number}] {exchange.get('about', '')}"
            assert exchange.keys() <= EXCHANGE_KEYS, where
            clock.now += timedelta(seconds=exchange.get("after_s", 0))
            await fill(warehouse, exchange.get("rows", {}))
            for time in range(exchange.get("times", 1)):
                compare(await send(worker, exchange), exchange, f"{where} ({time})")


async def send(worker: Reporter, exchange: Document) -> Reply:
    token = token_of(exchange)
    given = exchange.get("authorization", ["Bearer {token}"])
    return await worker.ask(
        exchange.get("query", QUERY),
        [value.replace("{token}", token) for value in given],
        path=exchange.get("path", report_path(exchange.get("ssp", "acme"))),
        method=exchange.get("method", "GET"),
    )


def token_of(exchange: Document) -> str:
    how: Document = {name: exchange[name] for name in ("alg", "header") if name in exchange}
    if "key" in exchange:
        how["key"] = exchange["key"].encode()
    claims = CLAIMS | exchange.get("token", {})
    kept = {name: value for name, value in claims.items() if value is not None}
    return sign(exchange.get("payload", kept), **how)


def compare(reply: Reply, exchange: Document, where: str) -> None:
    expect = exchange.get("expect", {})
    assert expect.keys() <= EXPECT_KEYS, where
    status = expect.get("status", 200)
    assert reply.status == status, f"{where}: {reply}"
    for name, value in expect.get("headers", {}).items():
        assert reply.headers.get(name) == value, f"{where}: {name}: {reply}"
    assert reply.headers["content-type"] == "application/json", where
    assert (reply.headers.get("www-authenticate") == "Bearer") is (status == 401), where
    if "body" in expect:
        assert reply.body.decode() == expect["body"], where
    elif status != 200:
        compare_problem(reply.json(), expect, where)
    else:
        compare_report(reply, expect, exchange, where)


def compare_problem(problem: Document, expect: Document, where: str) -> None:
    assert set(problem) == {"error", "detail"}, where
    assert problem["error"] == expect["error"], f"{where}: {problem}"
    for part in parts(expect.get("detail", ())):
        assert part in problem["detail"], f"{where}: {problem}"


def parts(detail: str | Iterable[str]) -> Iterable[str]:
    return [detail] if isinstance(detail, str) else detail


def compare_report(reply: Reply, expect: Document, exchange: Document, where: str) -> None:
    report = json.loads(reply.body, parse_float=str)
    days = report.pop("days")
    query = exchange.get("query", QUERY)
    if query == QUERY:
        assert report == {
            "ssp": exchange.get("ssp", "acme"),
            "from": "2026-03-01",
            "to": "2026-03-04",
            "currency": "USD",
        }
    fields = ["date", "bids", "wins", "imps", "totalCpmUsd"]
    assert all(list(day) == fields for day in days), where
    if "days" in expect:
        assert [list(day.values()) for day in days] == expect["days"], where
