"""The review of a campaign: what its markup shows, its macros, and whether it can ever bid."""

import re
from collections.abc import Container, Iterable, Iterator
from typing import Any, Final, NamedTuple

from snapbid.campaigns.campaign import Campaign, Creative, Values, outside_flight
from snapbid.campaigns.domains import line_of
from snapbid.campaigns.markup import Language, MacroPlace, macro_places
from snapbid.campaigns.native import NativeAd
from snapbid.campaigns.native_rules import decode_response
from snapbid.campaigns.rules import Path, path_text
from snapbid.campaigns.vast import VastError
from snapbid.campaigns.vast_facts import facts_of
from snapbid.campaigns.vast_facts import known as known_vast
from snapbid.campaigns.vocabulary import ALWAYS, HOURS_OF_WEEK, VALUES, visible
from snapbid.reference.taxonomies import VENDORS, is_published


class Derived(NamedTuple):
    """The kind of markup, such as `VAST 3.0`, and the values of creative fields found in it."""

    markup: str
    fields: dict[str, Any]


def derived_of(creative: Creative) -> Derived:
    """Return the kind of a normalised creative's markup, and the fields found in it.

    The fields include those that the creative itself also states.
    """
    if creative.media == "banner":
        return Derived("HTML", {"type": creative.type})
    if creative.native is None:
        return Derived(_kind(creative.adm), facts_of(creative.adm, creative.media))
    return Derived("native", _assets(creative.native))


def _kind(text: str) -> str:
    try:
        vast = known_vast(text).vast
    except VastError:
        return "address"
    return f"VAST {vast.version}{' wrapper' if vast.is_wrapper else ''}"


def _assets(native: NativeAd) -> dict[str, Any]:
    assets = {
        "title": native.title is not None,
        "images": tuple(image.type for image in native.images),
        "data": tuple(map(int, native.data)),
        "video": _kind(native.video) if native.video is not None else None,
    }
    video = facts_of(native.video, "native") if native.video is not None else {}
    return {name: value for name, value in assets.items() if value} | video


MICROS: Final = 1_000_000
MILLE: Final = 1_000
HOUR_MS: Final = 3_600_000
EPOCH_HOUR: Final = 72  # of the week: 1970 began on a Thursday


def why_never_bids(campaign: Campaign, now_ms: int) -> str | None:
    """Return why a campaign can never bid after `now_ms` (epoch ms); None if no reason is found."""
    if outside_flight(campaign.starts_at_ms, campaign.ends_at_ms, now_ms) == "ended":
        return "ends_at is in the past"
    for dimension, values in campaign.targeting.items():
        if values.exclude and values.include and _excludes_all(dimension, values):
            return f"targeting.{dimension} excludes all that it includes"
        if dimension in ALWAYS and _excludes_every_value(dimension, values):
            return f"targeting.{dimension} excludes every value"
    if _has_no_hour(campaign, now_ms):
        return "targeting.hour admits no hour that is left between starts_at and ends_at"
    if _has_no_region(campaign.targeting):
        return "targeting.region includes only regions of other countries than targeting.country"
    # A win costs a thousandth of the CPM: as many nano-USD as the CPM has micro-USD.
    for name, limit in (
        ("daily", campaign.budget.daily_micros),
        ("total", campaign.budget.total_micros),
    ):
        if limit is not None and limit * MILLE < campaign.cpm_micros:
            cost = f"{campaign.cpm_micros / MICROS / MILLE:f}".rstrip("0")
            return f"budget.{name} is below the cost of one win, {cost} USD"
    return None


def _excludes_all(dimension: str, values: Values) -> bool:
    excluded = set(values.exclude)
    return all(not excluded.isdisjoint(_line(dimension, entry)) for entry in values.include)


def _excludes_every_value(dimension: str, values: Values) -> bool:
    every = VALUES.get(dimension, ())
    return 0 < len(every) <= len(values.exclude) and set(every) <= set(values.exclude)


