"""The check of answers: a good answer, and each way to spoil it."""

import json
from typing import Any

import pytest
from support.stub_bidder import bid

from snapbid.bidding.request import decode
from snapbid.loadtest.check import BrokenRule, check, cost_micros, parse, request_limits
from snapbid.reference import rates

RATES = rates.load()
Document = dict[str, Any]


def request(**changes: Any) -> Document:
    imp = {
        "id": "1 a",
        "banner": {"w": 300, "h": 250, "format": [{"w": 320, "h": 50}], "battr": [3]},
        "bidfloor": 1.0,
    }
    imp |= changes.pop("imp", {})
    return {"id": "auction-1", "imp": [imp], **changes}


def judge(asked: Document, *, ours: bool = True, **changes: Any) -> BrokenRule | None:
    """The rule broken by an answer that is good except for the changes."""
    shown = {**asked, "imp": [{**asked["imp"][0], "id": "1%20a"}]}
    changes = {"impid": "1 a", **changes}
    top = changes.pop("top", {})
    seat = changes.pop("seat", None)
    response = json.loads(bid(shown, **changes).partition(b"\r\n\r\n")[2]) | top
    if seat is not None:
        response["seatbid"][0]["seat"] = seat
    answer = parse(json.dumps(response).encode(), ours=ours)
    if isinstance(answer, BrokenRule):
        return answer
    limits = request_limits(decode(json.dumps(asked).encode()), RATES)
    return check(answer, "auction-1", limits, ours=ours)


def test_two_impressions_of_a_pod() -> None:
    def judged(*imps: Document) -> BrokenRule | None:
        asked = {"id": "auction-1", "imp": [{"id": f"{n}", **imp} for n, imp in enumerate(imps)]}
        answers = [
            json.loads(bid({**asked, "imp": [imp]}, mtype=2).partition(b"\r\n\r\n")[2])
            for imp in asked["imp"]
        ]
        bids = [answer["seatbid"][0]["bid"][0] for answer in answers]
        whole = json.dumps({**answers[0], "seatbid": [{"bid": bids}]}).encode()
        answer, limits = parse(whole), request_limits(decode(json.dumps(asked).encode()), RATES)
        assert not isinstance(answer, BrokenRule)
        return check(answer, "auction-1", limits)

    pod = {"video": {"podid": "p"}}
    assert judged(pod, {"video": {"podid": "q"}}, {"video": {}}, {"video": {}}) is None
    assert judged(pod, {"video": {"podid": "q"}, "audio": {"podid": "p"}}) is None
    broken = judged(pod, pod)
    assert broken is not None
    assert broken.rule == "pod"


@pytest.mark.parametrize(
    ("qty", "price", "cost"),
    [
        (None, 1.5, 1_500_000),
        ({"multiplier": 14.2}, 1.5, 21_300_000),
        ({"multiplier": 12.5}, 1.000001, 12_500_012),
        ({"multiplier": 0.0001}, 0.001, 1),
        ({"multiplier": 0}, 1.5, 1_500_000),
        ({"multiplier": 1000}, 1.5, 1_500_000_000),
    ],
)
def test_costs(qty: Document | None, price: float, cost: int) -> None:
    asked = request(imp={"id": "1", "qty": qty}) | {"dooh": {}}
    asked.pop("site", None)
    answer = parse(bid(asked, price=price).partition(b"\r\n\r\n")[2])
    assert not isinstance(answer, BrokenRule)
    limits = request_limits(decode(json.dumps(asked).encode()), RATES)
    assert cost_micros(answer.seatbid[0].bid[0], limits) == (cost, cost)


DEAL = {"deals": [{"id": "d", "bidfloor": 2, "wseat": ["s"], "wadomain": ["shop.example"]}]}
EUROS = {"bidfloorcur": "EUR"}
FILE = '<VAST><Linear><MediaFile delivery="progressive" bitrate="{}"></MediaFile></Linear></VAST>'
FILM: Document = {"mtype": 2, "w": 640, "h": 360, "adm": FILE.format(800)}
SPOT: Document = {"mtype": 2, "price": 1.5, "dur": 15}


def video(**limits: object) -> Document:
    return {"imp": {"bidfloor": 1, "video": limits}}


