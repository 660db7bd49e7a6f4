"""Targeting dimensions and the normal form of their values (contract 3, "Targeting dimensions").

This module normalises a campaign's entries, and those values of a request that need more than
casefolding (region, language, host). The matcher casefolds the others when it compares them. Two
details that the contract leaves open:

- A campaign may spell an operating system in any of the usual ways ("Mac OS X"). A spelling that
  `agents.fold_os` does not know is not a valid entry; in a request, it counts as `other`.
- Integers go up to 2,147,483,647, the range of OpenRTB's integers. Some have names (`codes.py`),
  which campaigns may use instead; the normal form is the integer.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal

import msgspec

from snapbid.campaigns import codes
from snapbid.campaigns.domains import MAX_TEXT, host, mapped
from snapbid.reference import agents, countries, taxonomies
from snapbid.reference.languages import CURRENT_CODES

MAX_INTEGER = 2**31 - 1
HOURS_OF_WEEK = 168
MAX_LANGUAGE_CODE = 3  # letters, in ISO 639
INVENTORIES = ("site", "app", "dooh")
MEDIA_TYPES: Final[dict[str, tuple[str, ...]]] = {
    name: names
    for names in (
        ("application/javascript", "application/x-javascript"),
        ("audio/mpeg", "audio/mp3", "audio/x-mp3", "audio/x-mpeg"),
        ("image/jpeg", "image/jpg"),
        ("video/mp4", "video/x-mp4"),
    )
    for name in names
}
"""The names of a media type that has several, by each of them; the first is the normal form."""


class Dimension(msgspec.Struct, frozen=True, gc=False):
    """One targeting dimension.

    `kind`: the type of entries; `either` is an integer or a string. `case`: how strings are
    normalised: not at all (`exact`), by casefolding (`fold`), or to `upper` or `lower` case; None
    for integers. `multi`: whether a request may carry several values; for `ssp`, `domain` and
    `category` these include derived ones (canonical id, parents). `scope`: whether the values
    belong to the request or to each impression.
    """

    name: str
    kind: Literal["text", "int", "either"]
    case: Literal["exact", "fold", "upper", "lower"] | None = None
    multi: bool = False
    scope: Literal["request", "impression"] = "request"


DIMENSIONS: tuple[Dimension, ...] = (
    Dimension("ssp", "text", "exact", multi=True),
    Dimension("country", "text", "upper"),
    Dimension("region", "text", "fold"),
    Dimension("city", "text", "fold"),
    Dimension("postal", "text", "fold"),
    Dimension("device_type", "int"),
    Dimension("connection", "int"),
    Dimension("os", "text", "lower"),
    Dimension("browser", "text", "lower"),
    Dimension("carrier", "text", "fold"),
    Dimension("language", "text", "lower"),
    Dimension("inventory", "text", "lower", multi=True),
    Dimension("domain", "text", "lower", multi=True),
    Dimension("bundle", "text", "exact"),
    Dimension("publisher", "text", "exact", multi=True),
    Dimension("category", "text", "upper", multi=True),
    Dimension("segment", "text", "exact", multi=True),
    Dimension("audience", "text", "exact", multi=True),
    Dimension("deal", "text", "exact", multi=True, scope="impression"),
    Dimension("position", "int", multi=True, scope="impression"),
    Dimension("placement", "either", "exact", multi=True, scope="impression"),
    Dimension("rewarded", "int", scope="impression"),
    Dimension("interstitial", "int", scope="impression"),
    Dimension("hour", "int"),
)

VALUES: Final[Mapping[str, Collection[str | int]]] = {
    "country": countries.ALPHA3,
    "os": agents.SYSTEMS,
    "browser": agents.BROWSERS,
    "inventory": INVENTORIES,
    "rewarded": range(2),
    "interstitial": range(2),
    "hour": range(HOURS_OF_WEEK),
}
"""All values of each dimension that has few."""

ALWAYS: Final = frozenset(("rewarded", "interstitial", "hour"))
"""The dimensions among VALUES of which every request or impression has a value."""

AUDIENCE_NAME: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)
"""The pattern for names of audiences and products."""

_NATIVE_PLACEMENT = re.compile(r"n(0|[1-9][0-9]{0,9})", re.ASCII)
BLANKS: Final = "".join(map(chr, range(33)))  # trimmed (sb_trimmed in spelling.h)
_LANGUAGE = re.compile(r"([A-Za-z]{2,8})(?:[-_].*)?", re.DOTALL)


def size(text: str) -> int:
    """Return the length of `text` in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def text(value: object) -> str | None:
    """Return a value if it is 1 to 512 bytes of encodable text without U+0000, else None."""
    if not isinstance(value, str) or not value or "\0" in value:
        return None
    try:
        return value if len(value.encode()) <= MAX_TEXT else None
    except UnicodeEncodeError:  # an unpaired surrogate: neither index nor warehouse could hold it
        return None


def trimmed(written: str) -> str:
    """Remove surrounding white space and control characters."""
    return written.strip().strip(BLANKS)


def visible(written: str) -> str:
    """Remove invisible characters (Unicode category Cf), then trim as `trimmed` does."""
    if not written.isascii():
        written = "".join(each for each in written if unicodedata.category(each) != "Cf")
    return trimmed(written)


