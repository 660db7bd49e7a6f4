"""Derive a creative's fields from its VAST, and check stated fields against it (contract 2).

A fact fills in a field that the creative leaves out. A stated field may be narrower than the facts
(for example, list only one of the media files' types), but must not contradict them. With several
media files, size and bitrate default to the largest; the creative may state those of another file.
Since a request may exclude types of media files, these facts are also kept separately for each type
if the types differ. The media of a wrapper are elsewhere, so little is known about them; a warning
names the requests that the creative cannot serve as a result.
"""

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec.structs import force_setattr, replace

from snapbid.campaigns.campaign import Creative, Rendition
from snapbid.campaigns.native import NativeAd
from snapbid.campaigns.rules import MAX_LIST, Mistakes, Path, report, shown, warn
from snapbid.campaigns.value_rules import MAX_ADS, text_rule
from snapbid.campaigns.vast import MediaFile, Vast, VastError, read
from snapbid.campaigns.vocabulary import media_type

SKIP_BUTTON: Final = 16  # the creative attribute
MAX_REMEMBERED: Final = 64  # documents; checking a campaign reads each more than once
DOWNLOAD: Final = 3  # AdCOM's delivery method; VAST calls it progressive, too

_ADDRESS: Final = re.compile(r"\s*(?:https?:)?//\S+\s*", re.IGNORECASE)
_ABSENT: Final = (None, ())
_Size: TypeAlias = tuple[int, int]  # width and height in pixels
_OF_NATIVE: Final = ("protocols", "mimes", "duration")
_OF_AUDIO: Final = (*_OF_NATIVE, "bitrate", "delivery", "apis", "ads")
_FIELDS: Final = {
    "video": (*_OF_AUDIO, "linear", "skippable", "attributes", "w", "h"),
    "audio": _OF_AUDIO,
    "native": _OF_NATIVE,
}


# -- the facts ------------------------------------------------------------------------------------


def facts_of(text: str, media: str) -> dict[str, Any]:
    """Return the values of a creative's fields found in its VAST, by field name.

    Empty if the text is not VAST. `media`: the creative's media type, which determines the fields.
    """
    if is_address(text):
        return {}
    try:
        facts = known(text).facts
    except VastError:
        return {}
    return {name: facts[name] for name in _FIELDS[media] if name in facts}


def fill(creative: Creative | NativeAd, text: str, media: str) -> None:
    """Fill in the fields that a creative does not state, from its VAST document `text`."""
    facts = facts_of(text, media)
    if "w" in facts and isinstance(creative, Creative):
        sizes = _sizes(known(text).vast)
        facts["w"], facts["h"] = _largest(_agreeing(sizes, creative.w, creative.h))
    unstated = {name for name in facts if getattr(creative, name) in _ABSENT}
    for name in unstated:
        if facts[name] is not None:
            force_setattr(creative, name, facts[name])
    if isinstance(creative, Creative) and "mimes" in facts:
        if not {"w", "h"} <= unstated:  # a side that is stated determines the other
            unstated -= {"w", "h"}
        force_setattr(creative, "renditions", _renditions(creative, known(text).vast, unstated))


_BY_TYPE: Final = ("bitrate", "delivery", "w", "h")  # fields that depend on the type played


def _renditions(creative: Creative, vast: Vast, unstated: set[str]) -> tuple[Rendition, ...]:
    """Describe the media files of each type; empty if the creative's fields describe all types."""
    by_type: dict[str, list[MediaFile]] = {media_type(mime): [] for mime in creative.mimes}
    for file in vast.files:
        by_type.get(media_type(file.mime), []).append(file)
    stated = {name: getattr(creative, name) for name in _BY_TYPE if name not in unstated}
    found = []
    for mime, files in by_type.items():
        if not files:
            continue
        needed = {file.api for file in files if file.api is not None}
        apis = () if any(file.api is None for file in files) else tuple(sorted(needed))
        facts = _facts(replace(vast, files=tuple(files)))
        own = {name: facts[name] for name in _BY_TYPE if name in facts}
        found.append(Rendition(mime, apis=apis, **own | stated))
    return tuple(found) if any(_differs(each, creative) for each in found) else ()


def _differs(own: Rendition, whole: Creative) -> bool:
    return (
        (own.bitrate, own.w, own.h) != (whole.bitrate, whole.w, whole.h)
        or {*own.delivery} != {*whole.delivery}
        or not {*own.apis} <= {*whole.apis}
    )


class Known(NamedTuple):
    """A VAST document, and the values of creative fields derived from it, by field name."""

    vast: Vast
    facts: dict[str, Any]


@functools.lru_cache(MAX_REMEMBERED)
def known(text: str) -> Known:
    """Read a VAST document, cached. Raises VastError for any other text."""
    vast = read(text)
    return Known(vast, _facts(vast))


def is_address(text: str) -> bool:
    """Return whether the markup is only a VAST document's URL, so its content is unknown."""
    return _ADDRESS.fullmatch(text) is not None


