"""A plain bidder over raw JSON: the rules of contract 2 to 4 one by one, slow and without indexes.

It shares no code with the product: tests compare the two, so a rule misread in one of them shows.
What has tables of its own (countries, user agents, rates, consent strings) is passed in by `World`.
Of budgets, pacing and frequency caps it knows that a campaign with caps needs a recognised user.
"""

import html
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from support import oracle_categories, oracle_native, oracle_vast
from support.oracle_deals import best_deal, deal_steps, refused_by_durations, unpaid, wanted_deals
from support.oracle_media import (
    attributes,
    misfits_in_ads,
    misfits_in_media,
    misfits_in_player,
)
from support.oracle_pods import Separation, guaranteed_first
from support.oracle_reading import (
    MOST_FORMATS,
    MOST_IMPRESSIONS,
    Deal,
    Facts,
    Slot,
    World,
    read_impression,
    read_request,
)
from support.oracle_spending import MOST_QUANTITY
from support.oracle_values import (
    Document,
    Malformed,
    bound,
    covers,
    domain,
    integer,
    integers,
    items,
    language,
    media_type,
    media_types,
    micros,
    numbers,
)

__all__ = ["Document", "Malformed", "Offer", "World", "micros", "offers", "refusal", "refusals"]

TAG = re.compile("""<[a-z][^\\s/>]*((?:[^>"']|"[^"]*"|'[^']*')*)>""")
ATTRIBUTE = re.compile("""([^\\s"'>/=]+)\\s*=\\s*("[^"]*"|'[^']*'|[^\\s>]+)""")
SCRIPT_URL = re.compile("(?:java|vb)script:")
EARTH_RADIUS_KM = 6371.0088
EXACT_DIMENSIONS = (*("ssp", "bundle", "publisher", "segment", "audience", "deal", "placement"),)
FOLDED_DIMENSIONS = ("city", "postal", "carrier")
NUMBER_DIMENSIONS = (
    *("device_type", "connection", "position", "rewarded", "interstitial", "hour"),
)
CODES: dict[str, dict[str, str | int]] = {
    "device_type": {"computer": 2, "phone": 4, "tablet": 5},
    "connection": {"unknown": 0, "wifi": 2, "4g": 6},
    "position": {"above_the_fold": 1, "below_the_fold": 3, "fullscreen": 7},
    "placement": {"instream": 1, "interstitial": 3, "native_in_feed": "n1"},
}
"""Names of AdCOM's codes: those that stand in `pools.ENTRIES`."""


@dataclass(frozen=True)
class Offer:
    """One acceptable answer to an impression; the price is a CPM in micro-USD."""

    campaign: str
    creative: str
    deal: str | None
    price_micros: int


def category_in(entries: set[str], category: str) -> bool:
    """Tell if a category or its IAB parent (the text before the first dash) is listed."""
    return category in entries or category.partition("-")[0] in entries


def distance_km(here: tuple[float, float], there: tuple[float, float]) -> float:
    """Measure the great circle between two points given as degrees of latitude and longitude."""
    (lat1, lon1), (lat2, lon2) = (tuple(map(math.radians, point)) for point in (here, there))
    chord = math.sin((lat2 - lat1) / 2) ** 2
    chord += math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(chord)))


def entry(world: World, dimension: str, value: Any) -> str | int | None:
    """Bring one entry of a campaign's targeting to the form of the request's values."""
    if dimension in CODES and isinstance(value, str) and not re.fullmatch(r"n\d+", value):
        return CODES[dimension][re.sub("[ -]", "_", value.lower())]
    value = value.strip() if isinstance(value, str) else value
    composed = unicodedata.normalize("NFC", str(value))
    if dimension in EXACT_DIMENSIONS or dimension in NUMBER_DIMENSIONS:
        return value  # type: ignore[no-any-return]
    if dimension in FOLDED_DIMENSIONS:
        return composed.casefold()
    if dimension == "country":
        return world.alpha3(value)
    if dimension == "region":
        prefix, _, code = composed.partition("-")
        return f"{world.alpha3(prefix)}-{code}".casefold()
    if dimension == "category":
        return oracle_categories.plain(value)
    if dimension == "os":
        return world.fold_os(value)
    if dimension == "domain":
        return domain(value)
    if dimension == "language":
        return language(value).partition("-")[0]
    return str(value.lower())


