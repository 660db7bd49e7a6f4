"""The product decides as the plain bidder of `support.oracle` does, which shares no code with it.

A case is a set of campaigns and one request; the product gets both as JSON, the request as bytes.
Where several answers are right (ties, several creatives), the product gives one of them.
"""

import random
from collections import Counter
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from support import matching_cases, oracle, oracle_spending, oracle_values, strategies
from support.agreement import assert_agrees, decided
from support.oracle_reading import read_impression, read_request
from support.snapshot import AROUND, layered_snapshot, snapshot_of_world

from snapbid.bidding._bid_path import NoBid, propose
from snapbid.bidding.limits import ledger_bids
from snapbid.bidding.request import decode
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog._index import Index
from snapbid.catalog.payload import decode_payload


@given(case=strategies.cases(around=AROUND))
@settings(max_examples=400)
def test_the_product_agrees_with_the_plain_bidder(case: strategies.Case) -> None:
    assert_agrees(case.world, snapshot_of_world(case.world), case.descriptor, case.request)


@pytest.mark.parametrize(
    ("campaigns", "worlds", "requests"),
    [(1, 200, 10), (60, 8, 40), pytest.param(700, 2, 60, marks=pytest.mark.long)],
)
def test_agreement_over_many_random_requests(campaigns: int, worlds: int, requests: int) -> None:
    """700 campaigns are more than one block of the index; test_pairs.py has many worlds of 8."""
    for seed in range(worlds):
        world = strategies.random_world(seed, campaigns, AROUND)
        made = snapshot_of_world(world)
        rng = random.Random(f"requests {seed}")
        for _ in range(requests):
            ssp, request = strategies.random_request(rng, world)
            assert_agrees(world, made, ssp, request)


@pytest.mark.parametrize(
    ("campaigns", "worlds", "requests"),
    [pytest.param(8, 100, 20, marks=pytest.mark.long), (1100, 1, 40)],
)
def test_agreement_over_an_overlay(campaigns: int, worlds: int, requests: int) -> None:
    """A world whose campaigns are partly as they were before: replaced, paused, added, deleted."""
    for seed in range(worlds):
        world = strategies.random_world(seed, campaigns, AROUND)
        rng = random.Random(f"overlay {seed}")
        made = overlaid(rng, world)
        whole = snapshot_of_world(world)
        for _ in range(requests):
            ssp, request = strategies.random_request(rng, world)
            assert_agrees(world, made, ssp, request)
            if request["imp"]:  # of several right answers the same one
                assert decided(world, made, ssp, request) == decided(world, whole, ssp, request)
            for imp in request["imp"][:1]:
                assert_every_eligible_is_given(world, made, ssp, request, imp)


def test_costs_of_random_bids() -> None:
    """What the ledger is told of each bid; the answer has the price alone."""
    multiplied = 0
    for seed in range(120):
        world = strategies.random_world(seed, 12, AROUND)
        made = snapshot_of_world(world)
        rng = random.Random(f"costs {seed}")
        now_ms = round(world.now.timestamp() * 1000)
        for _ in range(20):
            ssp, request = strategies.random_request(rng, world)
            if rng.random() < 0.5:  # the kind whose impressions may stand for several
                request = {name: request[name] for name in request if name not in ("site", "app")}
                request["dooh"] = {}
            proposal = propose(decode(msgspec.json.encode(request)), ssp, made, now_ms)
            if isinstance(proposal, NoBid):
                continue
            inventory = read_request(world, ssp, request).values["inventory"]
            imps = {str(oracle_values.text(imp["id"])): imp for imp in request["imp"]}
            for bid, (imp_id, _, cost, _) in zip(
                proposal.bids, ledger_bids(proposal.bids), strict=True
            ):
                price = bid.template.price_micros
                assert cost == oracle_spending.cost(inventory, imps[imp_id.decode()], price)
                multiplied += cost != price
    assert multiplied > 20


def overlaid(rng: random.Random, world: oracle.World) -> CatalogSnapshot:
    """The world's snapshot as a base of other campaigns under an overlay that makes up for it."""
    before = strategies.random_world(rng.randrange(10**6), len(world.campaigns), AROUND).campaigns
    base, changed, gone = [], [], []
    for was, now in zip(before, world.campaigns, strict=True):
        fate = rng.randrange(6)
        if fate == 0:  # in the base as it is
            base.append(now)
        elif fate == 1:  # replaced by something else altogether
            base.append(was)
            changed.append(now)
        elif fate == 2:  # only in the overlay
            changed.append(now)
        elif fate == 3:  # its price or its status alone has changed
            base.append({**now, "cpm": 77})
            changed.append(now)
        else:
            base.append(now)
            if fate == 4:  # deleted, and what was added beside it is deleted again
                base.append({**was, "id": f"old {was['id']}"})
                gone += [f"old {was['id']}", "never heard of"]
            elif now.get("status") != "paused":
                changed.append({**now, "status": "paused"})
                world.campaigns[world.campaigns.index(now)] = changed[-1]
    return layered_snapshot(world, base, changed, gone)


