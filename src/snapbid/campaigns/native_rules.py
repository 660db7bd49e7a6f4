"""The rules of a native creative (contract 2, "Creative").

The assets are in a `native` object or, as a native response, in `adm` (Native 1.0 to 1.2, wrapped
in `native` or not). A response is converted to such an object and checked by the same rules.
"""

import json
import re
from html import unescape
from typing import Any, Final

from snapbid.campaigns.native import NativeAd, NativeImage, NativeLink, NativeTracker
from snapbid.campaigns.rules import Fields, Mistakes, Path, list_of, object_of, report, shown, warn
from snapbid.campaigns.value_rules import MAX_ADM_BYTES, MAX_URL, integer, markup
from snapbid.campaigns.vast_facts import is_address
from snapbid.campaigns.vocabulary import size

MAX_TITLE: Final = 1_024  # bytes
MAX_DATA: Final = 4_096
MAX_DATA_TYPE: Final = 9_999
MAX_ASSETS: Final = 50  # of a kind

_TITLE: Final = markup(MAX_TITLE)
_DATA_TEXT: Final = markup(MAX_DATA)
_URL: Final = markup(MAX_URL, "URL")
_URLS: Final = list_of(_URL, MAX_ASSETS)


def _check_data(value: Any, at: Path, mistakes: Mistakes) -> dict[str, str]:
    if not isinstance(value, dict):
        report(mistakes, at, f"must be an object of texts by data type, found {shown(value)}")
        return {}
    if len(value) > MAX_ASSETS:
        report(mistakes, at, f"must have at most {MAX_ASSETS} entries, found {len(value)}")
        return {}
    for kind, text in value.items():
        _DATA_TEXT(text, (at, str(kind)), mistakes)
        if not _is_data_type(kind):
            rule = f"must be a data type of Native 1.2, such as 2, found {shown(kind)}"
            report(mistakes, (at, str(kind)), rule)
    return dict(sorted(value.items())) if all(map(_is_data_type, value)) else {}


def _is_data_type(kind: object) -> bool:
    digits = isinstance(kind, str) and kind.isascii() and kind.isdigit()
    return digits and str(int(kind)) == kind and 1 <= int(kind) <= MAX_DATA_TYPE  # type: ignore[call-overload]


def _has_an_asset(native: Any, at: Path, mistakes: Mistakes) -> None:
    if not (native.title or native.images or native.data or native.video):
        report(mistakes, at, "must have a title, an image, data or a video")


_TYPED_IMAGE: Final = object_of(
    {"type": integer(1), "url": _URL, "w": integer(1), "h": integer(1)},
    NativeImage,
    required=("type", "url"),
)


def _check_image(value: Any, at: Path, mistakes: Mistakes) -> Any:
    if isinstance(value, dict) and value.get("type") is None:
        report(mistakes, (at, "type"), _add_type(value))
        value = value | {"type": ICON}
    return _TYPED_IMAGE(value, at, mistakes)


def _add_type(image: Fields) -> str:
    """Build the message about an image without a type."""
    rule = 'is required: add "type": 3 for the main image, "type": 1 for an icon'
    w, h = image.get("w"), image.get("h")
    return f"{rule}; this one has {shown(w)}x{shown(h)} pixels" if w and h else rule


def _add_data_type(datum: Fields) -> str:
    """Build the message about a data asset without a type."""
    rule = (
        'is required: add "type": 2 for a description, "type": 1 for who sponsors it,'
        ' "type": 12 for the text of a button, or another of Native 1.2, 7.4'
    )
    return f"{rule}; this one is {shown(datum.get('value'))}"


NATIVE: Final = object_of(
    {
        "title": _TITLE,
        "images": list_of(_check_image, MAX_ASSETS),
        "data": _check_data,
        "video": markup(MAX_ADM_BYTES, "VAST"),
        "link": object_of(
            {"url": _URL, "clicktrackers": _URLS}, NativeLink, required=("url",)
        ),
        "imptrackers": _URLS,
        "eventtrackers": list_of(
            object_of(
                {"event": integer(1), "method": integer(1), "url": _URL},
                NativeTracker,
                required=("event", "method", "url"),
            ),
            MAX_ASSETS,
        ),
        "privacy": _URL,
    },
    NativeAd,
    required=("link",),
    together=_has_an_asset,
)  # fmt: skip


