"""The rules of a native creative (contract 2, "Creative").

The assets are in a `native` object or, as a native response, in `adm` (Native 1.0 to 1.2, wrapped
in `native` or not). A response is converted to such an object and checked by the same rules. It is
read as renderers read it: numbers count as text and vice versa, and fields that are empty or do not
exist in a `native` object are dropped, with a warning.
"""

import json
import re
from collections.abc import Iterable
from decimal import Decimal
from html import unescape
from typing import Any, Final, NamedTuple

from snapbid.campaigns.native import NativeAd, NativeImage, NativeLink, NativeTracker
from snapbid.campaigns.rules import Fields, Mistakes, Path, list_of, object_of, report, shown, warn
from snapbid.campaigns.value_rules import MAX_ADM_BYTES, MAX_URL, integer, integral, markup
from snapbid.campaigns.vast_facts import is_address
from snapbid.campaigns.vocabulary import size

MAX_TITLE: Final = 1_024  # bytes
MAX_DATA: Final = 4_096
MAX_NAME: Final = 60  # characters of a key that a message shows
MAX_ASSETS: Final = 50  # of a kind

_DATA_TYPE: Final = re.compile(r"[1-9][0-9]{0,3}")
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
        field: Path = (at, _key(kind))
        _DATA_TEXT(text, field, mistakes)
        if not _is_data_type(kind):
            rule = f"must be a data type of Native 1.2, such as 2, found {shown(kind)}"
            report(mistakes, field, rule)
    return dict(sorted(value.items())) if all(map(_is_data_type, value)) else {}


def _key(kind: str) -> str:
    """Return a JSON key for use in messages, shortened and quoted if it is too long."""
    return kind if len(kind) <= MAX_NAME else shown(kind)


def _is_data_type(kind: str) -> bool:
    return _DATA_TYPE.fullmatch(kind) is not None


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
            {"url": _URL, "clicktrackers": _URLS, "fallback": _URL}, NativeLink, required=("url",)
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


def decode_response(text: str) -> Any:
    """Decode a native response, with exact numbers. Raises ValueError or RecursionError."""
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_float=Decimal)
    except ArithmeticError:
        raise ValueError("a number has too many digits") from None


class Response(NamedTuple):
    """The assets of a native response, and where in the response each was found.

    `names` maps a field of the `native` object to its path in the response where the two differ,
    such as `images[0]` to `assets[2].img`.
    """

    ad: NativeAd
    names: dict[str, str]


def name_in(names: dict[str, str], field: str) -> str:
    """Return the field of a native response from which `field` was read.

    `field`: of a `native` object, such as `images[0].url`; `names`: as in `Response`.
    """
    for end in (len(field), *(match.start() for match in _PARTS.finditer(field))):
        if (name := names.get(field[:end])) is not None:
            return name + field[end:]
    return field


def read_response(text: str, at: Path, mistakes: Mistakes) -> Response | None:
    """Parse a native response; if it has mistakes, report them and return None."""
    try:
        response = decode_response(text)
    except ValueError as error:
        report(mistakes, at, f"must be a native response in JSON: {error}")
        return None
    except RecursionError:
        report(mistakes, at, "must be a native response in JSON, found one nested too deeply")
        return None
    if isinstance(response, dict) and isinstance(response.get("native"), dict):
        response = _only(response, ("native",), at, mistakes)["native"]
    if not isinstance(response, dict) or not isinstance(response.get("assets"), list):
        report(mistakes, at, "must be a native response, an object with assets")
        return None
    before = len(mistakes)
    names: dict[str, str] = {}
    document = _document(response, names, at, mistakes)
    found = Mistakes()
    ad = NATIVE(document, (), found)
    for mistake in found:
        field = (at, name_in(names, mistake.field)) if mistake.field else at
        report(mistakes, field, mistake.rule)
    return Response(ad, names) if isinstance(ad, NativeAd) and len(mistakes) == before else None


def _document(response: Fields, names: dict[str, str], at: Path, mistakes: Mistakes) -> Fields:
    """Convert a response to a `native` object; record in `names` where each field comes from."""
    document: Fields = _only(response, _SAME, at, mistakes, used=("ver", "assets", "jstracker"))
    if "link" in document:
        place: Path = (at, "link")
        link = _only(document["link"], ("url", "clicktrackers", "fallback"), place, mistakes)
        document["link"] = link
        if isinstance(link, dict):
            kept = _drop_empty(link, "clicktrackers", place, mistakes)
            _name_entries(names, "link.clicktrackers", kept)
    _name_entries(names, "imptrackers", _drop_empty(document, "imptrackers", at, mistakes))
    if isinstance(trackers := document.get("eventtrackers"), list):
        by_index = _trackers(trackers, (at, "eventtrackers"), mistakes)
        document["eventtrackers"] = [*by_index.values()]
        _name_entries(names, "eventtrackers", by_index)
    if response.get("jstracker"):
        _add_script(document, names, response["jstracker"], (at, "jstracker"), mistakes)
    images: list[Any] = []
    data: Fields = {}
    for index, asset in enumerate(response["assets"]):
        place, name = ((at, "assets"), index), f"assets[{index}]"
        kind, fields = _asset(asset, place, mistakes)
        if kind == "title":
            _add(document, "title", _text(fields["text"]), place, mistakes)
            names["title"] = f"{name}.title.text"
        elif kind == "img":
            names[f"images[{len(images)}]"] = f"{name}.img"
            images.append(_image(fields, (place, "img"), mistakes))
        elif kind == "data":
            text = _text(fields["value"])
            if "type" in fields:
                number = str(_number(fields["type"]))
                _add(data, number, text, place, mistakes)
                names[f"data.{_key(number)}"] = f"{name}.data"
            else:
                report(mistakes, ((place, "data"), "type"), _add_data_type(fields))
                data.setdefault("1", text)
        elif kind == "video":
            _add(document, "video", fields["vasttag"], place, mistakes)
            names["video"] = f"{name}.video.vasttag"
    return document | ({"images": images} if images else {}) | ({"data": data} if data else {})


