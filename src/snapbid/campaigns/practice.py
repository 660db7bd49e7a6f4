"""Warnings about valid markup that is probably a mistake.

- A banner that is not HTML: VAST, JSON, a URL, plain text.
- Resources loaded over HTTP, in a creative stated to be secure.
- `mraid.js`, without an API framework that provides it.
- Addresses that do not use HTTP. Links and images without any scheme are mistakes.
- Macros that are never filled in: an ad server's, VAST's in a banner, and any `${…}` that OpenRTB
  does not define.
"""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, Final, Literal, TypeAlias

from snapbid.campaigns.markup import ADDRESSED, Language, parse
from snapbid.campaigns.native import NativeAd
from snapbid.campaigns.native_rules import name_in
from snapbid.campaigns.rules import Mistakes, Path, report, shown, warn
from snapbid.campaigns.value_rules import report_unprotected
from snapbid.campaigns.vast_facts import is_address

MRAID: Final = frozenset((3, 5, 6))  # AdCOM's API frameworks

_TAG: Final = re.compile(r"<[a-z!/?]", re.IGNORECASE)
_VAST: Final = re.compile(r"\ufeff?(?:\s|<\?.*?\?>|<!--.*?-->)*+<VAST\b", re.DOTALL)

_LOADS: Final = frozenset(("src", "srcset", "poster", "background", "data"))
_CSS_URL: Final = re.compile(r"(?:url\(|@import)\s*[\"']?http:", re.IGNORECASE)

_SIGNS: Final = ("%%", "${", "[", "%5B")  # each of these macros contains one
_AD_SERVER: Final = re.compile(r"%%[A-Za-z_]\w*(?::[^%\s]*)?%%")
_URL: Final = re.compile(r"(?:https?:)?//[^\s\"'<>\\]+", re.IGNORECASE)
_WEB: Final = re.compile(r"\s*(?:https?:)?//[^\s/?#]", re.IGNORECASE)
_SCHEME: Final = re.compile(r"\s*([a-z][a-z0-9+.-]*):", re.IGNORECASE | re.ASCII)
# Somebody else may fill in an address: an exchange, an ad server, a template.
_FILLED_IN: Final = re.compile(r"\s*(?:\$\{|%%|\[|\{\{open\}\})")
_BRACKETED: Final = re.compile(r"\[[A-Za-z][\w-]*\]|%5B[A-Za-z][\w-]*%5D")
_DOLLAR: Final = re.compile(r"\$\{([A-Za-z][\w.-]*)(?::\w+)?\}")

# OpenRTB 2.6, 4.4, and the IAB's macros for consent strings, some with a vendor's number.
_OPENRTB: Final = re.compile(
    r"AUCTION_(?:ID|BID_ID|IMP_ID|SEAT_ID|AD_ID|PRICE|CURRENCY|MBR|LOSS|MIN_TO_WIN|MULTIPLIER|"
    r"IMP_TS)|GDPR|(?:GDPR_CONSENT|ADDTL_CONSENT|GPP_STRING)(?:_\d+)?|GPP_SID|US_PRIVACY"
)
# VAST 4.3, 6: macros that players fill in, in VAST.
_PLAYERS: Final = frozenset(
    """
    ADCATEGORIES ADCOUNT ADPLAYHEAD ADSERVINGID ADTYPE APIFRAMEWORKS APPBUNDLE ASSETURI
    BLOCKEDADCATEGORIES BREAKMAXADLENGTH BREAKMAXADS BREAKMAXDURATION BREAKMINADLENGTH
    BREAKMINDURATION BREAKPOSITION CACHEBUSTING CLICKPOS CLICKTYPE CLIENTUA CONTENTCAT CONTENTID
    CONTENTPLAYHEAD CONTENTURI DEVICEIP DEVICEUA DOMAIN ERRORCODE EXTENSIONS GDPRCONSENT GPPSID
    GPPSTRING IFA IFATYPE INVENTORYSTATE LATLONG LIMITADTRACKING MEDIAMIME MEDIAPLAYHEAD
    OMIDPARTNER PAGEURL PLACEMENTTYPE PLAYERCAPABILITIES PLAYERSIZE PLAYERSTATE PODSEQUENCE
    REASON REGULATIONS SERVERSIDE SERVERUA TIMESTAMP TRANSACTIONID UNIVERSALADID VASTVERSIONS
    VERIFICATIONVENDORS
    """.split()  # noqa: SIM905
)
_TIMES: Final = ("timestamp", "cachebuster", "cachebusting", "random", "rand", "cb", "correlator")


