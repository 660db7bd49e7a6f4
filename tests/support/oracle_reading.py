"""Reads raw JSON requests for the oracle, as tolerantly as contract 3 asks.

"Requests as real exchanges send them are tolerated where the meaning is plain": numbers as text,
floats for integers, booleans as flags, numbers as ids, `""` and null as absent, values out of
range as absent. What holds for a whole request becomes `Facts`, what holds for one impression a
`Slot`. Nothing is imported from the product; `World` brings the tables.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from hashlib import md5, sha1, sha256
from typing import Any

from support import pools
from support.oracle_categories import VENDORS, Lists, pasted, plain
from support.oracle_durations import Timed, read_timed
from support.oracle_native import asked
from support.oracle_spending import quantity
from support.oracle_values import (
    MOST_BYTES,
    MOST_ENTRIES,
    Document,
    amount,
    bundles,
    counted,
    described,
    domains,
    entries,
    flag,
    host,
    hosts_in,
    ids,
    integer,
    items,
    language,
    members,
    numbers,
    part,
    placed,
    text,
    trimmed,
    within,
)

CATEGORY_MEMBERS = ("cat", "sectioncat", "pagecat")

# "What a request may cost is bounded": what is looked at of a request.
MOST_IMPRESSIONS = 100
MOST_FORMATS = 100

ID_LISTS = ("bseat", "wseat")

# What senders write where they have no id (contract 3): words, and one character throughout.
NOBODY = re.compile(
    r"\W*(null|none|undefined|unknown|n/a|false|dnt|unavailable|not_available|opted_out)\W*"
    r"|\W*(-1|user_id|\$uid)\W*|(?-i:__[A-Z][A-Z0-9_]*__)|([#%])[a-z_]+\3|\{[a-z_]+\}"
    r"|\{\{.*\}\}|\$\{.*\}",
    re.IGNORECASE,
)
AROUND = "-_:.'\"<>{}[]()"
# And the hashes of such: of nothing, of a withdrawn advertising id, and of what many devices have.
SHARED = ("02:00:00:00:00:00", "9774d56d682e549c")
NOTHING = ("", "00000000-0000-0000-0000-000000000000", *SHARED)
HASHES = {made(id.encode()).hexdigest() for id in NOTHING for made in (md5, sha1, sha256)}

# An address, as what stands before it has left it.
ADDRESS = re.compile(r"\[([^\]]*)\](:\d{1,5})?|([\d.]*):\d{1,5}")

LANGUAGE = re.compile(r"[a-z]{2,8}([-_].*)?", re.IGNORECASE | re.DOTALL)


@dataclass
class World:
    """What surrounds a request: the operator's data, the clock and the reference tables."""

    campaigns: list[Document]
    registry: dict[str, str]
    now: datetime
    country_of_ip: Callable[[str], str | None]
    agent: Callable[[str], tuple[str, str]]
    fold_os: Callable[[str], str]
    brand: Callable[[str], str | None]
    alpha3: Callable[[str], str | None]
    usd: Mapping[str, Fraction]
    may_use_user_data: Callable[..., bool]
    gvl_id: int | None = None
    # Canonical SSP, campaign and creative of those that are suspended (contract 11).
    suspended: frozenset[tuple[str, str, str]] = frozenset()


@dataclass(frozen=True)
class Deal:
    """One offered deal; `floor` is None where its floor has no exchange rate."""

    id: str
    floor: int | None
    wseat: set[str]
    wadomain: set[str]
    guaranteed: bool
    timed: Timed


@dataclass(frozen=True)
class Facts:
    """What a request says to every campaign."""

    values: dict[str, set[str | int]]
    point: tuple[float, float] | None
    currency: str | None
    dsa: tuple[int, int | None]
    categories: Lists
    badv: set[str]
    bapp: set[str]
    bseat: set[str]
    wseat: set[str]
    languages: set[str]
    user: tuple[str, str] | None = None
    suspended: frozenset[tuple[str, str]] = frozenset()  # campaign and creative