def test_ranks_of_two_layers() -> None:
    world = strategies.random_world(3, 3, AROUND)
    first, second, third = ({**c, "id": f"c{n}"} for n, c in enumerate(world.campaigns, 1))
    first, second, third = ({**c, "cpm": 4 - n} for n, c in enumerate((first, second, third), 1))
    added = {**third, "id": "c4", "cpm": 0.5, "frequency_caps": []}
    made = layered_snapshot(world, [first, second, third], [{**second, "cpm": 9}, added], ["c3"])
    index = made.catalog.index
    assert len(index) == 5
    ranks = [index.rank(id) for id in ("c1", "c2", "c3", "c4", "c5")]
    assert ranks == [0, 3, None, 4, None]
    assert [index.price(rank) for rank in (0, 3, 4)] == [3_000_000, 9_000_000, 500_000]
    assert [decode_payload(index.payload(rank)).cid for rank in (0, 3, 4)] == ["c1", "c2", "c4"]
    with pytest.raises(IndexError):
        index.payload(5)
    with pytest.raises(ValueError, match="not a campaign index"):
        Index(bytes(1000), b"")


def test_hidden_campaigns_stay_hidden() -> None:
    """Whatever is said of its rank in the base, which a budget that has money again names."""
    case = next(case for case in matching_cases.load(AROUND) if case.refused is None)
    campaign = case.world.campaigns[0]
    made = layered_snapshot(case.world, [campaign], [campaign], [])
    for rank, active, bids in ((1, False, False), (0, True, False), (1, True, True)):
        (made.core.refused.discard if active else made.core.refused.add)(rank)
        assert (decided(case.world, made, case.descriptor, case.request) != {}) is bids


def test_a_paused_campaign_stays_paused() -> None:
    case = next(case for case in matching_cases.load(AROUND) if case.refused is None)
    campaign = case.world.campaigns[0]
    made = layered_snapshot(case.world, [campaign], [{**campaign, "status": "paused"}], [])
    for rank in (0, 1):
        made.core.refused.discard(rank)
        assert decided(case.world, made, case.descriptor, case.request) == {}


@pytest.mark.parametrize("case", matching_cases.load(AROUND), ids=lambda case: case.name)
def test_the_product_agrees_on_the_examples(case: matching_cases.MatchingCase) -> None:
    assert_agrees(case.world, snapshot_of_world(case.world), case.descriptor, case.request)


def test_the_search_continues_in_price_order() -> None:
    """Every eligible campaign is given once: guaranteed deals first, then the dearest."""
    for seed in range(20):
        world = strategies.random_world(seed, 300, AROUND)
        made = snapshot_of_world(world)
        rng = random.Random(seed)
        for _ in range(5):
            ssp, request = strategies.random_request(rng, world)
            for imp in request["imp"]:
                assert_every_eligible_is_given(world, made, ssp, request, imp)


@pytest.mark.parametrize("share", [7, 40, 500])
def test_deals_below_the_floor(share: int) -> None:
    """Below it only their campaigns can answer, wherever in the index these are."""
    creative = {"id": "k", "media": "banner", "adm": "-", "w": 1, "h": 1}
    documents = [
        {"id": f"{n:04}", "advertiser": "b.example", "cpm": 1800 - n, "creatives": [creative]}
        for n in range(1600)
    ]
    for n in range(share // 2, 1600, share):
        documents[n]["targeting"] = {"deal": {"include": [("a", "b", "c")[n % 3]]}}
    world = strategies.random_world(1, 1, AROUND)
    world.campaigns[:] = documents
    made = snapshot_of_world(world)
    offers = (["a"], ["c", "b"], ["unknown"], ["a", "unknown", "c"])
    for offered, private in product(offers, (0, 1)):
        deals = [{"id": deal, "bidfloor": 400} for deal in offered]
        pmp = {"private_auction": private, "deals": deals}
        imp = {"id": "1", "banner": {"w": 1, "h": 1}, "bidfloor": 1700, "pmp": pmp}
        request = {"id": "r", "imp": [imp]}
        assert_every_eligible_is_given(world, made, next(iter(world.registry)), request, imp)


def assert_every_eligible_is_given(
    world: oracle.World, made: CatalogSnapshot, ssp: str, request: Any, imp: Any
) -> None:
    now_ms = round(world.now.timestamp() * 1000)
    request = {**request, "imp": [imp]}
    decoded = decode(msgspec.json.encode(request))
    index = made.catalog.index
    lookups = made.lookups.bidding_in(decoded.cur)
    query = index.query(lookups or made.lookups, decoded, ssp, world.registry[ssp], now_ms)
    assert decoded.imp is not None
    given_ids = []
    if query.impression(decoded.imp[0]) and lookups is not None:
        while (best := query.next()) is not None:
            given_ids.append(decode_payload(index.payload(best[0])).cid)
    facts = read_request(world, ssp, request)
    slot = read_impression(world, imp, facts)
    campaigns = {campaign["id"]: campaign for campaign in world.campaigns}
    order = [oracle.rank_of(slot, campaigns[id]) for id in given_ids]
    assert order == sorted(order, reverse=True)
    eligible = [
        campaign["id"]
        for campaign in world.campaigns
        if not any(oracle.rules(world, facts, slot, campaign))
    ]
    assert Counter(given_ids) == Counter(eligible)