def _name_entries(names: dict[str, str], name: str, kept: Iterable[int]) -> None:
    """Add to `names` the original path of each entry of a list whose empty entries were removed.

    `kept`: the original index of each remaining entry, in order.
    """
    for index, before in enumerate(kept):
        names[f"{name}[{index}]"] = f"{name}[{before}]"


def _asset(asset: Any, at: Path, mistakes: Mistakes) -> tuple[str, Fields]:
    """Return an asset's kind and the fields of that kind.

    The kind of an asset without content is "".
    """
    stated = asset if isinstance(asset, dict) else {}
    kind = next((kind for kind in _KINDS if isinstance(stated.get(kind), dict)), "")
    if not kind:
        warn(mistakes, at, "is dropped because it has no title, img, data or video")
        return "", {}
    names = _KINDS[kind]
    if stated[kind].get(names[0]) in _EMPTY:
        warn(mistakes, at, f"is dropped because it has no {kind}.{names[0]}")
        return "", {}
    _only(stated, (kind,), at, mistakes, used=("id", "required"))
    return kind, _only(stated[kind], names, (at, kind), mistakes, used=("len",))


def _image(image: Fields, at: Path, mistakes: Mistakes) -> Fields:
    if "type" not in image:
        report(mistakes, (at, "type"), _add_type(image))
    image = {"type": ICON} | _with_numbers(image)
    for side in ("w", "h"):
        length = image.get(side)
        if length is not None and not (type(length) is int and length > 0):
            rule = f"is dropped because it is no number of pixels: {shown(length)}"
            warn(mistakes, (at, side), rule)
            del image[side]
    return image


def _trackers(trackers: list[Any], at: Path, mistakes: Mistakes) -> dict[int, Any]:
    """Convert event trackers; return them by their index in `trackers`.

    Drops trackers without a URL, with a warning.
    """
    kept = {}
    for index, tracker in enumerate(trackers):
        place: Path = (at, index)
        if tracker in _EMPTY or (isinstance(tracker, dict) and tracker.get("url") in _EMPTY):
            warn(mistakes, place, "is dropped because it has no url")
            continue
        fields = _only(tracker, ("event", "method", "url"), place, mistakes)
        kept[index] = _with_numbers(fields) if isinstance(fields, dict) else fields
    return kept


def _add_script(
    document: Fields, names: dict[str, str], script: Any, at: Path, mistakes: Mistakes
) -> None:
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
        for index in range(len(stated or ()), len(document["eventtrackers"])):
            names[f"eventtrackers[{index}]"] = "jstracker"


IMPRESSION: Final = 1  # an event (Native 1.2, 7.6)
_METHODS: Final = {"img": 1, "script": 2}  # by element (Native 1.2, 7.7)
ICON: Final = 1  # a type of image
_TAG: Final = re.compile(r"<(script|img)\b([^<>]*)>(?:\s*</script\s*>)?", re.IGNORECASE)
_SOURCE: Final = re.compile(r"\ssrc\s*=\s*[\"']?([^\"'\s]+)", re.IGNORECASE)
_SAME: Final = ("link", "imptrackers", "eventtrackers", "privacy")


_KINDS: Final = {
    "title": ("text",),
    "img": ("url", "type", "w", "h"),
    "data": ("value", "type"),
    "video": ("vasttag",),
}
"""The fields of each kind of asset, starting with the one that has the content."""
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})
_PARTS: Final = re.compile(r"[.\[]")
_DIGITS: Final = re.compile(r"\d{1,10}", re.ASCII)


def _only(
    value: Any, names: tuple[str, ...], at: Path, mistakes: Mistakes, *, used: tuple[str, ...] = ()
) -> Any:
    """Return an object with only those of the named fields that are not empty.

    Warns of dropped fields, except those `used` elsewhere. A value that is not an object is
    returned unchanged.
    """
    if not isinstance(value, dict):
        return value
    for name, field in value.items():
        if name in names and field == "":
            warn(mistakes, (at, name), "is dropped because it is empty")
        elif name not in (*names, *used) and field not in _EMPTY:
            warn(mistakes, (at, name), "is dropped because the bidder does not send it")
    return {name: value[name] for name in names if value.get(name) not in (None, "")}


def _drop_empty(fields: Fields, name: str, at: Path, mistakes: Mistakes) -> list[int]:
    """Drop the empty entries of a list, with a warning for each; return the indexes of the rest."""
    if not isinstance(entries := fields.get(name), list):
        return []
    for index, entry in enumerate(entries):
        if entry in _EMPTY:
            warn(mistakes, ((at, name), index), "is dropped because it is empty")
    kept = [index for index, entry in enumerate(entries) if entry not in _EMPTY]
    fields[name] = [entries[index] for index in kept]
    return kept


def _number(value: Any) -> Any:
    """Convert a value such as `"300"` or 300.0 to an integer; return any other unchanged."""
    if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        return int(value)
    return integral(value)


def _with_numbers(fields: Fields) -> Fields:
    return {name: value if name == "url" else _number(value) for name, value in fields.items()}


def _text(value: Any) -> Any:
    """Convert a number such as 4.5 to text; return any other value unchanged."""
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return str(value) if is_number else value


def _add(document: Fields, name: str, value: Any, at: Path, mistakes: Mistakes) -> None:
    if name in document:
        report(mistakes, at, "is the second asset of its kind; only one is sent")
    document[name] = value
