"""From a request to the values that the matcher compares: where each is read from (contract 3)."""

import json
import math
import tracemalloc
from datetime import date
from fractions import Fraction
from itertools import product
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.snapshot import builder_of, members_of_pools

from snapbid.bidding.lookups import NO_RATE, STRUCTS, TABLES, UNREACHABLE, Lookups, Memo
from snapbid.bidding.request import Banner, BidRequest, Device, Geo, Imp, Regs, RegsExt, decode
from snapbid.campaigns import vocabulary
from snapbid.campaigns.campaign import Campaign, Creative
from snapbid.campaigns.domains import host, hosts_in
from snapbid.campaigns.persons import is_placeholder
from snapbid.catalog._builder import DIMENSIONS
from snapbid.catalog._index import Index, Query
from snapbid.catalog._request import Reader
from snapbid.reference.rates import Rates
from snapbid.reference.taxonomies import categories_of

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


VALUES: Document = {
    "country": "NLD", "region": "NLD-x", "os": "tizen", "browser": "opera", "language": "xx",
    "inventory": "dooh", "hour": 0, "device_type": 99, "connection": 99, "position": 99,
    "placement": 99, "rewarded": 1, "interstitial": 1,
}  # fmt: skip


def index(*dimensions: str, **members: Any) -> Index:
    """The index of one campaign, which has an entry in each of these dimensions."""
    targeting = {name: {"exclude": [VALUES.get(name, "none")]} for name in dimensions}
    if targeting.pop("product", None):
        members["product"] = "none"
    creative = {"id": "k", "media": "banner", "w": 1, "h": 1, "adm": "-"}
    common = {"id": "c", "advertiser": "brand.example", "cpm": 1, "creatives": [creative]}
    return Index(builder_of([{**common, "targeting": targeting, **members}]).build())


EVERYTHING = index(*DIMENSIONS)


def query(document: Document, index: Index = EVERYTHING, family: str = "acme") -> Query:
    """The query of a request with one impression, which is set."""
    made = decode(json.dumps({"id": "a", "imp": [{"id": "1"}], **document}).encode())
    assert made.imp is not None
    lookups = Lookups(Addresses(), RATES, members=members_of_pools())
    started = index.query(lookups, made, f"{family}-eu", family, 77)
    assert started.impression(made.imp[0])
    return started


def carried(document: Document) -> Document:
    """What the request carries, by the names of the dimensions; [] where it carries nothing."""
    values = query(document).carried()
    return {name: values.get(number, []) for name, number in DIMENSIONS.items()}


