"""Random requests made longer than anything that is looked at.

Only the first impression gets long lists of deals: what has to be converted in one body is bounded.
"""

from support import pools
from support.choices import Choices
from support.oracle_values import Document
from support.random_impressions import duration_floor_of, pmp_of


def long_segments(choices: Choices, request: Document) -> None:
    """Put segments before those of the user."""
    user = request.setdefault("user", {})
    segments = [{"id": segment} for segment in choices.some(pools.ENTRIES["segment"])]
    user["data"] = [{"segment": [{"id": "-"}] * choices.pick((1000, 998)) + segments}]


def long_categories(choices: Choices, request: Document) -> None:
    """Put categories before those of the site or app."""
    kind = "site" if "site" in request else "app"
    fillers = ["-", None, ""] * choices.pick((1000, 998))
    room = request.get(kind) or {}
    request[kind] = {**room, "cat": [*fillers, *choices.some(pools.CATEGORIES)]}


def long_formats(choices: Choices, request: Document) -> None:
    """Put formats before those of the banners."""
    for imp in request["imp"]:
        formats = [{"w": w, "h": h} for w, h in choices.some(pools.SIZES)]
        fillers = [{"w": 1, "h": 2}] * choices.pick((100, 98))
        imp["banner"] = {"format": [*fillers, *formats]}


def long_deals(choices: Choices, request: Document) -> None:
    """Put deals before those of the first impression."""
    imp = request["imp"][0]
    imp["pmp"] = pmp_of(choices)
    fillers = [{"id": "-"}] * choices.pick((900, 898)) + [{"id": "-", "wseat": ["-"]}] * 100
    imp["pmp"]["deals"] = [*fillers, *imp["pmp"].get("deals", [])]


def long_limits(choices: Choices, request: Document) -> None:
    """Lists that limit, and the seats and advertisers of deals: what counts stands last."""
    fillers = [*(["-", 12345678, "b.example"] * 700), *map(str, range(100))]
    for key, pool in (("bcat", pools.BLOCKED_CATEGORIES), ("badv", pools.BLOCKED_DOMAINS),
                      ("bapp", pools.BUNDLES), ("wseat", pools.SEATS)):  # fmt: skip
        if choices.chance(40):
            request[key] = [*fillers, *choices.some(pool, 2)]
    for deal in (request["imp"][0].get("pmp") or {}).get("deals", []):
        for key in ("wseat", "wadomain"):
            if deal.get(key):
                deal[key] = [*fillers, *deal[key]]


def long_durfloors(choices: Choices, request: Document) -> None:
    """Put floors of no duration before those of the first impression."""
    imp = request["imp"][0]
    places = [imp.get("video"), imp.get("audio"), *(imp.get("pmp") or {}).get("deals", [])]
    if places := [place for place in places if place]:
        own = [duration_floor_of(choices) for _ in range(3)]
        fillers = [{"mindur": 2, "maxdur": 1, "bidfloor": 50.5}] * 1001
        choices.pick(places)["durfloors"] = [*fillers, *own]


def long_texts(choices: Choices, request: Document) -> None:
    """Texts that are longer than any that counts, and one that just counts."""
    domain = f"{'a.' * choices.pick((400, 200))}{choices.pick(pools.DOMAINS)}"
    request["site"] = {"domain": domain, "page": choices.pick(pools.PAGES)}
    request["site"]["cat"] = [f"{choice}-{'1' * 600}" for choice in choices.some(pools.CATEGORIES)]
    device = request.setdefault("device", {})
    device["language"] = f"{choices.pick(pools.LANGUAGES) or 'en'}-{'x' * choices.pick((600, 300))}"
    request.setdefault("user", {})["id"] = "uv" + "w" * choices.pick((511, 510))


def many_impressions(choices: Choices, request: Document) -> None:
    """More impressions than are looked at, the first ones without media."""
    fillers = [{"id": f"f{n}"} for n in range(choices.pick((98, 100)))]
    request["imp"] = [*fillers, *request["imp"]]


OVERLONG = (
    long_segments,
    long_categories,
    long_formats,
    long_deals,
    long_limits,
    long_durfloors,
    long_texts,
    many_impressions,
)
