"""The campaign document: its fields and their rules (contract 2, "Campaign").

A document is JSON as an operator writes it. All mistakes are reported at once, each with its field
and the rule. `decode` reads numbers exactly: fractions become decimals, not binary floats. Changing
the meaning of a document requires a new `normalised.RULES`.
"""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from snapbid.campaigns import practice, vast_facts
from snapbid.campaigns.campaign import (
    Budget,
    Campaign,
    CampaignError,
    Creative,
    Declaration,
    FrequencyCap,
    Transparency,
)
from snapbid.campaigns.markup import ADDRESSED, Language, has_script
from snapbid.campaigns.native_rules import NATIVE, name_in, read_response
from snapbid.campaigns.rules import (
    Check,
    Mistakes,
    Path,
    Together,
    list_of,
    object_of,
    path_text,
    report,
    shown,
)
from snapbid.campaigns.targeting_rules import IMPORTED_TARGETING, TARGETING
from snapbid.campaigns.value_rules import (
    ADM,
    BUDGET,
    CPM,
    MAX_ADS,
    MAX_URL,
    check_advertiser,
    check_flag,
    check_language,
    check_media_type,
    check_name,
    check_product,
    check_time,
    choice,
    integer,
    integral,
    report_unprotected,
    string,
)
from snapbid.campaigns.vast_facts import SKIP_BUTTON
from snapbid.campaigns.vocabulary import MAX_INTEGER, is_language_code, size
from snapbid.reference.taxonomies import FAMILIES, NAMES, VENDORS, normal

MAX_DOCUMENT: Final = 64 * 1024 * 1024  # characters of JSON
MAX_STORED: Final = 2 * MAX_DOCUMENT  # PostgreSQL adds spaces
MAX_CREATIVES: Final = 1_000
MAX_MARKUP: Final = 1024 * 1024  # bytes of all `adm` and `native`, which a worker decodes together
MAX_DECLARED: Final = 100  # bytes; exchanges refuse longer ones
MAX_TRANSPARENCY: Final = 100
MAX_FREQUENCY_CAPS: Final = 16
MAX_ATTRIBUTION_DAYS: Final = 365
MAX_CATEGORY: Final = 500  # bytes; leaves room for the taxonomy in the index's key
MAX_API: Final = 31  # the index has a bit for each; the list of API frameworks ends at 9
XHTML, JAVASCRIPT, IFRAME = 2, 3, 4  # banner ad types; 1 is a text ad
MAX_BANNER_TYPE: Final = IFRAME
MAX_DELIVERY: Final = 3  # 1 streaming, 2 progressive, 3 download


def _has_what_its_media_needs(creative: Any, at: Path, mistakes: Mistakes) -> None:
    if creative.media == "banner":
        for side in ("w", "h"):
            if getattr(creative, side) is None:
                report(mistakes, (at, side), "is required for a banner")
    _has_what_only_its_media_has(creative, at, mistakes)
    if creative.native is not None:
        if creative.media != "native":
            report(mistakes, (at, "native"), "is only for media native")
        elif creative.adm:
            report(mistakes, (at, "adm"), "cannot be combined with native")
    elif creative.adm:
        if creative.media != "native":
            language: Language = "HTML" if creative.media == "banner" else "VAST"
            report_unprotected(creative.adm, language, (at, "adm"), mistakes)
        elif not _has_mistakes(((at, "adm"),), mistakes):
            read_response(creative.adm, (at, "adm"), mistakes)
    elif not _has_mistakes(((at, "adm"), (at, "native")), mistakes):
        report(mistakes, (at, "adm"), "is required")


def _has_what_only_its_media_has(creative: Any, at: Path, mistakes: Mistakes) -> None:
    if creative.media == "video":
        if creative.skippable is False and SKIP_BUTTON in (creative.attributes or ()):
            rule = f"must not be false with attribute {SKIP_BUTTON} (skip button)"
            report(mistakes, (at, "skippable"), rule)
    elif creative.media is not None:
        for field in ("linear", "skippable"):
            if getattr(creative, field) is not None:
                report(mistakes, (at, field), "is only for media video")
        if creative.media != "audio":
            for field in ("bitrate", "delivery", "ads"):
                if getattr(creative, field):
                    report(mistakes, (at, field), "is only for media video and audio")


