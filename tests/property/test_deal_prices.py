"""Prices by duration and guaranteed deals, dense: nothing else keeps a campaign from an impression.

The product decides as the plain bidder does, also where the campaigns are spread over two layers,
and gives every eligible campaign in the plain bidder's order.
"""

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from support import oracle, pools, strategies
from support.agreement import decided, disagreement
from support.choices import Choices
from support.oracle_reading import World, read_impression, read_request
from support.oracle_values import Document
from support.random_impressions import deal_of, timed_floors_of
from support.snapshot import AROUND, layered_snapshot, snapshot_of_world

from snapbid.bidding.request import decode
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog.payload import decode_payload

CUR: tuple[Any, ...] = (None, None, ["USD"], ["EUR"], ["JPY"])


def campaign_of(choices: Choices, number: int) -> Document:
    campaign: Document = {
        "id": f"c{number}",
        "advertiser": choices.pick(pools.ADVERTISERS),
        "cpm": choices.pick(pools.CPMS),
        "seat": choices.pick(pools.SEATS),
        "creatives": [creative_of(choices, f"k{n}") for n in range(choices.integer(1, 3))],
    }
    if choices.chance(70):
        campaign["targeting"] = {"deal": {"include": choices.some(pools.ENTRIES["deal"], 3)}}
    return campaign


def creative_of(choices: Choices, name: str) -> Document:
    media = choices.pick(("video", "video", "audio", "banner"))
    creative: Document = {"id": name, "media": media, "adm": "-"}
    if media == "banner":
        return {**creative, "w": 300, "h": 250}
    return {**creative, "duration": choices.pick(pools.DURATIONS)} | (
        {} if choices.chance(90) else {"duration": None}
    )


def imp_of(choices: Choices, name: str) -> Document:
    imp: Document = {"id": name, "video": timed_floors_of(choices, 40)}
    if choices.chance(50):
        imp["audio"] = timed_floors_of(choices, 40)
    if choices.chance(30):
        imp["banner"] = {"w": 300, "h": 250}
    imp["bidfloor"] = choices.pick((0, 0, 0.5, 2))
    imp["bidfloorcur"] = choices.pick(pools.CURRENCIES)
    deals = [deal_of(choices, id) for id in choices.some(pools.ENTRIES["deal"], 4, least=0)]
    for deal in deals:
        deal.update(timed_floors_of(choices, 40))
    imp["pmp"] = {"deals": deals, "private_auction": int(choices.chance(20))}
    return imp


def order_of(world: World, snapshot: CatalogSnapshot, request: Document) -> list[list[str]]:
    """The campaigns that the product gives for each impression, one after the other."""
    decoded = decode(msgspec.json.encode(request))
    index, order = snapshot.catalog.index, []
    lookups = snapshot.lookups.bidding_in(decoded.cur) or snapshot.lookups
    query = index.query(lookups, decoded, "acme", "acme", round(world.now.timestamp() * 1000))
    for imp in decoded.imp or ():
        given = list(iter(query.next, None)) if query.impression(imp) else []
        order.append([decode_payload(index.payload(rank)).cid for rank, _, _ in given])
    return order


@pytest.mark.parametrize(
    ("campaigns", "worlds", "requests"),
    [pytest.param(8, 60, 20, marks=pytest.mark.long), (40, 10, 20)],
)
def test_agreement(campaigns: int, worlds: int, requests: int) -> None:
    counts: Counter[str] = Counter()
    world = strategies.random_world(1, 1, AROUND)
    for seed in range(worlds):
        choices = Choices(random.Random(f"deals {seed}").randint)
        world.campaigns[:] = [campaign_of(choices, number) for number in range(campaigns)]
        base, changed = world.campaigns[::2], world.campaigns[1::2]
        snapshots = snapshot_of_world(world), layered_snapshot(world, base, changed, [])
        for _ in range(requests):
            request: Document = {"id": "r", "imp": [imp_of(choices, "1"), imp_of(choices, "2")]}
            request["cur"] = choices.pick(CUR)
            facts = read_request(world, "acme", request)
            wanted, ranks = {}, []
            for imp in request["imp"]:
                slot = read_impression(world, imp, facts)
                refused = [[*oracle.rules(world, facts, slot, each)] for each in world.campaigns]
                pairs = zip(world.campaigns, refused, strict=True)
                eligible = [campaign for campaign, rules in pairs if not rules]
                wanted[slot.id] = oracle.answers(slot, oracle.first_of(slot, eligible))
                ranks.append({each["id"]: oracle.rank_of(slot, each) for each in eligible})
                counts.update(rules[0] for rules in refused if len(rules) == 1)
                counts["guaranteed"] += any(
                    price > max(ranks[-1].values())[1] for _, price in ranks[-1].values()
                )
            for snapshot in snapshots:
                answers = decided(world, snapshot, "acme", request)
                assert disagreement(wanted, answers) is None, request
                for given, own in zip(order_of(world, snapshot, request), ranks, strict=True):
                    assert sorted(given) == sorted(own)
                    order = [own[id] for id in given]
                    assert order == sorted(order, reverse=True)
    for rule in ("deal.mincpmpersec", "deal.durfloors", "creative.mincpmpersec"):
        assert counts[rule] > 20, counts
    assert counts["creative.durfloors"] > 20
    assert counts["guaranteed"] > 20
