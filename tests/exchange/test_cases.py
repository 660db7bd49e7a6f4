"""What a real exchange has sent us, sent again: `make exchange` has recorded the requests.

A case holds the requests of one adapter for a scenario. Its answers must have the bids that the
scenario names, and nothing that an exchange would drop or complain of.
"""

import contextlib
import gzip
import json
from collections.abc import Iterable, Iterator
from datetime import date
from fractions import Fraction
from typing import Any

import pytest
from support import rtblint
from support.client import LocalApp
from support.exchange.demands import bids_of, faults
from support.exchange.scenarios import BIDDERS, CASES, FOLDER, Scenario, campaigns, scenarios
from support.http import Reply
from support.snapshot import snapshot_of
from support.vast import why_not_played

from snapbid.reference.geo import GeoDatabase
from snapbid.reference.rates import Rates

SSP = "prebid"
SCENARIOS = {scenario.name: scenario for scenario in scenarios()}
USD = {"USD": Fraction(1), "EUR": Fraction(11, 10), "GBP": Fraction(5, 4), "JPY": Fraction(1, 150)}
COMPRESSED = {"proxistore"}


def marked(scenario: Scenario) -> Any:
    pending = scenario.pending
    marks = [pytest.mark.xfail(strict=True, reason=pending)] if pending else []
    return pytest.param(scenario, id=scenario.name, marks=marks)


def bidder_of(documents: Iterable[dict[str, Any]], module_redis: str) -> LocalApp:
    rates = Rates(USD, date(2026, 3, 4))
    return LocalApp(snapshot_of(documents, {SSP: SSP}, rates, GeoDatabase()), module_redis)


@pytest.fixture(scope="module")
def common(module_redis: str) -> Iterator[LocalApp]:
    """A bidder with the campaigns that all scenarios have."""
    with bidder_of(campaigns(), module_redis) as app:
        yield app


@pytest.fixture
def bidder(common: LocalApp, scenario: Scenario, module_redis: str) -> Iterator[LocalApp]:
    if scenario.campaign is None:
        yield common
        return
    with bidder_of([*campaigns(), scenario.campaign], module_redis) as app:
        yield app


@pytest.mark.parametrize("scenario", [marked(each) for each in SCENARIOS.values()])
def test_case(scenario: Scenario, bidder: LocalApp) -> None:
    case = json.loads((CASES / f"{scenario.name}.json").read_text(encoding="utf-8"))
    bids: dict[str, str] = {}
    for request in case["requests"]:
        reply = send(bidder, request, compressed=case["bidder"] in COMPRESSED)
        assert reply.status in (200, 204)
        if reply.status == 200:
            answer = reply.json()
            assert faults(request, answer) == []
            bids |= {bid["impid"]: bid["cid"] for bid in bids_of(answer)}
    assert bids == scenario.bids


def send(app: LocalApp, request: dict[str, Any], *, compressed: bool) -> Reply:
    body = json.dumps(request).encode()
    if compressed:
        return app.bid(gzip.compress(body), SSP, {"content-encoding": "gzip"})
    return app.bid(body, SSP)


# Prebid Server's Java twin has sent these, with its `generic` bidder: pods by number, native assets
# from 0 where the page has numbered none, all media in one request, JSON with a charset. It takes
# compressed answers.
FROM_JAVA = [json.loads(line) for line in (FOLDER / "java.jsonl").read_text().splitlines()]
JAVA_HEADERS = {
    "content-type": "application/json;charset=utf-8",
    "accept": "application/json",
    "accept-encoding": "deflate, gzip",
    "x-prebid": "pbs-java/4.1.0",
}


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in FROM_JAVA])
def test_from_java(case: dict[str, Any], compressed: bool, common: LocalApp) -> None:
    request = case["request"]
    body = json.dumps(request).encode()
    headers = JAVA_HEADERS | ({"content-encoding": "gzip"} if compressed else {})
    reply = common.bid(gzip.compress(body) if compressed else body, SSP, headers)
    assert reply.status == 200, reply.body
    packed = reply.headers.get("content-encoding") == "gzip"
    answer = json.loads(gzip.decompress(reply.body) if packed else reply.body)
    assert faults(request, answer) == []
    assert {bid["impid"]: bid["cid"] for bid in bids_of(answer)} == case["bids"]