def matches(dimension: str, value: str | int, entries: set[Any]) -> bool:
    """Tell if a request's value matches any entry of a dimension."""
    if dimension == "domain":
        return covers(entries, str(value))
    if dimension == "category":
        return category_in(entries, str(value))
    return value in entries


def refused_by_targeting(
    world: World, facts: Facts, slot: Slot, campaign: Document
) -> Iterator[str]:
    """Apply every dimension's include and exclude, the circles, and whom a product excludes."""
    if campaign.get("product") in facts.values["product"]:
        yield "targeting.product.exclude"
    for dimension, lists in campaign.get("targeting", {}).items():
        if dimension == "geo_radius":
            if lists and not any(in_circle(facts.point, circle) for circle in lists):
                yield "targeting.geo_radius"
            continue
        values = slot.values[dimension] if dimension in slot.values else facts.values[dimension]
        for side in ("include", "exclude"):
            entries = {entry(world, dimension, value) for value in lists.get(side, [])}
            met = any(matches(dimension, value, entries) for value in values)
            if entries and met != (side == "include"):
                yield f"targeting.{dimension}.{side}"


def in_circle(point: tuple[float, float] | None, circle: Document) -> bool:
    """Tell if a point is known and lies within a circle."""
    centre = (circle["lat"], circle["lon"])
    return point is not None and distance_km(point, centre) <= circle["km"]


def refused_by_time(world: World, campaign: Document) -> Iterator[str]:
    """Apply the status and the flight dates."""
    if campaign.get("status", "active") != "active":
        yield "status"
    starts, ends = campaign.get("starts_at"), campaign.get("ends_at")
    if starts is not None and world.now < instant(starts):
        yield "starts_at"
    if ends is not None and world.now >= instant(ends):
        yield "ends_at"


def instant(value: str) -> datetime:
    """Read an RFC 3339 time."""
    return datetime.fromisoformat(value).astimezone(UTC)


def refused_by_lists(facts: Facts, campaign: Document) -> Iterator[str]:
    """Apply the request's currency, blocklists and seats."""
    if facts.currency is None:
        yield "cur"
    if misses_dsa(facts.dsa, campaign.get("dsa")):
        yield "dsa"
    cattax, categories = campaign.get("cattax", 1), campaign.get("categories", [])
    yield from sorted(oracle_categories.refusing(cattax, categories, facts.categories))
    if covers(facts.badv, domain(campaign["advertiser"])):
        yield "badv"
    bundle, seat = campaign.get("bundle", "").strip(), campaign.get("seat", "").strip()
    if {bundle, bundle and "*"} & facts.bapp:
        yield "bapp"
    if {seat, seat and "*"} & facts.bseat:
        yield "bseat"
    if facts.wseat and seat not in facts.wseat:
        yield "wseat"


def misses_dsa(asked: tuple[int, int | None], dsa: Document | None) -> bool:
    """Apply the Digital Services Act: who must declare, and who renders the declaration."""
    required, publisher = asked
    if required not in (1, 2, 3):
        return False
    if dsa is None:
        return required >= 2
    advertiser = dsa.get("adrender")
    return (publisher == 0 and advertiser != 1) or (publisher == 2 and advertiser != 0)


def refused_by_price(slot: Slot, campaign: Document) -> Iterator[str]:
    """Apply the impression's floor and its deals."""
    if slot.floor is None:
        yield "floor.rate"
    if wanted_deals(campaign):
        for name, left in deal_steps(slot, campaign):
            if not left:
                # Deals that are not offered at all are named by the targeting already.
                yield from [] if name == "targeting.deal.include" else [name]
                return
        return
    if slot.private:
        yield "private_auction"
    if slot.floor is not None and micros(campaign["cpm"]) < slot.floor:
        yield "floor"


def refused_by_pod(slot: Slot, campaign: Document) -> Iterator[str]:
    """Refuse an advertiser that already has an impression of the pod."""
    if domain(campaign["advertiser"]) in slot.rivals:
        yield "pod"


