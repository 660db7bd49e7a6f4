"""Reader of VAST and its media (VAST 2, 3 and 4, inline and wrappers).

A document is refused if it is not VAST (not XML, or with a different root or version), or if no
player plays it: if it has no ad, or an ad with neither `InLine` nor `Wrapper`. It is also refused
if one of the ads that are played has both, is a wrapper without a URL, or is inline without media.
Any other deviation only causes a warning (`vast_form`), with its line. Elements are matched by
their names as written, regardless of namespace, as players do.

The parser is expat, hardened against hostile documents: a document type declaration is refused
before parsing, so there are no entities but XML's own five; size and depth are bounded. Macros such
as `{{auction_id}}`, `${AUCTION_PRICE}` and `[CACHEBUSTING]` are plain text.
"""

import re
from typing import Final
from xml.parsers import expat

import msgspec

from snapbid.campaigns.value_rules import MAX_ADM_BYTES
from snapbid.campaigns.vast_form import UNCOUNTED, Node, Remark, remarks
from snapbid.campaigns.vocabulary import media_type

MAX_DEPTH: Final = 100
MAX_WARNINGS: Final = 100
STREAMING, PROGRESSIVE = 1, 2  # AdCOM's delivery methods
VPAID_1, VPAID_2, SIMID = 1, 2, 8  # AdCOM's API frameworks
MAX_KBPS: Final = 100_000  # of a media file; a higher rate must be in bit/s

_SUPPORTED: Final = "must be VAST 2.0 to 4.3 or the URL of a VAST document"
_ONE_KIND: Final = "must have one <InLine> or <Wrapper> in <Ad>"
_NO_ADDRESS: Final = "must have an address in <VASTAdTagURI> of <Wrapper>"
_NO_MEDIA: Final = (
    "must have a <MediaFile> with an address and a type, or a <NonLinear> with a resource,"
    " in <InLine>"
)
_DOCTYPE: Final = re.compile(r"\ufeff?(?:\s|<\?.*?\?>|<!--.*?-->)*+<!DOCTYPE", re.DOTALL)
_TIME: Final = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(\.\d{1,9})?", re.ASCII)
_USUAL_TIME: Final = re.compile(r"\d\d:[0-5]\d:[0-5]\d(?:\.\d{1,9})?", re.ASCII)
_SECONDS: Final = re.compile(r"\d{1,5}(?:\.\d{1,9})?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d{1,9}", re.ASCII)
_VPAID: Final = re.compile(r"VPAID\D*([12])?")  # and the version, as in "VPAID 2.0"
_CODE: Final = {  # types that players run rather than play, and the API framework that runs them
    "application/javascript": VPAID_2,
    "text/javascript": VPAID_2,
    "application/x-shockwave-flash": VPAID_1,
}
_MANIFESTS: Final = (
    "application/x-mpegurl",
    "application/vnd.apple.mpegurl",
    "application/dash+xml",
    "application/vnd.ms-sstr+xml",
)
_DELIVERY: Final = {"streaming": STREAMING, "progressive": PROGRESSIVE}
_RATES: Final[tuple[str, ...]] = ("bitrate", "minBitrate", "maxBitrate")
_RESOURCES: Final = ("StaticResource", "IFrameResource", "HTMLResource")
_LINKS: Final = ("ClickThrough", "CompanionClickThrough", "NonLinearClickThrough",
                 "IconClickThrough")  # fmt: skip
_SEPARATOR: Final = "\n"  # between the parts of an element's name

# OpenRTB's protocols (AdCOM, "Creative Subtypes - Audio/Video") of inline ads and of wrappers.
PROTOCOLS: Final = {
    "2.0": (2, 5),
    "3.0": (3, 6),
    "4.0": (7, 8),
    "4.1": (11, 12),
    "4.2": (13, 14),
    "4.3": (15, 16),
}


