"""What VAST says of its media (VAST 2.0 to 4.3, inline and wrappers).

The parser is ElementTree's, which is expat, and has nothing that a document could turn against it:
a document type declaration is refused before it is read, so there are no entities but XML's own
five; size and depth are bounded. Macros such as `{{auction_id}}`, `${AUCTION_PRICE}` and
`[CACHEBUSTING]` are text like any other.

A document that the IAB's schemas refuse for the elements on the way to its media (`vast_schema`) is
refused at the first of them, with its line.
"""

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar
from xml.etree.ElementTree import Element, ParseError, fromstring
from xml.parsers import expat

import msgspec

from snapbid.match.value_rules import MAX_ADM_BYTES
from snapbid.match.vast_schema import NAMESPACE, VERSIONS, Content, Version, local_name

MAX_DEPTH: Final = 100
MAX_ELEMENTS: Final = 100  # of a document that is remembered
MAX_LENGTH: Final = 16_384  # characters; the same
MAX_REMEMBERED: Final = 1_000
MAX_SKELETONS: Final = 200
STREAMING, PROGRESSIVE = 1, 2  # AdCOM's delivery methods
VPAID_1, VPAID_2, SIMID = 1, 2, 8  # AdCOM's API frameworks

_SUPPORTED: Final = "must be VAST 2.0 to 4.3 or the address of one"
_DOCTYPE: Final = re.compile(r"\ufeff?(?:\s|<\?.*?\?>|<!--.*?-->)*+<!DOCTYPE", re.DOTALL)
_URL: Final = re.compile(r"<!\[CDATA\[https?:[!-;=?-~]*]]>")  # without anything of XML's own
_TIME: Final = re.compile(r"(\d\d):([0-5]\d):([0-5]\d)(\.\d{1,9})?", re.ASCII)
_INTEGER: Final = re.compile(r"\s*[+-]?\d{1,9}\s*", re.ASCII)
_DELIVERY: Final = {"streaming": STREAMING, "progressive": PROGRESSIVE}

_FILE: Final = ("delivery", "type", "width", "height", "apiFramework")
_RATES: Final = ("bitrate", "minBitrate", "maxBitrate")
_NAMES: Final = ("", f"{{{NAMESPACE}}}")  # what may stand before an element's name
_SAID: Final = {  # the attributes that are read
    prefix + name: attributes
    for prefix in _NAMES
    for name, attributes in (
        ("VAST", ("version",)),
        ("Ad", ("sequence",)),
        ("Linear", ("skipoffset",)),
        ("NonLinear", ("apiFramework",)),
        ("MediaFile", _FILE + _RATES),
    )
}
_DURATION: Final = frozenset(prefix + "Duration" for prefix in _NAMES)
_tag: Final = attrgetter("tag")

_Attributes: TypeAlias = dict[str, str]
_Signature: TypeAlias = tuple[str | int | None, ...]
_Key = TypeVar("_Key", str, tuple[str | int | None, ...])


class MediaFile(msgspec.Struct, frozen=True, gc=False):
    """One file that a player may choose. Pixels, or None where they are 0; kbit/s, and from the
    least to the most; `api` is the API framework without which it does not play.
    """

    mime: str  # lower case
    delivery: int
    w: int | None
    h: int | None
    bitrate: int | None = None
    bitrates: tuple[int, int] | None = None
    api: int | None = None


class Vast(msgspec.Struct, frozen=True):
    """What a document says. Of several ads, those count that are played: a pod's, else the first.

    `seconds` is the duration. What the markup does not say is None or empty: the media of a wrapper
    are elsewhere. `apis` are the API frameworks without which nothing of it plays.
    """

    version: str
    is_wrapper: bool
    protocols: tuple[int, ...]
    seconds: float | None = None
    files: tuple[MediaFile, ...] = ()
    linear: bool | None = None
    skippable: bool | None = None
    apis: tuple[int, ...] = ()


# Documents by what is read of them, which is not the URLs in which most of them differ; and by
# their texts without these, which are known without the parser.
_remembered: Final[dict[_Signature, Vast]] = {}
_skeletons: Final[dict[str, Vast]] = {}


def forget() -> None:
    """Forget all documents."""
    _remembered.clear()
    _skeletons.clear()


class VastError(ValueError):
    """Text that is not VAST: the rule it breaks, and the line of the text, from 1."""

    def __init__(self, rule: str, line: int) -> None:
        super().__init__(f"{rule}, line {line} of the text")


class _RefusedError(Exception):
    """Says what is wrong with an element, at its start or its end."""

    def __init__(self, rule: str, element: Element, *, at_end: bool = False) -> None:
        super().__init__(rule)
        self.element = element
        self.at_end = at_end


def read(text: str) -> Vast:
    """Read a VAST document. Raises VastError for any other text."""
    if len(text) > MAX_ADM_BYTES:
        raise VastError(f"must have at most {MAX_ADM_BYTES} characters", 1)
    if (doctype := _DOCTYPE.match(text)) is not None:
        raise VastError("must have no DOCTYPE", text.count("\n", 0, doctype.end()) + 1)
    skeleton = _skeleton(text)
    vast = _skeletons.get(skeleton)
    if vast is None:
        vast = _parsed(text)
        if len(text) <= MAX_LENGTH:
            _remember(_skeletons, skeleton, vast, MAX_SKELETONS)
    return vast


