"""Puts documents of the warehouse into an index, quickly where they are as the import left them.

What is decoded here into typed structs is checked by them, targeting values by the builder, which
has each normalised once; the few rules that a type cannot state stand below. Whatever does not
pass, or is written in a form that is rare (a price like `1e0`), goes the long way of
`document.parse`, which alone says what is wrong. So both put the same campaign.
"""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, BinaryIO, Final, Literal

import msgspec
from msgspec import Meta

from snapbid.match._builder import DIMENSIONS
from snapbid.match.campaign import Budget, Campaign, Creative, FrequencyCap, Mistake, Values
from snapbid.match.compile import Builder, put
from snapbid.match.document import (
    CIRCLE,
    MAX_CIRCLES,
    MAX_CREATIVES,
    MAX_DEALS,
    MAX_FREQUENCY_CAPS,
    MAX_MARKUP,
    MAX_STORED,
    MAX_URL,
    count_entries,
    decode,
    markup_bytes,
    parse,
)
from snapbid.match.readers import (
    BIDDER_MACROS,
    MAX_ADM_BYTES,
    MAX_ENTRIES,
    MAX_LIST,
    Reader,
    advertiser,
    micros,
    time_ms,
)
from snapbid.match.vocabulary import MAX_INTEGER, MAX_TEXT, normalise, size

MAX_KNOWN: Final = 100_000  # values of one kind whose normal form is kept

Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=MAX_LIST)]
Integer = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Positive = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
Integers = Annotated[tuple[Integer, ...], Meta(max_length=MAX_LIST)]
Entries = Annotated[tuple[str | int, ...], Meta(max_length=MAX_ENTRIES)]


class _Creative(Creative, frozen=True, forbid_unknown_fields=True):
    id: Text
    adm: Annotated[str, Meta(min_length=1, max_length=MAX_ADM_BYTES)]
    w: Positive | None = None
    h: Positive | None = None
    attributes: Integers = ()
    mimes: Texts = ()
    duration: Positive | None = None
    protocols: Integers = ()
    iurl: Annotated[str, Meta(min_length=1, max_length=MAX_URL)] | None = None


class _Cap(FrequencyCap, frozen=True, gc=False, forbid_unknown_fields=True):
    impressions: Positive
    seconds: Positive


class _Values(Values, frozen=True, gc=False, forbid_unknown_fields=True):
    include: Entries = ()
    exclude: Entries = ()