@pytest.fixture(scope="module")
def answered(common: LocalApp, module_redis: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """All requests that get an answer, and it."""
    found = []
    for scenario in SCENARIOS.values():
        case = json.loads((CASES / f"{scenario.name}.json").read_text(encoding="utf-8"))
        with contextlib.ExitStack() as stack:
            app = common
            if scenario.campaign is not None:
                known = [*campaigns(), scenario.campaign]
                app = stack.enter_context(bidder_of(known, module_redis))
            found += [
                (request, send(app, request, compressed=False)) for request in case["requests"]
            ]
    found += [
        (case["request"], send(common, case["request"], compressed=False)) for case in FROM_JAVA
    ]
    return [(request, reply.json()) for request, reply in found if reply.status == 200]


def test_rtblint_finds_no_error(answered: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    assert len(answered) > 50
    found = rtblint.issues(answered)
    # Our notification URLs have the form that document 2 gives them.
    assert [each for each in found if each["id"] != "openrtb.bid.price_macro_missing"] == []


def test_rtblint_can_refuse() -> None:
    found = rtblint.issues([(REQUEST, answer()), (REQUEST, answer(impid="2"))])
    errors = [each["id"] for each in found if each["severity"] == "error"]
    assert errors == ["openrtb.bid.impid_unknown"]


def test_a_player_plays_all_vast(answered: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    bids = [bid for _, answer in answered for bid in bids_of(answer)]
    served = [bid["adm"] for bid in bids if "<VAST" in bid["adm"] and bid["mtype"] < 4]
    assert len(served) > 5
    assert {*why_not_played(served)} == {None}


def test_every_scenario_has_its_case() -> None:
    assert {path.stem for path in CASES.iterdir()} == set(SCENARIOS)
    senders = {json.loads(path.read_text())["bidder"] for path in CASES.iterdir()}
    assert senders == set(BIDDERS)


REQUEST: dict[str, Any] = {
    "id": "a",
    "imp": [
        {
            "id": "1",
            "secure": 1,
            "bidfloor": 1.5,
            "banner": {"format": [{"w": 300, "h": 250}], "battr": [3]},
            "native": {"request": json.dumps({"ver": "1.2", "assets": [
                {"id": 1, "required": 1, "title": {"len": 5}},
                {"id": 2, "required": 0, "img": {"type": 3, "wmin": 300, "hmin": 200}},
            ]})},
        }
    ],
    "badv": ["bad.example"],
    "bcat": ["IAB25"],
    "bseat": ["s9"],
    "regs": {"ext": {"dsa": {"dsarequired": 2, "pubrender": 2}}},
}  # fmt: skip
BID: dict[str, Any] = {
    "id": "b", "impid": "1", "price": 2.0, "crid": "c", "cid": "d", "adomain": ["good.example"],
    "adm": '<img src="https://cdn.example/1.png">', "mtype": 1, "w": 300, "h": 250,
    "nurl": "http://us.example/w", "burl": "http://us.example/b", "lurl": "http://us.example/l",
    "ext": {"dsa": {"behalf": "B", "paid": "P", "adrender": 0}},
}  # fmt: skip
ASSETS: list[dict[str, Any]] = [{"id": 1, "title": {"text": "Title"}}]


def native(*assets: dict[str, Any], **members: Any) -> dict[str, Any]:
    link = {"url": "https://brand.example/"}
    return {"mtype": 4, "adm": json.dumps({"link": link, "assets": assets, **members})}


def wrong() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"impid": "2"}, "no such impression"
    yield {"mtype": 2}, "was not asked for"
    yield {"price": 1.49}, "below the floor"
    yield {"price": 0}, "no price"
    yield {"crid": ""}, "crid is missing"
    yield {"burl": "//x"}, "burl is no URL"
    yield {"w": 728, "h": 90}, "size (728, 90)"
    yield {"adm": '<img src="http://cdn.example/1.png">'}, "not secure"
    yield {"adomain": ["www.bad.example"]}, "is blocked"
    yield {"cat": ["IAB25"]}, "is blocked"
    yield {"attr": [3]}, "is blocked"
    yield {"dealid": "x"}, "was not offered"
    yield {"ext": {}}, "no dsa"
    yield {"ext": {"dsa": {"adrender": 1}}}, "both render"
    yield {"ext": {"dsa": {"behalf": "B" * 101, "adrender": 0}}}, "over 100"
    yield {"mtype": 4, "adm": "<div>"}, "not JSON"
    yield native(), "required asset 1 is missing"
    yield native({"id": 1, "title": {"text": "A title"}}), "longer than 5"
    yield native({"id": 1, "data": {"value": "A"}}), "another kind"
    yield native(*ASSETS, {"id": 3, "img": {"url": "x"}}), "asset 3 was not asked for"
    yield native(*ASSETS, {"id": 2, "img": {"url": "x", "w": 299, "h": 200}}), "is 299 w"
    yield native(*ASSETS, *ASSETS), "twice"
    yield native(*ASSETS, link={}), "native: $.link.url is required"
    yield {"mtype": 4, "adm": json.dumps({"native": {"assets": []}})}, "wrapped"


def answer(**bid: Any) -> dict[str, Any]:
    return {"id": "a", "cur": "USD", "seatbid": [{"seat": "s1", "bid": [BID | bid]}]}


def test_a_good_answer_has_no_faults() -> None:
    assert faults(REQUEST, answer()) == []
    assert faults(REQUEST, answer(**native(*ASSETS))) == []


@pytest.mark.parametrize(("change", "fault"), [*wrong()])
def test_faults_are_found(change: dict[str, Any], fault: str) -> None:
    assert fault in " ".join(faults(REQUEST, answer(**change)))


def test_a_pod_with_an_advertiser_twice_is_a_fault() -> None:
    imps = [{"id": id, "video": {"podid": "p"}} for id in ("1", "2")]
    bids = [BID | {"id": id, "impid": id, "mtype": 2} for id in ("1", "2")]
    found = faults({"id": "a", "imp": imps}, answer() | {"seatbid": [{"bid": bids}]})
    assert found == ["good.example is in the pod p twice"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"id": "b"}, "another auction"),
        ({"cur": "EUR"}, "bids in EUR"),
        ({"seatbid": []}, "no bid in a 200"),
        ({"seatbid": [{"seat": "s9", "bid": [BID]}]}, "is blocked"),
        ({"seatbid": [{"bid": [BID, BID]}]}, "twice"),
    ],
)
def test_faults_of_an_answer_are_found(change: dict[str, Any], fault: str) -> None:
    assert fault in " ".join(faults({**REQUEST, "cur": ["USD"]}, answer() | change))
