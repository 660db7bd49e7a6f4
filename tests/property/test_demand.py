"""Demand rules lose no bid: what they let an SSP drop, the product answers without one."""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from support import corpus, oracle, strategies
from support.agreement import decided
from support.demand_filter import may_drop
from support.matching_cases import campaign_of
from support.snapshot import AROUND, decide, parsed, snapshot_of, snapshot_of_world

from snapbid.base.errors import BadRequest
from snapbid.bidding._bid_path import NoBid
from snapbid.bidding.request import BidRequest, decode
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog.payload import decode_payload
from snapbid.partners.demand import clauses
from snapbid.partners.demand.clauses import AHEAD_MS, Clause, admits, ceiling, clauses_of, reduced
from snapbid.partners.demand.rules import DemandRules, rules_of
from snapbid.reference import rates
from snapbid.reference.geo import GeoDatabase
from workload import campaigns, pools


def clauses_for(
    documents: Iterable[Any], of: Mapping[str, str], now_ms: int
) -> list[tuple[Clause, int]]:
    return [
        clause
        for campaign in map(parsed, documents)
        if admits(campaign, of)
        for clause in clauses_of(campaign, now_ms)
    ]


def rules_of_world(world: oracle.World, ssp: str) -> DemandRules:
    now_ms = round(world.now.timestamp() * 1000)
    of = {ssp: world.registry[ssp]}
    return rules_of(ssp, reduced(clauses_for(world.campaigns, of, now_ms)), world.usd)


@pytest.mark.parametrize(
    ("starts", "ends", "counts"),
    [
        (AHEAD_MS, None, True),
        (AHEAD_MS + 1_000, None, False),
        (None, 0, False),
        (None, 1_000, True),
        (-1_000, 1_000, True),
    ],
)
def test_a_campaign_counts_from_before_its_start_to_its_end(
    starts: int | None, ends: int | None, counts: bool
) -> None:
    """Rules are renewed meanwhile, and an SSP may keep them for as long."""
    now = datetime(2026, 3, 4, 12, tzinfo=UTC)
    times = {
        name: (now + timedelta(milliseconds=offset)).isoformat()
        for name, offset in (("starts_at", starts), ("ends_at", ends))
        if offset is not None
    }
    campaign = campaign_of({"campaign": times})
    found = clauses_for([campaign], {"acme": "acme"}, round(now.timestamp() * 1000))
    assert bool(found) is counts


@pytest.mark.parametrize(
    ("micros", "shown"),
    [(1, 1), (999_999, 1_000_000), (1_000_000, 1_000_000), (1_000_001, 1_250_000),
     (8_000_000, 8_000_000), (8_000_001, 10_000_000)],
)  # fmt: skip
def test_prices_are_rounded_up_to_a_step(micros: int, shown: int) -> None:
    assert ceiling(micros) == shown


def test_redundant_clauses_are_dropped() -> None:
    """By each field: more values admit more, and any value the most."""
    some = frozenset[str | int]({"a"})
    one = Clause("banner", "1x1", some, some, some, some)
    for more, most in (
        (one._replace(inventories=some | {"b"}), one._replace(inventories=None)),
        (one._replace(countries=some | {"b"}), one._replace(countries=None)),
        (one._replace(devices=some | {"b"}), one._replace(devices=None)),
    ):
        for order in itertools.permutations([(one, 7), (more, 7), (most, 7)]):
            assert reduced(order) == {most: 7}
        assert reduced([(one, 7), (more, 7)]) == reduced([(more, 7), (one, 7)]) == {more: 7}
    assert reduced([(one, 8), (more, 7)]) == {one: 8, more: 7}  # up to another floor


@given(case=strategies.cases(around=AROUND))
@settings(max_examples=100)
def test_no_bid_of_a_random_world_is_dropped(case: strategies.Case) -> None:
    if may_drop(case.request, rules_of_world(case.world, case.descriptor)):
        made = snapshot_of_world(case.world)
        assert decided(case.world, made, case.descriptor, case.request) == {}