def timed_deal(**limits: object) -> Document:
    deals = [{"id": "d", "bidfloor": 1, **limits}]
    return {"imp": {"video": {}, "pmp": {"deals": deals}}}


SPOILED: list[tuple[str, Document, Document]] = [
    ("id", {}, {"top": {"id": "another"}}),
    ("currency", {}, {"top": {"cur": "EUR"}}),
    ("currency", {"cur": ["EUR"]}, {}),
    ("currency", {"cur": ["EUR", "GBP"]}, {"top": {"cur": "GBP"}}),
    ("currency", {"cur": ["XXX"]}, {}),
    ("currency", {"cur": ["EUR", "USD"]}, {"top": {"cur": "EUR"}}),
    ("price", {"cur": ["EUR"], "imp": EUROS}, {"price": 0.9, "top": {"cur": "EUR"}}),
    ("price", {"cur": ["JPY"]}, {"price": 80.0, "top": {"cur": "JPY"}}),
    ("impid", {}, {"impid": "2"}),
    ("price", {}, {"price": 0.999999}),
    ("price", {"imp": {"bidfloor": 1, "bidfloorcur": "GBP"}}, {"price": 1.0}),
    ("price", {"imp": {"bidfloor": 1, "bidfloorcur": "XXX"}}, {}),
    ("price", {}, {"price": 0}),
    ("price", {}, {"price": 1e305}),
    ("size", {}, {"w": 300, "h": 251}),
    ("media", {}, {"mtype": 2}),
    ("battr", {}, {"attr": [1, 3]}),
    ("adm", {}, {"adm": ""}),
    ("bcat", {"bcat": ["IAB7"]}, {"cat": ["iab7-39"]}),
    ("bcat", {"bcat": ["IAB7-39"]}, {"cat": ["IAB7-39"]}),
    ("dsa", {"regs": {"ext": {"dsa": {"dsarequired": 3}}}}, {}),
    ("badv", {"badv": ["Shop.example"]}, {"adomain": ["www.shop.EXAMPLE"]}),
    ("adomain", {}, {"adomain": []}),
    ("seat", {"wseat": ["a"]}, {"seat": "b"}),
    ("seat", {"wseat": ["a"]}, {}),
    ("seat", {"bseat": ["b"]}, {"seat": "b"}),
    ("deal", {}, {"dealid": "d"}),
    ("deal", {"imp": {"pmp": DEAL | {"private_auction": 1}}}, {}),
    ("deal", {"imp": {"pmp": DEAL}}, {"dealid": "d", "seat": "another"}),
    ("deal", {"imp": {"pmp": DEAL}}, {"dealid": "d", "seat": "s", "adomain": ["x.example"]}),
    ("price", {"imp": {"pmp": DEAL}}, {"dealid": "d", "seat": "s", "price": 1.5}),
    ("linearity", video(linearity=2), FILM),
    ("linearity", video(linearity=1), FILM | {"adm": "<VAST><NonLinearAds><NonLinear>"}),
    ("linearity", video(linearity=3), FILM),
    ("skip", video(skip=0), FILM | {"attr": [16]}),
    ("skip", video(skip=0), FILM | {"adm": '<Linear skipoffset="00:00:05">'}),
    ("delivery", video(delivery=[1, 3]), FILM),
    ("bitrate", video(minbitrate=801), FILM),
    ("bitrate", video(maxbitrate=799), FILM),
    ("bitrate", video(maxbitrate=799), FILM | {"adm": FILE.format("9" * 5000)}),
    ("bitrate", {"imp": {"audio": {"maxbitrate": 320}}}, {"mtype": 3, "adm": FILE.format(321)}),
    ("boxingallowed", video(boxingallowed=0, w=320, h=180), FILM),
    ("boxingallowed", video(boxingallowed=0, w=640, h=480), FILM),
    ("boxingallowed", video(boxingallowed=0, w=640), FILM | {"w": None}),
    ("price", video(mincpmpersec=0.1), SPOT | {"price": 1.499999}),
    ("price", video(mincpmpersec=0.1), SPOT | {"dur": None}),
    ("price", video(durfloors=[{"mindur": 15, "bidfloor": 1.6}]), SPOT),
    ("price", video(durfloors=[{"maxdur": 15, "bidfloor": 1.6}]), SPOT),
    ("price", {"imp": video(mincpmpersec=0.1)["imp"] | EUROS}, SPOT),
    ("price", timed_deal(mincpmpersec=0.11), SPOT | {"dealid": "d"}),
    ("price", timed_deal(durfloors=[{"bidfloor": 1.6}]), SPOT | {"dealid": "d"}),
    ("nurl", {}, {"nurl": "http://h/rtb/win?id=auction-1&impId=1 a"}),
    ("nurl", {}, {"nurl": "ftp://h/rtb/win?id=auction-1&impId=1%20a"}),
    ("burl", {}, {"burl": "http://other/rtb/bill?id=auction-1&impId=1%20a"}),
    ("lurl", {}, {"lurl": "http://bid.example/rtb/loss?id=auction-1&impId=1%20a&nbr=1"}),
    ("response", {}, {"price": "1.0"}),
    ("response", {}, {"top": {"seatbid": []}}),
    ("response", {}, {"crid": None}),
]
GOOD: list[tuple[Document, Document]] = [
    ({}, {}),
    ({}, {"price": 1.0, "w": 320, "h": 50, "attr": [1]}),
    ({"imp": {"bidfloor": 1, "bidfloorcur": "JPY"}}, {"price": 0.9}),
    ({"bcat": ["IAB7-39"]}, {"cat": ["IAB7-3", "IAB7"]}),
    ({"badv": ["hop.example", "sub.shop.example"]}, {}),
    ({"wseat": ["a"]}, {"seat": "a"}),
    ({"regs": {"dsa": {"dsarequired": 2}}}, {"ext": {"dsa": {"behalf": "x"}}}),
    ({"regs": {"dsa": {"dsarequired": 1}}}, {}),
    ({"cur": ["EUR", "USD"]}, {}),
    ({"cur": ["XXX", "EUR"]}, {"top": {"cur": "EUR"}}),
    ({"cur": ["EUR"], "imp": EUROS}, {"price": 1.0, "top": {"cur": "EUR"}}),
    (video(linearity=1, skip=0, delivery=[1, 2], minbitrate=800, maxbitrate=800), FILM),
    (video(boxingallowed=0, w=1920, h=1080), FILM),
    (video(boxingallowed=0, w=1920), FILM),
    (video(boxingallowed=0), FILM | {"w": None}),
    (video(w=320, h=180, skip=1), FILM | {"attr": [16]}),
    (video(linearity=1, maxbitrate=9), {"mtype": 2, "adm": "<VAST><Ad><Wrapper>"}),
    (video(mincpmpersec=0.1), SPOT),
    (video(mincpmpersec=0), SPOT | {"dur": None}),
    (video(durfloors=[{"mindur": 16, "bidfloor": 5}, {"maxdur": 14, "bidfloor": 5}]), SPOT),
    (video(durfloors=[{"mindur": 30, "maxdur": 5, "bidfloor": 5}]), SPOT),
    (timed_deal(mincpmpersec=0.1), SPOT | {"dealid": "d"}),
    (timed_deal(mincpmpersec=9), SPOT),
    ({"imp": {"pmp": DEAL}}, {"price": 2, "dealid": "d", "seat": "s"}),
    ({"imp": {"pmp": DEAL, "bidfloor": 9}}, {"price": 2, "dealid": "d", "seat": "s"}),
]