class MediaFile(msgspec.Struct, frozen=True, gc=False):
    """A file that a player may choose; delivery, size and bitrates are None if unknown.

    `bitrates`: the lowest and the highest bitrate, in kbit/s; `api`: the API framework that the
    file needs, if any.
    """

    mime: str  # lower case
    delivery: int | None
    w: int | None
    h: int | None
    bitrate: int | None = None
    bitrates: tuple[int, int] | None = None
    api: int | None = None


class Vast(msgspec.Struct, frozen=True):
    """The facts about the ads that a player plays: the ads of a pod, or else the first ad.

    Facts missing from the markup, such as a wrapper's media, are None or empty. `ads` is the number
    of these ads, None if a wrapper allows any number; `seconds` is their total duration. `apis` are
    the API frameworks that the document needs. Three fields hold messages with line numbers:
    `untimed` says why a linear ad has no readable duration, `insecure` lists elements that are
    loaded over HTTP, and `warnings` lists deviations from VAST.
    """

    version: str
    is_wrapper: bool
    protocols: tuple[int, ...]
    seconds: float | None = None
    files: tuple[MediaFile, ...] = ()
    linear: bool | None = None
    skippable: bool | None = None
    apis: tuple[int, ...] = ()
    untimed: str | None = None
    insecure: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    ads: int | None = 1


class VastError(ValueError):
    """An error for text that is not VAST or cannot be played; it has the broken rule and line."""

    def __init__(self, rule: str, line: int) -> None:
        super().__init__(str(Remark(rule, line)))


def read(text: str) -> Vast:
    """Read a VAST document. Raises VastError for text that is not VAST or cannot be played."""
    if len(text) > MAX_ADM_BYTES:
        raise VastError(f"must have at most {MAX_ADM_BYTES} characters", 1)
    if (doctype := _DOCTYPE.match(text)) is not None:
        raise VastError("must have no DOCTYPE", text.count("\n", 0, doctype.end()) + 1)
    try:
        root = _Builder().build(text)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise VastError(f"{_SUPPORTED}: it is not XML ({reason})", error.lineno) from None
    except UnicodeEncodeError:
        raise VastError(f"{_SUPPORTED}: it has an unpaired surrogate", 1) from None
    return _VastReader(root).result()


class _Builder:
    """Builds the tree of elements of an XML document."""

    def __init__(self) -> None:
        self._parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
        self._parser.namespace_prefixes = True
        self._parser.buffer_text = True
        self._top = Node("", "", {}, 0)
        self._open = [self._top]

    def build(self, text: str) -> Node:
        """Parse XML; return its root. Raises ExpatError, UnicodeEncodeError or VastError."""
        parser = self._parser
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._text
        try:
            parser.Parse(text, True)
        finally:  # breaks the reference cycle
            parser.StartElementHandler = parser.EndElementHandler = None
            parser.CharacterDataHandler = None
        return self._top.children[0]

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        line = self._parser.CurrentLineNumber
        if len(self._open) > MAX_DEPTH + 3:  # the depth is counted within <InLine>
            raise VastError(f"must not be nested deeper than {MAX_DEPTH} elements", line)
        namespace, _, name = name.rpartition(_SEPARATOR) if _SEPARATOR in name else ("", "", name)
        if _SEPARATOR in namespace:  # expat passes namespace, name and prefix
            namespace, _, local = namespace.partition(_SEPARATOR)
            name = f"{name}:{local}"
        node = Node(name, namespace, attributes, line)
        self._open[-1].children.append(node)
        self._open.append(node)

    def _end(self, _: str) -> None:
        self._open.pop().end = self._parser.CurrentLineNumber

    def _text(self, text: str) -> None:
        self._open[-1].text += text