@pytest.mark.parametrize(("campaigns", "worlds", "requests"), [(2, 60, 15), (30, 5, 60)])
def test_no_bid_of_many_random_worlds_is_dropped(
    campaigns: int, worlds: int, requests: int
) -> None:
    dropped = limits = 0
    for seed in range(worlds):
        world = strategies.random_world(seed, campaigns, AROUND)
        made, rng = snapshot_of_world(world), random.Random(f"demand {seed}")
        by_ssp = {ssp: rules_of_world(world, ssp) for ssp in world.registry}
        for _ in range(requests):
            ssp, request = strategies.random_request(rng, world)
            if may_drop(request, by_ssp[ssp]):
                dropped += 1
                assert decided(world, made, ssp, request) == {}, request
            elif at_its_limit(request, decided(world, made, ssp, request)):
                assert decided(world, made, ssp, request) != {}
                assert not may_drop(request, by_ssp[ssp]), request
                limits += 1
    assert dropped > 20
    assert limits


@pytest.mark.parametrize("most", [0, 3, 20])
def test_merged_clauses_drop_only_what_the_clauses_do(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = 0
    for seed in range(30):
        world = strategies.random_world(seed, 30, AROUND)
        rng = random.Random(f"merged {seed}")
        exact = {ssp: rules_of_world(world, ssp) for ssp in world.registry}
        with monkeypatch.context() as patched:
            patched.setattr(clauses, "MOST", most)
            merged = {ssp: rules_of_world(world, ssp) for ssp in world.registry}
        for _ in range(60):
            ssp, request = strategies.random_request(rng, world)
            if may_drop(request, merged[ssp]):
                assert may_drop(request, exact[ssp]), request
                dropped += 1
    assert dropped


def at_its_limit(request: Any, offers: Mapping[str, oracle.Offer]) -> bool:
    """Raise the floors of impressions without deals to the prices they got."""
    for imp in request["imp"]:
        offer = offers.get(str(imp.get("id")))
        if offer is not None and "pmp" not in imp and request.get("cur") in (None, ["USD"]):
            imp |= {"bidfloor": offer.price_micros / 1_000_000, "bidfloorcur": "USD"}
            return True
    return False


def generated() -> Iterator[dict[str, Any]]:
    yield from corpus.Maker(7).requests(400)


def public() -> Iterator[dict[str, Any]]:
    yield from corpus.public_corpus().values()


@pytest.mark.parametrize("requests", [generated, public], ids=lambda requests: requests.__name__)
def test_half_of_the_unanswered_requests_are_dropped_and_no_bid(requests: Any) -> None:
    """With 1,000 campaigns, and after most of them have gone."""
    documents, ssp = list(campaigns.documents(1000)), "acme"
    asked = [request for request in requests() if read(request) is not None]
    if not asked:
        pytest.skip("there is no corpus of real requests")
    geo, now_ms, of = GeoDatabase(), 1_800_000_000_000, {ssp: pools.REGISTRY[ssp]}
    shares = []
    for kept in (documents, documents[500:550]):
        snapshot = snapshot_of(kept, pools.REGISTRY, rates.load(), geo)
        rules = rules_of(ssp, reduced(clauses_for(kept, of, now_ms)), rates.load().usd)
        silent = [request for request in asked if not answered(snapshot, ssp, request)]
        dropped = [request for request in asked if may_drop(request, rules)]
        assert all(request in silent for request in dropped)
        assert dropped
        shares.append(len(dropped) / len(silent))
    assert shares[0] >= 0.5, shares


@pytest.mark.parametrize("requests", [generated, public], ids=lambda requests: requests.__name__)
def test_rules_lose_no_bid_while_campaigns_change(requests: Any) -> None:
    """Old rules lose bids of campaigns that have changed since, alone: none once they are renewed.

    What ends, pauses or asks for more loses none at all.
    """
    rng, ssp, now_ms = random.Random(11), "acme", 1_800_000_000_000
    usd, of = rates.load().usd, {ssp: pools.REGISTRY[ssp]}
    asked = [request for request in requests() if read(request) is not None]
    if not asked:
        pytest.skip("there is no corpus of real requests")
    sizes = sorted({size for request in asked for size in sizes_of(request)})
    made = list(campaigns.documents(1040))
    standing = {document["id"]: document for document in made[:1000]}
    added = iter(made[1000:])
    geo, lost = GeoDatabase(), 0
    before: DemandRules | None = None
    for _ in range(6):
        changed, wider = set[str](), False
        if before is not None:
            changed, wider = change(rng, standing, added, sizes)
        snapshot = snapshot_of(standing.values(), pools.REGISTRY, rates.load(), geo)
        renewed = rules_of(ssp, reduced(clauses_for(standing.values(), of, now_ms)), usd)
        for request in asked:
            winners = set(campaigns_of(snapshot, ssp, request, now_ms))
            if winners:
                assert not may_drop(request, renewed), request
                if before is not None and may_drop(request, before):
                    assert wider
                    assert winners <= changed, request
                    lost += 1
        before = renewed
    assert lost, "no rule was ever too old, which shows nothing"


def sizes_of(request: Any) -> Iterator[tuple[int, int]]:
    """The sizes of banners that a request asks for."""
    for imp in request["imp"]:
        banner = imp.get("banner")
        for place in (banner, *(banner.get("format") or ())) if isinstance(banner, dict) else ():
            if isinstance(place, dict) and all(
                type(place.get(side)) is int and place[side] > 0 for side in "wh"
            ):
                yield place["w"], place["h"]


def change(
    rng: random.Random, standing: dict[str, Any], added: Iterator[Any], sizes: list[tuple[int, int]]
) -> tuple[set[str], bool]:
    """Change some campaigns; return which, and whether any may bid on more than before."""
    chosen = rng.sample(sorted(standing), 40)
    kind = rng.choice(("narrower", "wider", "wider"))
    for number, name in enumerate(chosen):
        document = standing[name]
        if kind == "narrower":
            if number % 3 == 0:
                del standing[name]
            elif number % 3 == 1:
                standing[name] = {**document, "status": "paused"}
            else:
                standing[name] = {**document, "cpm": round(document["cpm"] / 2, 6)}
        elif number % 3 == 0:
            standing[name] = {**document, "cpm": round(document["cpm"] * 10, 6)}
        elif number % 3 == 1:
            w, h = rng.choice(sizes)
            creative = {"id": "k", "media": "banner", "w": w, "h": h, "adm": "<p></p>"}
            standing[name] = {"id": name, "advertiser": "wide.example", "cpm": 900 + number,
                              "creatives": [creative]}  # fmt: skip
        else:
            standing[name] = {key: value for key, value in document.items() if key != "targeting"}
    if kind == "wider":
        extra = [document for document, _ in zip(added, range(4), strict=False)]
        standing.update((document["id"], document) for document in extra)
        chosen += [document["id"] for document in extra]
    return set(chosen), kind == "wider"


def campaigns_of(snapshot: CatalogSnapshot, ssp: str, request: Any, now_ms: int) -> Iterator[str]:
    """The campaigns that answer a request."""
    decoded = read(request)
    assert decoded is not None
    choices = decide(decoded, ssp, snapshot, now_ms)
    if not isinstance(choices, NoBid):
        for choice in choices:
            yield decode_payload(snapshot.catalog.index.payload(choice.rank)).cid


def read(request: Any) -> BidRequest | None:
    """Read a request; None if the bid endpoint would answer 400."""
    try:
        return decode(msgspec.json.encode(request))
    except BadRequest:
        return None


def answered(snapshot: CatalogSnapshot, ssp: str, request: Any) -> bool:
    """Whether there is a bid at any hour of the week that campaigns distinguish."""
    decoded = read(request)
    assert decoded is not None
    hours = (1_800_000_000_000 + hour * 3_600_000 for hour in range(0, 168, 4))
    return any(not isinstance(decide(decoded, ssp, snapshot, now), NoBid) for now in hours)
