"""The rules of `targeting` in a campaign document (contract 2 and 3).

They are derived from `vocabulary.DIMENSIONS`; this module adds only the messages for wrong entries.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from snapbid.campaigns import codes
from snapbid.campaigns.campaign import Circle, Values
from snapbid.campaigns.domains import MAX_TEXT
from snapbid.campaigns.rules import Check, Mistakes, Path, list_of, object_of, report, shown
from snapbid.campaigns.value_rules import integral, real, text_rule
from snapbid.campaigns.vocabulary import (
    DIMENSIONS,
    MAX_INTEGER,
    NORMALISE,
    Dimension,
    is_language_code,
)

Normalise: TypeAlias = Callable[[object], str | int | None]

MAX_ENTRIES: Final = 1_000_000  # of all lists together
MAX_DEALS: Final = 10_000
MAX_CIRCLES: Final = 1_000  # each is compared with a request's location
MAX_KM: Final = 50_000

# The message for a wrong entry, by dimension.
_ENTRY_RULES: Final = {
    **{
        name: f"is neither an integer from 0 to {MAX_INTEGER} nor one of {', '.join(names)}"
        for name, names in codes.NAMES.items()
    },
    "country": "is not an ISO 3166-1 country",
    "region": "is not COUNTRY-REGION, such as USA-CA",
    "os": "is not one of ios, android, windows, macos, linux, chromeos, tizen, webos, other",
    "browser": "is not one of chrome, safari, firefox, edge, samsung, opera, other",
    "language": "is not a language code of two or three letters, such as en",
    "category": "is not one category, such as IAB3-1",
    "inventory": "is not one of site, app, dooh",
    "domain": "is not a domain",
    "placement": "is neither a video placement (an integer), a native one (such as n1) nor one of "
    + ", ".join(codes.PLACEMENTS),
    "audience": "is not the name of an audience, in the characters A-Z a-z 0-9 . _ ~ -",
    "rewarded": "is not 0 or 1",
    "interstitial": "is not 0 or 1",
    "hour": "is not an hour of the week, 0 (Monday 00:00 UTC) to 167",
}


def _check_of(dimension: Dimension, normalise: Normalise) -> Check:
    """Build the check of a dimension's `include` and `exclude` lists."""
    is_text = dimension.kind == "text"

    def check(value: Any, at: Path, mistakes: Mistakes) -> Any:
        normal = normalise(value if is_text or value.__class__ is int else integral(value))
        if normal is None:
            report(mistakes, at, _entry_rule(dimension, value))
        return normal

    entries = list_of(check, MAX_DEALS if dimension.name == "deal" else MAX_ENTRIES)
    return object_of({"include": entries, "exclude": entries}, Values)


def _entry_rule(dimension: Dimension, value: object) -> str:
    rule = _ENTRY_RULES.get(dimension.name)
    if dimension.kind != "text":
        return f"{rule}: {shown(value)}"
    if not rule and text_rule(value) is None:
        if not str(value).strip():
            return f"must not be blank, found {shown(value)}"
        return f"must have at most {MAX_TEXT} bytes in lower case: {shown(value)}"
    return text_rule(value) or f"{rule}: {shown(value)}"


def _entries_are_few_enough(targeting: Any, at: Path, mistakes: Mistakes) -> None:
    entries = 0
    for values in vars(targeting).values():
        if isinstance(values, Values):
            entries += len(values.include) + len(values.exclude)
    if entries > MAX_ENTRIES:
        report(mistakes, at, f"must have at most {MAX_ENTRIES} entries, found {entries}")


def _without_empty(**targeting: Any) -> dict[str, Any]:
    return {
        name: values
        for name, values in targeting.items()
        if not isinstance(values, Values) or values.include or values.exclude
    }


_CIRCLES: Final = list_of(
    object_of(
        {
            "lat": real(lambda n: -90 <= n <= 90, "from -90 to 90"),
            "lon": real(lambda n: -180 <= n <= 180, "from -180 to 180"),
            "km": real(lambda n: 0 < n <= MAX_KM, f"over 0 and up to {MAX_KM}"),
        },
        Circle,
        required=("lat", "lon", "km"),
    ),
    MAX_CIRCLES,
)


def _language_code(value: object) -> str | int | None:
    """Normalise a language as `NORMALISE` does; None for a name such as `English`."""
    code = NORMALISE["language"](value)
    return code if isinstance(code, str) and is_language_code(code) else None


def _targeting(normalise: dict[str, Normalise]) -> Check:
    checks = {d.name: _check_of(d, normalise[d.name]) for d in DIMENSIONS}
    checks["geo_radius"] = _CIRCLES
    return object_of(checks, _without_empty, together=_entries_are_few_enough)


TARGETING: Final = _targeting(NORMALISE)
"""Returns the values by dimension, without empty dimensions, and the circles as `geo_radius`."""

IMPORTED_TARGETING: Final = _targeting(NORMALISE | {"language": _language_code})
"""TARGETING with the rules that only the import applies."""