@pytest.mark.parametrize(("rule", "asked", "changes"), SPOILED)
def test_spoiled_answers_break_their_rule(rule: str, asked: Document, changes: Document) -> None:
    broken = judge(request(**asked), **changes)
    assert broken is not None
    assert broken.rule == rule, broken


@pytest.mark.parametrize(("asked", "changes"), GOOD)
def test_a_good_answer_passes(asked: Document, changes: Document) -> None:
    assert judge(request(**asked), **changes) is None


OURS_ALONE = {"adm", "nurl", "burl", "lurl"}


@pytest.mark.parametrize(("rule", "asked", "changes"), SPOILED)
def test_other_bidders_are_held_to_common_rules(
    rule: str, asked: Document, changes: Document
) -> None:
    broken = judge(request(**asked), ours=False, **changes)
    is_ours_alone = rule in OURS_ALONE or "crid" in changes
    if rule == "currency":
        is_ours_alone = changes.get("top", {}).get("cur") in asked.get("cur", [])
    elif rule == "response":
        is_ours_alone |= "top" in changes  # no bid
    assert (broken and broken.rule) == (None if is_ours_alone else rule), broken


@pytest.mark.parametrize(("asked", "changes"), GOOD)
def test_answers_we_may_give_any_bidder_may_give(asked: Document, changes: Document) -> None:
    assert judge(request(**asked), ours=False, **changes) is None