def _has_no_hour(campaign: Campaign, now_ms: int) -> bool:
    """Whether `targeting.hour` admits no hour of the week between `now_ms` and `ends_at`."""
    values = campaign.targeting.get("hour")
    if values is None or campaign.ends_at_ms is None:
        return False
    first = max(now_ms, campaign.starts_at_ms or 0) // HOUR_MS
    last = min((campaign.ends_at_ms - 1) // HOUR_MS, first + HOURS_OF_WEEK - 1)
    hours = {(hour + EPOCH_HOUR) % HOURS_OF_WEEK for hour in range(first, last + 1)}
    return not hours.intersection(values.include or hours).difference(values.exclude)


def _line(dimension: str, entry: str | int) -> Iterable[str | int]:
    """Return an entry and its parents; a request that has the entry also has the parents."""
    if dimension == "domain":
        return line_of(str(entry))
    if dimension == "category" and str(entry).startswith("IAB"):
        return entry, str(entry).partition("-")[0]
    return (entry,)


def _has_no_region(targeting: dict[str, Values]) -> bool:
    regions = targeting.get("region", Values()).include
    countries = targeting.get("country", Values())
    known = {str(region).partition("-")[0].upper() for region in regions}
    if countries.include:
        known &= set(map(str, countries.include))
    return bool(regions) and not known - set(countries.exclude)


class Known(NamedTuple):
    """The names of all known audiences and products, and of all registered SSPs."""

    audiences: Container[str]
    products: Container[str]
    ssps: Container[str]


def warnings_of(campaign: Campaign, now_ms: int, known: Known | None) -> Iterator[str]:
    """Yield the warnings about a campaign as a whole.

    They concern campaigns that can never bid after `now_ms` (epoch ms), that ask for even pacing
    without a daily budget, whose id looks like another campaign's, or whose targeting matches
    nothing: names of audiences, products, SSPs or categories that do not exist, and ids in a form
    that requests never use. Without `known`, only the categories are checked for existence.
    """
    budget = campaign.budget
    if (plain := visible(campaign.id)) != campaign.id:
        yield (
            f"campaign {campaign.id!r} is another than {plain!r}: its id has white space around "
            "it, or invisible characters"
        )
    if why := why_never_bids(campaign, now_ms):
        yield f"campaign {campaign.id} can never bid: {why}"
    elif budget.pacing == "even" and budget.daily_micros is None:
        yield (
            f"campaign {campaign.id} is not paced: budget.pacing is even, but there is no "
            "budget.daily to spread over the day"
        )
    for dimension, values in campaign.targeting.items():
        if dimension in ALWAYS or values.include:
            continue
        if _excludes_every_value(dimension, values):
            yield (
                f"campaign {campaign.id} bids only on requests without {dimension}: "
                f"targeting.{dimension} excludes every value"
            )
    yield from _warnings_of_ids(campaign)
    if known is not None:
        yield from _warnings_of_names(campaign, known)
    if campaign.cattax < VENDORS:
        for verb, category in _entries(campaign, "category"):
            if not is_published(category):
                yield (
                    f"campaign {campaign.id} {verb} the category {category!r}, which no taxonomy "
                    "of the IAB has: it matches only a publisher's own category"
                )


def _warnings_of_names(campaign: Campaign, known: Known) -> Iterator[str]:
    if campaign.product is not None and campaign.product not in known.products:
        yield (
            f"campaign {campaign.id} names the product {campaign.product!r}, which does not exist "
            "(letter case matters), so it excludes nobody"
        )
    for verb, name in _entries(campaign, "audience"):
        if name not in known.audiences:
            yield (
                f"campaign {campaign.id} {verb} the audience {name!r}, which does not exist: "
                "nobody is in it"
            )
    for verb, name in _entries(campaign, "ssp"):
        if name not in known.ssps:
            yield (
                f"campaign {campaign.id} {verb} the SSP {name!r}, which is not registered (letter "
                "case matters): no request comes from it"
            )


_IDS: Final = ("bundle", "publisher", "segment", "deal")
"""The dimensions of ids that others assign, which are compared exactly."""

_BETWEEN_IDS: Final = re.compile(r"[\x00-\x1f\x85\u2028\u2029,;]+")
_BETWEEN_APPS: Final = re.compile(r"[\x00-\x1f\s,;|\"'<>]+")
# An App Store's address or id, such as https://apps.apple.com/app/id1, and Google Play's address.
_IN_STORE: Final = re.compile(
    r"(?:.*/)?id([0-9]+)(?:[/?#].*)?|.*[?&]id=([^&#]+).*", re.IGNORECASE | re.DOTALL
)


def _warnings_of_ids(campaign: Campaign) -> Iterator[str]:
    named = [("bundle", "advertises", campaign.bundle)] if campaign.bundle is not None else []
    for dimension in _IDS:
        named += [(dimension, *each) for each in _entries(campaign, dimension)]
    for dimension, verb, entry in named:
        ids = _ids_in(dimension, entry)
        if ids != [entry]:
            instead = ", ".join(repr(id) if id else "the app's id" for id in ids) or "an id"
            yield (
                f"campaign {campaign.id} {verb} the {dimension} {entry!r}, which is compared as it "
                f"is written: write {instead}"
            )


def _ids_in(dimension: str, entry: str) -> list[str]:
    """Split a targeting entry into ids, in the form that requests use.

    A single id is returned unchanged; an app's address that contains no known id becomes "".
    """
    if dimension != "bundle":
        return [each for part in _BETWEEN_IDS.split(entry) if (each := visible(part))]
    return [_app(each) for part in _BETWEEN_APPS.split(entry) if (each := visible(part))]


def _app(written: str) -> str:
    store = _IN_STORE.fullmatch(written)
    if store is not None:
        return store[1] or store[2]
    return "" if "//" in written else written


def _entries(campaign: Campaign, dimension: str) -> Iterator[tuple[str, str]]:
    """Yield (verb, entry) for each entry of a dimension; verbs are "includes" and "excludes"."""
    values = campaign.targeting.get(dimension, Values())
    for verb, entries in (("includes", values.include), ("excludes", values.exclude)):
        for entry in entries:
            yield verb, str(entry)


class FieldMacro(NamedTuple):
    """A macro, the id of the creative that has it, and the field, such as `native.link.url`."""

    creative: str
    field: str
    place: MacroPlace


def macros_of(document: Any) -> Iterator[FieldMacro]:
    """Yield the macros in a campaign's document, which may be invalid if written by plain SQL."""
    creatives = document.get("creatives") if isinstance(document, dict) else None
    for creative in creatives if isinstance(creatives, list) else ():
        if isinstance(creative, dict):
            for at, text, language in _texts(creative):
                for place in macro_places(text, language):
                    yield FieldMacro(str(creative.get("id", "")), path_text(at), place)


def _texts(creative: dict[str, Any]) -> Iterator[tuple[Path, str, Language]]:
    adm, media = creative.get("adm"), creative.get("media")
    if isinstance(adm, str):
        response = _decoded(adm) if media == "native" else None
        if response is not None:
            yield from _native_texts(response, ((), "adm"))
        else:
            yield ((), "adm"), adm, "VAST" if media in ("video", "audio") else "HTML"
    yield from _native_texts(creative.get("native"), ((), "native"))


def _decoded(text: str) -> Any:
    try:
        return decode_response(text)
    except (ValueError, RecursionError):
        return None


def _native_texts(value: Any, at: Path) -> Iterator[tuple[Path, str, Language]]:
    """Yield (path, text, language) for each text in a native creative.

    The language is VAST for a video's markup, and URL for every other text.
    """
    values = [(value, at)]  # a stack: it may be nested deeply
    while values:
        value, at = values.pop()
        if isinstance(value, str):
            yield at, value, "VAST" if at[1] in ("video", "vasttag") else "URL"
        elif isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            values += reversed([(item, (at, key)) for key, item in items])