def misfits(slot: Slot, campaign: Document, creative: Document) -> Iterator[str]:
    """Apply what an impression asks of one creative, at the campaign's price."""
    if (campaign["id"], creative["id"]) in slot.suspended:
        yield "creative.suspended"
    said, creative = creative, oracle_vast.filled(creative)
    kind = creative["media"]
    media = slot.media.get(kind)
    if media is None:
        yield "creative.media"
        return
    if slot.secure and not creative.get("secure", True):
        yield "creative.secure"
    if slot.languages and not speaks(slot.languages, creative.get("language")):
        yield "creative.language"
    mimes, offered = media_types(media.get("mimes")), {*map(media_type, creative.get("mimes", []))}
    played = oracle_vast.played(said, mimes & offered)
    if not {*creative.get("apis", []), *played.get("apis", [])} <= integers(media.get("api")):
        yield "creative.api"
    blocked, own = numbers(media.get("battr")), attributes(creative)
    if blocked & own or (-1 in blocked and own):
        yield "creative.battr"
    if kind == "native":
        if not oracle_native.has(creative, media):
            yield "creative.native"
        return
    if mimes and offered and not mimes & offered:
        yield "creative.mimes"
    if kind == "banner":
        if {banner_type(creative), -1} & numbers(media.get("btype")):
            yield "creative.btype"
        if (creative["w"], creative["h"]) not in sizes(media):
            yield "creative.size"
        return
    protocols, spoken = protocols_of(kind, media), set(creative.get("protocols", []))
    if protocols and spoken and not protocols & spoken:
        yield "creative.protocols"
    yield from misfits_in_time(media, creative)
    yield from misfits_in_ads(media, creative)
    yield from misfits_in_media(media, played)
    if kind == "video":
        yield from misfits_in_player(media, creative, played)
    if micros(campaign["cpm"]) >= slot.least:  # below, the floor refuses it
        yield from (f"creative.{name}" for name in unpaid(slot.timed[kind], campaign, creative))


def speaks(admitted: set[str], tag: str | None) -> bool:
    """Tell if a language tag is admitted, or begins with an admitted one at a subtag."""
    if tag is None:
        return False
    return any(f"{language(tag)}-".startswith(f"{each}-") for each in admitted)


def banner_type(creative: Document) -> int:
    """Give a banner's ad type: as stated, else by its markup."""
    if "type" in creative:
        return int(creative["type"])
    markup = creative["adm"].lower()
    return 3 if runs(markup) else 4 if "<iframe" in markup else 2


def runs(markup: str) -> bool:
    """Tell if markup has a script: an element, an attribute `on…`, or a URL that is one."""
    if "<script" in markup:
        return True
    for tag in TAG.findall(re.sub("<!--.*?-->", "", markup, flags=re.DOTALL)):
        for name, written in ATTRIBUTE.findall(tag):
            value = re.sub("[\t\r\n]", "", html.unescape(written.strip("\"'"))).strip()
            if value and (name.startswith("on") or SCRIPT_URL.match(value)):
                return True
    return False


def sizes(banner: Document) -> set[tuple[int | None, int | None]]:
    """Give the sizes that a banner impression takes."""
    offered = [banner, *items(banner.get("format"))[:MOST_FORMATS]]
    return {(integer(size.get("w"), 1), integer(size.get("h"), 1)) for size in offered}


def protocols_of(kind: str, media: Document) -> set[int]:
    """Give the protocols of a video or audio impression; OpenRTB 2.1 had a scalar for video."""
    protocols = numbers(media.get("protocols"))
    return numbers(media.get("protocol")) if not protocols and kind == "video" else protocols


def misfits_in_time(media: Document, creative: Document) -> Iterator[str]:
    """Apply the limits of durations, in seconds; of a pod's ads only the sum is known."""
    duration = creative.get("duration")
    shortest, longest = bound(media.get("minduration")), bound(media.get("maxduration"))
    pod, exact = bound(media.get("poddur")), numbers(media.get("rqddurs"))
    if duration is None:
        if exact or shortest is not None or longest is not None or pod is not None:
            yield "creative.duration.unknown"
        return
    if exact and (duration not in exact or creative.get("ads", 1) > 1):
        yield "creative.rqddurs"
    if pod is not None and duration > pod:
        yield "creative.poddur"
    if shortest is not None and duration < shortest:
        yield "creative.minduration"
    if longest is not None and duration > longest:
        yield "creative.maxduration"


def fitting(slot: Slot, campaign: Document) -> list[Document]:
    """Give the creatives that fit an impression."""
    return [each for each in campaign["creatives"] if not any(misfits(slot, campaign, each))]