class _Ad:
    """The facts about one ad of a document.

    `fault`: why no player plays the ad; `untimed`: why its duration is unknown.
    """

    __slots__ = ("allows_many", "fault", "files", "is_in_pod", "is_wrapper", "overlays", "seconds",
                 "skip_offset", "untimed")  # fmt: skip

    def __init__(self, *, is_in_pod: bool, is_wrapper: bool) -> None:
        self.is_in_pod = is_in_pod
        self.is_wrapper = is_wrapper
        self.fault: Remark | None = None
        self.untimed: Remark | None = None
        self.skip_offset = False
        self.seconds = 0.0
        self.files: list[MediaFile] = []
        self.overlays: list[int | None] = []  # the API framework of each
        self.allows_many = False  # a wrapper of any number of ads

    @property
    def linear(self) -> bool | None:
        return None if self.is_wrapper else bool(self.files)

    def needed(self) -> list[int]:
        """Return the API frameworks that the ad's files need; empty if any file needs none.

        For an ad without files, the same applies to its overlays.
        """
        apis = [file.api for file in self.files] if self.files else self.overlays
        return [] if None in apis else [api for api in apis if api is not None]


class _VastReader:
    """A reader of a document's ads, which collects deviations from VAST as warnings."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._warnings: list[Remark] = []

    def result(self) -> Vast:
        """Return the properties of the ads that a player would play. Raises VastError."""
        root = self._root
        version = self._version()
        ads = [self._ad(ad) for ad in root.all("Ad")]
        if not ads:
            raise VastError("must have an <Ad> in <VAST>", root.end)
        pod = [ad for ad in ads if ad.is_in_pod]
        played = pod or ads[:1]
        for ad in played:
            if ad.fault is not None:
                raise VastError(*ad.fault)
        for ad in ads if pod else ads[1:]:
            if not ad.is_in_pod:
                self._warn_of_faults(ad)
        untimed = next((ad.untimed for ad in played if ad.untimed is not None), None)
        apis = [ad.needed() for ad in played]
        linear = {ad.linear for ad in played}
        seconds = sum(ad.seconds for ad in played)
        is_wrapper = any(ad.is_wrapper for ad in played)
        # For wrappers, overlays and API frameworks, skipping is decided elsewhere.
        is_decided = all(ad.linear and not needed for ad, needed in zip(played, apis, strict=True))
        kinds = dict.fromkeys(PROTOCOLS[version][ad.is_wrapper] for ad in played)
        return Vast(
            version,
            is_wrapper,
            tuple(kinds),
            None if is_wrapper or seconds == 0 or untimed else seconds,
            () if is_wrapper else tuple(file for ad in played for file in ad.files),
            linear.pop() if len(linear) == 1 else None,
            True if any(ad.skip_offset for ad in played) else False if is_decided else None,
            tuple(dict.fromkeys(api for needed in apis for api in needed)),
            None if untimed is None else str(untimed),
            tuple(map(str, _insecure(root))),
            self._all_warnings(version),
            None if any(ad.allows_many for ad in played) else len(played),
        )

    def _all_warnings(self, version: str) -> tuple[str, ...]:
        """Return the first `MAX_WARNINGS` warnings, and one that counts the rest, if any.

        Warnings that no impression will be counted come first; others are in document order.
        """
        found = [*remarks(self._root, version), *self._warnings]
        found.sort(key=lambda each: (not each.rule.endswith(UNCOUNTED), each.line))
        texts = [*map(str, found[:MAX_WARNINGS])]
        if more := len(found) - len(texts):
            texts.append(f"and {more} more in the same document")
        return tuple(texts)

    def _warn(self, rule: str, node: Node) -> None:
        self._warnings.append(Remark(rule, node.line))

    def _warn_of_faults(self, ad: _Ad) -> None:
        """Warn that players will play another ad, because of the faults of this one."""
        self._warnings += (
            Remark(f"{fault.rule}; players play another ad", fault.line)
            for fault in (ad.fault, ad.untimed)
            if fault is not None
        )

    def _version(self) -> str:
        """Return the stated version of VAST, or a similar one if PROTOCOLS does not list it."""
        root = self._root
        if root.name != "VAST":
            raise VastError(f"{_SUPPORTED}, found <{root.name[:60]}>", root.line)
        number = root.attributes.get("version")
        if number is None:
            raise VastError('must have the attribute "version" in <VAST>', root.line)
        number = number.strip()
        if not number.startswith(("2", "3", "4")):
            raise VastError(f'{_SUPPORTED}, found version "{number[:60]}"', root.line)
        if number == "2.0.1":  # from the schema of 2.0
            return "2.0"
        version = number[:3]
        if version not in PROTOCOLS:
            newest = max(PROTOCOLS)
            version = newest if version[:2] == "4." and version > newest else f"{number[0]}.0"
        if version != number:
            self._warn(f'version "{number[:60]}" counts as VAST {version}', root)
        return version

    def _ad(self, node: Node) -> _Ad:
        kinds = [child for child in node.children if child.name in ("InLine", "Wrapper")]
        if not kinds:  # players refuse the other ads, too
            raise VastError(f"{_ONE_KIND}, found none", node.line)
        ad = _Ad(is_in_pod="sequence" in node.attributes, is_wrapper=kinds[0].name == "Wrapper")
        if ad.is_wrapper:
            ad.allows_many = _is_true(kinds[0], "allowMultipleAds")
        for creatives in kinds[0].all("Creatives"):
            for creative in creatives.all("Creative"):
                self._creative(creative, ad)
        if len(kinds) > 1:
            ad.fault = Remark(f"{_ONE_KIND}, found {len(kinds)}", node.line)
        elif ad.is_wrapper and not _has_address(kinds[0]):
            ad.fault = Remark(_NO_ADDRESS, kinds[0].line)
        elif not (ad.is_wrapper or ad.files or ad.overlays):
            ad.fault = Remark(_NO_MEDIA, kinds[0].line)
        return ad

    def _creative(self, creative: Node, ad: _Ad) -> None:
        for linear in creative.all("Linear"):
            ad.skip_offset = ad.skip_offset or bool(linear.attributes.get("skipoffset"))
            if not ad.is_wrapper:
                self._linear(linear, ad)
        for overlays in creative.all("NonLinearAds"):
            for overlay in overlays.all("NonLinear"):
                self._overlay(overlay, ad)

    def _linear(self, linear: Node, ad: _Ad) -> None:
        nodes = [node for files in linear.all("MediaFiles") for node in files.all("MediaFile")]
        files = [file for node in nodes if (file := self._file(node)) is not None]
        if not files:
            return
        ad.files += files
        durations = linear.all("Duration")
        text = durations[0].text.strip() if durations else ""
        seconds = _duration(text)
        if seconds is not None:
            ad.seconds += seconds
            if not _USUAL_TIME.fullmatch(text):
                self._warn(f'<Duration> must be like 00:00:15, found "{text}"', durations[0])
        elif durations:
            rule = f'must have a <Duration> such as 00:00:15, found "{text[:60]}"'
            ad.untimed = ad.untimed or Remark(rule, durations[0].end)
        else:
            ad.untimed = ad.untimed or Remark("must have <Duration> in <Linear>", linear.line)

    def _overlay(self, overlay: Node, ad: _Ad) -> None:
        resources = [node for name in _RESOURCES for node in overlay.all(name)]
        if any(resource.text.strip() for resource in resources):
            ad.overlays.append(_framework(overlay, ""))
        elif not ad.is_wrapper:
            self._warn("<NonLinear> has no resource that could be shown", overlay)

    def _file(self, node: Node) -> MediaFile | None:
        """Read a media file; None if no player can choose it."""
        stated = {name: value.strip() for name, value in node.attributes.items()}
        mime = stated.get("type", "").lower()
        lacks = [*(["address"] if not node.text.strip() else []), *(["type"] if not mime else [])]
        if lacks:
            rule = f"<MediaFile> has no {' and no '.join(lacks)}: no player chooses it"
            self._warn(rule, node)
            return None
        delivery = stated.get("delivery", "")
        if delivery not in _DELIVERY:
            rule = '<MediaFile> must have a delivery, "streaming" or "progressive"'
            self._warn(f"{rule}, found {_found(node, 'delivery')}", node)
        w = h = None
        if not mime.startswith("audio/"):
            w, h = (self._integer(node, name, "pixels") for name in ("width", "height"))
        rates = {name: rate for name in _RATES if name in stated
                 and (rate := self._integer(node, name, "kbit/s")) is not None}  # fmt: skip
        self._check_rates(node, rates)
        return MediaFile(
            mime,
            _DELIVERY.get(delivery),
            w,
            h,
            rates.get("bitrate") or rates.get("maxBitrate"),
            (min(rates.values()), max(rates.values())) if rates else None,
            self._api(node, mime),
        )

    def _api(self, node: Node, mime: str) -> int | None:
        """Return the API framework that a media file needs: as stated, or VPAID for a script."""
        api = _framework(node, mime)
        if api is not None:
            return api
        name = media_type(mime)
        if (api := _CODE.get(name)) is not None:
            found = _found(node, "apiFramework")
            self._warn(
                f'<MediaFile> must have apiFramework="VPAID" for {name}, found {found}', node
            )
        elif not (name.startswith(("video/", "audio/")) or name in _MANIFESTS):
            rule = "<MediaFile> must have a type of video, audio or a streaming manifest"
            self._warn(f"{rule}, such as video/mp4, found {_found(node, 'type')}", node)
        return api

    def _integer(self, node: Node, name: str, unit: str) -> int | None:
        """Read a positive integer attribute; None if it is missing, malformed or not positive."""
        value = node.attributes.get(name)
        number = _INTEGER.fullmatch(value.strip()) if value is not None else None
        if number is None:
            rule = f"<MediaFile> must have {name} in {unit}"
            self._warn(f"{rule}, found {_found(node, name)}", node)
            return None
        return int(number[0]) if int(number[0]) > 0 else None

    def _check_rates(self, node: Node, rates: dict[str, int]) -> None:
        if any(rate > MAX_KBPS for rate in rates.values()):
            rule = "<MediaFile> must have its bitrate in kbit/s, not in bit/s"
            self._warn(f"{rule}, found {max(rates.values())}", node)
        if ("minBitrate" in node.attributes) != ("maxBitrate" in node.attributes):
            self._warn("<MediaFile> must have minBitrate and maxBitrate, or neither", node)
        if rates.get("minBitrate", 0) > rates.get("maxBitrate", MAX_KBPS):
            self._warn("<MediaFile> must have a minBitrate of at most its maxBitrate", node)


def _duration(text: str) -> float | None:
    """Return a duration in seconds; players read `HH:MM:SS`, and a number alone as seconds."""
    if _SECONDS.fullmatch(text):
        return float(text)
    time = _TIME.fullmatch(text)
    if time is None or int(time[3]) > 60:
        return None
    return 3600 * int(time[1]) + 60 * int(time[2]) + int(time[3]) + float(time[4] or 0)


def _found(node: Node, name: str) -> str:
    """Quote an attribute's value for a message; return `none` if the element lacks it."""
    value = node.attributes.get(name)
    return "none" if value is None else f'"{value[:60]}"'


def _is_true(node: Node, name: str) -> bool:
    return node.attributes.get(name, "").strip().lower() in ("true", "1")


def _has_address(wrapper: Node) -> bool:
    """Return whether a wrapper has the address of its ad, as VAST 1 or later versions write it."""
    uris = [*wrapper.all("VASTAdTagURI"), *wrapper.all("VASTAdTagURL")]
    return any(each.text.strip() for uri in uris for each in (uri, *uri.all("URL")))


def _framework(node: Node, mime: str) -> int | None:
    name = node.attributes.get("apiFramework", "").strip().upper()
    if (vpaid := _VPAID.match(name)) is not None:
        if vpaid[1]:
            return int(vpaid[1])
        return VPAID_1 if "shockwave" in mime or "flash" in mime else VPAID_2
    return SIMID if name == "SIMID" else None


def _insecure(root: Node) -> list[Remark]:
    """Find elements with an `http:` address, except the destinations of clicks."""
    found, nodes = [], [root]
    while nodes:
        node = nodes.pop()
        nodes += reversed(node.children)
        if node.name not in _LINKS and node.text.lstrip()[:5].lower() == "http:":
            found.append(Remark(f"<{node.name[:60]}> has an http: address", node.line))
    return found