def _is_what_its_markup_says(creative: Any, at: Path, mistakes: Mistakes) -> None:
    _has_what_its_media_needs(creative, at, mistakes)
    language = creative.language
    if language is not None and not is_language_code(language.partition("-")[0]):
        rule = "must begin with a language code of two or three letters, such as en or pt-BR"
        report(mistakes, (at, "language"), f"{rule}, found {shown(language)}")
    if isinstance(creative.iurl, str):
        practice.check_address(creative.iurl, "page", (at, "iurl"), mistakes)
    if creative.media == "native":
        _check_assets(creative, at, mistakes)
    elif creative.adm:
        markup = (at, "adm")
        if creative.media in ("video", "audio"):
            _check_vast(creative, creative.adm, creative.media, at, markup, mistakes)
        elif creative.media == "banner":
            report_unprotected(creative.adm, "HTML", markup, mistakes, ADDRESSED)
            practice.check_banner(creative, markup, mistakes)


def _check_vast(
    creative: Any, text: str, media: str, at: Path, markup: Path, mistakes: Mistakes
) -> None:
    vast_facts.check(creative, text, media, at, markup, mistakes)
    report_unprotected(text, "VAST", markup, mistakes, ADDRESSED)
    practice.check_macros(text, "VAST", markup, mistakes)


def _check_assets(creative: Any, at: Path, mistakes: Mistakes) -> None:
    native, markup = creative.native, (at, "native")
    names: dict[str, str] = {}
    if native is None and creative.adm:
        response = read_response(creative.adm, (), Mistakes())
        if response is not None:
            native, markup, names = response.ad, (at, "adm"), response.names
    if native is None:
        return
    practice.check_native(native, creative.secure, markup, names, mistakes)
    if native.video is not None:
        field = (markup, name_in(names, "video"))
        _check_vast(creative, native.video, "native", at, field, mistakes)


def _has_mistakes(places: Sequence[Path], mistakes: Mistakes) -> bool:
    fields = [path_text(place) for place in places]
    return any(
        mistake.field == field or mistake.field.startswith((f"{field}.", f"{field}["))
        for mistake in mistakes
        for field in fields
    )


def _assets(creative: Creative) -> Creative:
    """Put the assets of a native creative into `native`, reading them from `adm` if necessary.

    Returns creatives of other media unchanged.
    """
    if creative.media != "native":
        return creative
    native = creative.native
    if native is None:
        response = read_response(creative.adm, (), Mistakes())
        assert response is not None
        native = response.ad
    if (video := native.video) is not None:
        native = msgspec.structs.replace(
            native,
            mimes=creative.mimes,
            protocols=creative.protocols,
            duration=creative.duration,
        )
        vast_facts.fill(native, video, "native")
    return msgspec.structs.replace(creative, adm="", native=native)


def _creative(**fields: Any) -> Creative:
    """Build a creative, with the fields derived from its markup and other fields (contract 2).

    Unstated fields are derived: a banner's ad type from its markup, the fields of video and audio
    from VAST. A video with the skip button's attribute is skippable, and a skippable video gets
    that attribute.
    """
    creative = Creative(**fields)
    if creative.media == "banner":
        if creative.type is None:
            is_iframe = "<iframe" in creative.adm.lower()
            kind = JAVASCRIPT if has_script(creative.adm) else IFRAME if is_iframe else XHTML
            force_setattr(creative, "type", kind)
    elif creative.media == "audio":
        vast_facts.fill(creative, creative.adm, "audio")
    elif creative.media == "video":
        vast_facts.fill(creative, creative.adm, "video")
        if SKIP_BUTTON in creative.attributes:
            force_setattr(creative, "skippable", True)
        elif creative.skippable:
            force_setattr(creative, "attributes", (*creative.attributes, SKIP_BUTTON))
    return creative


