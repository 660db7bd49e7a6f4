"""One campaign document: its fields and their rules (contract 2, "Campaign").

A document is JSON as an operator writes it. Every mistake is reported at once, each with its
field and the rule. Numbers are decoded as decimals, never as binary floats.
"""

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from snapbid.match.campaign import (
    Budget,
    Campaign,
    CampaignError,
    Circle,
    Creative,
    FrequencyCap,
    Mistake,
    Values,
)
from snapbid.match.readers import (
    MAX_ENTRIES,
    Fields,
    Reader,
    adm,
    advertiser,
    choice,
    flag,
    integer,
    integral,
    list_of,
    micros,
    object_of,
    real,
    shown,
    string,
    text_rule,
    time_ms,
)
from snapbid.match.vocabulary import DIMENSIONS, MAX_INTEGER, MAX_TEXT, normalise, size

MAX_DOCUMENT: Final = 64 * 1024 * 1024  # characters of JSON
MAX_STORED: Final = 2 * MAX_DOCUMENT  # the warehouse writes it with more spaces
MAX_CREATIVES: Final = 1_000
MAX_MARKUP: Final = 1024 * 1024  # bytes of all `adm` together: a worker decodes them at once
MAX_URL: Final = 2048
MAX_CIRCLES: Final = 1_000  # each is compared with the place of a request
MAX_DEALS: Final = 10_000
MAX_KM: Final = 50_000
MAX_FREQUENCY_CAPS: Final = 16

# What is said of a targeting entry that is no value of its dimension.
_ENTRY_RULES: Final = {
    "country": "is not an ISO 3166-1 country",
    "region": "is not a country, a dash and a region, such as USA-CA",
    "os": "is not one of ios, android, windows, macos, linux, chromeos, tizen, webos, other",
    "browser": "is not one of chrome, safari, firefox, edge, samsung, opera, other",
    "language": "is not a language",
    "inventory": "is not one of site, app, dooh",
    "domain": "is not a domain",
    "hour": "is not an hour of the week, 0 (Monday 00:00 UTC) to 167",
}


def _entries(dimension: str, kind: str) -> Reader:
    """Read the entries of one targeting list into their normal forms."""

    def read(value: Any, at: str, found: list[Mistake]) -> Any:
        normal = normalise(dimension, integral(value) if kind == "int" else value)
        if normal is None:
            found.append(Mistake(at, _entry_rule(dimension, kind, value)))
        return normal

    most = MAX_DEALS if dimension == "deal" else MAX_ENTRIES
    one_by_one = list_of(read, most)

    def read_all(value: Any, at: str, found: list[Mistake]) -> Any:
        if isinstance(value, list) and len(value) <= most:
            normal = dict.fromkeys([normalise(dimension, entry) for entry in value])
            if None not in normal:
                return tuple(normal)
        return one_by_one(value, at, found)

    return read_all


def _entry_rule(dimension: str, kind: str, value: object) -> str:
    rule = _ENTRY_RULES.get(dimension)
    if kind == "int":
        return f"{rule or f'is not an integer from 0 to {MAX_INTEGER}'}: {shown(value)}"
    if not rule and text_rule(value) is None:
        return f"must have at most {MAX_TEXT} bytes in lower case: {shown(value)}"
    return text_rule(value) or f"{rule}: {shown(value)}"


def _creative_rules(fields: Fields, prefix: str, found: list[Mistake]) -> None:
    if fields.get("media") == "banner":
        found.extend(
            Mistake(f"{prefix}{side}", "is required for a banner")
            for side in ("w", "h")
            if side not in fields
        )


def _campaign_rules(fields: Fields, prefix: str, found: list[Mistake]) -> None:
    starts, ends = fields.get("starts_at"), fields.get("ends_at")
    if starts is not None and ends is not None and starts >= ends:
        found.append(Mistake(f"{prefix}ends_at", "must be later than starts_at"))


def _creatives(value: Any, at: str, found: list[Mistake]) -> Any:
    creatives = list_of(_CREATIVE, MAX_CREATIVES, fold=False)(value, at, found)
    seen: dict[str, int] = {}
    for index, creative in enumerate(value if isinstance(value, list) else ()):
        name = creative.get("id") if isinstance(creative, dict) else None
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            rule = f"is the id of {at}[{seen[name]}] already: {shown(name)}"
            found.append(Mistake(f"{at}[{index}].id", rule))
    markup = markup_bytes(creative for creative in creatives if creative is not None)
    if markup > MAX_MARKUP:
        found.append(Mistake(at, f"must have at most {MAX_MARKUP} bytes of adm, found {markup}"))
    return creatives