def read_response(text: str, at: Path, mistakes: Mistakes) -> NativeAd | None:
    """Parse a native response; if it has mistakes, report them and return None."""
    try:
        response = json.loads(text)
    except ValueError as error:
        report(mistakes, at, f"must be a native response in JSON: {error}")
        return None
    except RecursionError:
        report(mistakes, at, "must be a native response in JSON, found one nested too deeply")
        return None
    if isinstance(response, dict) and isinstance(response.get("native"), dict):
        response = response["native"]
    if not isinstance(response, dict) or not isinstance(response.get("assets"), list):
        report(mistakes, at, "must be a native response, an object with assets")
        return None
    before = len(mistakes)
    document = _document(response, at, mistakes)
    ad = NATIVE(document, at, mistakes)
    return ad if isinstance(ad, NativeAd) and len(mistakes) == before else None


def _document(response: Fields, at: Path, mistakes: Mistakes) -> Fields:
    """Convert a response to a `native` object."""
    document: Fields = {name: response[name] for name in _SAME if response.get(name) is not None}
    if isinstance(document.get("link"), dict):
        document["link"] = _only(document["link"], ("url", "clicktrackers"))
    if isinstance(document.get("eventtrackers"), list):
        document["eventtrackers"] = [
            _only(tracker, ("event", "method", "url")) for tracker in document["eventtrackers"]
        ]
    if response.get("jstracker"):
        _add_script(document, response["jstracker"], (at, "jstracker"), mistakes)
    images: list[Any] = []
    data: Fields = {}
    for index, asset in enumerate(response["assets"]):
        place: Path = ((at, "assets"), index)
        asset = asset if isinstance(asset, dict) else {}
        if isinstance(title := asset.get("title"), dict):
            _add(document, "title", title.get("text"), place, mistakes)
        elif isinstance(image := asset.get("img"), dict):
            if image.get("type") is None:
                report(mistakes, ((place, "img"), "type"), _add_type(image))
            images.append({"type": ICON} | _only(image, ("type", "url", "w", "h")))
        elif isinstance(datum := asset.get("data"), dict):
            if datum.get("type") is None:
                report(mistakes, ((place, "data"), "type"), _add_data_type(datum))
                data.setdefault("1", datum.get("value"))
            else:
                _add(data, str(datum["type"]), datum.get("value"), place, mistakes)
        elif isinstance(video := asset.get("video"), dict):
            _add(document, "video", video.get("vasttag"), place, mistakes)
        else:
            report(mistakes, place, "must have a title, img, data or video")
    return document | ({"images": images} if images else {}) | ({"data": data} if data else {})


def _add_script(document: Fields, script: Any, at: Path, mistakes: Mistakes) -> None:
    """Convert a `jstracker` to event trackers.

    It must be the address of a script, or markup that only loads scripts and pixels; any other
    `jstracker` is dropped with a warning.
    """
    markup = script if isinstance(script, str) and size(script) <= MAX_URL else ""
    if is_address(markup):
        markup = f"<script src={markup.strip()}>"
    tags = _TAG.findall(markup)
    trackers = [
        {"event": IMPRESSION, "method": _METHODS[name.lower()], "url": unescape(source[1])}
        for name, attributes in tags
        if (source := _SOURCE.search(attributes)) is not None
    ]
    if not trackers or len(trackers) < len(tags) or _TAG.sub("", markup).strip():
        rule = "is dropped because it contains code: put the address of a script in"
        warn(mistakes, at, f'{rule} eventtrackers, {{"event": 1, "method": 2, "url": …}}')
        return
    stated = document.get("eventtrackers")
    if stated is None or isinstance(stated, list):
        document["eventtrackers"] = [*(stated or ()), *trackers]


IMPRESSION: Final = 1  # an event (Native 1.2, 7.6)
_METHODS: Final = {"img": 1, "script": 2}  # by element (Native 1.2, 7.7)
ICON: Final = 1  # a type of image
_TAG: Final = re.compile(r"<(script|img)\b([^<>]*)>(?:\s*</script\s*>)?", re.IGNORECASE)
_SOURCE: Final = re.compile(r"\ssrc\s*=\s*[\"']?([^\"'\s]+)", re.IGNORECASE)
_SAME: Final = ("link", "imptrackers", "eventtrackers", "privacy")


def _only(value: Any, names: tuple[str, ...]) -> Any:
    """Keep only the named fields of an object, dropping others such as `ext`."""
    if not isinstance(value, dict):
        return value
    return {name: value[name] for name in names if value.get(name) is not None}


def _add(document: Fields, name: str, value: Any, at: Path, mistakes: Mistakes) -> None:
    if name in document:
        report(mistakes, at, "is the second asset of its kind; only one is sent")
    document[name] = value