def _fields_fit_together(campaign: Any, at: Path, mistakes: Mistakes) -> None:
    for category in campaign.categories or () if campaign.cattax not in (None, 1) else ():
        if isinstance(category, str) and size(category) > MAX_CATEGORY:
            report(mistakes, (at, "categories"), f"must have at most {MAX_CATEGORY} bytes each")
            break
    starts, ends = campaign.starts_at, campaign.ends_at
    if starts is not None and ends is not None and starts >= ends:
        report(mistakes, (at, "ends_at"), "must be later than starts_at")


def _fields_fit_when_imported(campaign: Any, at: Path, mistakes: Mistakes) -> None:
    _fields_fit_together(campaign, at, mistakes)
    cattax = 1 if campaign.cattax is None else campaign.cattax
    if _has_mistakes(((at, "categories"), (at, "cattax")), mistakes):
        return
    for index, category in enumerate(campaign.categories or ()):
        if normal(cattax, category) is None:
            name = NAMES.get(FAMILIES.get(cattax, 0), "taxonomy")
            rule = f"is not in the {name} (cattax {cattax}): {shown(category)}"
            report(mistakes, ((at, "categories"), index), rule)


def _markup_is_short_enough(
    creatives: Sequence[Creative | None], at: Path, mistakes: Mistakes
) -> None:
    markup = sum([_markup_size(creative) for creative in creatives if creative is not None])
    if markup > MAX_MARKUP:
        report(mistakes, at, f"must have at most {MAX_MARKUP} bytes of adm, found {markup}")


def _markup_size(creative: Creative) -> int:
    return size(creative.adm) + (
        len(msgspec.json.encode(creative.native)) if creative.native else 0
    )


def _campaign(
    *,
    cpm: int,
    creatives: tuple[Creative, ...],
    starts_at: int | None = None,
    ends_at: int | None = None,
    targeting: dict[str, Any] | None = None,
    categories: tuple[str, ...] = (),
    **fields: Any,
) -> Campaign:
    if categories:
        fields["categories"] = _spelled(categories, fields.get("cattax", 1))
    targeting = targeting or {}
    circles = targeting.pop("geo_radius", ())
    for creative in creatives:
        if creative.media == "native":
            creatives = tuple(map(_assets, creatives))
            break
    return Campaign(
        cpm_micros=cpm,
        creatives=creatives,
        starts_at_ms=starts_at,
        ends_at_ms=ends_at,
        targeting=dict(sorted(targeting.items())),  # jsonb does not keep the order
        geo_radius=circles,
        **fields,
    )


def _budget(*, daily: int | None = None, total: int | None = None, **fields: Any) -> Budget:
    return Budget(daily_micros=daily, total_micros=total, **fields)


def _creatives(together: Together) -> Check:
    return list_of(
        object_of(
            {
                "id": string(),
                "media": choice("banner", "video", "native", "audio"),
                "adm": ADM,
                "w": integer(1),
                "h": integer(1),
                "attributes": list_of(integer(0)),
                "secure": check_flag,
                "mimes": list_of(check_media_type),
                "duration": integer(1),
                "protocols": list_of(integer(0)),
                "iurl": string(MAX_URL),
                "language": check_language,
                "apis": list_of(integer(1, MAX_API)),
                "type": integer(1, MAX_BANNER_TYPE),
                "native": NATIVE,
                "linear": check_flag,
                "skippable": check_flag,
                "bitrate": integer(1),
                "delivery": list_of(integer(1, MAX_DELIVERY)),
                "ads": integer(1, MAX_ADS),
            },
            _creative,
            required=("id", "media"),
            together=together,
        ),
        MAX_CREATIVES,
        distinct=False,
        unique="id",
        together=_markup_is_short_enough,
    )


