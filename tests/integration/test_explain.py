"""`snapbid explain` on real stores, beside what the running server answers."""

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from support.commands import invoke, succeed
from support.stack import Stack, execute

from workload.serving import confirm_budgets

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
BANNER = {"id": "b", "media": "banner", "w": 300, "h": 250, "adm": "<p></p>"}


def campaign(name: str, cpm: float, **more: Any) -> dict[str, Any]:
    own = {"id": name, "advertiser": "shop.example", "cpm": cpm, "creatives": [BANNER]}
    return own | more


CAMPAIGNS = [
    campaign("usa", 9, targeting={"country": {"include": ["US", "CA"]}}),
    campaign("mexico", 8, targeting={"country": {"include": ["MX"]}}),
    campaign("not-here", 7, targeting={"country": {"exclude": ["DE"]}}),
    campaign("wide", 6, creatives=[{**BANNER, "w": 728, "h": 90}]),
    campaign("poor", 5, budget={"total": 0.005}),
    campaign("capped", 4.001, frequency_caps=[{"impressions": 1, "seconds": 3600}]),
    campaign("blocked", 3.5, categories=["IAB25"]),
    campaign("dear", 3, seat="s1"),
    campaign("plain", 2),
    campaign("cheap", 0.9),
    campaign("paused", 99, status="paused"),
]


def bid_request(**more: Any) -> dict[str, Any]:
    return {
        "id": "r-1",
        "imp": [{"id": "1", "banner": {"w": 300, "h": 250}, "bidfloor": 1.2}],
        "site": {"domain": "news.example"},
        "device": {"geo": {"country": "DEU"}},
        "user": {"id": "u-1"},
        "bcat": ["IAB25"],
        **more,
    }


@pytest.fixture
def environ(database: str, fresh_redis: str) -> dict[str, str]:
    confirm_budgets(fresh_redis)
    return {"SNAPBID_DATABASE_URL": database, "SNAPBID_REDIS_URL": fresh_redis}


@pytest.fixture
def cli(environ: dict[str, str], tmp_path: Path) -> Cli:
    file = tmp_path / "campaigns.json"
    file.write_text(json.dumps(CAMPAIGNS))
    succeed(environ, "campaign", "import", str(file))
    succeed(environ, "ssp", "add", "acme")
    succeed(environ, "ssp", "add", "acme-eu", "--canonical", "acme")

    def call(ssp: str, request: Any, *options: str) -> "subprocess.CompletedProcess[str]":
        text = request if isinstance(request, str) else json.dumps(request)
        result = invoke(environ, "explain", ssp, "-", *options, input=text)
        assert "Traceback" not in result.stderr
        return result

    return call


def explained(cli: Cli, request: Any, *options: str, ssp: str = "acme") -> dict[str, Any]:
    result = cli(ssp, request, "--json", *options)
    document: dict[str, Any] = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (int(document["status"] >= 400), "")
    return document


def test_codes_are_shown_with_their_names(
    cli: Cli, environ: dict[str, str], tmp_path: Path
) -> None:
    targeting = {"device_type": {"include": ["phone", 5]}, "position": {"exclude": ["Header"]}}
    file = tmp_path / "phones.json"
    file.write_text(json.dumps(campaign("phones", 10, targeting=targeting)))
    succeed(environ, "campaign", "import", str(file))
    assert json.loads(succeed(environ, "campaign", "export", "phones"))["targeting"] == targeting
    request = bid_request(device={"devicetype": 2})
    request["imp"][0]["banner"]["pos"] = 4
    rows = explained(cli, request, "--campaign", "phones")["campaign"]["impressions"]["1"]
    said = {row["rule"]: (row["asks"], row["carries"]) for row in rows}
    assert said["device_type include"] == ("4 (phone), 5 (tablet)", "2 (computer)")
    assert said["position exclude"] == ("4 (header)", "4 (header)")


def test_why(cli: Cli) -> None:
    """The whole text."""
    result = cli("acme-eu", bid_request())
    assert (result.returncode, result.stderr) == (0, "")
    first, second, *lines = result.stdout.splitlines()
    assert first == "200: a bid"
    assert second.startswith("request r-1 from acme-eu (canonical acme), as of 20")
    assert lines == [
        "user: user.id",
        "  country: DEU",
        "",
        "impression 1: banner 300x250, floor 1.20 USD",
        "  winner: poor at 5.00 USD, creative b",
        "  runner-up: capped at 4.001 USD, creative b [loss 102, Lost to Higher Bid]",
        "  3 of 11: country; 1: paused; 1: size; 1: blocked category; 1: floor 1.20 > 0.90",
        "       3  country",
        "          request country DEU; campaigns want USA, CAN, MEX; campaigns exclude DEU",
        "          usa, mexico, not-here",
        "       1  paused",
        "          paused",
        "       1  size [loss 203, Creative Filtered - Size Not Allowed]",
        "          request banner 300x250; creatives banner 728x90",
        "          wide",
        "       1  blocked category [loss 209, Creative Filtered - Category Exclusions]",
        "          request bcat IAB25",
        "          blocked",
        "       1  floor 1.20 > 0.90 [loss 100, Bid was Below Auction Floor]",
        "          cheap",
    ]