def _skeleton(text: str) -> str:
    """The document with the shortest of URLs. No other text is read but a duration, which is not
    like that; only in a comment a URL may end what it is in.
    """
    return text if "<!--" in text else _URL.sub("<![CDATA[https:]]>", text)


def _parsed(text: str) -> Vast:
    try:
        root = fromstring(text)
    except ParseError as error:
        reason = expat.ErrorString(error.code)
        raise VastError(f"{_SUPPORTED}: it is not XML ({reason})", error.position[0]) from None
    except UnicodeEncodeError:
        raise VastError(f"{_SUPPORTED}: it has a lone surrogate", 1) from None
    elements = list(root.iter())
    if len(elements) > MAX_ELEMENTS or len(text) > MAX_LENGTH:
        return _read(text, elements)
    signature = _signature(elements)
    vast = _remembered.get(signature)
    if vast is None:
        vast = _read(text, elements)
        _remember(_remembered, signature, vast, MAX_REMEMBERED)
    return vast


def _remember(known: dict[_Key, Vast], key: _Key, vast: Vast, most: int) -> None:
    if len(known) >= most:
        known.clear()
    known[key] = vast


def _signature(elements: list[Element]) -> _Signature:
    """What is read of a document: its elements, how they are nested, and what they say."""
    said: list[str | None] = []
    for element in elements:
        tag = element.tag
        if tag in _SAID:
            said += map(element.get, _SAID[tag])
        elif tag in _DURATION:
            said.append("".join(element.itertext()))
    return (*map(_tag, elements), *map(len, elements), *said)


def _read(text: str, elements: list[Element]) -> Vast:
    try:
        if len(elements) > MAX_DEPTH:
            _check_depth(elements[0])
        return _result(elements[0])
    except _RefusedError as error:
        at = elements.index(error.element)
        raise VastError(str(error), _line(text, at, error.at_end)) from None


def _check_depth(root: Element) -> None:
    depth, level = -2, [root]  # what is within <InLine> has a depth of 1
    while level := [child for element in level for child in element]:
        depth += 1
        if depth > MAX_DEPTH:
            rule = f"must not be nested deeper than {MAX_DEPTH} elements"
            raise _RefusedError(rule, level[0])


def _line(text: str, number: int, at_end: bool) -> int:
    """The line on which the tag of an element begins, the first or the last; `number` is its place
    among all. The tree of elements has no lines, so the text is read again.
    """
    parser = expat.ParserCreate()
    starts: list[int] = []
    ends: dict[int, int] = {}
    opened: list[int] = []

    def start(name: str, attributes: _Attributes) -> None:
        opened.append(len(starts))
        starts.append(parser.CurrentLineNumber)

    def end(name: str) -> None:
        ends[opened.pop()] = parser.CurrentLineNumber

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.Parse(text, True)
    parser.StartElementHandler = parser.EndElementHandler = None  # they hold each other
    return ends[number] if at_end else starts[number]


class _Ad:
    """What has been read of one ad."""

    __slots__ = ("files", "is_in_pod", "is_wrapper", "linear", "overlays", "seconds", "skip_offset")

    def __init__(self, *, is_in_pod: bool) -> None:
        self.is_in_pod = is_in_pod
        self.is_wrapper = False
        self.linear: bool | None = None
        self.skip_offset: str | None = None
        self.seconds = 0.0
        self.files: list[MediaFile] = []
        self.overlays: list[int | None] = []  # the API framework of each

    def needed(self) -> list[int]:
        """The API frameworks that it cannot do without: each of its files has one."""
        apis = [file.api for file in self.files] if self.linear else self.overlays
        return [] if None in apis else [api for api in apis if api is not None]


