"""Facts derived from the markup of a creative, for the review of a campaign."""

from typing import Any, NamedTuple

from snapbid.campaigns.campaign import Creative
from snapbid.campaigns.native import NativeAd
from snapbid.campaigns.vast import VastError
from snapbid.campaigns.vast_facts import facts_of, known


class Derived(NamedTuple):
    """The kind of markup, such as `VAST 3.0`, and the values that it states, by field."""

    markup: str
    fields: dict[str, Any]


def derived_of(creative: Creative) -> Derived:
    """Return the facts of a normalised creative's markup, whether or not the creative states them
    too.
    """
    if creative.media == "banner":
        return Derived("HTML", {"type": creative.type})
    if creative.native is None:
        return Derived(_kind(creative.adm), facts_of(creative.adm, creative.media))
    return Derived("native", _assets(creative.native))


def _kind(text: str) -> str:
    try:
        vast = known(text).vast
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