def _facts(vast: Vast) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "protocols": vast.protocols,
        "mimes": _types(vast),
        "duration": None if vast.seconds is None else max(1, int(vast.seconds + 0.5)),
        "bitrate": max(_bitrates(vast), default=None),
        "delivery": tuple(_methods(vast)),
        "apis": vast.apis,
        "linear": vast.linear,
        "skippable": vast.skippable,
        "ads": MAX_ADS if vast.ads is None else vast.ads if vast.ads > 1 else None,
    }
    facts["w"], facts["h"] = _largest(_sizes(vast))
    return {name: value for name, value in facts.items() if value not in _ABSENT}


def _types(vast: Vast) -> tuple[str, ...]:
    types = dict.fromkeys(media_type(file.mime) for file in vast.files)
    return tuple(mime for mime in types if text_rule(mime) is None)[:MAX_LIST]


def _methods(vast: Vast) -> dict[int, None]:
    return dict.fromkeys(file.delivery for file in vast.files if file.delivery is not None)


def _bitrates(vast: Vast) -> list[int]:
    return [file.bitrate for file in vast.files if file.bitrate is not None]


def _sizes(vast: Vast) -> list[_Size]:
    return [(file.w, file.h) for file in vast.files if file.w and file.h]


def _agreeing(sizes: list[_Size], w: int | None, h: int | None) -> list[_Size]:
    """Return the sizes with this width and this height; None matches any."""
    return [size for size in sizes if w in (None, size[0]) and h in (None, size[1])]


def _largest(sizes: list[_Size]) -> _Size | tuple[None, None]:
    return max(sizes, key=lambda size: (size[0] * size[1], size[0]), default=(None, None))


# -- stated fields --------------------------------------------------------------------------------

_Agrees: TypeAlias = Callable[[Any, Vast], str | None]
"""A function that returns the rule that a creative's field breaks, if any. In a document with
mistakes, the field may have any type; those mistakes are reported elsewhere."""


def check(creative: Any, text: str, media: str, at: Path, markup: Path, mistakes: Mistakes) -> None:
    """Report markup that is not VAST, and stated fields that contradict the VAST.

    Also warn of deviations from VAST, and of requests that the creative will not fit.
    """
    if is_address(text):
        _warn_of_unstated(creative, {}, media, "an address", markup, mistakes)
        return
    try:
        vast, facts = known(text)
    except VastError as error:
        report(mistakes, markup, str(error))
        return
    for name in _FIELDS[media]:
        stated = getattr(creative, name)
        if stated is None or stated == ():
            continue
        if (rule := _RULES[name](creative, vast)) is not None:
            report(mistakes, (at, name), rule)
    for warning in vast.warnings:
        warn(mistakes, markup, warning)
    other = _OTHER.get(media)
    types = _types(vast)
    if other is not None and types and all(mime.startswith(f"{other}/") for mime in types):
        warn(mistakes, markup, f"has only media files of {other}: set media to {other}")
    for warning in vast.insecure if creative.secure is not False else ():
        warn(mistakes, markup, f'{warning}; load it over HTTPS or set "secure": false')
    if vast.ads is None and media != "native" and creative.ads is None:
        warn(mistakes, markup, _ANY_NUMBER)
    if vast.untimed is not None:
        if creative.duration is None:
            report(mistakes, markup, f"{vast.untimed}; or state duration beside it")
        else:
            warn(mistakes, markup, vast.untimed)
    else:
        kind = "a wrapper" if vast.is_wrapper else "the markup"
        _warn_of_unstated(creative, facts, media, kind, markup, mistakes)


_ANY_NUMBER: Final = (
    "is a wrapper of any number of ads (allowMultipleAds): state ads, or the creative fits no"
    " request that has maxseq, rqddurs or a fixed slot of a pod"
)
_OTHER: Final = {"video": "audio", "audio": "video"}
_LIMITS: Final = {
    "duration": "minduration, maxduration, rqddurs, poddur, mincpmpersec or durfloors",
    "linear": "linearity",
    "skippable": "skip: 0",
    "bitrate": "minbitrate or maxbitrate",
    "delivery": "delivery",
    "w": "boxingallowed: 0",
}
"""By field, the limits of a request that refuse a creative if the field is unknown (contract 3)."""


def _warn_of_unstated(
    creative: Any, facts: dict[str, Any], media: str, who: str, markup: Path, mistakes: Mistakes
) -> None:
    """Warn if a creative has no known duration; the same warning lists its other unknown fields."""
    unknown = [
        name
        for name in _LIMITS
        if name in _FIELDS[media] and name not in facts and getattr(creative, name) in _ABSENT
    ]
    if "duration" not in unknown:
        return
    others = [f"{name} ({_LIMITS[name]})" for name in unknown[1:]]
    likewise = f"; likewise {', '.join(others)}" if others else ""
    rule = (
        f"{who} has no duration: state it, or the creative fits no request that has"
        f" {_LIMITS['duration']}"
    )
    warn(mistakes, markup, rule + likewise)