_BUDGET: Final = object_of(
    {"daily": BUDGET, "total": BUDGET, "pacing": choice("asap", "even")}, _budget
)
_CAP: Final = object_of(
    {"impressions": integer(1), "seconds": integer(1)},
    FrequencyCap,
    required=("impressions", "seconds"),
)
_TRANSPARENCY: Final = object_of(
    {"domain": check_advertiser, "dsaparams": list_of(integer(0))},
    Transparency,
    required=("domain",),
)
_DECLARATION: Final = object_of(
    {
        "behalf": string(MAX_DECLARED),
        "paid": string(MAX_DECLARED),
        "adrender": integer(0, 1),
        "transparency": list_of(_TRANSPARENCY, MAX_TRANSPARENCY, distinct=False),
    },
    Declaration,
)


def _check_taxonomy(value: Any, at: Path, mistakes: Mistakes) -> Any:
    number = integral(value)
    if type(number) is not int or not (number in FAMILIES or VENDORS <= number <= MAX_INTEGER):
        rule = f"must be 1 to {max(FAMILIES)}, or a vendor's taxonomy of {VENDORS} and above"
        report(mistakes, at, f"{rule}, found {shown(value)}")
    return number


def _spelled(categories: tuple[str, ...], cattax: int) -> tuple[str, ...]:
    """Return categories in their taxonomy's spelling; unknown ones unchanged."""
    return tuple(dict.fromkeys(normal(cattax, each) or each for each in categories))


def _campaigns(targeting: Check, of_creative: Together, together: Together) -> Check:
    return object_of(
        {
            "id": string(),
            "advertiser": check_advertiser,
            "seat": check_name,
            "bundle": check_name,
            "name": string(),
            "categories": list_of(string()),
            "cattax": _check_taxonomy,
            "status": choice("active", "paused"),
            "starts_at": check_time,
            "ends_at": check_time,
            "cpm": CPM,
            "budget": _BUDGET,
            "frequency_caps": list_of(_CAP, MAX_FREQUENCY_CAPS),
            "dsa": _DECLARATION,
            "attribution_days": integer(1, MAX_ATTRIBUTION_DAYS),
            "product": check_product,
            "targeting": targeting,
            "creatives": _creatives(of_creative),
        },
        _campaign,
        required=("id", "advertiser", "cpm", "creatives"),
        together=together,
    )


CAMPAIGN: Final = _campaigns(TARGETING, _has_what_its_media_needs, _fields_fit_together)
IMPORTED: Final = _campaigns(
    IMPORTED_TARGETING, _is_what_its_markup_says, _fields_fit_when_imported
)
"""CAMPAIGN with the rules and warnings that only the import applies: to markup, to the fields
stated beside it, to unknown categories and to the names of languages. A campaign stored before
these rules, or by plain SQL, still bids (with an unknown category, only on requests that restrict
no categories)."""


def parse(document: object) -> Campaign:
    """Check and normalise a stored document, decoded from JSON (contract 2, "Campaign").

    Numbers may be int, float or Decimal. Raises CampaignError, which lists all mistakes.
    """
    mistakes = Mistakes()
    campaign = CAMPAIGN(document, (), mistakes)
    if mistakes:
        raise CampaignError(tuple(mistakes))
    assert isinstance(campaign, Campaign)
    return campaign


def decode(text: str) -> Any:
    """Decode a stored document for `parse`, keeping numbers exact. Raises ValueError."""
    if len(text) > MAX_STORED:
        raise ValueError(f"the document must have at most {MAX_STORED} characters of JSON")
    try:
        return _STORED.decode(text)
    except (RecursionError, ArithmeticError) as error:
        raise ValueError(f"the document cannot be read: {type(error).__name__}") from None


def parse_json(text: bytes) -> Campaign:
    """Parse a stored document in UTF-8.

    Raises CampaignError, which lists all mistakes, or another ValueError if it cannot be decoded.
    """
    return parse(decode(text.decode()))


_STORED: Final = json.JSONDecoder(parse_float=Decimal)
