"""20,000 requests over all limits, pair by pair: what is bid on, and what is not, is as it must be.

Two limits have met where both refuse the same campaign for the same impression.
"""

import random
from collections.abc import Iterator
from itertools import combinations, product

from support import oracle, strategies
from support.agreement import assert_agrees
from support.deciders import CREATIVE_RULES, LIMITS
from support.market import AROUND, market_of_world
from support.oracle_reading import Slot, read_request
from support.oracle_values import Document

Pair = tuple[str, str]

WORLDS, CAMPAIGNS, REQUESTS = 1000, 8, 20
OF_BANNERS = {"creative.size", "creative.btype"}
DURATIONS = {f"creative.{name}" for name in ("minduration", "maxduration", "rqddurs", "poddur")}
PRICES = {"creative.mincpmpersec", "creative.durfloors"}
OF_VIDEOS = {"creative.linearity", "creative.skip", "creative.player"}
TIMED = {"creative.protocols", "creative.duration.unknown", "creative.bitrate", "creative.delivery"}
TIMED |= DURATIONS | PRICES | OF_VIDEOS
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


def test_any_two_limits_have_met() -> None:
    met: set[Pair] = set()
    limits = {*LIMITS, *CREATIVE_RULES} - {"pod"}  # which depends on what other impressions got
    all_pairs = set(combinations(sorted(limits), 2))
    apart = {pair for one, other in SEPARATE for pair in pairs_of(one, other)} & all_pairs
    for number in range(WORLDS):
        world = strategies.random_world(number, CAMPAIGNS, AROUND)
        made = market_of_world(world)
        rng = random.Random(f"pairs {number}")
        for _ in range(REQUESTS):
            ssp, request = strategies.random_request(rng, world)
            answered = assert_agrees(world, made, ssp, request)
            facts = read_request(world, ssp, request)
            for slot in oracle.slots(world, facts, request, answered):
                for campaign in world.campaigns:
                    rules = set(oracle.rules(world, facts, slot, campaign))
                    for refusing in refusals(rules, slot, campaign):
                        met.update(combinations(sorted(refusing & limits), 2))
    assert sorted(met & apart) == []
    # The rarest meet once in some 60,000 requests.
    assert len(all_pairs - met - apart) <= len(all_pairs) // 100


def pairs_of(one: set[str], other: set[str]) -> Iterator[Pair]:
    return ((min(pair), max(pair)) for pair in product(one, other))


def refusals(rules: set[str], slot: Slot, campaign: Document) -> Iterator[set[str]]:
    """What refuses a campaign: its own rules, with those of each creative where none fits."""
    own = rules - set(CREATIVE_RULES)
    if own == rules:
        yield own
    else:
        creatives = campaign["creatives"]
        yield from (own | set(oracle.misfits(slot, campaign, each)) for each in creatives)