def check_banner(creative: Any, at: Path, mistakes: Mistakes) -> None:
    """Add warnings about a banner's markup."""
    text = creative.adm
    if (kind := _not_html(text)) is not None:
        warn(mistakes, at, f"{kind}, line 1 of the text")
        return
    lower = text.lower()
    mraid = _mraid(lower)
    if mraid >= 0 and not MRAID & set(creative.apis or ()):
        rule = "has mraid.js, which only apps have: set apis, such as [5] for MRAID 2.0"
        warn(mistakes, at, f"{rule}, {_line(text, mraid)}")
    if creative.secure is not False and "http:" in lower:
        for place in _HttpReader().read(text):
            rule = f'loads over HTTP: {place}; load it over HTTPS or set "secure": false'
            warn(mistakes, at, rule)
    check_macros(text, "HTML", at, mistakes)


def _not_html(text: str) -> str | None:
    if _VAST.match(text) is not None:
        return "is VAST, which no banner shows: set media to video or audio"
    if is_address(text):
        return 'is an address, which is shown as text: write <iframe src="…"> or <script src="…">'
    if _is_json(text):
        return "is JSON, which is shown as text: a native response has media native"
    if _TAG.search(text) is None:
        return "is plain text without any HTML: write the markup of the advertisement"
    return None


def _mraid(lower: str) -> int:
    """Return the position where a script loads `mraid.js`; -1 if none does."""
    at = lower.find("mraid.js")
    while at >= 0:
        script = lower.rfind("<script", 0, at)
        if script >= 0 and lower.rfind(">", script, at) < 0:
            return at
        at = lower.find("mraid.js", at + 1)
    return -1


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _line(text: str, position: int) -> str:
    return f"line {text.count(chr(10), 0, position) + 1} of the text"