class _Circle(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    lat: msgspec.Raw
    lon: msgspec.Raw
    km: msgspec.Raw


class _Budget(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    daily: msgspec.Raw = msgspec.Raw(b"null")
    total: msgspec.Raw = msgspec.Raw(b"null")
    pacing: Literal["asap", "even"] = "asap"


class _Document(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    id: Text
    advertiser: str
    cpm: msgspec.Raw
    creatives: Annotated[tuple[_Creative, ...], Meta(min_length=1, max_length=MAX_CREATIVES)]
    seat: Text | None = None
    bundle: Text | None = None
    name: Text | None = None
    categories: Texts = ()
    status: Literal["active", "paused"] = "active"
    starts_at: str | None = None
    ends_at: str | None = None
    budget: _Budget | None = None
    frequency_caps: Annotated[tuple[_Cap, ...], Meta(max_length=MAX_FREQUENCY_CAPS)] = ()
    targeting: dict[
        str, _Values | Annotated[tuple[_Circle, ...], Meta(max_length=MAX_CIRCLES)]
    ] = {}


class _UnusualError(ValueError):
    """The document takes the long way."""


class _Known(dict[Any, Any]):
    """What stands in documents, and what `read` makes of it."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __missing__(self, value: Any) -> Any:
        found = self._read(value)
        if found is None:
            raise _UnusualError
        if len(self) >= MAX_KNOWN:
            self.clear()
        self[value] = found
        return found


def _by_rule(read: Reader) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        found: list[Mistake] = []
        result = read(value, "", found)
        return None if found else result

    return checked


_decoder: Final = msgspec.json.Decoder(_Document)
_advertisers: Final = _Known(_by_rule(advertiser))
_times: Final = _Known(_by_rule(time_ms))
_money: Final = _Known(lambda raw: _by_rule(micros)(decode(raw.decode())))
_names: Final = {number: name for name, number in DIMENSIONS.items()}
_circle: Final = _by_rule(CIRCLE)
_OTHER_BRACES: Final = re.compile(rf"{{{{(?!(?:{'|'.join(BIDDER_MACROS)})}}}})")
_ESCAPE: Final = re.compile(rb"\\u")  # U+0000, or more bytes than are seen; twice as quick as `in`


def new_builder(payloads: BinaryIO | None = None) -> Builder:
    """A builder for `insert`; `payloads` as in `Builder`."""
    return Builder(payloads, lambda number, value: normalise(_names[number], value))


def insert(builder: Builder, document: bytes, number: int, created_at_ms: int = 0) -> None:
    """Adds or replaces the campaign of a document in UTF-8 (`compile.put`).

    Raises CampaignError with every mistake, or another ValueError for what cannot be read.
    """
    campaign = read_quickly(document)
    if campaign is not None:
        try:
            put(builder, campaign, number, created_at_ms)
            return
        except ValueError:
            pass
    put(builder, parse(decode(document.decode())), number, created_at_ms)


def read_quickly(document: bytes) -> Campaign | None:
    """The campaign, its targeting values as they are spelled, which nobody has looked at.

    None where another rule does not hold or cannot be told here.
    """
    if len(document) > MAX_STORED or _ESCAPE.search(document) is not None:
        return None
    try:
        return _campaign(document)
    except (ValueError, RecursionError):
        return None


def _campaign(document: bytes) -> Campaign:
    """Raises ValueError for what `read_quickly` leaves."""
    found = _decoder.decode(document)
    budget = found.budget
    targeting, circles = _targeting(found.targeting)
    campaign = Campaign(
        id=found.id,
        advertiser=_advertisers[found.advertiser],
        cpm_micros=_money[bytes(found.cpm)],
        creatives=found.creatives,
        seat=found.seat,
        bundle=found.bundle,
        name=found.name,
        categories=_once(found.categories),
        status=found.status,
        starts_at_ms=None if found.starts_at is None else _times[found.starts_at],
        ends_at_ms=None if found.ends_at is None else _times[found.ends_at],
        budget=_NO_BUDGET if budget is None else _money_of(budget),
        frequency_caps=_once(found.frequency_caps),
        targeting=targeting,
        geo_radius=circles,
    )
    starts, ends = campaign.starts_at_ms, campaign.ends_at_ms
    if starts is not None and ends is not None and starts >= ends:
        raise _UnusualError
    _check_creatives(campaign.creatives)
    if not document.isascii():
        _check_bytes(campaign)
    # An entry takes three characters at least.
    if len(document) > MAX_ENTRIES and count_entries(campaign.targeting.values()) > MAX_ENTRIES:
        raise _UnusualError
    if len(document) > MAX_MARKUP and markup_bytes(campaign.creatives) > MAX_MARKUP:
        raise _UnusualError
    return campaign


def _once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values if len(values) < 2 else tuple(dict.fromkeys(values))


def _money_of(budget: _Budget) -> Budget:
    daily, total = bytes(budget.daily), bytes(budget.total)
    return Budget(
        None if daily == b"null" else _money[daily],
        None if total == b"null" else _money[total],
        budget.pacing,
    )


def _targeting(found: dict[str, Any]) -> tuple[dict[str, Values], tuple[Any, ...]]:
    circles = found.pop("geo_radius", ())
    if type(circles) is not tuple or not DIMENSIONS.keys() >= found.keys():
        raise _UnusualError
    for values in found.values():
        if type(values) is not _Values:
            raise _UnusualError
    deals = found.get("deal")
    if deals is not None and max(len(deals.include), len(deals.exclude)) > MAX_DEALS:
        raise _UnusualError
    return found, _once(tuple(map(_circle_of, circles))) if circles else ()


def _circle_of(found: _Circle) -> Any:
    members = {"lat": found.lat, "lon": found.lon, "km": found.km}
    circle = _circle({name: decode(bytes(raw).decode()) for name, raw in members.items()})
    if circle is None:
        raise _UnusualError
    return circle


def _check_creatives(creatives: tuple[Creative, ...]) -> None:
    for creative in creatives:
        if creative.media == "banner" and (creative.w is None or creative.h is None):
            raise _UnusualError
        _check_macros(creative.adm)
        for values in (creative.attributes, creative.mimes, creative.protocols):
            if len(values) > 1 and len(set(values)) < len(values):
                raise _UnusualError
    if len(creatives) > 1 and len({creative.id for creative in creatives}) < len(creatives):
        raise _UnusualError


def _check_macros(adm: str) -> None:
    if _OTHER_BRACES.search(adm) is not None:
        raise _UnusualError


def _check_bytes(campaign: Campaign) -> None:
    """Lengths, where a character may be several bytes; targeting has been looked at."""
    texts: list[Iterable[str | None]] = [
        (campaign.id, campaign.seat, campaign.bundle, campaign.name),
        campaign.categories,
    ]
    for creative in campaign.creatives:
        texts += [(creative.id,), creative.mimes]
        if size(creative.adm) > MAX_ADM_BYTES or size(creative.iurl or "") > MAX_URL:
            raise _UnusualError
    if any(text is not None and size(text) > MAX_TEXT for some in texts for text in some):
        raise _UnusualError


_NO_BUDGET: Final = Budget()