@dataclass(frozen=True)
class Slot:
    """What one impression says; `floor` is None where it has no exchange rate.

    `pods`: medium and id of each; `rivals`: advertisers that others of its pods have.
    """

    id: str
    values: dict[str, set[str | int]]
    media: dict[str, Document]
    secure: bool
    floor: int | None
    private: bool
    deals: list[Deal]
    languages: set[str]
    pods: frozenset[tuple[str, str]]
    timed: dict[str, Timed]
    least: int  # the lowest price that is one in the bids' currency
    quantity: Fraction  # how many impressions it stands for
    rivals: frozenset[str] = frozenset()
    suspended: frozenset[tuple[str, str]] = frozenset()


def dsa_of(regs: Document) -> tuple[int, int | None]:
    """Give `dsarequired` and `pubrender`, of the two places that of the stricter requirement."""
    asked = []
    for place in (regs, part(regs, "ext")):
        dsa = part(place, "dsa")
        required = integer(dsa.get("dsarequired"))
        asked.append((required if required in (1, 2, 3) else 0, integer(dsa.get("pubrender"))))
    asked.sort(key=lambda each: -(each[0] or 0))
    publishers = [publisher for _, publisher in asked if publisher is not None]
    return asked[0][0] or 0, next(iter(publishers), None)


def currency_of(world: World, currencies: list[str]) -> str | None:
    """Name the currency of the bids: USD, or the first with a rate where USD is not taken."""
    if not currencies or "USD" in currencies:
        return "USD"
    return next((code for code in currencies if code in world.usd), None)


def floor_micros(world: World, floor: Any, currency: Any, bid_in: str = "USD") -> int | None:
    """Convert a floor to micro-USD, rounded up; None where its currency has no rate.

    A bid in another currency has a price there, of at most 6 decimals and above 0, which must reach
    the floor: the least price in USD that yields such a one is given.
    """
    return converted(world, amount(floor), currency, bid_in)


def converted(world: World, floor: Fraction | None, currency: Any, bid_in: str) -> int | None:
    """Convert an exact amount likewise."""
    rate = world.usd.get((trimmed(currency) or "USD").upper())
    if floor is None or floor <= 0:
        floor, rate = Fraction(0), Fraction(1)
    if rate is None:
        return None
    millionths = floor * rate * 1_000_000 / world.usd[bid_in]
    if bid_in != "USD":
        millionths = max(Fraction(1), Fraction(math.ceil(millionths)))
    return math.ceil(millionths * world.usd[bid_in])


# From a request to its values (contract 3, "Targeting dimensions").


def privacy_inputs(request: Document) -> dict[str, Any]:
    """Read what decides on user data, from the places of OpenRTB 2.6 and 2.5 alike."""
    regs, user = part(request, "regs"), part(request, "user")
    places = [regs, part(regs, "ext")]
    texts = {
        name: sorted({said for place in places if (said := text(place.get(name)))})
        for name in ("us_privacy", "gpp")
    }
    consents = {text(place.get("consent")) for place in (user, part(user, "ext"))}
    return {
        **{
            name: any(integer(place.get(name)) == 1 for place in places)
            for name in ("coppa", "gpc", "gdpr")
        },
        "consents": sorted(consent for consent in consents if consent),
        **texts,
        "gpp_sid": sorted({sid for place in places for sid in numbers(place.get("gpp_sid"))}),
    }


def place(world: World, request: Document) -> tuple[str | None, list[Document]]:
    """Name the country (alpha-3) and give the geo objects that serve the geo values, best first.

    Each value is of the object that named the country, or the device's if that one has none.
    """
    device = part(request, "device")
    own = part(device, "geo")
    for geo in (own, part(request, "user", "geo")):
        code = trimmed(geo.get("country"))
        if code is not None and (country := world.alpha3(code)) is not None:
            return country, [geo, own]
    for written in (trimmed(device.get("ip")), trimmed(device.get("ipv6"))):
        if written is not None and (country := world.country_of_ip(bare(written))) is not None:
            return country, [own]
    return None, [own]


def bare(written: str) -> str:
    """Give an address without quotes, brackets and port; of a chain, the client's."""
    client = written.partition(",")[0].strip().strip("'\"").strip()
    found = ADDRESS.fullmatch(client)
    return (found[1] or found[3]) if found else client


def first_text(geos: list[Document], name: str) -> str | None:
    """Give a text of the first object that has it."""
    return next((found for geo in geos if (found := trimmed(geo.get(name)))), None)


