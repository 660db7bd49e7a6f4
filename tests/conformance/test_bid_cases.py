"""The bid endpoint's cases, one file each: a sentence of the contract and what it asks for.

A case has a `description`, the operator's side (`campaigns`, `ssps`, `now`, `rates`, `gvl_id`,
`max_bytes`, `tmax_ms`) and `exchanges`, requests with their expected answers.

- A campaign sets members of a plain one: id `c`, 2 USD, a banner of 300 by 250; `creative` sets
  members of its creative.
- An exchange is a `request` that sets members of a plain one for that banner, `imp` those of its
  impression, `media` what stands in place of the banner; or the body itself as `body`,
  `body_base64` or `body_parts`. `gzip` or `zstd` packs it. `ssp`, `method`, `path`, `headers`
  (null: left out) say how it is sent; `took_ms` how long the reading of it took.
- `expect` is `bid`, `no bid`, or what to compare: `status`, `error`, `detail` (a part of it, or
  several), `bids` (members of each, `seat` too; in order of impid), `response`, `headers` (null:
  absent; of a compressed answer the body is unpacked first).
"""

import base64
import gzip
import json
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from support.answers import as_echoed, check_bid_response, check_refusal
from support.client import BASE_URL, LocalApp
from support.described import validator
from support.http import Reply
from support.matching_cases import campaign_of, request_of
from support.snapshot import snapshot_of

from snapbid.base.http import zstd
from snapbid.bidding.routes import bid_path
from snapbid.reference.geo import GeoDatabase
from snapbid.reference.rates import Rates

Document = dict[str, Any]
CASES = Path(__file__).parent / "cases" / "bid"
KEYS = {"description", "campaigns", "ssps", "now", "rates", "gvl_id", "exchanges"} | {
    "max_bytes",
    "tmax_ms",
}
EXCHANGE_KEYS = {"about", "ssp", "method", "path", "headers", "expect", "took_ms"} | {
    "gzip",
    "zstd",
    "request",
    "imp",
    "media",
    "body",
    "body_base64",
    "body_parts",
}
EXPECT_KEYS = {"status", "error", "detail", "bids", "response", "headers"}
SSPS = {"acme": "acme", "acme-eu": "acme", "acme2": "acme2", "nova": "nova"}
USD = {"USD": Fraction(1), "EUR": Fraction(11, 10), "GBP": Fraction(5, 4), "JPY": Fraction(1, 150)}
UNPACK = {"gzip": gzip.decompress, "zstd": zstd.decompress}
NOW = "2026-03-04T12:00:00Z"  # a Wednesday
DESCRIBED = validator({"$ref": "#/components/schemas/BidResponse"})


def load() -> list[Any]:
    paths = sorted(CASES.rglob("*.json"))
    return [pytest.param(path, id=str(path.relative_to(CASES).with_suffix(""))) for path in paths]


@pytest.fixture(scope="module")
def geo() -> GeoDatabase:
    return GeoDatabase()


@pytest.mark.parametrize("path", load())
def test_case(path: Path, geo: GeoDatabase, fresh_redis: str) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    assert case.keys() <= KEYS
    now = datetime.fromisoformat(case.get("now", NOW))
    rates = {code: Fraction(rate) for code, rate in case.get("rates", {}).items()}
    snapshot = snapshot_of(
        map(campaign, case.get("campaigns", [{}])),
        case.get("ssps", SSPS),
        Rates(USD | rates, now.date()),
        geo,
        case.get("gvl_id"),
    )
    timer = Timer()
    settings = {name: case[name] for name in ("max_bytes", "tmax_ms") if name in case}
    settings |= {"clock": lambda: int(now.timestamp() * 1000), "timer": timer}
    with LocalApp(snapshot, fresh_redis, **settings) as app:
        for number, exchange in enumerate(map(of_own_auction, case["exchanges"])):
            where = f"{case['description']} [{number}] {exchange.get('about', '')}"
            assert exchange.keys() <= EXCHANGE_KEYS, where
            timer.took_s = exchange.get("took_ms", 0) / 1000
            compare(send(app, exchange), exchange, where)


