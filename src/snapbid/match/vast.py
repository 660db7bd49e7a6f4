"""What VAST says of its media (VAST 2.0 to 4.3, inline and wrappers).

The parser is expat, of which nothing is used that a document could turn against it: a document
type declaration is refused before it is read, so there are no entities but XML's own five; size and
depth are bounded. Macros such as `{{auction_id}}`, `${AUCTION_PRICE}` and `[CACHEBUSTING]` are text
like any other.

A document that the IAB's schemas refuse for the elements on the way to its media (`vast_schema`) is
refused at the first of them, with its line.
"""

import functools
import re
from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias
from xml.parsers import expat

import msgspec

from snapbid.match.value_rules import MAX_ADM_BYTES
from snapbid.match.vast_schema import NAMESPACE, VERSIONS, Child, Content, Version

MAX_DEPTH: Final = 100
MAX_REMEMBERED: Final = 64  # documents; a campaign's check reads each more than once

STREAMING, PROGRESSIVE = 1, 2  # AdCOM's delivery methods
VPAID_1, VPAID_2, SIMID = 1, 2, 8  # AdCOM's API frameworks

_SUPPORTED: Final = "must be VAST 2.0 to 4.3 or the address of one"
_DOCTYPE: Final = re.compile(r"\ufeff?(?:\s|<\?.*?\?>|<!--.*?-->)*+<!DOCTYPE", re.DOTALL)
_TIME: Final = re.compile(r"(\d\d):([0-5]\d):([0-5]\d)(\.\d{1,9})?", re.ASCII)
_INTEGER: Final = re.compile(r"\s*[+-]?\d{1,9}\s*", re.ASCII)
_DELIVERY: Final = {"streaming": STREAMING, "progressive": PROGRESSIVE}

_Attributes: TypeAlias = dict[str, str]


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


class VastError(ValueError):
    """Text that is not VAST: the rule it breaks, and the line of the text, from 1."""

    def __init__(self, rule: str, line: int) -> None:
        super().__init__(f"{rule}, line {line} of the text")


class _RefusedError(Exception):
    """Raised within the parser, which knows the line."""


@functools.lru_cache(MAX_REMEMBERED)
def read(text: str) -> Vast:
    """Read a VAST document. Raises VastError for any other text."""
    if len(text) > MAX_ADM_BYTES:
        raise VastError(f"must have at most {MAX_ADM_BYTES} characters", 1)
    if (doctype := _DOCTYPE.match(text)) is not None:
        raise VastError("must have no DOCTYPE", text.count("\n", 0, doctype.end()) + 1)
    parser = expat.ParserCreate(namespace_separator=" ")
    reader = _VastReader(parser)
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    try:
        parser.Parse(text, True)
    except _RefusedError as error:
        raise VastError(str(error), reader.line) from None
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise VastError(f"{_SUPPORTED}: it is not XML ({reason})", error.lineno) from None
    except UnicodeEncodeError:
        raise VastError(f"{_SUPPORTED}: it has a lone surrogate", 1) from None
    finally:  # parser and reader hold each other
        parser.StartElementHandler = parser.EndElementHandler = None
        parser.CharacterDataHandler = None
    return reader.result()


class _Ad:
    """What has been read of one ad."""

    def __init__(self, *, is_in_pod: bool) -> None:
        self.is_in_pod = is_in_pod
        self.is_wrapper = False
        self.linear: bool | None = None
        self.skip_offset: str | None = None
        self.seconds = 0.0
        self.files: list[MediaFile] = []
        self.overlays: list[int | None] = []  # the API framework of each


