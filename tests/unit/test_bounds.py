"""What is looked at of a request (contract 3, "What a request may cost is bounded")."""

import asyncio
import json
import time
from math import inf
from typing import Any

import pytest
from support.client import LocalApp
from support.matching_cases import campaign_of
from support.snapshot import AROUND, RATES, Geo, decide, layered_snapshot, snapshot_of
from support.strategies import random_world

from snapbid.base.errors import BadRequest
from snapbid.bidding import tolerance
from snapbid.bidding._bid_path import NoBid, propose, search
from snapbid.bidding.reasons import Reason
from snapbid.bidding.request import decode
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.operations.explain.overview import Explanation, MatchableRequest, explain, read

BANNER: dict[str, Any] = {"banner": {"w": 300, "h": 250}}
SLOW = 3000  # campaigns that are candidates, and refused one by one


def bid_on(campaign: dict[str, Any], request: dict[str, Any]) -> list[str]:
    """The impressions that get a bid."""
    snapshot = snapshot_of([campaign_of({"campaign": campaign})], {"acme": "acme"}, RATES, Geo())
    body = {"id": "a", "imp": [{"id": "1", **BANNER}], **request}
    choices = decide(decode(json.dumps(body).encode()), "acme", snapshot, 0)
    return [] if isinstance(choices, NoBid) else [str(choice.imp.id) for choice in choices]


def targeting(dimension: str, *values: str) -> dict[str, Any]:
    return {"targeting": {dimension: {"include": list(values)}}}


def test_impressions_are_read_up_to_100() -> None:
    imps = [{"id": str(number), **BANNER} for number in range(5000)]
    assert bid_on({}, {"imp": imps}) == [str(number) for number in range(100)]


@pytest.mark.parametrize("tolerant", [False, True])
def test_descriptive_lists_are_read_to_a_limit(tolerant: bool) -> None:
    more: dict[str, Any] = {"dooh": {"publisher": []}} if tolerant else {}

    def bids(campaign: dict[str, Any], request: dict[str, Any]) -> bool:
        return bid_on(campaign, {**more, **request}) == ["1"]

    def formats(count: int) -> dict[str, Any]:
        fillers = [{"w": 1, "h": 1}] * (count - 1)
        return {"imp": [{"id": "1", "banner": {"format": [*fillers, {"w": 300, "h": 250}]}}]}

    def deals(count: int) -> dict[str, Any]:
        offered = [{"id": str(number)} for number in range(1, count + 1)]
        return {"imp": [{"id": "1", **BANNER, "pmp": {"deals": offered}}]}

    def segments(count: int) -> dict[str, Any]:
        return {"user": {"data": [{"segment": [{"id": n} for n in range(1, count + 1)]}]}}

    assert [bids({}, formats(count)) for count in (100, 101)] == [True, False]
    for dimension, of in (("deal", deals), ("segment", segments)):
        wants = targeting(dimension, "1000", "1001")
        assert [bids(targeting(dimension, "1001"), of(count)) for count in (1000, 5000)] == [
            False,
            False,
        ]
        assert bids(wants, of(5000)), dimension
    for count, expected in ((1000, True), (1001, False)):
        listed = ["x", None, ""] * (count - 1)
        assert (
            bids(targeting("category", "IAB7"), {"site": {"cat": [*listed, "IAB7-1"]}}) is expected
        )


@pytest.mark.parametrize("tolerant", [False, True])
@pytest.mark.parametrize(
    ("name", "value"), [("bcat", "IAB7"), ("badv", "brand.example"), ("bapp", "b"), ("bseat", "s")]
)
def test_limiting_lists_are_read_whole(name: str, value: str, tolerant: bool) -> None:
    more: dict[str, Any] = {"dooh": {"publisher": []}} if tolerant else {}
    campaign = {"categories": ["IAB7-1"], "bundle": "b", "seat": "s"}
    fillers = [*range(9000), *map(str, range(9000)), None, ""]
    if name == "bcat":  # what is no category refuses by itself
        fillers = [*(["IAB1", "IAB-8-1"] * 9000), None, ""]
    assert bid_on(campaign, {**more, name: fillers}) == ["1"]
    assert bid_on(campaign, {**more, name: [*fillers, value]}) == []