def _check_protocols(creative: Any, vast: Vast) -> str | None:
    stated = _entries(creative.protocols, int)
    listed = ", ".join(map(str, vast.protocols))
    if vast.is_wrapper:  # the wrapped ad may have others
        missing = stated and not set(vast.protocols) & set(stated)
        return f"must have {listed}: the markup is a wrapper of {_name(vast)}" if missing else None
    wrong = _strangers(stated, vast.protocols)
    return f"must be {listed}: the markup is {_name(vast)}, found {wrong[0]}" if wrong else None


def _check_mimes(creative: Any, vast: Vast) -> str | None:
    types = _types(vast)
    stated = {media_type(mime): mime for mime in _entries(creative.mimes, str)}
    wrong = _strangers(stated, types) if types else []
    if not wrong:
        return None
    listed, found = ", ".join(types), shown(stated[wrong[0]])
    return f"must be among the markup's media files ({listed}), found {found}"


def _check_duration(creative: Any, vast: Vast) -> str | None:
    stated, seconds = creative.duration, vast.seconds
    if seconds is None or type(stated) is not int or abs(stated - seconds) < 1:
        return None
    return f"must match the markup ({seconds:g}), found {stated}"


def _check_bitrate(creative: Any, vast: Vast) -> str | None:
    ranges = [file.bitrates for file in vast.files if file.bitrates is not None]
    stated = creative.bitrate
    if not ranges or type(stated) is not int or any(low <= stated <= high for low, high in ranges):
        return None
    rates = ", ".join(map(str, dict.fromkeys(_bitrates(vast))))
    return f"must match one of the markup's media files ({rates}), found {stated}"


def _check_delivery(creative: Any, vast: Vast) -> str | None:
    methods = _methods(vast).keys()
    wrong = _strangers(_entries(creative.delivery, int), methods | {DOWNLOAD}) if methods else []
    if not wrong:
        return None
    listed = ", ".join(map(str, sorted(methods)))
    return f"must be among the markup's media files ({listed}), found {wrong[0]}"


def _check_apis(creative: Any, vast: Vast) -> str | None:
    stated = _entries(creative.apis, int)
    missing = _strangers(vast.apis, stated) if stated else []
    return f"must have {missing[0]}, which the markup needs" if missing else None


def _check_linear(creative: Any, vast: Vast) -> str | None:
    if vast.linear is None or creative.linear is not (not vast.linear):
        return None
    return f"must be {shown(vast.linear)}: the markup is {'' if vast.linear else 'not '}linear"


def _check_skippable(creative: Any, vast: Vast) -> str | None:
    if vast.skippable is None or creative.skippable is not (not vast.skippable):
        return None
    has = "has a" if vast.skippable else "has no"
    return f"must be {shown(vast.skippable)}: the markup {has} skip offset"


def _check_attributes(creative: Any, vast: Vast) -> str | None:
    has_button = SKIP_BUTTON in _entries(creative.attributes, int)
    if vast.skippable is not False or not has_button or creative.skippable is not None:
        return None
    return f"must not have {SKIP_BUTTON} (skip button): the markup has no skip offset"


def _check_ads(creative: Any, vast: Vast) -> str | None:
    stated = creative.ads
    if type(stated) is not int or stated == vast.ads or vast.is_wrapper:
        return None
    return f"must match the markup ({vast.ads}), found {stated}"


def _check_w(creative: Any, vast: Vast) -> str | None:
    return _size_rule(vast, creative.w, None)


def _check_h(creative: Any, vast: Vast) -> str | None:
    if _size_rule(vast, creative.w, None) is not None:
        return _size_rule(vast, None, creative.h)
    return _size_rule(vast, creative.w, creative.h)


def _size_rule(vast: Vast, w: Any, h: Any) -> str | None:
    """Return the broken rule if no media file matches the size `w` x `h`, otherwise None.

    Also returns None if the size of any file is unknown.
    """
    sizes = _sizes(vast)
    w, h = (side if type(side) is int else None for side in (w, h))
    if len(sizes) < len(vast.files) or not sizes or _agreeing(sizes, w, h):
        return None
    files = ", ".join(f"{w}x{h}" for w, h in dict.fromkeys(sizes))
    return f"must match one of the markup's media files ({files})"


_RULES: Final[dict[str, _Agrees]] = {
    "protocols": _check_protocols,
    "mimes": _check_mimes,
    "duration": _check_duration,
    "bitrate": _check_bitrate,
    "delivery": _check_delivery,
    "apis": _check_apis,
    "linear": _check_linear,
    "skippable": _check_skippable,
    "ads": _check_ads,
    "attributes": _check_attributes,
    "w": _check_w,
    "h": _check_h,
}


def _entries(value: Any, kind: type) -> list[Any]:
    entries = value if isinstance(value, list | tuple) else ()
    return [entry for entry in entries if type(entry) is kind]


def _strangers(values: Iterable[Any], familiar: Iterable[Any]) -> list[Any]:
    familiar = set(familiar)
    return [value for value in values if value not in familiar]


def _name(vast: Vast) -> str:
    return f"VAST {vast.version}"