GEO = {"country": "us", "region": "CA", "city": "Oakland", "zip": 94601, "lat": 37.8, "lon": -122.2}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, {"ssp": ["acme-eu", "acme"], "hour": [72], "inventory": [], "segment": []}),
        ({"device": {"geo": GEO}}, {"country": ["USA"], "region": ["usa-ca"], "city": ["oakland"]}),
        ({"device": {"geo": GEO}}, {"postal": ["94601"]}),
        ({"user": {"geo": GEO}}, {"country": ["USA"], "region": ["usa-ca"], "postal": ["94601"]}),
        ({"device": {"geo": {"country": "TST"}}, "user": {"geo": GEO}}, {"city": ["oakland"]}),
        ({"device": {"geo": {"city": "x"}}, "user": {"geo": {"city": "y"}}}, {"city": ["x"]}),
        ({"device": {"geo": {"city": "STRAßE"}}}, {"city": ["strasse"]}),
        ({"device": {"ip": "192.0.2.1"}}, {"country": ["FRA"], "region": []}),
        ({"device": {"ip": "192.0.2.1", "geo": {"region": "idf"}}}, {"region": ["fra-idf"]}),
        ({"device": {"ip": "192.0.2.2", "ipv6": "2001:db8::1"}}, {"country": ["JPN"]}),
        ({"device": {"geo": {"region": "CA"}}}, {"country": [], "region": []}),
        ({"device": {"geo": {"country": "USA", "region": "US-CA"}}}, {"region": ["usa-ca"]}),
        ({"device": {"geo": {"country": "USA", "region": 7}}}, {"region": ["usa-7"]}),
        ({"device": {"geo": {**GEO, "region": "É" * 70}}}, {"region": ["usa-" + "é" * 70]}),
        ({"device": {"geo": {**GEO, "region": "A" * 70}}}, {"region": ["usa-" + "a" * 70]}),
        ({"device": {"devicetype": 4, "connectiontype": "2"}}, {"device_type": [4]}),
        ({"device": {"devicetype": -1, "connectiontype": "2"}}, {"device_type": []}),
        ({"device": {"devicetype": 2**70, "connectiontype": "2"}}, {"connection": [2]}),
        ({"device": {"os": "iPhone OS"}}, {"os": ["ios"], "browser": []}),
        ({"device": {"ua": IPHONE}}, {"os": ["ios"], "browser": ["safari"]}),
        ({"device": {"ua": IPHONE, "os": "Android"}}, {"os": ["android"], "browser": ["safari"]}),
        ({"device": {"ua": "nonesuch"}}, {"os": ["other"], "browser": ["other"]}),
        ({"device": {"ua": ""}}, {"os": [], "browser": []}),
        ({"device": {"carrier": "Jio"}}, {"carrier": ["jio"]}),
        ({"device": {"carrier": 46001}}, {"carrier": ["46001"]}),
        ({"device": {"carrier": "x" * 600}}, {"carrier": []}),
        ({"device": {"language": "EN-us", "langb": "de"}}, {"language": ["en"]}),
        ({"device": {"langb": "pt-BR"}}, {"language": ["pt"]}),
        ({"device": {"language": 0, "langb": "pt"}}, {"language": ["pt"]}),
        ({"site": {}}, {"inventory": ["site"], "domain": []}),
        ({"site": {}, "app": {}, "dooh": {}}, {"inventory": ["site", "app", "dooh"]}),
        ({"dooh": {}}, {"inventory": ["dooh"]}),
        ({"site": {"domain": "A.b.example"}}, {"domain": ["a.b.example", "b.example", "example"]}),
        ({"site": {"domain": "A.example."}}, {"domain": ["a.example", "example"]}),
        ({"site": {"page": "b.example/x"}}, {"domain": ["b.example", "example"]}),
        ({"site": {"domain": "", "page": "http://b"}}, {"domain": ["b"]}),
        ({"site": {"domain": "a.b", "page": "http://b.example"}}, {"domain": ["a.b", "b"]}),
        ({"site": {"domain": "a", "page": "http://b.c"}}, {"domain": ["b.c", "c"]}),
        ({"site": {"domain": "a", "page": "http://b"}}, {"domain": ["a"]}),
        ({"site": {"domain": 7}}, {"domain": ["7"]}),
        ({"app": {"bundle": 284882215}}, {"bundle": ["284882215"]}),
        (
            {k: {"publisher": {"id": k}} for k in ("dooh", "app", "site")},
            {"publisher": ["site", "app", "dooh"]},
        ),
        (
            {"site": {"cat": ["1-2"], "sectioncat": [2], "pagecat": ["3"]}, "app": {"cat": ["4"]}},
            {"category": ["1-2", "1", "2", "3", "4"]},
        ),
        (
            {"user": {"data": [{}, {"segment": [{"id": "s"}, {"id": 5}, {}]}]}},
            {"segment": ["s", "5"]},
        ),
        (
            {"imp": [{"id": "1", "banner": {"pos": 1}, "video": {"pos": 3, "placement": 5},
                      "native": {"plcmttype": 4}, "rwdd": 1}]},
            {"position": [1, 3], "placement": [5, "n4"], "rewarded": [1], "interstitial": [0]},
        ),
        (
            {"imp": [{"id": "1", "pmp": {"deals": [{"id": 7, "wseat": ["x"]}, {"id": "d"}]}}]},
            {"deal": ["7", "d"]},
        ),
    ],
)  # fmt: skip
def test_sources_of_values(document: Document, expected: Document) -> None:
    values = carried(document)
    assert {name: values[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("geo", "expected"),
    [
        ({"lat": 37.8, "lon": -122.2}, (37.8, -122.2)),
        ({"lat": 1, "lon": 2}, (1, 2)),
        ({"lat": -90, "lon": 180}, (-90, 180)),
        ({"lat": 91, "lon": 1}, None),
        ({"lat": 1, "lon": -181}, None),
        ({"lat": 1}, None),
        ({"lat": "nan", "lon": 1}, None),
        ({}, None),
    ],
)
def test_request_location(geo: Document, expected: tuple[float, float] | None) -> None:
    assert query({"device": {"geo": geo}}).point == expected


URLS = st.one_of(
    st.from_regex(r"[A-Za-z0-9._-]{0,20}", fullmatch=True),
    st.from_regex(r"(https?://)?[a-zA-Z0-9.é_-]{0,12}(:[0-9]{1,4})?(/[a-z]*)?", fullmatch=True),
    st.text(max_size=12),
)


@given(URLS)
def test_hosts_are_those_of_the_vocabulary(url: str) -> None:
    plain = unquote(url)
    named = host(url) or host(plain)
    hosts = [named] if named else hosts_in(plain)
    labels = [name.split(".") for name in hosts]
    expected = [".".join(each[place:]) for each in labels for place in range(len(each))]
    assert carried({"site": {"domain": url}})["domain"] == expected


@example("AA\x1b")
@example("AAAA")
@example("unknown")
@example("nan")  # Min Nan Chinese
@example("\u00a0en")
@given(st.one_of(st.from_regex(r"[A-Za-z]{0,10}([-_].{0,4})?", fullmatch=True), st.text()))
def test_languages_are_those_of_the_vocabulary(text: str) -> None:
    start = vocabulary.trimmed(text)[:4]
    is_word = len(start) == 4 and start.isalpha()  # longer than any code
    expected = None if is_word and is_placeholder(text) else vocabulary.primary_subtag(text)
    language = carried({"device": {"language": text}})["language"]
    assert language == ([] if expected is None else [expected])


@given(st.one_of(st.from_regex(r"[A-Za-z0-9-]{0,8}", fullmatch=True), st.text()))
def test_regions_are_those_of_the_vocabulary(text: str) -> None:
    expected = vocabulary.region("USA", text) if text else None
    region = carried({"device": {"geo": {"country": "US", "region": text}}})["region"]
    assert region == ([] if expected is None else [expected])


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
    document = {"user": {"data": [{"segment": [{"id": "s"}]}], "geo": GEO}}
    values = carried({**document, **signals})
    assert (values["segment"], values["postal"]) == ([], [])
    assert (values["country"], values["region"], values["city"]) == (
        ["USA"],
        ["usa-ca"],
        ["oakland"],
    )
    assert query({**document, **signals}).point is None
    assert carried(document)["segment"] == ["s"]
    assert carried(document)["postal"] == ["94601"]
    assert query(document).point is not None


def test_the_matcher_and_the_lookups_agree_on_all_signals() -> None:
    texts = (None, "", "1YNN", "1YYN", "none")
    options: list[dict[str, Any]] = [
        *({"gdpr": gdpr, "us_privacy": text} for gdpr in (None, 0, 1) for text in texts),
        *({"coppa": coppa} for coppa in (0, 1, True)),
        *({"gpc": gpc} for gpc in (0, 1, True)),
        *({"gpp_sid": sids} for sids in ([], [-1], [2], [5], [7])),
        *({"gpp": gpp} for gpp in ("", "DBABLA~BVVqAAAAAgA", "DBABLA~BVVqAAAAAgA.YA")),
    ]
    lookups, judged = Lookups(Addresses(), RATES), set()
    for own, old in product(options, [None, *options]):
        regs = Regs(**own, ext=None if old is None else RegsExt(**old))
        made = BidRequest(id="a", imp=[], device=Device(geo=Geo(lat=1.0, lon=1.0)), regs=regs)
        allowed = lookups.may_use_user_data(made)
        assert allowed == (not lookups.objections(made))
        started = EVERYTHING.query(lookups, made, "acme", "acme", 0)
        assert (started.point is not None) == allowed, regs
        judged.add(allowed)
    assert judged == {True, False}


def test_an_overlong_source_of_eids_is_not_folded() -> None:
    """Its case would cost as much for each of a thousand ids as the source is long."""
    eid = {"source": "S" * 200_000, "uids": [{"id": str(number)} for number in range(1000)]}
    made = decode(json.dumps({"id": "a", "imp": [{"id": "1"}], "user": {"eids": [eid]}}).encode())
    lookups = Lookups(Addresses(), RATES, members=members_of_pools())
    tracemalloc.start()
    try:
        EVERYTHING.query(lookups, made, "acme", "acme", 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


CAPS = [{"impressions": 1, "seconds": 60}]


def test_users_are_recognised_where_a_campaign_has_caps() -> None:
    person: Document = {"user": {"id": "u"}}
    assert query(person, index(frequency_caps=CAPS)).user == "user acme u"
    assert query(person, index()).user is None
    assert query({**person, "regs": {"coppa": 1}}, index(frequency_caps=CAPS)).user is None


@pytest.mark.parametrize(
    ("person", "is_one"),
    [
        ({"user": {"id": "1001"}}, False),  # an id of the SSP's own
        ({"user": {"buyeruid": "b"}}, True),
        ({"device": {"ifa": "4906e7ca-29bd-4bb5-9f73-2f1d47f9b0ab"}}, True),
        ({"user": {"eids": [{"source": "s.example", "uids": [{"id": "e"}]}]}}, True),
    ],
)
def test_users_of_two_ssps(person: Document, is_one: bool) -> None:
    capped = index(frequency_caps=CAPS)
    names = [query(person, capped, family).user for family in ("acme", "nova")]
    assert None not in names
    assert (names[0] == names[1]) is is_one


def test_look_ups_are_left_out_where_no_campaign_needs_them() -> None:
    addresses = Addresses()
    request = decode(
        json.dumps(
            {"id": "a", "imp": [{"id": "1"}], "device": {"ip": "192.0.2.1", "ua": IPHONE}}
        ).encode()
    )
    lookups = Lookups(addresses, RATES)
    values = index("city").query(lookups, request, "acme", "acme", 0).carried()
    assert (values, addresses.asked) == ({}, [])
    values = index("country").query(lookups, request, "acme", "acme", 0).carried()
    assert values == {DIMENSIONS["country"]: ["FRA"]}
    assert set(addresses.asked) == {"192.0.2.1"}


FLOORS = [
    (None, None, 0),
    (0, "VND", 0),
    (-1, "USD", 0),
    (-math.inf, "VND", 0),
    (math.nan, "VND", UNREACHABLE),
    (math.nan, "USD", UNREACHABLE),
    (1.5, None, 1_500_000),
    (1.5, "", 1_500_000),
    (1.5, "USD", 1_500_000),
    (1.0, "EUR", 1_100_000),
    (1.0, "eur", 1_100_000),
    (1.0, "XTS", 333_334),
    (0.0000001, "USD", 1),
    (0.1, "VND", NO_RATE),
    (math.inf, "USD", UNREACHABLE),
    (math.inf, "VND", UNREACHABLE),
    (1e300, "USD", UNREACHABLE),
]


@pytest.mark.parametrize(("amount", "currency", "micros"), FLOORS)
def test_floors(amount: float | None, currency: str | None, micros: int) -> None:
    assert Lookups(Addresses(), RATES).floor_micros(amount, currency) == micros
    assert answers_at(micros, amount, currency)
    assert micros <= 0 or not answers_at(micros - 1, amount, currency)


@given(
    st.one_of(
        st.floats(0, 1e12),
        st.integers(0, 10**12).map(lambda micros: micros / 10**6),
        st.decimals(0, 1000, places=7).map(float),
    ),
    st.sampled_from([None, "", "USD", "usd", "EUR", "XTS"]),
)
def test_floors_are_rounded_as_rates_do(amount: float, currency: str | None) -> None:
    micros = Lookups(Addresses(), RATES).floor_micros(amount, currency)
    assert answers_at(micros, amount, currency)
    assert micros <= 0 or not answers_at(micros - 1, amount, currency)


def answers_at(price_micros: int, amount: float | None, currency: str | None) -> bool:
    """Whether a campaign of this price answers an impression with this floor. NO_RATE: whether the
    impression is left out.
    """
    request = BidRequest(id="a", imp=[])
    imp = Imp(id="1", bidfloor=amount, bidfloorcur=currency)
    of = index_at(price_micros)
    started = of.query(Lookups(Addresses(), RATES), request, "acme", "acme", 0)
    if not started.impression(imp):
        return price_micros == NO_RATE
    imp.banner = Banner(w=1, h=1)
    started.impression(imp)
    return started.next() is not None


def index_at(price_micros: int) -> Index:
    builder = builder_of([])
    creative = Creative("k", "banner", "x", 1, 1)
    campaign = Campaign(
        id="c", advertiser="a.example", cpm_micros=price_micros, creatives=(creative,)
    )
    builder.put(campaign, b"", categories_of(1, ()), ("a.example", "example"), {})
    return Index(builder.build())


def test_memos_keep_short_texts_and_are_bounded() -> None:
    asked: list[str] = []

    def upper(text: str) -> str:
        asked.append(text)
        return text.upper()

    memo = Memo(upper, 2)
    assert [memo[text] for text in ("a", "b", "a", "c", "a")] == ["A", "B", "A", "C", "A"]
    assert asked == ["a", "b", "c", "a"]
    assert memo["x" * 300] == "X" * 300
    assert len(memo) == 2


def test_foreign_classes_are_refused() -> None:
    lookups = Lookups(Addresses(), RATES)
    request = BidRequest(id="a", imp=[])
    request.device = Imp()  # type: ignore[assignment]
    with pytest.raises(TypeError, match="Imp instead of Device"):
        EVERYTHING.query(lookups, request, "acme", "acme", 0)
    with pytest.raises(TypeError, match="Device instead of BidRequest"):
        EVERYTHING.query(lookups, Device(), "acme", "acme", 0)
    started = EVERYTHING.query(lookups, BidRequest(id="a", imp=[]), "acme", "acme", 0)
    with pytest.raises(TypeError, match="Device instead of Imp"):
        started.impression(Device())
    with pytest.raises(TypeError, match="not a decoded Imp"):
        started.impression(None)
    with pytest.raises(ValueError, match="no structs"):
        EVERYTHING.query(SimpleNamespace(reader=Reader.__new__(Reader)), request, "acme", "acme", 0)


def test_the_fields_that_are_read_are_those_of_the_structs() -> None:
    """Offsets come from the names of the classes and their fields, whatever the order."""
    tables: Any = ({}, {}, {}, {}, *TABLES)
    own = SimpleNamespace(reader=Reader(STRUCTS[::-1], *tables))
    started = EVERYTHING.query(own, BidRequest(id="a", badv=["x.example"]), "acme", "acme", 0)
    assert started.carried()[DIMENSIONS["ssp"]] == ["acme"]
    others = tuple(struct for struct in STRUCTS if struct is not BidRequest)
    without_id = type("BidRequest", (), {"id": None})
    with pytest.raises(TypeError, match="BidRequest has no member id to read"):
        Reader((without_id, *others), *tables)
    without_fields = type("BidRequest", (), {})
    with pytest.raises(TypeError, match="BidRequest has no member id to read"):
        Reader((without_fields, *others), *tables)
    for structs in ((), others, (type("Other", (), {}), *others)):
        with pytest.raises(ValueError, match="not the structs"):
            Reader(structs, *tables)


def test_an_impression_without_a_rate_is_left_out() -> None:
    made = decode(
        b'{"id":"a","imp":[{"id":"1","bidfloor":1,"bidfloorcur":"VND"},'
        b'{"id":"2","bidfloor":0,"bidfloorcur":"VND"}]}'
    )
    started = EVERYTHING.query(Lookups(Addresses(), RATES), made, "acme", "acme", 0)
    assert [started.impression(imp) for imp in made.imp or ()] == [False, True]
    assert started.impression((made.imp or [])[0]) is False
    assert started.next() is None