def test_one_campaign(cli: Cli) -> None:
    """Every rule of it, and each that refuses, not the first alone."""
    document = explained(cli, bid_request(wseat=["s2"]), "--campaign", "usa")
    assert document["campaign"]["id"] == "usa"
    rows = document["campaign"]["impressions"]["1"]
    assert [(row["rule"], row["asks"], row["carries"], row["holds"]) for row in rows] == [
        ("status", "active", "needs an active campaign", True),
        ("country include", "USA, CAN", "DEU", False),
        ("floor", "bids 9.00 USD", "floor 1.20 USD", True),
        ("seats", "has no seat", "wseat s2", False),
        ("blocked categories", "has no categories", "bcat IAB25", True),
        ("creatives", "b (of 1)", "banner 300x250", True),
    ]
    lines = cli("acme", bid_request(), "--campaign", "wide").stdout.splitlines()
    assert lines[-3:] == [
        "  REFUSES  creative size [loss 203, Creative Filtered - Size Not Allowed]",
        "           campaign: banner 728x90",
        "           request:  banner 300x250",
    ]


def test_money_and_caps_are_those_of_the_running_system(
    cli: Cli, start_stack: Callable[..., Stack]
) -> None:
    stack = start_stack()

    def answered(**more: Any) -> str:
        url = f"{stack.base_url}/api/v1/openrtb2/acme/bid"
        body = json.dumps(bid_request(**more)).encode()
        headers = {"content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as reply:
            bid = json.loads(reply.read())["seatbid"][0]["bid"][0]
        return str(bid["cid"])

    for number, expected in enumerate(("poor", "capped", "dear")):
        document = explained(cli, bid_request(id=f"r-{number}"))
        (impression,) = document["impressions"]
        assert impression["winner"]["campaign"] == expected
        assert answered(id=f"r-{number}", test=1) == expected
        assert answered(id=f"r-{number}") == expected
    (impression,) = explained(cli, bid_request())["impressions"]
    assert impression["summary"].endswith(
        "; 1: floor 1.20 > 0.90; 1: budget spent; 1: frequency cap reached"
    )
    codes = {group["rule"]: group["code"] for group in impression["refused"]}
    assert codes["budget spent"] is None
    assert codes["frequency cap reached"]["number"] == 9
    (row,) = explained(cli, bid_request(), "--campaign", "poor")["campaign"]["impressions"]["1"][
        -1:
    ]
    assert (row["rule"], row["holds"]) == ("budget", False)
    assert row["asks"] == "total 0.005 USD, asap"
    assert row["carries"] == "spent 0.0 USD, today 0.0, held 0.005; left: in all 0.0"
    (row,) = explained(cli, bid_request(), "--campaign", "capped")["campaign"]["impressions"]["1"][
        -1:
    ]
    assert (row["rule"], row["holds"], row["asks"]) == ("frequency caps", False, "1 in 3600 s")


def test_a_budget_that_is_not_confirmed(cli: Cli, fresh_redis: str) -> None:
    """Nothing was spent; the drain has not said so since Redis started."""
    with redis.Redis.from_url(fresh_redis) as client:
        client.hdel("{sb0}:segment", "confirmed")
    (impression,) = explained(cli, bid_request())["impressions"]
    assert "; 1: budget not restored yet" in impression["summary"]
    assert "budget spent" not in impression["summary"]
    document = explained(cli, bid_request(), "--campaign", "poor")
    (row,) = document["campaign"]["impressions"]["1"][-1:]
    assert (row["rule"], row["holds"]) == ("budget", False)
    assert row["carries"].endswith("; not restored by the drain since Redis started")


@pytest.mark.parametrize(
    ("ssp", "request_", "status", "reason"),
    [
        ("nobody", {}, 404, "unknown_ssp: 'nobody' is not registered"),
        ("acme", "{", 400, "bad_request: the body is not JSON: Input data was truncated"),
        ("acme", {"id": "a"}, 400, "bad_request: imp: is required and may not be empty"),
        (
            "acme",
            {"id": "a", "imp": [{"id": "1", "banner": {"w": {}}}]},
            400,
            "bad_request: imp[0].banner.w: expected an integer, found an object",
        ),
        (
            "acme",
            bid_request(cur=["XTS"]),
            204,
            "currency: no exchange rate for any currency of cur (XTS)",
        ),
        ("acme", " " * 300_000, 413, "too_large: the body has 300000 bytes, over 262144"),
        ("acme", bid_request(id="x" * 513), 204,
         "long_id: id is over 512 bytes, too long for notices"),
    ],
)  # fmt: skip
def test_requests_refused_before_any_campaign(
    cli: Cli, ssp: str, request_: Any, status: int, reason: str
) -> None:
    document = explained(cli, request_, ssp=ssp)
    assert (document["status"], document["reason"]) == (status, reason)
    assert document["impressions"] == []
    assert cli(ssp, request_).stdout.splitlines()[0].startswith(f"{status}: {reason}")


def test_user_data_that_is_withheld(cli: Cli) -> None:
    regs = {"gdpr": 1, "ext": {"us_privacy": "1YYY"}}
    document = explained(cli, bid_request(regs=regs))
    assert document["withheld"] == [
        "the GDPR applies, and no TCF string grants purposes 1, 3 and 4",
        "regs.us_privacy opts out of sale or cannot be read",
    ]
    assert document["user"] == "not recognised: user data is withheld"
    rules = [group["rule"] for group in document["impressions"][0]["refused"]]
    assert "no recognised user" in rules
    coppa = explained(cli, bid_request(regs={"coppa": 1}))["withheld"]
    assert coppa == ["regs.coppa is 1"]
    gpp = explained(cli, bid_request(regs={"gpp": "x", "gpp_sid": [7]}))["withheld"]
    assert gpp == ["a section of regs.gpp that gpp_sid lists opts out, or cannot be read"]


def test_a_forgotten_user(cli: Cli, environ: dict[str, str]) -> None:
    succeed(environ, "forget", "--id", "u-1")
    for request, why in (
        (bid_request(user={"id": "u-1"}), "the user was forgotten (snapbid forget)"),
        (bid_request(user={"buyeruid": "unknown"}), "no user.id, user.buyeruid, device.ifa or eid"),
    ):
        assert explained(cli, request)["user"] == f"not recognised: {why}"


def test_a_user_is_recognised_without_frequency_caps(cli: Cli, environ: dict[str, str]) -> None:
    succeed(environ, "campaign", "pause", "capped")
    assert explained(cli, bid_request())["user"] == "user.id"


def test_impressions_that_get_no_bid_whatever_the_campaigns(cli: Cli) -> None:
    banner = {"banner": {"w": 300, "h": 250}}
    imps = [
        {"id": "1", **banner, "bidfloor": 12, "bidfloorcur": "RUB"},
        {"id": "x" * 513, **banner},
        {"id": "3"},
    ]
    roubles, long, empty = explained(cli, bid_request(imp=imps))["impressions"]
    assert roubles["summary"] == "every campaign: floor 12 RUB, which has no exchange rate"
    assert long["summary"] == "imp.id is over 512 bytes, too long for notices"
    assert empty["asks"] == "no media"
    assert empty["winner"] is None


def test_campaigns_written_by_plain_sql_are_explained(cli: Cli, database: str) -> None:
    sql = "insert into campaign (id, document) values ($1, $2::text::jsonb)"
    asyncio.run(execute(database, sql, "odd", '{"id": "odd", "cpm": 0}'))
    assert explained(cli, bid_request())["unread"] == ["odd"]
    assert cli("acme", bid_request()).stdout.splitlines()[-1] == (
        "campaign odd never bids: its document is invalid (--campaign shows why)"
    )
    result = cli("acme", bid_request(), "--campaign", "odd")
    assert (result.returncode, result.stdout) == (1, "")
    assert "cpm: must be more than 0" in result.stderr


def test_wrong_input(cli: Cli, environ: dict[str, str], tmp_path: Path) -> None:
    result = cli("acme", bid_request(), "--campaign", "nobody")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "there is no campaign with the id 'nobody'\n"
    assert invoke(environ, "explain", "acme", str(tmp_path / "none")).returncode == 2
    file = tmp_path / "request.json"
    file.write_text(json.dumps(bid_request(id="\x1b[31m")))
    shown = invoke(environ, "explain", "acme", str(file)).stdout
    assert "\x1b" not in shown
    unavailable = environ | {"SNAPBID_REDIS_URL": "redis://127.0.0.1:1"}
    result = invoke(unavailable, "explain", "acme", str(file))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "Redis (SNAPBID_REDIS_URL) does not answer\n"