class _VastReader:
    """Follows the elements of a document, and takes notes."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        self.line = 1  # of what was refused
        self._parser = parser
        self._version: Version | None = None
        self._ads: list[_Ad] = []
        # Open elements, except the inmost: their content, and the bits of the children so far.
        self._open: list[tuple[Child, int]] = []
        self._child = Child("", 0, False, Content({}, 0, True))
        self._seen = 0
        self._depth = 0  # within an element that is not looked into
        self._texts: list[str] | None = None  # of an element whose text counts

    def start(self, name: str, attributes: _Attributes) -> None:
        """An element begins."""
        if self._depth:
            if self._depth > MAX_DEPTH:
                self._refuse(f"must not be nested deeper than {MAX_DEPTH} elements")
            self._depth += 1
            return
        if self._version is None:
            self._begin(name, attributes)
            return
        content = self._child.content
        assert content is not None
        child = content.children.get(name)
        if child is None:
            self._refuse(f"must not have <{_local(name)}> in <{self._child.name}>")
        bit = child.bit
        if self._seen >= bit:
            self._check_order(content, child)
        self._seen |= bit
        if (note := _NOTES.get(child.name)) is not None:
            note(self, attributes)
        if child.content is None:
            self._depth = 1
        else:
            self._open.append((self._child, self._seen))
            self._child, self._seen = child, 0

    def end(self, _: str) -> None:
        """An element ends."""
        if self._depth:
            self._depth -= 1
            if self._depth == 0 and self._texts is not None:
                self._end_duration()
            return
        child, seen = self._child, self._seen
        assert child.content is not None
        if missing := child.content.required & ~seen:
            names = [each.name for each in child.content.children.values() if each.bit & missing]
            self._refuse(f"must have <{'> or <'.join(names[:2])}> in <{child.name}>")
        self._child, self._seen = self._open.pop()

    def _begin(self, name: str, attributes: _Attributes) -> None:
        namespace, _, local = name.rpartition(" ")
        if local != "VAST":
            self._refuse(f"{_SUPPORTED}, found <{local[:60]}>")
        number = attributes.get("version")
        if number is None:
            self._refuse('must have the attribute "version" in <VAST>')
        version = VERSIONS.get("2.0" if number == "2.0.1" else number)
        if version is None:
            self._refuse(f'{_SUPPORTED}, found version "{number[:60]}"')
        if version.is_qualified and namespace != NAMESPACE:
            found = f'"{namespace[:60]}"' if namespace else "none"
            rule = f'must have the namespace of VAST {number}, xmlns="{NAMESPACE}"'
            self._refuse(f"{rule}, found {found}")
        if namespace and not version.is_qualified:
            self._refuse(f"must have no namespace, as VAST {number} has none")
        self._version = version
        self._open.append((self._child, self._seen))
        self._child, self._seen = Child("VAST", 1, False, version.root), 0

    def _check_order(self, content: Content, child: Child) -> None:
        seen, here = self._seen, f"in <{self._child.name}>"
        if seen & child.bit and not child.may_repeat:
            others = [each.name for each in content.children.values() if each.bit == child.bit]
            if len(others) > 1:
                self._refuse(f"must have only one of <{'>, <'.join(others)}> {here}")
            self._refuse(f"must have only one <{child.name}> {here}")
        if content.is_ordered and seen >= child.bit << 1:
            after = [each.name for each in content.children.values() if each.bit & seen][-1]
            assert self._version is not None
            of = f"which is the order of VAST {self._version.name}"
            self._refuse(f"must have <{child.name}> before <{after}> {here}, {of}")

    def _refuse(self, rule: str) -> NoReturn:
        self.line = self._parser.CurrentLineNumber
        raise _RefusedError(rule)

    # -- notes -------------------------------------------------------------------------------------

    def note_ad(self, attributes: _Attributes) -> None:
        self._ads.append(_Ad(is_in_pod="sequence" in attributes))

    def note_wrapper(self, _: _Attributes) -> None:
        self._ads[-1].is_wrapper = True

    def note_linear(self, attributes: _Attributes) -> None:
        ad = self._ads[-1]
        ad.linear = True
        ad.skip_offset = ad.skip_offset or attributes.get("skipoffset")

    def note_overlays(self, _: _Attributes) -> None:
        ad = self._ads[-1]
        ad.linear = ad.linear or False

    def note_overlay(self, attributes: _Attributes) -> None:
        self._ads[-1].overlays.append(_framework(attributes, ""))

    def note_duration(self, _: _Attributes) -> None:
        self._texts = []
        self._parser.CharacterDataHandler = self._texts.append

    def _end_duration(self) -> None:
        text = "".join(self._texts or ()).strip()
        self._texts = self._parser.CharacterDataHandler = None
        time = _TIME.fullmatch(text)
        if time is None:
            self._refuse(f'must have a <Duration> such as 00:00:15, found "{text[:60]}"')
        hours, minutes, seconds = int(time[1]), int(time[2]), int(time[3])
        self._ads[-1].seconds += 3600 * hours + 60 * minutes + seconds + float(time[4] or 0)

    def note_file(self, attributes: _Attributes) -> None:
        delivery = _DELIVERY.get(self._attribute(attributes, "delivery").strip())
        if delivery is None:
            self._refuse("must have a <MediaFile> whose delivery is streaming or progressive")
        mime = self._attribute(attributes, "type").strip().lower()
        w, h = self._integer(attributes, "width"), self._integer(attributes, "height")
        rates = {
            name: rate
            for name in ("bitrate", "minBitrate", "maxBitrate")
            if name in attributes and (rate := self._integer(attributes, name)) > 0
        }
        self._ads[-1].files.append(
            MediaFile(
                mime,
                delivery,
                w if w > 0 else None,
                h if h > 0 else None,
                rates.get("bitrate") or rates.get("maxBitrate"),
                (min(rates.values()), max(rates.values())) if rates else None,
                _framework(attributes, mime),
            )
        )

    def _attribute(self, attributes: _Attributes, name: str) -> str:
        value = attributes.get(name)
        if value is None:
            self._refuse(f'must have the attribute "{name}" in <MediaFile>')
        return value

    def _integer(self, attributes: _Attributes, name: str) -> int:
        value = self._attribute(attributes, name)
        if _INTEGER.fullmatch(value) is None:
            rule = f'must have an integer as attribute "{name}" in <MediaFile>'
            self._refuse(f'{rule}, found "{value[:60]}"')
        return int(value)

    # -- the result --------------------------------------------------------------------------------

    def result(self) -> Vast:
        """What the document says, of the ads that are played."""
        assert self._version is not None
        version = self._version
        ads = [ad for ad in self._ads if ad.is_in_pod] or self._ads[:1]
        kinds = dict.fromkeys(version.wrapper if ad.is_wrapper else version.inline for ad in ads)
        is_wrapper = any(ad.is_wrapper for ad in ads)
        seconds = sum(ad.seconds for ad in ads)
        linear = {None if ad.is_wrapper else ad.linear for ad in ads}
        return Vast(
            version.name,
            is_wrapper,
            tuple(kinds),
            None if is_wrapper or seconds == 0 else seconds,
            () if is_wrapper else tuple(file for ad in ads for file in ad.files),
            linear.pop() if len(linear) == 1 else None,
            _is_skippable(ads),
            tuple(dict.fromkeys(api for ad in ads for api in _needed(ad))),
        )


def _is_skippable(ads: list[_Ad]) -> bool | None:
    """Whether a player lets the user skip; None where that is decided elsewhere."""
    if any(ad.skip_offset for ad in ads):
        return True
    if any(ad.is_wrapper or not ad.linear or _needed(ad) for ad in ads):
        return None
    return False


def _needed(ad: _Ad) -> list[int]:
    """The API frameworks that an ad cannot do without: each of its files has one."""
    apis = [file.api for file in ad.files] if ad.linear else ad.overlays
    return [] if None in apis else [api for api in apis if api is not None]


def _framework(attributes: _Attributes, mime: str) -> int | None:
    name = attributes.get("apiFramework", "").strip().upper()
    if name == "VPAID":
        return VPAID_1 if "shockwave" in mime or "flash" in mime else VPAID_2
    return SIMID if name == "SIMID" else None


def _local(name: str) -> str:
    return name.rpartition(" ")[2][:60]


_Note: TypeAlias = Callable[[_VastReader, _Attributes], None]
_NOTES: Final[dict[str, _Note]] = {
    "Ad": _VastReader.note_ad,
    "Wrapper": _VastReader.note_wrapper,
    "Linear": _VastReader.note_linear,
    "NonLinearAds": _VastReader.note_overlays,
    "NonLinear": _VastReader.note_overlay,
    "Duration": _VastReader.note_duration,
    "MediaFile": _VastReader.note_file,
}