def rules(
    world: World,
    facts: Facts,
    slot: Slot,
    campaign: Document,
    missed: list[list[str]] | None = None,
) -> Iterator[str]:
    """Yield the name of every rule that refuses a campaign for an impression.

    `missed`: the misfits of each creative, if they are known.
    """
    yield from refused_by_time(world, campaign)
    if campaign.get("frequency_caps") and facts.user is None:
        yield "frequency_caps.user"
    yield from refused_by_targeting(world, facts, slot, campaign)
    yield from refused_by_lists(facts, campaign)
    yield from refused_by_price(slot, campaign)
    yield from refused_by_pod(slot, campaign)
    if missed is None:
        missed = all_misfits(slot, campaign)
    if all(missed):  # the nearest miss of the creatives speaks for the campaign
        yield from min(missed, key=len)
    pairs = zip(campaign["creatives"], missed, strict=True)
    yield from refused_by_durations(slot, campaign, [each for each, names in pairs if not names])


def all_misfits(slot: Slot, campaign: Document) -> list[list[str]]:
    """Give the misfits of each creative."""
    return [[*misfits(slot, campaign, each)] for each in campaign["creatives"]]


def refusals(
    world: World, descriptor: str, request: Document, imp: Document, campaign: Document
) -> list[str]:
    """Name every rule that refuses a campaign for an impression."""
    facts = read_request(world, descriptor, request)
    return list(rules(world, facts, read_impression(world, imp, facts), campaign))


def refusal(
    world: World, descriptor: str, request: Document, imp: Document, campaign: Document
) -> str | None:
    """Name the first rule that refuses a campaign for an impression, None if it may bid."""
    return next(iter(refusals(world, descriptor, request, imp, campaign)), None)


def offers(
    world: World, descriptor: str, request: Document, answered: Mapping[str, str] | None = None
) -> dict[str, set[Offer]]:
    """Give every acceptable answer per impression id; an empty set means no bid.

    Acceptable are all fitting creatives of all eligible campaigns of the highest CPM; where some
    qualify for a guaranteed deal, of those alone. What is left to the later impressions of a pod
    depends on which of them answered the earlier ones: `answered` names the campaigns by
    impression, else it is the first by name. Raises KeyError for a descriptor that is not
    registered, Malformed for a type that makes no sense.
    """
    facts = read_request(world, descriptor, request)
    return {slot.id: best(world, facts, slot) for slot in slots(world, facts, request, answered)}


def slots(
    world: World, facts: Facts, request: Document, answered: Mapping[str, str] | None = None
) -> Iterator[Slot]:
    """Give the impressions in turn, those of pods with the advertisers that they may not get."""
    separation = Separation()
    advertisers = {campaign["id"]: campaign["advertiser"] for campaign in world.campaigns}
    read = [read_impression(world, imp, facts) for imp in request["imp"][:MOST_IMPRESSIONS]]
    for slot in map(separation.apart, guaranteed_first(read)):
        yield slot
        if answered is not None:
            winner = answered.get(slot.id)
        else:
            winner = min((offer.campaign for offer in best(world, facts, slot)), default=None)
        if winner is not None:
            separation.take(slot, advertisers[winner])


def best(world: World, facts: Facts, slot: Slot) -> set[Offer]:
    """Give the acceptable answers to one impression."""
    eligible = [each for each in world.campaigns if not any(rules(world, facts, slot, each))]
    return answers(slot, first_of(slot, eligible))


def answers(slot: Slot, winners: list[Document]) -> set[Offer]:
    """Give the answers of the campaigns that come first; none where it stands for too many."""
    if slot.quantity > MOST_QUANTITY:
        return set()
    return {
        Offer(campaign["id"], creative["id"], deal.id if deal else None, micros(campaign["cpm"]))
        for campaign in winners
        for deal, creatives in [offered(slot, campaign)]
        for creative in creatives
    }


def offered(slot: Slot, campaign: Document) -> tuple[Deal | None, list[Document]]:
    """Give the deal of a campaign's bid, and the creatives that it may have."""
    fits = fitting(slot, campaign)
    deal = best_deal(slot, campaign, fits)
    return deal, [each for each in fits if deal is None or not unpaid(deal.timed, campaign, each)]


def rank_of(slot: Slot, campaign: Document) -> tuple[bool, int]:
    """Rank a campaign that may bid: a guaranteed deal comes before any price."""
    deal, _ = offered(slot, campaign)
    return deal is not None and deal.guaranteed, micros(campaign["cpm"])


def first_of(slot: Slot, eligible: list[Document]) -> list[Document]:
    """Give those of the eligible campaigns that come first."""
    ranks = [rank_of(slot, campaign) for campaign in eligible]
    return [each for each, rank in zip(eligible, ranks, strict=True) if rank == max(ranks)]
