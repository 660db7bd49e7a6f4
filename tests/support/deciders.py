"""Counts which rules decided over a run of random requests, and which of them met.

A rule decides if it alone refuses a campaign, or if it admits one that another value would have
refused. `Deciders.counts` has, for instance, `targeting.city.include` (alone refused),
`held targeting.city.include` (an eligible campaign has it), `privacy.gdpr` (it alone withheld user
data, and the eligible campaigns would be others with it), `tie`, `dealid` and `no bid`.

Two rules have met where both refuse the same campaign for the same impression, or the same creative
of a campaign of which none fits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from support.oracle import (
    Document,
    Offer,
    World,
    all_misfits,
    answers,
    first_of,
    micros,
    offered,
    rules,
    slots,
)
from support.oracle_reading import Slot, privacy_inputs, read_request
from support.pools import ENTRIES

CREATIVE_RULES = (
    *("creative.media", "creative.secure", "creative.battr", "creative.size", "creative.mimes"),
    *("creative.protocols", "creative.duration.unknown"),
    *("creative.minduration", "creative.maxduration", "creative.api", "creative.btype"),
    *("creative.language", "creative.native", "creative.rqddurs", "creative.poddur"),
    *("creative.linearity", "creative.skip", "creative.bitrate", "creative.delivery"),
    *("creative.player", "creative.ads"),
    *("creative.mincpmpersec", "creative.durfloors"),
)
LIMITS = (
    *("status", "starts_at", "ends_at", "frequency_caps.user", "targeting.geo_radius", "cur"),
    *(
        "dsa",
        "bcat",
        "acat",
        "badv",
        "bapp",
        "bseat",
        "wseat",
        "floor",
        "floor.rate",
        "private_auction",
        "pod",
    ),
    *("deal.rate", "deal.wseat", "deal.wadomain", "deal.floor"),
    *("deal.mincpmpersec", "deal.durfloors"),
)
SIDES = tuple(f"targeting.{name}.{side}" for name in ENTRIES for side in ("include", "exclude"))
PRIVACY = ("privacy.coppa", "privacy.gpc", "privacy.gdpr", "privacy.us_privacy", "privacy.gpp")
OUTCOMES = (
    *("tie", "several creatives", "dealid", "dealid of several", "guaranteed", "bid", "no bid"),
)

HELD = tuple(f"held {side}" for side in (*SIDES, "targeting.geo_radius"))

ALL = (*LIMITS, *SIDES, *CREATIVE_RULES, *PRIVACY, *OUTCOMES, *HELD)
"""Everything that a long enough run counts."""


Pair = tuple[str, str]


class Deciders:
    """Counts deciding rules, request by request; `met` has pairs of rules, in order."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.met: set[Pair] = set()

    def missing(self, least: int = 1) -> list[str]:
        """The rules that decided less often than `least` times."""
        return [name for name in ALL if self.counts[name] < least]

    def observe(
        self,
        world: World,
        descriptor: str,
        request: Document,
        answered: Mapping[str, str] | None = None,
    ) -> dict[str, set[Offer]]:
        """Count what decided a request, and what met; gives the same as `oracle.offers`."""
        facts = open_facts = read_request(world, descriptor, request)
        if not world.may_use_user_data(**privacy_inputs(request), gvl_id=world.gvl_id):
            open_world = replace(world, may_use_user_data=lambda **_: True)
            open_facts = read_request(open_world, descriptor, request)
        wanted = {}
        for slot in slots(world, facts, request, answered):
            eligible = []
            for campaign in world.campaigns:
                missed = all_misfits(slot, campaign)
                refusing = [*rules(world, facts, slot, campaign, missed)]
                if not refusing:
                    eligible.append(campaign)
                    self.counts.update(f"held {side}" for side in held(campaign))
                    continue
                if len(refusing) == 1:
                    self.counts[refusing[0]] += 1
                for together in refused_together(refusing, missed):
                    self.met.update(combinations(sorted(together), 2))
            winners = first_of(slot, eligible)
            wanted[slot.id] = answers(slot, winners)
            self._count_outcome(slot, eligible, winners)
            if facts != open_facts:
                freely = [c for c in world.campaigns if not any(rules(world, open_facts, slot, c))]
                if freely != eligible:
                    self.counts.update(alone_withholds(world, request))
        return wanted

    def _count_outcome(self, slot: Slot, eligible: list[Document], winners: list[Document]) -> None:
        price = max((micros(campaign["cpm"]) for campaign in eligible), default=0)
        deals = [offered(slot, campaign)[0] for campaign in winners]
        several = any(len(offered(slot, campaign)[1]) > 1 for campaign in winners)
        outcomes = {
            "tie": len(winners) > 1,
            "several creatives": several,
            "dealid": any(deals),
            "dealid of several": any(deals) and len(slot.deals) > 1,
            "guaranteed": any(micros(each["cpm"]) < price for each in winners),
            "bid": bool(winners),
            "no bid": not winners,
        }
        self.counts.update(name for name, happened in outcomes.items() if happened)


def refused_together(refusing: list[str], missed: list[list[str]]) -> Iterator[set[str]]:
    """What refuses a campaign: its own rules, with those of each creative where none fits.

    `missed`: the misfits of each creative.
    """
    own = {*refusing} - {*CREATIVE_RULES}
    if len(own) == len(refusing):
        yield own
    else:
        yield from (own | {*names} for names in missed)


def held(campaign: Document) -> list[str]:
    """The targeting rules of a campaign."""
    rules = []
    for dimension, lists in campaign.get("targeting", {}).items():
        if dimension == "geo_radius":
            rules.append("targeting.geo_radius")
        else:
            rules += [f"targeting.{dimension}.{side}" for side in lists]
    return rules


def alone_withholds(world: World, request: Document) -> list[str]:
    """The regulation that withholds user data, if it is exactly one."""
    given = privacy_inputs(request)
    nothing = {name: () if isinstance(value, list) else False for name, value in given.items()}
    parts = {
        "privacy.coppa": ("coppa",),
        "privacy.gpc": ("gpc",),
        "privacy.gdpr": ("gdpr", "consents"),
        "privacy.us_privacy": ("us_privacy",),
        "privacy.gpp": ("gpp", "gpp_sid"),
    }
    regulations = [
        name
        for name, keys in parts.items()
        if not world.may_use_user_data(
            **{**nothing, **{key: given[key] for key in keys}}, gvl_id=world.gvl_id
        )
    ]
    return regulations if len(regulations) == 1 else []
