"""The rule that `Query.explain` names is one of those by which the plain bidder refuses."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import pytest
from support import oracle, strategies
from support.oracle_reading import read_impression, read_request
from support.oracle_values import Document
from support.snapshot import AROUND, snapshot_of_world

from snapbid.bidding.request import decode
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog._builder import DIMENSIONS
from snapbid.catalog._index import FORMAT_DIMENSION, Query, Refusal

Explanation = tuple[int, int]

RULES = {
    "status": Refusal.REFUSED_INACTIVE,
    "starts_at": Refusal.REFUSED_TIME,
    "ends_at": Refusal.REFUSED_TIME,
    "frequency_caps.user": Refusal.REFUSED_USER,
    "bcat": Refusal.REFUSED_BLOCKED_CATEGORY,
    "acat": Refusal.REFUSED_BLOCKED_CATEGORY,
    "badv": Refusal.REFUSED_BLOCKED_ADVERTISER,
    "bapp": Refusal.REFUSED_BLOCKED_APP,
    "bseat": Refusal.REFUSED_SEAT,
    "wseat": Refusal.REFUSED_SEAT,
    "private_auction": Refusal.REFUSED_PRIVATE_AUCTION,
    "floor": Refusal.REFUSED_FLOOR,
    "deal.rate": Refusal.REFUSED_DEAL,
    "deal.wseat": Refusal.REFUSED_DEAL,
    "deal.wadomain": Refusal.REFUSED_DEAL,
    "deal.floor": Refusal.REFUSED_DEAL,
    "deal.mincpmpersec": Refusal.REFUSED_DEAL,
    "deal.durfloors": Refusal.REFUSED_DEAL,
    "targeting.geo_radius": Refusal.REFUSED_DISTANCE,
    "dsa": Refusal.REFUSED_DSA,
    "pod": Refusal.REFUSED_POD,
}
OF_FORMAT = {"creative.media", "creative.size"}
NATIVE = "creative.native"  # of the format, too, where the native request cannot be read
RIVALS: tuple[tuple[str, ...], ...] = ((), (), ("brand.example", "sub.shop.example"))
MOST_WORLDS = 300
ELSEWHERE = {"cur", "floor.rate"}  # refuse the request or the impression before any campaign


def explanations(rules: list[str], missed: list[list[str]]) -> Iterator[Explanation]:
    """What may be named where these rules refuse; `missed` are the misfits of each creative."""
    misfits = [set(names) for names in missed]
    for rule in rules:
        if rule.startswith("creative.") and {"creative.suspended"} in misfits:
            yield Refusal.REFUSED_SUSPENDED, -1
        elif rule.startswith("creative."):
            if all(each & {*OF_FORMAT, NATIVE} for each in misfits):
                yield Refusal.REFUSED_TARGETING, FORMAT_DIMENSION
            if not all(each & OF_FORMAT for each in misfits):
                yield Refusal.REFUSED_CREATIVE, -1
        elif rule in RULES:
            yield RULES[rule], -1
        else:
            yield Refusal.REFUSED_TARGETING, DIMENSIONS[rule.split(".")[1]]
    if not rules:
        yield Refusal.NOT_REFUSED, -1


def queries(
    world: oracle.World,
    made: CatalogSnapshot,
    ssp: str,
    request: Document,
    rivals: Sequence[str] = (),
) -> Iterator[tuple[Query, Document, list[tuple[int, Document]]]]:
    """Each impression that has a floor in USD: its query, and the campaigns with their ranks.

    `rivals`: advertisers that others of its pod have.
    """
    index = made.catalog.index
    now_ms = round(world.now.timestamp() * 1000)
    decoded = decode(msgspec.json.encode(request))
    lookups = made.lookups.bidding_in(decoded.cur) or made.lookups
    query = index.query(lookups, decoded, ssp, world.registry[ssp], now_ms)
    ranks = {campaign["id"]: index.rank(campaign["id"]) for campaign in world.campaigns}
    ranked = [(rank, c) for c in world.campaigns if (rank := ranks[c["id"]]) is not None]
    assert len(ranked) == len(world.campaigns)
    for imp, document in zip(decoded.imp or (), request["imp"], strict=False):
        if query.impression(imp, list(rivals)):
            yield query, document, ranked


@pytest.mark.parametrize(
    ("campaigns", "worlds", "requests"),
    [
        (8, 30, 10),
        pytest.param(8, 150, 10, marks=pytest.mark.long),
        pytest.param(600, 1, 20, marks=pytest.mark.long),
    ],
)
def test_named_rules_refuse(campaigns: int, worlds: int, requests: int) -> None:
    """In `worlds` worlds and, if they are small, in more until each rule has refused a campaign.

    A new dimension shifts all draws.
    """
    named: Counter[Explanation] = Counter()
    for seed in range(MOST_WORLDS):
        if seed >= worlds and (campaigns > 8 or not differing(named)):
            break
        world = strategies.random_world(seed, campaigns, AROUND)
        made = snapshot_of_world(world)
        rng = random.Random(f"explained {seed}")
        for _ in range(requests):
            ssp, request = strategies.random_request(rng, world)
            facts = read_request(world, ssp, request)
            rivals = frozenset(rng.choice(RIVALS))
            for query, imp, ranked in queries(world, made, ssp, request, [*rivals]):
                slot = replace(read_impression(world, imp, facts), rivals=rivals)
                for rank, campaign in ranked:
                    missed = oracle.all_misfits(slot, campaign)
                    rules = [*oracle.rules(world, facts, slot, campaign, missed)]
                    left = [rule for rule in rules if rule not in ELSEWHERE]
                    explained = query.explain(rank)
                    expected = set(explanations(left, missed))
                    assert explained in expected, (explained, left, campaign, request)
                    named[explained] += 1
    assert campaigns > 8 or not differing(named)


def differing(named: Counter[Explanation]) -> set[object]:
    """The rules and dimensions that have refused no campaign, and any that are unknown."""
    dimensions = {-1, FORMAT_DIMENSION, *DIMENSIONS.values()}
    return (set(Refusal) ^ {rule for rule, _ in named}) | (dimensions ^ {on for _, on in named})


def test_explaining_leaves_the_search_unchanged() -> None:
    for seed in range(30):
        world = strategies.random_world(seed, 60, AROUND)
        ssp, request = strategies.random_request(random.Random(seed), world)
        made = snapshot_of_world(world)
        given = [list(iter(query.next, None)) for query, _, _ in queries(world, made, ssp, request)]
        again = []
        for query, _, ranked in queries(world, made, ssp, request):
            order = []
            while (best := query.next()) is not None:
                order.append(best)
                for rank, _ in ranked:
                    query.explain(rank)
            again.append(order)
        assert again == given


def test_unexplainable_requests() -> None:
    world = strategies.random_world(1, 4, AROUND)
    made = snapshot_of_world(world)
    request = decode(b'{"id":"a","imp":[{"id":"1"}]}')
    query = made.catalog.index.query(made.lookups, request, "acme", "acme", 0)
    with pytest.raises(ValueError, match="no impression"):
        query.explain(0)
    assert request.imp is not None
    assert query.impression(request.imp[0])
    with pytest.raises(IndexError):
        query.explain(4)
