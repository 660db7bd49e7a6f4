"""The campaign document: its fields and their rules (contract 2, "Campaign").

A document is JSON as an operator writes it. All mistakes are reported at once, each with its field
and the rule. Numbers are decoded as decimals, never as binary floats. Whatever changes the meaning
of a document changes `normalised.RULES` too.
"""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from snapbid.match.campaign import (
    Budget,
    Campaign,
    CampaignError,
    Circle,
    Creative,
    FrequencyCap,
    Values,
)
from snapbid.match.rules import Fields, Mistakes, Path, Rule, list_of, object_of, report
from snapbid.match.value_rules import (
    ADM,
    ADVERTISER,
    FLAG,
    MAX_ENTRIES,
    MICROS,
    TIME,
    choice,
    entries_of,
    integer,
    real,
    string,
)
from snapbid.match.vocabulary import DIMENSIONS, Dimension, size

MAX_DOCUMENT: Final = 64 * 1024 * 1024  # characters of JSON
MAX_STORED: Final = 2 * MAX_DOCUMENT  # PostgreSQL writes it with more spaces
MAX_CREATIVES: Final = 1_000
MAX_MARKUP: Final = 1024 * 1024  # bytes of all `adm` together: a worker decodes them at once
MAX_URL: Final = 2048
MAX_CIRCLES: Final = 1_000  # each is compared with a request's location
MAX_DEALS: Final = 10_000
MAX_KM: Final = 50_000
MAX_FREQUENCY_CAPS: Final = 16


def _banner_has_a_size(fields: Fields, at: Path, mistakes: Mistakes) -> None:
    if fields["media"] == "banner":
        for side in ("w", "h"):
            if fields[side] is None:
                report(mistakes, (at, side), "is required for a banner")


def _ends_after_it_starts(fields: Fields, at: Path, mistakes: Mistakes) -> None:
    starts, ends = fields.get("starts_at"), fields.get("ends_at")
    if starts is not None and ends is not None and starts >= ends:
        report(mistakes, (at, "ends_at"), "must be later than starts_at")


def _markup_is_short_enough(
    creatives: Sequence[Creative | None], at: Path, mistakes: Mistakes
) -> None:
    markup = sum([size(creative.adm) for creative in creatives if creative is not None])
    if markup > MAX_MARKUP:
        report(mistakes, at, f"must have at most {MAX_MARKUP} bytes of adm, found {markup}")


def _entries_are_few_enough(targeting: Fields, at: Path, mistakes: Mistakes) -> None:
    entries = 0
    for values in targeting.values():
        if isinstance(values, Values):
            entries += len(values.include) + len(values.exclude)
    if entries > MAX_ENTRIES:
        report(mistakes, at, f"must have at most {MAX_ENTRIES} entries, found {entries}")


def _campaign(
    *,
    cpm: int,
    starts_at: int | None = None,
    ends_at: int | None = None,
    targeting: dict[str, Any] | None = None,
    **fields: Any,
) -> Campaign:
    targeting = targeting or {}
    circles = targeting.pop("geo_radius", ())
    return Campaign(
        cpm_micros=cpm,
        starts_at_ms=starts_at,
        ends_at_ms=ends_at,
        targeting={
            name: values for name, values in targeting.items() if values.include or values.exclude
        },
        geo_radius=circles,
        **fields,
    )


def _budget(*, daily: int | None = None, total: int | None = None, **fields: Any) -> Budget:
    return Budget(daily_micros=daily, total_micros=total, **fields)


def _values(dimension: Dimension) -> Rule:
    entries = entries_of(dimension, MAX_DEALS if dimension.name == "deal" else MAX_ENTRIES)
    return object_of({"include": entries, "exclude": entries}, Values)