class _VastReader:
    """Follows the elements on the way to the media, and takes notes."""

    def __init__(self) -> None:
        self.ads: list[_Ad] = []

    def follow(self, element: Element, content: Content) -> None:
        """Take notes of an element's children, and of theirs."""
        order = content.order([child.tag for child in element])
        for place, name, below in order.children:
            child = element[place]
            if name in _NOTES:
                _NOTES[name](self, child)
            if below is not None:
                self.follow(child, below)
        if order.mistake is not None:
            if order.wrong is None:
                raise _RefusedError(order.mistake, element, at_end=True)
            raise _RefusedError(order.mistake, element[order.wrong])

    def note_ad(self, ad: Element) -> None:
        self.ads.append(_Ad(is_in_pod="sequence" in ad.attrib))

    def note_wrapper(self, _: Element) -> None:
        self.ads[-1].is_wrapper = True

    def note_linear(self, linear: Element) -> None:
        ad = self.ads[-1]
        ad.linear = True
        ad.skip_offset = ad.skip_offset or linear.get("skipoffset")

    def note_overlays(self, _: Element) -> None:
        ad = self.ads[-1]
        ad.linear = ad.linear or False

    def note_overlay(self, overlay: Element) -> None:
        self.ads[-1].overlays.append(_framework(overlay, ""))

    def note_duration(self, duration: Element) -> None:
        text = "".join(duration.itertext()).strip()
        time = _TIME.fullmatch(text)
        if time is None:
            rule = f'must have a <Duration> such as 00:00:15, found "{text[:60]}"'
            raise _RefusedError(rule, duration, at_end=True)
        hours, minutes, seconds = int(time[1]), int(time[2]), int(time[3])
        self.ads[-1].seconds += 3600 * hours + 60 * minutes + seconds + float(time[4] or 0)

    def note_file(self, file: Element) -> None:
        delivery = _DELIVERY.get(_attribute(file, "delivery").strip())
        if delivery is None:
            rule = "must have a <MediaFile> whose delivery is streaming or progressive"
            raise _RefusedError(rule, file)
        mime = _attribute(file, "type").strip().lower()
        w, h = _integer(file, "width"), _integer(file, "height")
        rates = {
            name: rate
            for name in _RATES
            if name in file.attrib and (rate := _integer(file, name)) > 0
        }
        self.ads[-1].files.append(
            MediaFile(
                mime,
                delivery,
                w if w > 0 else None,
                h if h > 0 else None,
                rates.get("bitrate") or rates.get("maxBitrate"),
                (min(rates.values()), max(rates.values())) if rates else None,
                _framework(file, mime),
            )
        )


def _attribute(file: Element, name: str) -> str:
    value = file.get(name)
    if value is None:
        raise _RefusedError(f'must have the attribute "{name}" in <MediaFile>', file)
    return value


def _integer(file: Element, name: str) -> int:
    value = _attribute(file, name)
    if _INTEGER.fullmatch(value) is None:
        rule = f'must have an integer as attribute "{name}" in <MediaFile>'
        raise _RefusedError(f'{rule}, found "{value[:60]}"', file)
    return int(value)


def _result(root: Element) -> Vast:
    """What the document says, of the ads that are played."""
    version = _version(root)
    reader = _VastReader()
    reader.follow(root, version.root)
    ads = [ad for ad in reader.ads if ad.is_in_pod] or reader.ads[:1]
    kinds: dict[int, None] = {}
    apis: dict[int, None] = {}
    linear: set[bool | None] = set()
    files: list[MediaFile] = []
    seconds = 0.0
    is_wrapper, has_skip_offset, is_decided = False, False, True
    for ad in ads:
        needed = ad.needed()
        apis.update(dict.fromkeys(needed))
        kinds[version.wrapper if ad.is_wrapper else version.inline] = None
        linear.add(None if ad.is_wrapper else ad.linear)
        files += ad.files
        seconds += ad.seconds
        is_wrapper = is_wrapper or ad.is_wrapper
        has_skip_offset = has_skip_offset or bool(ad.skip_offset)
        if ad.is_wrapper or not ad.linear or needed:
            is_decided = False  # but elsewhere, whether a player lets the user skip
    return Vast(
        version.name,
        is_wrapper,
        tuple(kinds),
        None if is_wrapper or seconds == 0 else seconds,
        () if is_wrapper else tuple(files),
        linear.pop() if len(linear) == 1 else None,
        has_skip_offset or (False if is_decided else None),
        tuple(apis),
    )


def _version(root: Element) -> Version:
    if local_name(root.tag) != "VAST":
        raise _RefusedError(f"{_SUPPORTED}, found <{local_name(root.tag)}>", root)
    namespace = root.tag[1:].rpartition("}")[0]
    number = root.get("version")
    if number is None:
        raise _RefusedError('must have the attribute "version" in <VAST>', root)
    version = VERSIONS.get("2.0" if number == "2.0.1" else number)
    if version is None:
        raise _RefusedError(f'{_SUPPORTED}, found version "{number[:60]}"', root)
    if version.is_qualified and namespace != NAMESPACE:
        found = f'"{namespace[:60]}"' if namespace else "none"
        rule = f'must have the namespace of VAST {number}, xmlns="{NAMESPACE}"'
        raise _RefusedError(f"{rule}, found {found}", root)
    if namespace and not version.is_qualified:
        raise _RefusedError(f"must have no namespace, as VAST {number} has none", root)
    return version


def _framework(element: Element, mime: str) -> int | None:
    name = element.get("apiFramework", "").strip().upper()
    if name == "VPAID":
        return VPAID_1 if "shockwave" in mime or "flash" in mime else VPAID_2
    return SIMID if name == "SIMID" else None


_Note: TypeAlias = Callable[[_VastReader, Element], None]
_NOTES: Final[dict[str, _Note]] = {
    "Ad": _VastReader.note_ad,
    "Wrapper": _VastReader.note_wrapper,
    "Linear": _VastReader.note_linear,
    "NonLinearAds": _VastReader.note_overlays,
    "NonLinear": _VastReader.note_overlay,
    "Duration": _VastReader.note_duration,
    "MediaFile": _VastReader.note_file,
}