def point_of(geos: list[Document]) -> tuple[float, float] | None:
    """Give the coordinates of the first object that has both."""
    for geo in geos:
        lat, lon = within(geo.get("lat"), 90), within(geo.get("lon"), 180)
        if lat is not None and lon is not None:
            return lat, lon
    return None


def region_of(world: World, country: str | None, region: str | None) -> str | None:
    """Give `usa-ca` for `CA`, `US-CA` or `USA-CA` in the USA."""
    if country is None or region is None:
        return None
    prefix, _, rest = region.partition("-")
    if rest and world.alpha3(prefix) == country:
        region = rest
    return f"{country}-{region}".casefold()


def read_request(world: World, descriptor: str, request: Document) -> Facts:
    """Read everything of a request that does not belong to a single impression."""
    device, user = part(request, "device"), part(request, "user")
    site, app, dooh = (part(request, name) for name in ("site", "app", "dooh"))
    country, geos = place(world, request)
    usable = world.may_use_user_data(**privacy_inputs(request), gvl_id=world.gvl_id)
    agent = text(device.get("ua"))
    system, browser = world.agent(agent) if agent else (None, None)
    platform, brands = hints(part(device, "sua"))
    if not (platform or brands):
        platform, brands = hints(part(device, "ext", "sua"))
    if named := platform or somebody(device.get("os")):
        system = world.fold_os(unquoted(named))
    if brands:
        browser = browser_of(world, brands)
    tags = (somebody(device.get(name)) or "" for name in ("language", "langb"))
    spoken = next((tag for tag in tags if LANGUAGE.fullmatch(tag.strip())), None)
    folded = {name: trimmed(value) for name, value in (
        ("city", first_text(geos, "city")),
        ("postal", first_text(geos, "zip") if usable else None),
        ("carrier", device.get("carrier")),
    )}  # fmt: skip
    single: dict[str, str | int | None] = {
        "country": country,
        "region": region_of(world, country, first_text(geos, "region")),
        **{name: value.casefold() if value else None for name, value in folded.items()},
        "device_type": integer(device.get("devicetype")),
        "connection": integer(device.get("connectiontype")),
        "os": system,
        "browser": browser,
        "language": language(spoken.strip()).partition("-")[0] if spoken else None,
        "bundle": trimmed(app.get("bundle")),
        "hour": world.now.weekday() * 24 + world.now.hour,
    }
    values: dict[str, set[str | int]] = {
        name: set() if value is None else {value} for name, value in single.items()
    }
    values["domain"] = domains_of(site)
    values["ssp"] = {descriptor, world.registry[descriptor]}
    kinds = ("site", "app", "dooh")
    values["inventory"] = {kind for kind in kinds if members(request.get(kind)) is not None}
    publishers = (trimmed(part(room, "publisher").get("id")) for room in (site, app, dooh))
    values["publisher"] = {publisher for publisher in publishers if publisher}
    lists = (room.get(name) for room in (site, app) for name in CATEGORY_MEMBERS)
    values["category"] = {plain(category) for each in lists for category in apart(each)}
    values["segment"] = set().union(*segments(user)) if usable else set()
    known = list(persons(device, user, world.registry[descriptor])) if usable else []
    is_limited = flag(device.get("lmt")) or flag(device.get("dnt"))
    values["audience"] = set() if is_limited else set().union(*(each for each, _ in known))
    values["product"] = set().union(*(each for _, each in known))
    imps = request.get("imp", [])[:MOST_IMPRESSIONS]
    currencies = [code.upper() for code in entries(request.get("cur"))]
    return Facts(
        values=values,
        point=point_of(geos) if usable else None,
        currency=currency_of(world, currencies),
        dsa=dsa_of(part(request, "regs")),
        **{name: ids(request.get(name)) for name in ID_LISTS},
        bapp=bundles(request.get("bapp")),
        badv=domains(request.get("badv"), blocks=True).union(
            *(domains(imp.get("badv"), blocks=True) for imp in imps)
        ),
        categories=Lists(
            integer(request.get("cattax"), 1) or 1,
            categories_of(request, "bcat")
            + [one for imp in imps for one in categories_of(request, "bcat", imp)],
            categories_of(request, "acat"),
        ),
        languages={
            language(tag) for name in ("wlang", "wlangb") for tag in entries(request.get(name))
        },
        user=recognised(device, user) if usable else None,
        suspended=frozenset(
            (campaign, creative)
            for ssp, campaign, creative in world.suspended
            if ssp == world.registry[descriptor]
        ),
    )