def markup_bytes(creatives: Iterable[Creative]) -> int:
    """Count the bytes of all `adm` together."""
    return sum(size(creative.adm) for creative in creatives)


def _targeting(value: Any, at: str, found: list[Mistake]) -> Any:
    targeting = _TARGETING(value, at, found) or {}
    entries = count_entries(values for key, values in targeting.items() if key != "geo_radius")
    if entries > MAX_ENTRIES:
        found.append(Mistake(at, f"must have at most {MAX_ENTRIES} entries, found {entries}"))
    return targeting


def count_entries(targeting: Iterable[Values]) -> int:
    """Count the entries of all lists together."""
    return sum(len(values.include) + len(values.exclude) for values in targeting)


def _make_campaign(fields: Fields) -> Campaign:
    targeting = fields.pop("targeting", {})
    circles = targeting.pop("geo_radius", ())
    return Campaign(
        cpm_micros=fields.pop("cpm"),
        starts_at_ms=fields.pop("starts_at", None),
        ends_at_ms=fields.pop("ends_at", None),
        targeting={key: values for key, values in targeting.items() if values != _NO_VALUES},
        geo_radius=circles,
        **fields,
    )


def _make_budget(fields: Fields) -> Budget:
    daily, total = fields.pop("daily", None), fields.pop("total", None)
    return Budget(daily_micros=daily, total_micros=total, **fields)


_NO_VALUES: Final = Values()
_CREATIVE: Final = object_of(
    {
        "id": string(),
        "media": choice("banner", "video", "native", "audio"),
        "adm": adm,
        "w": integer(1),
        "h": integer(1),
        "attributes": list_of(integer(0)),
        "secure": flag,
        "mimes": list_of(string()),
        "duration": integer(1),
        "protocols": list_of(integer(0)),
        "iurl": string(MAX_URL),
    },
    lambda fields: Creative(**fields),
    required=("id", "media", "adm"),
    rules=_creative_rules,
)
_BUDGET: Final = object_of(
    {"daily": micros, "total": micros, "pacing": choice("asap", "even")}, _make_budget
)
_CAP: Final = object_of(
    {"impressions": integer(1), "seconds": integer(1)},
    lambda fields: FrequencyCap(**fields),
    required=("impressions", "seconds"),
)
CIRCLE: Final = object_of(
    {
        "lat": real(lambda n: -90 <= n <= 90, "from -90 to 90"),
        "lon": real(lambda n: -180 <= n <= 180, "from -180 to 180"),
        "km": real(lambda n: 0 < n <= MAX_KM, f"over 0 and up to {MAX_KM}"),
    },
    lambda fields: Circle(**fields),
    required=("lat", "lon", "km"),
)


def _values(dimension: str, kind: str) -> Reader:
    read = _entries(dimension, kind)
    return object_of({"include": read, "exclude": read}, lambda fields: Values(**fields))


_TARGETING: Final = object_of(
    {d.name: _values(d.name, d.kind) for d in DIMENSIONS}
    | {"geo_radius": list_of(CIRCLE, MAX_CIRCLES)},
    lambda fields: fields,
)
CAMPAIGN: Final = object_of(
    {
        "id": string(),
        "advertiser": advertiser,
        "seat": string(),
        "bundle": string(),
        "name": string(),
        "categories": list_of(string()),
        "status": choice("active", "paused"),
        "starts_at": time_ms,
        "ends_at": time_ms,
        "cpm": micros,
        "budget": _BUDGET,
        "frequency_caps": list_of(_CAP, MAX_FREQUENCY_CAPS),
        "targeting": _targeting,
        "creatives": _creatives,
    },
    _make_campaign,
    required=("id", "advertiser", "cpm", "creatives"),
    rules=_campaign_rules,
)


def parse(document: object) -> Campaign:
    """Check and normalise one decoded JSON document (contract 2, "Campaign").

    Numbers may be int, float or Decimal. Raises CampaignError with every mistake.
    """
    found: list[Mistake] = []
    campaign = CAMPAIGN(document, "", found)
    if found:
        raise CampaignError(tuple(found))
    assert isinstance(campaign, Campaign)
    return campaign


def decode(text: str) -> Any:
    """Decode a stored document with exact numbers, for `parse`; raises ValueError."""
    if len(text) > MAX_STORED:
        raise ValueError(f"the document must have at most {MAX_STORED} characters of JSON")
    try:
        return _STORED.decode(text)
    except (RecursionError, ArithmeticError) as error:
        raise ValueError(f"the document cannot be read: {type(error).__name__}") from None


_STORED: Final = json.JSONDecoder(parse_float=Decimal)