_CREATIVES: Final = list_of(
    object_of(
        {
            "id": string(),
            "media": choice("banner", "video", "native", "audio"),
            "adm": ADM,
            "w": integer(1),
            "h": integer(1),
            "attributes": list_of(integer(0)),
            "secure": FLAG,
            "mimes": list_of(string()),
            "duration": integer(1),
            "protocols": list_of(integer(0)),
            "iurl": string(MAX_URL),
        },
        Creative,
        required=("id", "media", "adm"),
        together=_banner_has_a_size,
        about=("media", "w", "h"),
    ),
    MAX_CREATIVES,
    distinct=False,
    unique="id",
    together=_markup_is_short_enough,
)
_CAP: Final = object_of(
    {"impressions": integer(1), "seconds": integer(1)},
    FrequencyCap,
    required=("impressions", "seconds"),
)
_CIRCLE: Final = object_of(
    {
        "lat": real(lambda n: -90 <= n <= 90, "from -90 to 90"),
        "lon": real(lambda n: -180 <= n <= 180, "from -180 to 180"),
        "km": real(lambda n: 0 < n <= MAX_KM, f"over 0 and up to {MAX_KM}"),
    },
    Circle,
    required=("lat", "lon", "km"),
)
_TARGETING: Final = object_of(
    {dimension.name: _values(dimension) for dimension in DIMENSIONS}
    | {"geo_radius": list_of(_CIRCLE, MAX_CIRCLES)},
    dict,
    together=_entries_are_few_enough,
)
CAMPAIGN: Final = object_of(
    {
        "id": string(),
        "advertiser": ADVERTISER,
        "seat": string(),
        "bundle": string(),
        "name": string(),
        "categories": list_of(string()),
        "status": choice("active", "paused"),
        "starts_at": TIME,
        "ends_at": TIME,
        "cpm": MICROS,
        "budget": object_of(
            {"daily": MICROS, "total": MICROS, "pacing": choice("asap", "even")}, _budget
        ),
        "frequency_caps": list_of(_CAP, MAX_FREQUENCY_CAPS),
        "targeting": _TARGETING,
        "creatives": _CREATIVES,
    },
    _campaign,
    required=("id", "advertiser", "cpm", "creatives"),
    together=_ends_after_it_starts,
)


def parse(document: object) -> Campaign:
    """Check and normalise a decoded JSON document (contract 2, "Campaign").

    Numbers may be int, float or Decimal. Raises CampaignError with every mistake.
    """
    mistakes: Mistakes = []
    campaign = CAMPAIGN.check(document, (), mistakes)
    if mistakes:
        raise CampaignError(tuple(mistakes))
    assert isinstance(campaign, Campaign)
    return campaign


def decode(text: str) -> Any:
    """Decode a stored document with exact numbers, for `parse`. Raises ValueError."""
    if len(text) > MAX_STORED:
        raise ValueError(f"the document must have at most {MAX_STORED} characters of JSON")
    try:
        return _STORED.decode(text)
    except (RecursionError, ArithmeticError) as error:
        raise ValueError(f"the document cannot be read: {type(error).__name__}") from None


def parse_quickly(text: bytes) -> Campaign | None:
    """Parse a document in UTF-8; None if it has a mistake or a rare form, so `parse` must decide.

    A key that occurs twice is not noticed; the last one counts, as it does for PostgreSQL.
    """
    # An escape may be U+0000, and may stand for more bytes than it has. A regular expression is
    # twice as fast as `in`.
    if len(text) > MAX_STORED or _ESCAPE.search(text) is not None:
        return None
    try:
        campaign = _finish(_DECODER.decode(text))
    except (ValueError, ArithmeticError, RecursionError):
        return None
    assert isinstance(campaign, Campaign)
    return campaign


def parse_json(text: bytes) -> Campaign:
    """Parse a document in UTF-8. Raises CampaignError, or another ValueError if it is not JSON."""
    campaign = parse_quickly(text)
    return parse(decode(text.decode())) if campaign is None else campaign


_DECODER: Final = msgspec.json.Decoder(CAMPAIGN.shape)
assert CAMPAIGN.finish is not None
_finish: Final = CAMPAIGN.finish
_ESCAPE: Final = re.compile(rb"\\u")
_STORED: Final = json.JSONDecoder(parse_float=Decimal)