def region(country: str, code: str) -> str | None:
    """Normalise a region code: `CA`, `us-ca` and `USA-CA` become `usa-ca` if `country` is `USA`.

    `country` is alpha-3. Returns None for a blank code.
    """
    code = trimmed(code)
    prefix, dash, rest = code.partition("-")
    if dash and countries.alpha3(prefix) == country:
        code = rest
    return f"{country}-{code}".casefold() if code else None


def category(written: str) -> str | None:
    """Normalise a category of a site or app: `iab-3-1`, ` IAB 3-1` and `IAB03_1` become `IAB3-1`.

    Categories of other taxonomies are converted to upper case without white space. Returns None for
    a string that is blank, too long, or has several categories.
    """
    normal = taxonomies.spelled(written if written.isascii() else mapped(written))
    return _short(normal) if normal and normal.count("IAB") < 2 else None


def primary_subtag(language: str) -> str | None:
    """Return the current code of a tag's primary subtag: `en` for `en-US`, `EN_gb` and `eng`.

    None for a string that is not a language tag.
    """
    match = _LANGUAGE.fullmatch(language.strip(BLANKS))
    return current_code(match.group(1).lower()) if match else None


def current_code(subtag: str) -> str:
    """Return a language's current code: `id` for `in`, `de` for `deu` and `ger`."""
    return CURRENT_CODES.get(subtag, subtag)


def is_language_code(subtag: str) -> bool:
    """Return whether a primary subtag is short enough to be a language code of ISO 639."""
    return len(subtag) <= MAX_LANGUAGE_CODE


def media_type(written: str) -> str:
    """Normalise a media type: lower case, without parameters, `audio/mpeg` for `audio/mp3`."""
    name = written.partition(";")[0].strip().lower()
    return MEDIA_TYPES[name][0] if name in MEDIA_TYPES else name


def _trimmed(value: object) -> str | None:
    admitted = text(value)
    return trimmed(admitted) or None if admitted is not None else None


def _composed(value: object) -> str | None:
    """Trim a string, and compose its letters (NFC), since macOS may write ü as u and U+0308."""
    admitted = _trimmed(value)
    return unicodedata.normalize("NFC", admitted) if admitted is not None else None


def _folded(value: object) -> str | None:
    admitted = _composed(value)
    return _short(admitted.casefold()) if admitted is not None else None


def _country(value: object) -> str | None:
    return countries.alpha3(value.strip()) if isinstance(value, str) else None


def _region(value: object) -> str | None:
    admitted = _composed(value)
    if admitted is None:
        return None
    prefix, _, code = admitted.partition("-")
    country = countries.alpha3(prefix)
    return _short(region(country, code)) if country is not None else None


def _short(normal: str | None) -> str | None:
    """Return a normal form; None if casefolding made it too long."""
    return normal if normal is not None and size(normal) <= MAX_TEXT else None


def _os(value: object) -> str | None:
    admitted = text(value)
    if admitted is None or admitted.lower() == agents.OTHER:
        return agents.OTHER if admitted is not None else None
    folded = agents.fold_os(admitted)
    return folded if folded != agents.OTHER else None


def _one_of(names: tuple[str, ...]) -> Callable[[object], str | None]:
    def check(value: object) -> str | None:
        lowered = value.lower() if isinstance(value, str) else None
        return lowered if lowered in names else None

    return check


def _language(value: object) -> str | None:
    admitted = text(value)
    return primary_subtag(admitted) if admitted is not None else None


def _domain(value: object) -> str | None:
    admitted = text(value)
    return host(admitted) if admitted is not None else None


def _category(value: object) -> str | None:
    admitted = text(value)
    return category(admitted) if admitted is not None else None


def _audience(value: object) -> str | None:
    return value if isinstance(value, str) and AUDIENCE_NAME.fullmatch(value) else None


def _placement(value: object) -> str | int | None:
    """Normalise a placement: a name, a code for video, or a code for native ads such as `n1`."""
    match = _NATIVE_PLACEMENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return _video_or_named(value)
    return value if int(match[1]) <= MAX_INTEGER else None  # type: ignore[return-value]


def _integer_below(limit: int) -> Callable[[object], int | None]:
    def check(value: object) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        return value if 0 <= value < limit else None

    return check


_integer = _integer_below(MAX_INTEGER + 1)


def _named(dimension: str) -> Callable[[object], str | int | None]:
    def check(value: object) -> str | int | None:
        return codes.code_of(dimension, value) if isinstance(value, str) else _integer(value)

    return check


_video_or_named = _named("placement")

NORMALISE: Final[dict[str, Callable[[object], str | int | None]]] = {
    **{d.name: _trimmed for d in DIMENSIONS if d.case == "exact"},
    **{d.name: _folded for d in DIMENSIONS if d.case == "fold"},
    **{d.name: _named(d.name) for d in DIMENSIONS if d.kind == "int"},
    "country": _country,
    "region": _region,
    "os": _os,
    "browser": _one_of(agents.BROWSERS),
    "language": _language,
    "inventory": _one_of(INVENTORIES),
    "domain": _domain,
    "category": _category,
    "audience": _audience,
    "placement": _placement,
    "rewarded": _integer_below(2),
    "interstitial": _integer_below(2),
    "hour": _integer_below(HOURS_OF_WEEK),
}
"""Functions that normalise a value of each dimension; they return None if it is invalid."""
