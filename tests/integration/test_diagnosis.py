"""What an SSP sees of its own traffic (contract 11), over a running system."""

import asyncio
import base64
import gzip
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from redis.asyncio import Redis
from support import books
from support.browser import browser
from support.http import Reply
from support.ops import all_limited, ask
from support.processes import eventually
from support.report import report_path
from support.stack import JWT_SECRET, Stack, connected, draining, execute

from snapbid.partners.diagnosis.endpoint import SUFFIX
from snapbid.report import tokens
from snapbid.warehouse import registry
from snapbid.warehouse.diagnosis import _NOTICES, _REQUESTS

KINDS = {"win": "nurl", "billing": "burl", "loss": "lurl"}
LAST = "last=10m"
OTHER_KEY = b"another secret of 32 bytes or more"


@pytest.fixture(scope="module")
def stack(module_database: str, module_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """Two workers and a drain."""
    asyncio.run(set_up(module_database))
    served = module_stack(SNAPBID_WORKERS="2")
    with draining(served):
        yield served


async def set_up(dsn: str) -> None:
    await books.set_up(dsn)
    async with connected(dsn) as connection:
        for ssp in ("luna", "sola"):
            await registry.add(connection, ssp, ssp)


def token(ssp: str) -> str:
    return tokens.issue(ssp, JWT_SECRET.encode(), "snapbid")


def send(stack: Stack, ssp: str, document: Any, media: str = "application/json") -> Any:
    """The status, or the bid of a 200; on a connection of its own, so that any worker answers."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    path = f"/api/v1/openrtb2/{ssp}/bid"
    status, _, answer = ask(stack, "POST", path, body, content_type=media)
    return json.loads(answer)["seatbid"][0]["bid"][0] if status == 200 else status


def request(auction: str, **more: Any) -> dict[str, Any]:
    device = {"ua": "Mozilla/5.0", "ip": "192.0.2.1", "geo": {"country": "USA"}}
    imp = {"id": "1", "banner": {"w": 300, "h": 250}}
    return {"id": auction, "imp": [imp], "tmax": 60_000, "device": device, **more}


def fire(stack: Stack, url: str) -> None:
    assert ask(stack, "GET", url.removeprefix(stack.base_url))[0] == 200


def read(stack: Stack, ssp: str, query: str = LAST, **headers: str) -> "Answered":
    headers.setdefault("authorization", f"Bearer {token(ssp)}")
    return Answered(
        *ask(stack, "GET", f"{report_path(ssp, SUFFIX)}?{query}", b"", ops=False, **headers)
    )


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        assert self.status == 200, self.body
        document: dict[str, Any] = json.loads(self.body)
        return document


def today() -> str:
    day = datetime.now(UTC).date()
    return f"from={day}&to={day}"


def figures(seen: dict[str, Any]) -> dict[str, Any]:
    """The counts, by name."""
    return {
        "requests": seen["requests"],
        "bids": seen["bids"],
        "late": seen["lateShare"],
        "noBids": {share["code"]: share["requests"] for share in seen["noBids"]},
        "errors": {share["code"]: share["requests"] for share in seen["errors"]},
        "lacking": {fault["field"]: fault["requests"] for fault in seen["lacking"]},
        "broken": {
            (fault["field"], fault["rule"]): (fault["requests"], fault["example"])
            for fault in seen["broken"]
        },
        "notices": {kind: tuple(counts.values()) for kind, counts in seen["notices"].items()},
        "unbilled": seen["winsWithoutBilling"],
        "reused": seen["reusedAuctions"],
    }


def test_outcomes_of_an_ssps_traffic(stack: Stack) -> None:
    """Every answer and notice is told once, of the last minutes and of the day, and no other's."""
    bids = [send(stack, "acme", request(f"d{number}")) for number in range(3)]
    bids.append(send(stack, "acme-eu", request("d0")))  # another descriptor's: not used again
    bids.append(send(stack, "acme", request("d2")))
    assert send(stack, "acme", request("none", imp=[{"id": "1"}])) == 204
    assert send(stack, "acme-eu", request("other", imp=[{"id": "1"}])) == 204
    assert send(stack, "acme", request("usd", cur=["XXX"])) == 204
    twins = [{"id": "1"}, {"id": "2"}, {"id": "2"}]
    assert send(stack, "acme", request("twins", imp=twins)) == 400
    assert send(stack, "acme", request("twins", imp=twins[1:])) == 400
    assert send(stack, "acme", b"{") == 400
    assert send(stack, "acme", request("text"), "text/plain") == 415
    assert send(stack, "acme", request("bare", device={}, imp=[{"id": "1"}])) == 204
    for _ in range(3):
        fire(stack, bids[0]["nurl"])
    fire(stack, bids[0]["burl"])
    fire(stack, bids[1]["nurl"])
    fire(stack, bids[2]["lurl"])
    fire(stack, bids[2]["lurl"])
    send(stack, "nova", request("d1"))
    send(stack, "nova", b"[")
    rule = ("imp[].id", "is the same as imp[].id")
    wanted = {
        "requests": 13,
        "bids": 5,
        "late": 0.0,
        "noBids": {"no_media": 3, "currency": 1},
        "errors": {"bad_request": 3, "unsupported_media_type": 1},
        "lacking": {"device.geo.country": 1, "device.ua": 1, "device.ip": 1},
        "broken": {
            rule: (2, "$.imp[1].id"),
            ("", "the body is not JSON"): (1, "$"),
            ("Content-Type", "must be application/json"): (1, "Content-Type"),
        },
        "notices": {"win": (2, 2, 0, 0, 0), "billing": (1, 0, 0, 0, 0), "loss": (1, 1, 0, 0, 0)},
        "unbilled": 1,
        "reused": 1,
    }
    latest: dict[str, Any] = {}

    def complete() -> bool:
        asyncio.run(forget_answers(stack))
        latest.update(read(stack, "acme", today()).json())
        seen = figures(latest)
        return bool(seen["requests"] == 13 and seen["notices"] == wanted["notices"])

    eventually(complete, "all of the day")
    of_minutes = figures(read(stack, "acme", LAST).json())
    assert of_minutes.pop("notices").keys() == KINDS.keys()
    seen = figures(latest)
    for each in (seen, of_minutes):
        examples = each["broken"].pop(rule)
        assert examples[1] in ("$.imp[1].id", "$.imp[2].id")
        each["broken"][rule] = (examples[0], "$.imp[1].id")
    assert seen == wanted
    for name in ("requests", "bids", "late", "noBids", "errors", "lacking", "broken"):
        assert of_minutes[name] == wanted[name]
    states = [item["state"] for item in latest["checklist"]]
    assert states == ["pass", "fail", "fail", "pass", "pass", "fail"]
    (day,) = latest["days"]
    assert (day["requests"], day["bids"], day["wins"], day["billed"]) == (13, 5, 2, 1)


def test_traffic_that_helps_nobody_is_shown(stack: Stack) -> None:
    """What was answered like anything else, and helped nobody, is shown (contract 11)."""

    def look_at_a_sample() -> None:
        """Send what is counted only where there is time to look at it."""
        small = {"id": "1", "banner": {"w": 9, "h": 9}}
        assert send(stack, "luna", request("small", imp=[small])) == 204
        assert send(stack, "luna", request("bare", imp=[{"id": "1", "banner": {}}])) == 204
        dear = {"id": "1", "banner": {"w": 300, "h": 250}, "bidfloor": 900}
        assert send(stack, "luna", request("dear", imp=[dear])) == 204
        assert send(stack, "luna", request("bad", badv=["shop.example"])) == 204
        native = {"request": json.dumps({"assets": [{"title": {"len": 90}}]})}
        assert send(stack, "luna", request("native", imp=[{"id": "1", "native": native}])) == 204
        device = {"ua": "Mozilla/5.0", "ip": "192.0.2", "geo": {"country": "United States"}}
        assert send(stack, "luna", request("named", device=device))["impid"] == "1"
        site = {"domain": "a.example"}
        assert send(stack, "luna", request("cased", Site=site))["impid"] == "1"

    cased = {"id": "imp", "Imp": [{"id": "1", "banner": {"w": 300, "h": 250}}]}
    assert send(stack, "luna", cased) == 400
    assert send(stack, "luna", request("id", imp=[{"ID": "1"}])) == 400
    assert send(stack, "luna", gzip.compress(json.dumps(request("zip")).encode())) == 400
    assert send(stack, "luna", request("untyped"), "")["impid"] == "1"
    rule = "is required, but its name is in the wrong letter case"
    wanted = {
        "rules": {"floor", "size", "size missing", "blocked advertiser", "format"},
        "unused": {
            ("device.geo.country", "is no country of ISO 3166-1"): True,
            ("device.ip", "is no IP address"): True,
            ("imp[].banner", "states no size, neither w and h nor format"): True,
            ("imp[].native.request.assets[].id", "is missing"): True,
            ("site", "is not read: its name is in the wrong letter case"): True,
        },
        "broken": {
            ("imp", rule): (1, "$.imp"),
            ("imp[].id", rule): (1, "$.imp[0].id"),
            ("Content-Encoding", "is missing, but the body is gzip"): (1, "Content-Encoding"),
        },
        "lacking": {"Content-Type": 1},
    }

    def told() -> dict[str, Any]:
        look_at_a_sample()
        asyncio.run(forget_answers(stack))
        seen = read(stack, "luna").json()
        return {
            "rules": {share["rule"] for share in seen["noCampaign"] if share["sampled"]},
            "unused": {(f["field"], f["rule"]): f["requests"] > 0 for f in seen["unused"]},
            "broken": figures(seen)["broken"],
            "lacking": figures(seen)["lacking"],
        }

    eventually(lambda: told() == wanted, f"{wanted}")
    page = read(stack, "luna", accept="text/html").body
    assert b"the last rule that refused" in page
    assert b"assets[].id" in page


def test_a_notice_whose_url_was_altered_counts_and_is_shown(stack: Stack) -> None:
    """As clients fire it: encoded twice, escaped for HTML, with the macro; the bid once in all."""
    auction = "AbC+/id-1=="
    bids = [send(stack, "sola", request(f"{auction}{number}")) for number in range(2)]
    altered = [url.replace("&", "&amp;") for url in bids[0].values() if "/rtb/" in str(url)]
    kinds = {bids[0][name] for name in KINDS.values()}
    twice = [url.replace("%", "%25") for url in kinds]
    for url in (*altered, *twice, *kinds):
        fire(stack, url)
    fire(stack, bids[1]["lurl"])
    wanted = {"win": (1, 2, 0, 0, 2), "billing": (1, 2, 0, 0, 2), "loss": (2, 2, 0, 0, 2)}
    more: dict[str, Any] = {}

    def told() -> bool:
        asyncio.run(forget_answers(stack))
        more.update(read(stack, "sola", today()).json())
        return bool(figures(more)["notices"] == wanted)

    eventually(told, f"{wanted}")
    assert (more["lossesWithoutReason"], more["lostAndWon"]) == (2, 1)


async def forget_answers(stack: Stack) -> None:
    async with Redis.from_url(stack.environ["SNAPBID_REDIS_URL"]) as redis:
        async for key in redis.scan_iter("report:cache:*"):
            await redis.delete(key)


def test_shows_nothing_of_other_ssps(stack: Stack) -> None:
    """A token opens the diagnosis of its own SSP alone, however the path is spelled."""
    send(stack, "nova", request("secret"))
    assert send(stack, "novva-secret", request("stray")) == 404
    eventually(lambda: read(stack, "nova").json()["requests"] > 0, "nova's")
    ours = f"Bearer {token('acme')}"
    basic = base64.b64encode(f"nova:{token('acme')}".encode()).decode()
    spelled = "nova NOVA nova%20 %6eova nova%2f acme%2F..%2Fnova nova;acme acme,nova nova\\ nova-tv"
    for ssp in (*spelled.split(), "acme-eu", "", "*", quote("{acme,nova}")):
        for query in (LAST, today(), f"{LAST}&ssp=nova", "", "last=10m&last=10m"):
            for authorization in (ours, f"Basic {basic}"):
                status, _, body = ask(stack, "GET", f"{report_path(ssp, SUFFIX)}?{query}",
                                      authorization=authorization)  # fmt: skip
                assert status in (401, 404, 429), (ssp, query)
                assert b"secret" not in body
                if status == 401:
                    assert b"ssp_mismatch" in body
    for path in ("/api/v1/ssp/acme/../nova/diagnosis", "/api/v1/ssp//nova/diagnosis",
                 "/api/v1/ssp/acme/nova/diagnosis"):  # fmt: skip
        assert ask(stack, "GET", f"{path}?{LAST}", authorization=ours)[0] == 404
    for given in ("", "Bearer", "Bearer x.y.z", "Basic", f"Basic {token('nova')}",
                  f"Bearer {tokens.issue('nova', OTHER_KEY, 'snapbid')}",
                  f"Bearer {tokens.issue('nova', JWT_SECRET.encode(), 'another')}",
                  f"Bearer {token('nova-tv')}"):  # fmt: skip
        status, headers, body = ask(stack, "GET", f"{report_path('nova', SUFFIX)}?{LAST}",
                                    authorization=given)  # fmt: skip
        assert (status, b"secret" in body) == (401, False), given
        assert "www-authenticate" in headers
    for query in (LAST, today(), f"{LAST}&ssp=nova", f"{today()}&ssp=nova&sspId=nova"):
        for media in ("application/json", "text/html"):
            own = read(stack, "acme", query, accept=media)
            assert own.status == 200
            assert b"nova" not in own.body.replace(b"ssp=nova", b"")
            assert b"novva" not in own.body, "an id that was mistyped is not the SSP's"


def test_windows_limits_and_the_cache(stack: Stack) -> None:
    path, ours = report_path("nova", SUFFIX), ""

    def each_window() -> list[Reply]:
        nonlocal ours
        asyncio.run(forget_answers(stack))
        ours = f"Bearer {token('nova')}"
        return [
            ask(stack, "GET", f"{path}?{query}", authorization=ours)
            for query in (LAST, LAST, "last=5m", "last=10m&from=2026-01-01", "from=2026-01-01",
                          "from=2026-01-01&to=2026-01-08", "last=10m&last=10m", "", today(),
                          today(), LAST)
        ]  # fmt: skip

    asked = all_limited(each_window)
    statuses = [200, 200, 400, 400, 400, 400, 400, 400, 200, 200, 429]
    assert [status for status, _, _ in asked] == statuses
    assert asked[0][2] == asked[1][2]
    assert int(asked[1][1]["age"]) <= 10
    assert asked[1][1]["cache-control"] == "private, max-age=10"
    assert asked[9][1]["cache-control"] == "private, max-age=300"
    assert "age" in asked[9][1]
    assert json.loads(asked[2][2])["detail"] == "last: must be 10m, found '5m'"
    report = ask(stack, "GET", f"/api/v1/ssp/nova/report?{today()}", authorization=ours)
    assert report[0] == 200, "the report's quota is its own"
    assert ask(stack, "POST", path, authorization=ours)[0] == 405


def test_the_page(stack: Stack) -> None:
    """As a browser gets it, which sends the token as a password; without scripts."""
    send(stack, "acme", request("<script>", imp=[{"id": "<b>"}, {"id": "<b>"}]))
    login = base64.b64encode(f":{token('acme')}".encode()).decode()
    for query in (LAST, today()):
        page = read(stack, "acme", query, authorization=f"Basic {login}",
                    accept="text/html,application/xhtml+xml,*/*;q=0.8")  # fmt: skip
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert b"<script" not in page.body
        assert b"Go-live checklist" in page.body
    refused = ask(stack, "GET", report_path("acme", SUFFIX), accept="text/html")
    assert refused[0] == 401
    assert "Basic" in refused[1]["www-authenticate"]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_in_a_browser(stack: Stack, width: int) -> None:
    """Nothing has to be scrolled sideways, and all can be read."""
    send(stack, "acme", request("odd", imp=[{"id": "1", "banner": {"w": "x" * 60}}]))
    with browser(width, 844) as window:
        for query in (LAST, today()):
            address = f"127.0.0.1:{stack.port}{report_path('acme', SUFFIX)}?{query}"
            window.open(f"http://ssp:{token('acme')}@{address}")
            assert "Go-live checklist" in window.run("return document.body.innerText")
            assert window.run(
                "return [...document.querySelectorAll('*')]"
                ".filter(part => part.scrollWidth > innerWidth).length"
            ) == 0  # fmt: skip
            assert window.violations() == []


async def test_a_year_of_counts_is_read_by_index(module_database: str) -> None:
    for table, values in (("request_daily", "'x', 1, '{}', '{}'"), ("anomaly_daily", "'a', 1")):
        await execute(
            module_database,
            f"insert into {table} select date '2024-01-01' + n, 'ssp-' || s, {values}"
            " from generate_series(0, 365) n, generate_series(1, 20) s",
        )
        await execute(module_database, f"analyze {table}")
    await execute(
        module_database,
        "insert into ssp_family select 'ssp-' || s, 'ssp-' || s, '-infinity', 'infinity'"
        " from generate_series(1, 20) s",
    )
    given = {"$1": "'ssp-3'", "$2": "'2024-06-01'", "$3": "'2024-06-07'"}
    async with connected(module_database) as connection:
        for query in (_REQUESTS, _NOTICES):
            text = re.sub(r"\$\d", lambda match: given[match[0]], query)
            plan = "\n".join(row[0] for row in await connection.fetch(f"explain {text}"))
            for table in ("request_daily", "anomaly_daily"):
                assert f"Seq Scan on {table}" not in plan