def other(asked: Document, **bid: Any) -> BrokenRule | None:
    """The rule broken by another bidder's answer with what OpenRTB requires, and this."""
    required = {"id": "1", "impid": "1 a", "price": 1.0, "adomain": ["shop.example"]}
    body = json.dumps({"id": "auction-1", "seatbid": [{"bid": [required | bid]}]}).encode()
    strict = parse(body)
    assert isinstance(strict, BrokenRule)
    assert strict.rule == "response"
    answer = parse(body, ours=False)
    assert not isinstance(answer, BrokenRule)
    limits = request_limits(decode(json.dumps(asked).encode()), RATES)
    return check(answer, "auction-1", limits, ours=False)


def test_other_bidders_may_omit_fixed_fields() -> None:
    one = {"banner": {"w": 300, "h": 250}}
    two = {"banner": {"w": 300, "h": 250, "format": [{"w": 320, "h": 50}]}}
    assert other(request(imp=one), adm="<p>") is None
    assert other(request(imp=one), nurl="http://bid.example/markup") is None
    assert other(request(imp=one | {"video": {}}), adm="<p>") is None
    for imp, stated, rule in (
        (two, {"adm": "<p>"}, "size"),
        (one, {}, "adm"),
        (one, {"adm": "<p>", "price": 0.5}, "price"),
        (one, {"adm": "<p>", "w": 320, "h": 50}, "size"),
        (one, {"adm": "<p>", "mtype": 2}, "media"),
    ):
        broken = other(request(imp=imp), **stated)
        assert broken is not None
        assert broken.rule == rule


@pytest.mark.parametrize(
    ("cur", "bidfloor", "floor_currency", "price", "currency", "rule"),
    [
        (["USD", "EUR"], 1.0, "EUR", 1.0, "EUR", None),
        (["USD", "EUR"], 1.0, "EUR", 0.999999, "EUR", "price"),
        (["EUR", "GBP"], 1.0, "GBP", 1.0, "GBP", None),
        (["USD", "jpy"], 1.0, "USD", 80.0, "JPY", "price"),
        (["USD", "XXX"], 1.0, "XXX", 1.0, "XXX", None),
        (["USD", "XXX"], 1.0, "XXX", 0.9, "XXX", "price"),
        (["USD", "XXX"], 1.0, "USD", 9.0, "XXX", "price"),
        (["USD", "XXX"], 0.0, "USD", 0.1, "XXX", None),
        (["USD", "EUR"], 0.0, "USD", 9.0, "GBP", "currency"),
    ],
)
def test_other_bidders_may_use_any_accepted_currency(
    cur: list[str], bidfloor: float, floor_currency: str, price: float, currency: str,
    rule: str | None,
) -> None:  # fmt: skip
    asked = request(cur=cur, imp={"bidfloor": bidfloor, "bidfloorcur": floor_currency})
    broken = judge(asked, ours=False, price=price, top={"cur": currency})
    assert (broken and broken.rule) == rule, broken


@pytest.mark.parametrize(
    "body",
    [
        b'{"id": ',
        b'{"id": "\xff"}',
        b'{"id": "auction-1", "ext": %b%b}' % (b"[" * 20_000, b"]" * 20_000),
    ],
    ids=["cut short", "not UTF-8", "nested too deeply"],
)
def test_an_answer_that_is_not_json(body: bytes) -> None:
    broken = parse(body)
    assert isinstance(broken, BrokenRule)
    assert broken.rule == "json"