def test_the_seats_and_advertisers_of_a_deal_are_read_whole() -> None:
    campaign = {"seat": "s", **targeting("deal", "d")}
    fillers = [str(number) for number in range(9000)]
    for more, expected in (
        ({"wseat": [*fillers, "s"]}, ["1"]),
        ({"wseat": fillers}, []),
        ({"wadomain": [*fillers, "EXAMPLE"]}, ["1"]),
        ({"wadomain": fillers}, []),
        ({"wseat": [None, "", "s"], "wadomain": ["brand.example", "brand.example"]}, ["1"]),
    ):
        imp = {"id": "1", **BANNER, "pmp": {"deals": [{"id": "d", **more}]}}
        assert bid_on(campaign, {"imp": [imp]}) == expected
    imp = {"id": "1", **BANNER, "pmp": {"deals": [{"id": "d", "wseat": ["x"]}]}}
    assert bid_on(targeting("deal", "d"), {"imp": [imp]}) == []


def test_many_blocked_domains_beyond_ascii_are_read_or_nothing_is_bid() -> None:
    """They take 20 times as long as others, but what an SSP sends with each request is kept."""
    snapshot = snapshot_of([campaign_of({})], {"acme": "acme"}, RATES, Geo())

    def answer(badv: list[str]) -> Any:
        body = {"id": "a", "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}], "badv": badv}
        found = search(decode(json.dumps(body).encode()), "acme", snapshot, 0, inf, inf)
        return found.reason if isinstance(found, NoBid) else len(found.choices)

    others = [f"m\xfcller{n}.example" for n in range(3_000)]
    own = str(campaign_of({})["advertiser"])
    assert answer(others[:300]) == 1
    assert answer([*others[:300], own]) == Reason.NO_CAMPAIGN
    assert answer(others) == Reason.CUT_SHORT
    for _ in range(12):
        last = answer(others)
    assert last == 1
    assert answer([*others, own]) == Reason.NO_CAMPAIGN


def test_overlong_texts_do_not_count() -> None:
    for length, expected in ((512, ["1"]), (513, [])):
        name = "x" * (length - 8) + ".example"
        for dimension in ("city", "carrier", "bundle", "publisher"):
            wants = {"targeting": {dimension: {"exclude": ["other"], "include": [name[:512]]}}}
            request = {
                "device": {"carrier": name, "geo": {"city": name.upper()}},
                "app": {"bundle": name, "publisher": {"id": name}},
            }
            assert bid_on(wants, request) == expected, dimension
        for site in ({"domain": name}, {"page": f"https://{name}:80/x{'y' * 9000}"}):
            assert bid_on(targeting("domain", "example"), {"site": site}) == expected
        language = "en-" + "x" * (length - 3)
        assert bid_on(targeting("language", "en"), {"device": {"language": language}}) == expected
        category = "IAB7-" + "1" * (length - 5)
        assert bid_on(targeting("category", "IAB7"), {"site": {"cat": [category]}}) == expected
    page = f"https://{'u' * 3000}@site.example/"
    assert bid_on(targeting("domain", "example"), {"site": {"page": page}}) == []
    long = {"domain": "a." * 65_000 + "example", "page": "https://b.example/"}
    assert bid_on(targeting("domain", "b.example"), {"site": long}) == ["1"]


@pytest.mark.parametrize(("length", "user"), [(512, True), (513, False)])
def test_overlong_user_ids_do_not_count(length: int, user: bool) -> None:
    capped = {"frequency_caps": [{"impressions": 1, "seconds": 60}]}
    for where in (
        {"user": {"id": "uv" * 250 + "w" * (length - 500)}},
        {"user": {"buyeruid": "uv" * 250 + "w" * (length - 500)}},
        {"device": {"ifa": "fa" * 250 + "0" * (length - 500)}},
        {"user": {"eids": [{"uids": [{"id": "\u00e9" * (length - 257) + "\u00e8"}]}]}},
        {"user": {"eids": [{"source": "s" * length, "uids": [{"id": "u"}]}]}},
        {"user": {"eids": [{"uids": [{"id": ""}] * (length + 488) + [{"id": "u"}]}]}},
    ):
        expected = ["1"] if user else []
        if "\u00e9" in str(where):
            expected = ["1"] if len("\u00e9" * (length - 256)) * 2 <= 512 else []
        if "''" in str(where):
            expected = ["1"] if length + 488 < 1000 else []
        assert bid_on(capped, where) == expected, str(where)[:60]


def slow_snapshot() -> CatalogSnapshot:
    """Campaigns that all pass the rows, and that `bcat` refuses one by one."""
    blocked = [
        campaign_of({"campaign": {"id": f"{n:04}", "cpm": 5, "categories": ["IAB1"]}})
        for n in range(SLOW)
    ]
    return snapshot_of([*blocked, campaign_of({})], {"acme": "acme"}, RATES, Geo())


def slow_request(impressions: int = 3) -> dict[str, Any]:
    imps = [{"id": str(number), **BANNER} for number in range(impressions)]
    return {"id": "a", "imp": imps, "bcat": ["IAB1"]}


@pytest.mark.parametrize(("left_s", "processor_s"), [(0, inf), (inf, 0)])
def test_a_search_stops_at_its_deadline(left_s: float, processor_s: float) -> None:
    snapshot, request = slow_snapshot(), decode(json.dumps(slow_request()).encode())
    assert isinstance(decide(request, "acme", snapshot, 0), list)
    decision = search(request, "acme", snapshot, 0, left_s, processor_s)
    assert decision == NoBid(Reason.CUT_SHORT, undecided=3)
    proposal = propose(request, "acme", snapshot, 0, left_s, processor_s)
    assert proposal == decision


def test_impressions_decided_in_time_are_answered() -> None:
    """The clock is looked at between impressions."""
    snapshot = snapshot_of([campaign_of({})], {"acme": "acme"}, RATES, Geo())
    request = decode(json.dumps({**slow_request(100), "bcat": []}).encode())
    decision = search(request, "acme", snapshot, 0, 0)
    assert not isinstance(decision, NoBid)
    decided = len(decision.choices)
    assert 0 < decided < 100
    assert decision.query.undecided == 100 - decided
    decision.query.allow(inf, inf)  # as a replacement is
    assert decision.query.impression(decision.choices[0].imp)
    assert decision.query.next() is not None


def test_bidding_stops_at_the_deadline() -> None:
    snapshot = snapshot_of([campaign_of({})], {"acme": "acme"}, RATES, Geo())
    request = decode(json.dumps({**slow_request(3), "bcat": []}).encode())
    proposal = propose(request, "acme", snapshot, 0, 0)
    assert not isinstance(proposal, NoBid)
    assert (len(proposal.bids), proposal.undecided) == (1, 2)


def test_time_off_the_processor_does_not_count() -> None:
    snapshot = snapshot_of([campaign_of({})], {"acme": "acme"}, RATES, Geo())
    decision = search(decode(json.dumps(slow_request(1)).encode()), "acme", snapshot, 0)
    assert not isinstance(decision, NoBid)
    decision.query.allow(inf, 0.002)
    time.sleep(0.02)
    assert decision.query.has_time()


def test_overlay_and_base_share_one_deadline() -> None:
    world = random_world(1, 1, AROUND)
    blocked = [
        campaign_of({"campaign": {"id": f"{n:04}", "cpm": 5, "categories": ["IAB1"]}})
        for n in range(SLOW)
    ]
    answering = campaign_of({"campaign": {"cpm": 4}})
    for base, overlay in ((blocked, [answering]), ([answering], blocked)):
        snapshot = layered_snapshot(world, base, overlay, [])
        request = decode(json.dumps(slow_request()).encode())
        ssp = next(iter(world.registry))
        assert isinstance(decide(request, ssp, snapshot, 0), list)
        assert search(request, ssp, snapshot, 0, 0) == NoBid(Reason.CUT_SHORT, undecided=3)


def test_cut_short_searches_are_counted_and_explained(fresh_redis: str) -> None:
    snapshot, body = slow_snapshot(), json.dumps(slow_request(120)).encode()
    with LocalApp(snapshot, fresh_redis, processor_ms=0) as app:
        assert app.bid(body).status == 204
        name = "snapbid_bid_requests_total"
        assert app.counted(name, ssp="acme", outcome="cut_short") == 1
        assert app.counted("snapbid_bid_cut_short_total", ssp="acme") == 100
        single = json.dumps({**slow_request(1), "bcat": []}).encode()
        assert app.bid(single).status == 200
    told = explained(snapshot, body, cpu_ms=0)
    assert (told.status, told.reason, told.left_out) == (204, "no bid (cut_short)", 20)
    assert len(told.impressions) == 100
    assert all(each.summary.startswith("cut_short: ") for each in told.impressions)
    assert explained(snapshot, body, cpu_ms=1000).status == 200


def explained(snapshot: CatalogSnapshot, body: bytes, cpu_ms: int) -> Explanation:
    async def look(auction: bytes, bids: list[Any], user: str | None) -> str:
        return "k" * len(bids)

    async def documents(ids: object) -> dict[str, Any]:
        return {}

    asked = read(body, "acme", snapshot, 0, 1 << 20)
    assert isinstance(asked, MatchableRequest)
    return asyncio.run(explain(asked, snapshot, look, documents, cpu_ms))


@pytest.mark.parametrize("tmax", ["1" * 400, "-" + "1" * 400, "1e400", "2147483648", "0", "1e19"])
def test_a_tmax_out_of_range_counts_as_absent(fresh_redis: str, tmax: str) -> None:
    snapshot = snapshot_of([campaign_of({})], {"acme": "acme"}, RATES, Geo())
    body = b'{"id":"a","tmax":%b,"imp":[{"id":"1","banner":{"w":300,"h":250}}]}' % tmax.encode()
    with LocalApp(snapshot, fresh_redis) as app:
        assert app.bid(body).status == 200


def test_a_body_with_too_much_to_convert_is_refused() -> None:
    """Tolerance takes Python a microsecond a value."""
    for values, accepted in ((tolerance.MAX_STEPS // 5, True), (tolerance.MAX_STEPS, False)):
        lists: list[object] = [[]] * values
        for more in (
            {"bcat": [1.5] * values},
            {"regs": {"gpp_sid": [True] * values}},
            {"bcat": [1.5], "unknown": lists},
        ):
            body = json.dumps({"id": "a", "imp": [{"id": "1"}], **more}).encode()
            if accepted:
                assert decode(body).id == "a"
            else:
                with pytest.raises(BadRequest, match=r"too many values to convert|too many lists"):
                    decode(body)


def test_enormous_integers() -> None:
    large = "9" * 4301
    body = '{"id":"a","imp":[{"id":"1","bidfloor":%s}],"tmax":%s,"bapp":[%s]}'
    assert decode((body % (large, large, "1,2")).encode()).bapp == [1, 2]
    many = ",".join(["7"] * (tolerance.MAX_STEPS + 1))
    with pytest.raises(BadRequest, match="too many integers"):
        decode((body % (large, large, many)).encode())


def test_values_out_of_range_in_a_body_of_many_values() -> None:
    """Python's decoder takes them, at ten times the time of the other."""
    body = '{"id":"a","imp":[{"id":"1","bidfloor":"1"}],"tmax":%s,"unknown":[%s]}'
    for large in ("1e400", "9" * 5_000):
        for values, accepted in ((15_000, True), (25_000, False)):
            sent = (body % (large, ",".join(["1.5"] * values))).encode()
            if accepted:
                assert decode(sent).id == "a"
            else:
                with pytest.raises(BadRequest, match="too many"):
                    decode(sent)
    assert decode((body % ("1.5", ",".join(["1.5"] * 50_000))).encode()).id == "a"