def of_own_auction(exchange: Document) -> Document:
    """The same with an auction of its SSP's, which no other SSP may have a bid on."""
    if "ssp" not in exchange:
        return exchange
    return {**exchange, "request": {"id": exchange["ssp"], **exchange.get("request", {})}}


def campaign(document: Document) -> Document:
    rest = {key: value for key, value in document.items() if key != "creative"}
    return campaign_of({"campaign": rest, "creative": document.get("creative", {})})


class Timer:
    """The endpoint sees so much time (s) between its first look at it in a request and the next."""

    def __init__(self) -> None:
        self._now = perf_counter()
        self.took_s = 0.0

    def __call__(self) -> float:
        now, self._now, self.took_s = self._now, self._now + self.took_s, 0.0
        return now


def send(app: LocalApp, exchange: Document) -> Reply:
    headers = {"content-type": "application/json", **exchange.get("headers", {})}
    return app.call(
        exchange.get("method", "POST"),
        exchange.get("path", bid_path(exchange.get("ssp", "acme"))),
        {name: value for name, value in headers.items() if value is not None},
        body_of(exchange),
    )


def body_of(exchange: Document) -> bytes | list[bytes]:
    if "body_parts" in exchange:
        return [part.encode() for part in exchange["body_parts"]]
    if "body_base64" in exchange:
        body = base64.b64decode(exchange["body_base64"])
    elif "body" in exchange:
        body = exchange["body"].encode()
    else:
        body = json.dumps(request_of(exchange)).encode()
    if exchange.get("gzip"):
        return gzip.compress(body)
    return zstd.compress(body) if exchange.get("zstd") else body


def compare(reply: Reply, exchange: Document, where: str) -> None:
    expect = exchange["expect"]
    if isinstance(expect, str):
        expect = {"status": {"bid": 200, "no bid": 204}[expect]}
    assert expect.keys() <= EXPECT_KEYS, where
    status = expect.get("status", 200)
    assert reply.status == status, f"{where}: {reply}"
    for name, value in expect.get("headers", {}).items():
        assert reply.headers.get(name) == value, f"{where}: {name}"
    if unpack := UNPACK.get(reply.headers.get("content-encoding", "")):
        reply = reply._replace(body=unpack(reply.body))
    if status == 204:
        assert not reply.body, where
        return
    assert reply.headers["content-type"] == "application/json", where
    if status != 200:
        problem = reply.json()
        assert set(problem) == {"error", "detail"}, where
        assert problem["error"] == expect.get("error", problem["error"]), where
        parts = expect.get("detail", [])
        for part in [parts] if isinstance(parts, str) else parts:
            assert part in problem["detail"], f"{where}: {problem}"
        if status == 400:
            check_refusal(problem)
    elif "path" not in exchange:
        compare_bids(reply.json(), expect, exchange, where)


def compare_bids(response: Document, expect: Document, exchange: Document, where: str) -> None:
    request = request_of(exchange)
    known = not exchange.keys() & {"body", "body_base64", "body_parts"}
    auction = as_echoed(request["id"]) if known else response["id"]
    offered = {as_echoed(imp["id"]) for imp in request["imp"]}
    check_bid_response(response, auction, offered, BASE_URL)
    assert [*DESCRIBED.iter_errors(response)] == [], where
    for name, value in expect.get("response", {}).items():
        assert response.get(name) == value, f"{where}: {name}"
    if "bids" not in expect:
        return
    bids = [
        {**bid, "seat": seatbid.get("seat")}
        for seatbid in response["seatbid"]
        for bid in seatbid["bid"]
    ]
    bids.sort(key=lambda bid: bid["impid"])
    assert len(bids) == len(expect["bids"]), f"{where}: {bids}"
    for bid, wanted in zip(bids, expect["bids"], strict=True):
        assert {name: bid.get(name) for name in wanted} == wanted, where
