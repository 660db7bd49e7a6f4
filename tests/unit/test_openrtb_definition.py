"""The judge of answers by the IAB's definition can say no, and for the right reason."""

from typing import Any

import pytest
from support.openrtb import MESSAGES, SCALARS, resolve, violations

BID: dict[str, Any] = {"id": "b", "impid": "1", "price": 2, "adomain": ["a.example"], "attr": [1]}
RESPONSE: dict[str, Any] = {"id": "a", "seatbid": [{"bid": [BID]}], "cur": "USD"}
DSA: dict[str, Any] = {"behalf": "B", "paid": "P", "adrender": 1,
                       "transparency": [{"domain": "a.example", "dsaparams": [1]}]}  # fmt: skip


def response(**bid: Any) -> dict[str, Any]:
    return RESPONSE | {"seatbid": [{"bid": [BID | bid], "seat": "s"}]}


@pytest.mark.parametrize(
    "good", [RESPONSE, response(ext={"dsa": DSA, "own": {}}), response(mtype=1, w=300, dur=15)]
)
def test_valid_answers_pass(good: Any) -> None:
    assert [*violations(good)] == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ([], "$ must be an object"),
        ({**RESPONSE, "id": 1}, "$.id must be string"),
        ({**RESPONSE, "seatbid": []}, "$.seatbid must be a list with entries"),
        ({"seatbid": [{}]}, "$.seatbid[0].bid is required"),
        (response(price="2"), "$.seatbid[0].bid[0].price must be double"),
        (response(w=300.0), "bid[0].w must be int32"),
        (response(mtype=True), "bid[0].mtype must be int32"),
        (response(adomain="a.example"), "bid[0].adomain must be a list with entries"),
        (response(attr=["1"]), "bid[0].attr[0] must be int32"),
        (response(adomains=["a"]), "bid[0].adomains is unknown"),
        (response(ext={"dsa": DSA | {"adrender": 2}}), "bid[0].ext.dsa.adrender must be 0 or 1"),
        (response(ext={"dsa": DSA | {"transparency": [{"domain": 1}]}}), "domain must be string"),
        (response(ext={"dsa": DSA | {"other": 1}}), "dsa.other is unknown"),
    ],
)
def test_invalid_answers_fail(wrong: Any, why: str) -> None:
    assert why in " ".join(violations(wrong))


def test_native_answers() -> None:
    link = {"url": "https://a.example/"}
    asset = {"id": 1, "title": {"text": "T"}}
    assert [*violations({"ver": "1.2", "link": link, "assets": [asset]}, "NativeResponse")] == []
    wrong = {"link": {}, "assets": [{"id": "1", "img": {"w": 1}}], "eventtrackers": [{"event": 1}]}
    assert [*violations(wrong, "NativeResponse")] == [
        "$.link.url is required",
        "$.assets[0].id must be int32",
        "$.assets[0].img.url is required",
        "$.eventtrackers[0].method is required",
    ]


def test_all_types_are_defined() -> None:
    assert {"BidResponse.Bid", "Transparency", "NativeResponse.Asset"} <= MESSAGES.keys()
    unknown = {
        field.type
        for message, fields in MESSAGES.items()
        for field in fields.values()
        if field.type not in SCALARS and resolve(field.type, message) not in MESSAGES
    }
    assert {name for name in unknown if "google.protobuf" not in name} == set()
