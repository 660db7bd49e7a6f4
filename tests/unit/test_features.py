"""From a request to the values that the matcher takes: where each is read from (contract 3)."""

import json
import math
from datetime import date
from fractions import Fraction
from typing import Any

import pytest

from snapbid.exchange.features import (
    NO_RATE,
    UNREACHABLE,
    ImpressionFeatures,
    References,
    RequestFeatures,
    accepts_usd,
    floor_micros,
    read_impression,
    read_request,
)
from snapbid.exchange.request import decode
from snapbid.reference.rates import Rates

Document = dict[str, Any]
RATES = Rates({"USD": Fraction(1), "EUR": Fraction(11, 10), "XTS": Fraction(1, 3)}, date.today())
IPHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 "
    "(KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1"
)


class Addresses:
    """A geo database of two addresses that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def country(self, ip: str) -> str | None:
        self.asked.append(ip)
        return {"192.0.2.1": "FRA", "2001:db8::1": "JPN"}.get(ip)


def features(document: Document, **needs: Any) -> RequestFeatures:
    request = decode(json.dumps({"id": "a", "imp": [{"id": "1"}], **document}).encode())
    return read_request(request, "acme-eu", "acme", 77, References(Addresses(), RATES, **needs))


def impression(imp: Document) -> ImpressionFeatures | None:
    request = decode(json.dumps({"id": "a", "imp": [{"id": "1", **imp}]}).encode())
    return read_impression((request.imp or [])[0], RATES)


GEO = {"country": "us", "region": "CA", "city": "Oakland", "zip": 94601, "lat": 37.8, "lon": -122.2}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, {"auction": "a", "now_ms": 77, "ssp": "acme-eu", "canonical": "acme"}),
        ({"device": {"geo": GEO}}, {"country": "USA", "region": "usa-ca", "city": "Oakland"}),
        ({"device": {"geo": GEO}}, {"postal": 94601, "lat": 37.8, "lon": -122.2}),
        ({"user": {"geo": GEO}}, {"country": "USA", "region": "usa-ca", "lat": 37.8}),
        ({"device": {"geo": {"country": "TST"}}, "user": {"geo": GEO}}, {"city": "Oakland"}),
        ({"device": {"geo": {"city": "x"}}, "user": {"geo": {"city": "y"}}}, {"city": "x"}),
        ({"device": {"ip": "192.0.2.1"}}, {"country": "FRA", "region": None}),
        ({"device": {"ip": "192.0.2.1", "geo": {"region": "idf"}}}, {"region": "fra-idf"}),
        ({"device": {"ip": "192.0.2.2", "ipv6": "2001:db8::1"}}, {"country": "JPN"}),
        ({"device": {"geo": {"region": "CA"}}}, {"country": None, "region": None}),
        ({"device": {"geo": {"lat": 91, "lon": 1}}}, {"lat": None, "lon": None}),
        ({"device": {"geo": {"lat": 1}}}, {"lat": None, "lon": None}),
        ({"device": {"geo": {"lat": "nan", "lon": 1}}}, {"lat": None, "lon": None}),
        ({"device": {"geo": {"lat": -90, "lon": 180}}}, {"lat": -90, "lon": 180}),
        ({"device": {"devicetype": 4, "connectiontype": "2"}}, {"device_type": 4, "connection": 2}),
        ({"device": {"os": "iPhone OS"}}, {"os": "ios", "browser": None}),
        ({"device": {"ua": IPHONE}}, {"os": "ios", "browser": "safari"}),
        ({"device": {"ua": IPHONE, "os": "Android"}}, {"os": "android", "browser": "safari"}),
        ({"device": {"ua": "nonesuch"}}, {"os": "other", "browser": "other"}),
        ({"device": {"ua": ""}}, {"os": None, "browser": None}),
        ({"device": {"carrier": "Jio"}}, {"carrier": "Jio"}),
        ({"device": {"language": "EN-us", "langb": "de"}}, {"language": "en"}),
        ({"device": {"langb": "pt-BR"}}, {"language": "pt"}),
        ({"site": {}}, {"inventory": ["site"], "domain": None}),
        ({"site": {}, "app": {}, "dooh": {}}, {"inventory": ["site", "app", "dooh"]}),
        ({"dooh": {}}, {"inventory": ["dooh"]}),
        ({"app": {}, "dooh": {}}, {"inventory": ["app", "dooh"]}),
        ({}, {"inventory": []}),
        ({"site": {"domain": "A.example."}}, {"domain": "a.example"}),
        ({"site": {"page": "b.example/x"}}, {"domain": "b.example"}),
        ({"site": {"domain": "a.example", "page": "http://b.example"}}, {"domain": "a.example"}),
        ({"app": {"bundle": 284882215}}, {"bundle": 284882215}),
        (
            {k: {"publisher": {"id": k}} for k in ("dooh", "app", "site")},
            {"publishers": ["site", "app", "dooh"]},
        ),
        (
            {"site": {"cat": ["1"], "sectioncat": ["2"], "pagecat": ["3"]}, "app": {"cat": ["4"]}},
            {"categories": ["1", "2", "3", "4"]},
        ),
        (
            {"user": {"data": [{}, {"segment": [{"id": "s"}, {"id": 5}]}]}},
            {"segments": ["s", 5]},
        ),
        ({"bcat": ["a"], "badv": ["b"]}, {"bcat": ["a"], "badv": ["b"]}),
        ({"bapp": ["c"], "bseat": ["d"]}, {"bapp": ["c"], "bseat": ["d"]}),
        ({"wseat": ["", None, "s"]}, {"wseat": ["s"]}),
        ({"wseat": [""]}, {"wseat": []}),
    ],
)
def test_where_values_are_read_from(document: Document, expected: Document) -> None:
    found = features(document)._asdict()
    assert {name: listed(found[name]) for name in expected} == expected


def listed(value: Any) -> Any:
    """Any sequence as a list."""
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    "signals",
    [
        {"regs": {"coppa": 1}},
        {"regs": {"gdpr": 1}},
        {"regs": {"ext": {"gdpr": 1}}},
        {"regs": {"us_privacy": "1YYN"}},
        {"regs": {"ext": {"us_privacy": "1YYN"}}},
        {"regs": {"gpp": "DBAA", "gpp_sid": [7]}},
        {"regs": {"ext": {"gpp": "DBAA", "gpp_sid": [7]}}},
        {"regs": {"gdpr": None, "ext": {"gdpr": 1}}},
    ],
)
def test_user_data_is_withheld(signals: Document) -> None:
    user = {"data": [{"segment": [{"id": "s"}]}], "geo": GEO}
    found = features({"user": user, **signals})
    assert (list(found.segments), found.postal, found.lat, found.lon) == ([], None, None, None)
    assert (found.country, found.region, found.city) == ("USA", "usa-ca", "Oakland")
    assert features({"user": user}).segments == ["s"]


def test_2_6_comes_before_2_5() -> None:
    user = {"data": [{"segment": [{"id": "s"}]}]}
    assert features({"user": user, "regs": {"gdpr": 0, "ext": {"gdpr": 1}}}).segments
    assert not features({"user": user, "regs": {"gdpr": 1, "ext": {"gdpr": 0}}}).segments


def test_look_ups_are_left_out_where_no_campaign_needs_them() -> None:
    addresses = Addresses()
    request = decode(
        json.dumps(
            {"id": "a", "imp": [{"id": "1"}], "device": {"ip": "192.0.2.1", "ua": IPHONE}}
        ).encode()
    )
    none = References(addresses, RATES, needs_geo=False, needs_os=False, needs_browser=False)
    found = read_request(request, "acme", "acme", 0, none)
    assert (found.country, found.os, found.browser, addresses.asked) == (None, None, None, [])
    read_request(request, "acme", "acme", 0, References(addresses, RATES))
    assert addresses.asked == ["192.0.2.1"]


@pytest.mark.parametrize(
    ("amount", "currency", "micros"),
    [
        (None, None, 0),
        (0, "VND", 0),
        (-1, "USD", 0),
        (-math.inf, "VND", 0),
        (math.nan, "VND", 0),
        (1.5, None, 1_500_000),
        (1.5, "", 1_500_000),
        (1.5, "USD", 1_500_000),
        (1, "EUR", 1_100_000),
        (1, "eur", 1_100_000),
        (1, "XTS", 333_334),
        (0.0000001, "USD", 1),
        (0.1, "VND", NO_RATE),
        (math.inf, "USD", UNREACHABLE),
        (math.inf, "VND", UNREACHABLE),
        (1e300, "USD", UNREACHABLE),
    ],
)
def test_floors(amount: float | None, currency: str | None, micros: int) -> None:
    assert floor_micros(amount, currency, RATES) == micros


@pytest.mark.parametrize(
    ("cur", "accepted"),
    [
        *((yes, True) for yes in (None, [], [""], [None], ["USD"], ["usd"], ["EUR", "USD"])),
        *((no, False) for no in (["EUR"], [7])),
    ],
)
def test_currencies(cur: Any, accepted: bool) -> None:
    assert accepts_usd(cur) is accepted


def test_impressions() -> None:
    found = impression({})
    assert found is not None
    assert found._asdict() == {
        "floor_micros": 0,
        "secure": False,
        "private": False,
        "positions": (),
        "sizes": None,
        "banner_battr": None,
        "video": None,
        "audio": None,
        "native": False,
        "deals": None,
    }


@pytest.mark.parametrize(
    ("imp", "expected"),
    [
        ({"bidfloor": 1, "bidfloorcur": "EUR"}, {"floor_micros": 1_100_000}),
        ({"secure": True}, {"secure": True}),
        ({"secure": 2}, {"secure": False}),
        ({"pmp": {"private_auction": 1}}, {"private": True, "deals": None}),
        ({"banner": {"pos": 1}, "video": {"pos": 3}}, {"positions": (1, 3)}),
        ({"banner": {"w": 2, "h": 3}}, {"sizes": [2 << 24 | 3]}),
        ({"banner": {"format": [{"w": 2, "h": 3}, {"w": 1}]}}, {"sizes": [2 << 24 | 3]}),
        ({"banner": {"w": 0, "h": 3}}, {"sizes": []}),
        ({"banner": {"w": -2, "h": 3}}, {"sizes": []}),
        ({"banner": {"w": 2**24, "h": 3}}, {"sizes": []}),
        ({"banner": {"battr": [3]}}, {"banner_battr": [3]}),
        ({"native": {}}, {"native": True}),
        (
            {"video": {"mimes": ["", "a"], "protocol": 2, "minduration": 5, "battr": [1]}},
            {"video": (["a"], [2], 5, None, [1])},
        ),
        ({"video": {"protocols": [None], "protocol": 2}}, {"video": (None, [2], None, None, None)}),
        ({"video": {"protocols": [3], "protocol": 2}}, {"video": (None, [3], None, None, None)}),
        (
            {"audio": {"mimes": ["a"], "protocols": [9, None], "maxduration": 30}},
            {"audio": (["a"], [9], None, 30, None)},
        ),
        (
            {"pmp": {"deals": [{"id": 7, "bidfloor": 1, "bidfloorcur": "EUR", "wseat": [""]}]}},
            {"deals": [(7, 1_100_000, [], None)]},
        ),
        (
            {"pmp": {"deals": [{"id": "d", "bidfloor": 1, "bidfloorcur": "VND"}]}},
            {"deals": [("d", NO_RATE, None, None)]},
        ),
    ],
)
def test_what_impressions_ask_for(imp: Document, expected: Document) -> None:
    found = impression(imp)
    assert found is not None
    assert {name: getattr(found, name) for name in expected} == expected


def test_an_impression_without_a_rate_is_left_out() -> None:
    assert impression({"bidfloor": 1, "bidfloorcur": "VND"}) is None
    assert impression({"bidfloor": 0, "bidfloorcur": "VND"}) is not None