def hints(agent: Document) -> tuple[str | None, list[str]]:
    """Give what a structured user agent names: the platform, and the browsers' brands."""
    listed = described(agent.get("browsers"))
    written = (somebody((members(each) or {}).get("brand")) for each in listed)
    platform = somebody(part(agent, "platform").get("brand"))
    return platform, [unquoted(brand) for brand in written if brand]


def unquoted(name: str) -> str:
    """Give a name without the quotes that it has in the header of a client hint."""
    return name.strip().strip('"')


def domains_of(site: Document) -> set[str | int]:
    """Give the site's domain. One without a dot may be a placeholder, unlike a page's with one.

    A text that is none stands for those that it holds.
    """
    domain, page = site.get("domain"), site.get("page")
    known, other = host(domain), host(page)
    name = next((each for each in (known, other) if each and "." in each), known or other)
    found = hosts_in(domain) if known is None else set()
    if other is None and (known is None or "." not in known):
        found |= hosts_in(page)
    return found | ({name} if name else set())


def browser_of(world: World, brands: list[str]) -> str:
    """Name the browser of a structured user agent: Chromium is every other one's engine, too."""
    known = [(brand.casefold() == "chromium", world.brand(brand)) for brand in brands]
    browsers = sorted((pair for pair in known if pair[1] is not None), key=lambda pair: pair[0])
    return browsers[0][1] or "other" if browsers else "other"


def recognised(device: Document, user: Document) -> tuple[str, str] | None:
    """Give the kind and id of a recognised user (contract 3, the limits' last point)."""
    identity: tuple[str, str] | None = None
    lists = (described(user.get("eids")), described(part(user, "ext").get("eids")))
    for eids in reversed(lists):
        named = [
            f"{source_of(eid)} {value}"
            for eid in eids
            if not text(eid.get("source")) or counted(eid.get("source"))
            for uid in described(eid.get("uids"))
            if (value := somebody(uid.get("id")))
        ]
        if named:
            identity = ("eid", min(named))
    if value := somebody(device.get("ifa")):
        identity = ("ifa", value.lower())
    if value := somebody(user.get("buyeruid")):
        identity = ("buyeruid", value)
    if value := somebody(user.get("id")):
        identity = ("user", value)
    return None if flag(device.get("lmt")) or flag(device.get("dnt")) else identity


def source_of(eid: Document) -> str:
    """Read a domain, which compares without case."""
    return (text(eid.get("source")) or "").lower()


def somebody(value: Any) -> str | None:
    """Read a user's id, unless it is a placeholder."""
    name = counted(value)
    if name is None or NOBODY.fullmatch(name) or name.strip(" '\"").lower() in SHARED:
        return None
    if re.sub(r"\W", "", name).lower() in HASHES:
        return None
    characters = {each for each in name if each not in AROUND and not each.isspace()}
    is_nobody = characters <= {"0"} or (len(characters) == 1 and len(name.strip()) > 3)
    return None if is_nobody else name


def persons(
    device: Document, user: Document, canonical: str
) -> Iterator[tuple[set[str], set[str]]]:
    """Yield what is known of each id: audiences, and products that must not advertise."""
    plain = re.sub(r"[\x00-\x20{}-]", "", (counted(device.get("ifa")) or "").lower())
    ids = [("ifa", "", plain)]
    ids += [("user", canonical, counted(user.get("id")) or "")]
    ids += [("buyeruid", "", counted(user.get("buyeruid")) or "")]
    for place in (user, part(user, "ext")):
        for eid in described(place.get("eids")):
            for uid in described(eid.get("uids")):
                ids.append(("eid", source_of(eid), counted(uid.get("id")) or ""))
    for name in ids:
        if name in pools.MEMBERS:
            yield pools.MEMBERS[name]


