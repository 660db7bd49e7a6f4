"""Requests over all rules: what is bid on, and what is not, is as it must be.

There are more of them until every dimension and every limit is among what decided, and any two
limits have met; some 14,000. Dimensions that have not decided yet are given to campaigns.
"""

import random
from collections.abc import Iterator
from itertools import combinations, product

from support import pools, strategies
from support.agreement import campaigns_of, decided, disagreement
from support.choices import Choices
from support.deciders import CREATIVE_RULES, LIMITS, SIDES, Deciders, Pair
from support.oracle import World
from support.snapshot import AROUND, snapshot_of_world

WORLDS, MOST_WORLDS = 500, 5000  # the more until each rule has decided
BY_CHANCE = 100  # worlds, before what is missing is sought
SOUGHT = 4  # missing dimensions, each given to a campaign
CAMPAIGNS, REQUESTS = 8, 20
OF_BANNERS = {"creative.size", "creative.btype"}
DURATIONS = {f"creative.{name}" for name in ("minduration", "maxduration", "rqddurs", "poddur")}
PRICES = {"creative.mincpmpersec", "creative.durfloors"}
OF_VIDEOS = {"creative.linearity", "creative.skip", "creative.player"}
TIMED = {"creative.protocols", "creative.duration.unknown", "creative.bitrate", "creative.delivery"}
TIMED |= {"creative.ads"} | DURATIONS | PRICES | OF_VIDEOS
DEALS = {"deal.rate", "deal.wseat", "deal.wadomain", "deal.floor"}
DEAL_PRICES = {"deal.mincpmpersec", "deal.durfloors"}
SEPARATE = (  # what is in one set never meets what is in the other
    ({"starts_at"}, {"ends_at"}),  # a flight begins before it ends
    ({"floor"}, {"floor.rate"}),
    (DEALS | DEAL_PRICES, {"floor", "private_auction"}),  # a deal's floor replaces the impression's
    (DEALS, DEALS | DEAL_PRICES),  # the first that leaves none of the deals refuses
    (DEAL_PRICES, set(CREATIVE_RULES)),  # a deal's are looked at for creatives that fit
    ({"creative.media"}, set(CREATIVE_RULES)),
    (OF_BANNERS, TIMED | {"creative.native"}),
    ({"creative.native"}, TIMED | {"creative.mimes"}),
    ({"creative.duration.unknown"}, DURATIONS),
)


def test_agreement_over_all_rules_and_pairs_of_limits() -> None:
    limits = {*LIMITS, *CREATIVE_RULES} - {"pod"}  # which depends on what other impressions got
    all_pairs = set(combinations(sorted(limits), 2))
    apart = {pair for first, second in SEPARATE for pair in pairs_of(first, second)} & all_pairs
    # The rarest meet once in some 60,000 requests.
    never_met = len(all_pairs) // 100
    deciders = Deciders()
    for seed in range(MOST_WORLDS):
        unmet = all_pairs - deciders.met - apart
        if seed >= WORLDS and len(unmet) <= never_met and not deciders.missing(least=2):
            break
        world = strategies.random_world(seed, CAMPAIGNS, AROUND)
        rng = random.Random(f"requests {seed}")
        if seed >= BY_CHANCE:
            seek(deciders.missing(least=2), world, Choices(rng.randint))
        made = snapshot_of_world(world)
        for _ in range(REQUESTS):
            ssp, request = strategies.random_request(rng, world)
            answers = decided(world, made, ssp, request)
            wanted = deciders.observe(world, ssp, request, campaigns_of(answers))
            assert disagreement(wanted, answers) is None
    assert deciders.missing(least=2) == []
    assert deciders.counts["bid"] > 1000
    assert deciders.counts["no bid"] > 1000
    assert sorted(deciders.met & apart) == []
    assert len(all_pairs - deciders.met - apart) <= never_met


def seek(missing: list[str], world: World, choices: Choices) -> None:
    """Let some of the campaigns have no targeting but a dimension that is missing."""
    names = [name.removeprefix("held ") for name in missing]
    sides = [name for name in names if name in SIDES][:SOUGHT]
    for campaign, side in zip(world.campaigns, sides, strict=False):
        _, dimension, way = side.split(".")
        pool = pools.ENTRIES[dimension] or pools.hours(world.now)
        campaign["targeting"] = {dimension: {way: choices.some(pool)}}


def pairs_of(first: set[str], second: set[str]) -> Iterator[Pair]:
    return ((min(pair), max(pair)) for pair in product(first, second))