class _HttpReader(HTMLParser):
    """A parser that finds resources loaded over HTTP; it ignores `<a>`, which loads nothing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._found: list[str] = []

    def read(self, text: str) -> list[str]:
        """Return each place where the text loads a resource over HTTP, with its line."""
        parse(self, text)
        return self._found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            loads = name in _LOADS or (tag == "link" and name == "href")
            value = (value or "").strip()
            if (loads and value[:5].lower() == "http:") or (
                name == "style" and _CSS_URL.search(value)
            ):
                self._add(f"attribute {name} of <{tag}>")

    def handle_data(self, data: str) -> None:
        if _CSS_URL.search(data):
            self._add("a style sheet")

    def _add(self, where: str) -> None:
        self._found.append(f"{where}, line {self.getpos()[0]} of the text")


# -- macros ---------------------------------------------------------------------------------------


def check_macros(text: str, language: Language, at: Path, mistakes: Mistakes) -> None:
    """Warn about each macro that is never filled in, once per macro."""
    if not any(map(text.__contains__, _SIGNS)):
        return
    known: set[str] = set()
    for position, macro, rule in _unfilled(text, language):
        if macro not in known:
            known.add(macro)
            warn(mistakes, at, f"has {macro}, {rule}, {_line(text, position)}")


def _unfilled(text: str, language: Language) -> Iterator[tuple[int, str, str]]:
    """Yield each macro that is never filled in: its position, its text, and the warning."""
    if "%%" in text:
        for macro in _AD_SERVER.finditer(text):
            is_click = "click" in macro[0].lower()
            what = "remove it" if is_click else f"replace it with its value{_instead(macro[0])}"
            rule = f"an ad server's macro, which is not filled in here: {what}"
            yield macro.start(), macro[0], rule
    if "${" in text:
        for macro in _DOLLAR.finditer(text):
            name = macro[1]
            # In a script, lower case is mostly a variable.
            if not _OPENRTB.fullmatch(name) and (name == name.upper() or "`" not in text):
                rule = "which is not a macro of OpenRTB: replace it with its value"
                yield macro.start(), macro[0], rule
    if "[" in text or "%5B" in text:
        for url in _URL.finditer(text):
            for macro in _BRACKETED.finditer(url[0]):
                name = macro[0].strip("[]").removeprefix("%5B").removesuffix("%5D")
                if language != "VAST":
                    rule = "which is not filled in outside VAST: replace it with its value"
                elif name not in _PLAYERS:
                    rule = "which is not a macro of VAST: replace it with its value"
                else:
                    continue
                yield url.start() + macro.start(), macro[0], rule + _instead(name)


def _instead(name: str) -> str:
    """Suggest `{{cachebuster}}` in place of a cache-busting macro; return "" for others."""
    plain = name.lower().strip("%")
    return ", here {{cachebuster}}" if plain.startswith(_TIMES) else ""


# -- native ---------------------------------------------------------------------------------------


def check_native(
    native: NativeAd, secure: bool | None, at: Path, names: dict[str, str], mistakes: Mistakes
) -> None:
    """Report warnings about the assets of a native creative, and mistakes in its addresses.

    `names`: see `native_rules.Response`; empty unless the creative comes from a response.
    """
    for field, text, role in _texts(native):
        name = name_in(names, field)
        if role != "text":
            check_address(text, role, (at, name), mistakes)
            report_unprotected(text, "URL", (at, name), mistakes, ADDRESSED)
        if secure is not False and role in ("image", "tracker") and text[:5].lower() == "http:":
            rule = f"is loaded over HTTP: {shown(text)}; load it over HTTPS"
            warn(mistakes, (at, name), f'{rule} or set "secure": false')
        check_macros(text, "URL", (at, name), mistakes)


Role: TypeAlias = Literal["link", "image", "tracker", "page", "text"]
"""The purpose of a text in a creative: a `page` is an address that is neither loaded nor clicked
on, and a `text` is not an address."""


def check_address(text: str, role: Role, at: Path, mistakes: Mistakes) -> None:
    """Report an address without a scheme, or warn of one that does not use HTTP.

    A link may use an app's own scheme. A missing scheme is a mistake in a link, which then leads
    nowhere, and in an image, which is then not shown although an impression may require it. In
    other addresses it causes only a warning.
    """
    if _WEB.match(text) or _FILLED_IN.match(text):
        return
    scheme = _SCHEME.match(text)
    if scheme is None and role in ("link", "image"):
        report(mistakes, at, f"must begin with a scheme, such as https://, found {shown(text)}")
    elif scheme is None or role != "link" or scheme[1].lower() in ("http", "https"):
        warn(mistakes, at, f"must be an address that begins with https://, found {shown(text)}")


def _texts(native: NativeAd) -> Iterator[tuple[str, str, Role]]:
    """Yield path, text and role of each text except the video's VAST."""
    yield "link.url", native.link.url, "link"
    if native.link.fallback is not None:
        yield "link.fallback", native.link.fallback, "link"
    for index, url in enumerate(native.link.clicktrackers):
        yield f"link.clicktrackers[{index}]", url, "tracker"
    for index, url in enumerate(native.imptrackers):
        yield f"imptrackers[{index}]", url, "tracker"
    for index, image in enumerate(native.images):
        yield f"images[{index}].url", image.url, "image"
    for index, tracker in enumerate(native.eventtrackers):
        yield f"eventtrackers[{index}].url", tracker.url, "tracker"
    for kind, text in native.data.items():
        yield f"data.{kind}", text, "text"
    if native.title is not None:
        yield "title", native.title, "text"
    if native.privacy is not None:
        yield "privacy", native.privacy, "page"