def apart(categories: Any) -> Iterator[str]:
    """Yield the categories of a site or app. A comma between two may also be part of one."""
    is_list = isinstance(categories, list)
    left = MOST_ENTRIES
    for item in items(categories if is_list else [categories]):
        parts = pasted(entries([item]))[:left]
        left -= len(parts)
        wholes = [str(text(item)).strip()] if is_list and parts else []
        yield from (each for each in parts + wholes if len(each.encode()) <= MOST_BYTES)


def categories_of(request: Document, name: str, imp: Document | None = None) -> list[str]:
    """Read a list that limits categories, of the request or an impression; a vendor's may have any
    characters."""
    listed = entries((request if imp is None else imp).get(name))
    wholes = listed if (integer(request.get("cattax"), 1) or 1) >= VENDORS else []
    return pasted(listed) + wholes


def segments(user: Document) -> Iterator[set[str | int]]:
    """Yield the segment ids of every `user.data`."""
    for data in described(user.get("data")):
        for segment in described(data.get("segment")):
            if name := trimmed(segment.get("id")):
                yield {name}


def placements(media: dict[str, Document]) -> Iterator[str | int]:
    """Yield the placement of a video, else that of OpenRTB 2.5; those of a native ad as `n1`."""
    video = media.get("video", {})
    values = (integer(video.get("plcmt")) or None, integer(video.get("placement")))
    yield from [value for value in values if value is not None][:1]
    native = media.get("native", {})
    for place in (native, asked(native) or {}):
        if (value := integer(place.get("plcmttype"))) is not None:
            yield f"n{value}"


def rewarded(imp: Document) -> Any:
    """Give the flag of a reward from its OpenRTB 2.6 place, else that of 2.5, else Prebid's."""
    own = part(imp, "ext").get("prebid")
    prebid = own if isinstance(own, dict) else {}
    flags = (placed(imp, "rwdd"), prebid.get("is_rewarded_inventory"))
    return next((each for each in flags if each not in (None, "", [])), None)


def timed_of(world: World, place: Document, currency: Any, bid_in: str) -> Timed:
    """Read the floors by duration of a video, audio or deal, in the currency of its other floor."""
    return read_timed(place, lambda floor: converted(world, floor, currency, bid_in))


def read_impression(world: World, imp: Document, facts: Facts) -> Slot:
    """Read one impression of a request."""
    bid_in = facts.currency or "USD"
    pmp = part(imp, "pmp")
    kinds = ("banner", "video", "audio", "native")
    media = {kind: value for kind in kinds if (value := members(imp.get(kind))) is not None}
    positions = {integer(media.get(kind, {}).get("pos")) for kind in ("banner", "video")}
    deals = [
        Deal(
            id=name,
            floor=floor_micros(world, deal.get("bidfloor"), deal.get("bidfloorcur"), bid_in),
            wseat=ids(deal.get("wseat")),
            wadomain=domains(deal.get("wadomain")),
            guaranteed=flag(deal.get("guar")),
            timed=timed_of(world, deal, deal.get("bidfloorcur"), bid_in),
        )
        for deal in described(pmp.get("deals"))
        if (name := trimmed(deal.get("id"))) is not None
    ]
    return Slot(
        id=str(text(imp.get("id"))),
        values={
            "deal": {deal.id for deal in deals},
            "position": {position for position in positions if position is not None},
            "placement": set(placements(media)),
            # The specification's default of both is 0.
            "rewarded": {int(flag(rewarded(imp)))},
            "interstitial": {int(flag(imp.get("instl")))},
        },
        media=media,
        secure=flag(imp.get("secure")),
        floor=floor_micros(world, imp.get("bidfloor"), imp.get("bidfloorcur"), bid_in),
        private=flag(pmp.get("private_auction")),
        deals=deals,
        languages=facts.languages,
        pods=frozenset(
            (kind, name)
            for kind in ("video", "audio")
            if (name := text(media.get(kind, {}).get("podid"))) is not None
        ),
        timed={
            kind: timed_of(world, media[kind], imp.get("bidfloorcur"), bid_in)
            for kind in ("video", "audio")
            if kind in media
        },
        least=converted(world, None, None, bid_in) or 0,
        quantity=quantity(facts.values["inventory"], imp),
        suspended=facts.suspended,
    )
