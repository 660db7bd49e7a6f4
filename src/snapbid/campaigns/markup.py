"""Find scripts and macros in markup, and macros in unsafe positions (contract 2, "Creative").

The ids of an auction and an impression come from the sender of a request. Percent-encoding reduces
them to `A-Z a-z 0-9 - . _ ~` and `%`, so they cannot end the text, attribute or URL parameter that
contains them. But percent-encoding does not make them safe

- in a script or an event handler, where an id such as `document.cookie` is an expression;
- in a `javascript:` or `data:` URL, which browsers decode before they run or show it;
- in `srcdoc`, which is a document in itself;
- in CSS, where ids can be names of elements, properties and keywords;
- in the name of an element or attribute, where ids such as `script` or `onclick` have a meaning;
- in the scheme of a URL, or at the end of its host, where an id such as `.evil.example` decides who
  is asked for a script. In front of a literal domain, it only names a subdomain.

The other macros are safe: the ids of a campaign and its creative are chosen by the operator, the
cachebuster has only hexadecimal digits and dashes, and the click id only base64url's alphabet.
"""

import re
from collections.abc import Container
from html.parser import HTMLParser
from typing import Final, Literal, TypeAlias

import msgspec

OPEN: Final = "open"  # stands for two opening braces, so that any text can be sent verbatim
BIDDER_MACROS: Final = (
    "auction_id", "imp_id", "campaign_id", "creative_id", "cachebuster", "click_id", OPEN
)  # fmt: skip
FROM_REQUESTS: Final = ("auction_id", "imp_id")

Language: TypeAlias = Literal["HTML", "VAST", "URL"]
Where: TypeAlias = Literal[
    "text", "comment", "attribute", "URL", "URL parameter", "scheme of a URL", "host of a URL",
    "script", "event handler", "script URL", "data URL", "srcdoc", "style", "name",
]  # fmt: skip
UNPROTECTED: Final = frozenset[Where](
    ("script", "event handler", "script URL", "data URL", "srcdoc", "style", "name")
)
ADDRESSED: Final = frozenset[Where](("scheme of a URL", "host of a URL"))
"""Positions that decide where a URL leads. Only the import refuses them."""

_MACRO: Final = re.compile(rf"\{{\{{({'|'.join(BIDDER_MACROS)})\}}\}}")
_FROM_REQUEST: Final = re.compile(rf"\{{\{{(?:{'|'.join(FROM_REQUESTS)})\}}\}}")

# While markup is parsed, macro number 5 is an `x`, and 5 between two characters that no text has: a
# part of whatever name, value or text contains it.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_MARK: Final = re.compile(f"x{_OPEN}(\\d+){_CLOSE}")

# Browsers ignore tabs and line ends in a URL, and spaces and controls before it.
_LEFT_OUT: Final = str.maketrans("", "", "\t\r\n")
_BEFORE_URL: Final = "".join(map(chr, range(33)))
_URL: Final = re.compile(r"(?:[a-z][a-z0-9+.-]*:/|/|\?)\S*", re.IGNORECASE)
_REFRESH: Final = re.compile(r"[^;,]*[;,]\s*url\s*=\s*['\"]?", re.IGNORECASE)
_PARTS: Final = re.compile(r"[?&;#]")
# URLs anywhere in a value, such as `srcset`, JSON, or a parameter of another URL. Browsers take a
# backslash for a slash, and need no slashes after `https:`.
_SCHEME: Final = re.compile(
    rf"(?<![^\s\"'=,;(])[a-z0-9+.\-{_OPEN}{_CLOSE}]*+:(?P<slashes>[\\/]{2})?", re.IGNORECASE
)
_AUTHORITY: Final = re.compile(
    r"(?:https?:[\\/]*|:[\\/]{2,}|(?<![^\s\"'=,;(])[\\/]{2,})([^\s\\/?#\"'<>]*)", re.IGNORECASE
)
_LITERAL_END: Final = re.compile(r"[\w-]*(?:\.[\w-]+)+\.[^\W\d_][\w-]*\.?(?::\d*)?")
_URL_ATTRIBUTES: Final = frozenset(
    ("action", "background", "data", "formaction", "href", "poster", "src", "xlink:href")
)
_URL_ELEMENTS: Final = ("through", "tracking", "click", "resource", "file", "uri")  # last words
_CODE: Final[dict[str, Where]] = {"script": "script", "style": "style"}  # elements
# A declaration in brackets that is not a CDATA section, which HTML does not have, ends at the first
# `>`.
_DECLARATION: Final = re.compile(r"<!\[")
_DECLARATION_IN_XML: Final = re.compile(r"<!\[(?!CDATA\[)")
_NAME: Final = re.compile(f"(?:[\\w-]*:)?(?:[a-z]|x{_OPEN}\\d+{_CLOSE})*")
_NO_URLS: Final[dict[str, Where]] = {"style": "style", "srcdoc": "srcdoc"}  # attributes
# Most markup has none of these. Parsing it to find scripts would take half as long as its import.
_MAY_RUN: Final = re.compile(r"[\s/\"']on\w*\s*=|&(?:#|tab;|newline;|colon;)", re.IGNORECASE)

# Closes whatever is open; otherwise the parser would search unclosed constructs again and again.
_END: Final = "-->]]>'>\"></script></style>"


class MacroPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position of a macro in markup; `line` is counted from 1.

    `element`, `attribute` and `parameter` are the lower-case names of the element, the attribute
    and the URL parameter that contain the macro, if any.
    """

    macro: str
    line: int
    where: Where = "text"
    element: str | None = None
    attribute: str | None = None
    parameter: str | None = None

    def __str__(self) -> str:
        words: str = self.where
        if self.parameter is not None:
            words += f" {self.parameter}"
        if self.attribute is not None:
            named = f"attribute {self.attribute} of <{self.element}>"
            return named if self.where == "attribute" else f"{words}, {named}"
        return words if self.element is None else f"{words} of <{self.element}>"


def unprotected(
    text: str, language: Language, positions: Container[Where] = UNPROTECTED
) -> list[MacroPlace]:
    """Find macros for auction and impression ids where percent-encoding does not make them safe.

    `positions`: UNPROTECTED or ADDRESSED.
    """
    if "{{" not in text or _FROM_REQUEST.search(text) is None:
        return []
    return [
        place
        for place in macro_places(text, language)
        if place.where in positions and place.macro in FROM_REQUESTS
    ]


def has_script(text: str) -> bool:
    """Return whether HTML has a script, an event handler or a script URL."""
    lower = text.lower()
    if "<script" in lower:
        return True
    if "script:" not in lower.translate(_LEFT_OUT) and _MAY_RUN.search(text) is None:
        return False
    finder = _ScriptFinder(convert_charrefs=True)
    parse(finder, text)
    return finder.found


def parse(parser: HTMLParser, text: str, *, is_xml: bool = False) -> None:
    """Feed markup to a parser so that it is read as browsers read it, even if malformed."""
    declaration = _DECLARATION_IN_XML if is_xml else _DECLARATION
    parser.feed(declaration.sub("<!x", text) + _END)
    parser.close()


def macro_places(text: str, language: Language) -> list[MacroPlace]:
    """Return the position of each macro, in order."""
    places: list[MacroPlace] = []
    pieces: list[str] = []
    end, line = 0, 1
    text = text.replace(_OPEN, " ").replace(_CLOSE, " ")
    for macro in _MACRO.finditer(text):
        line += text.count("\n", end, macro.start())
        pieces += (text[end : macro.start()], f"x{_OPEN}{len(places)}{_CLOSE}")
        places.append(MacroPlace(macro[1], line))
        end = macro.end()
    marked = "".join([*pieces, text[end:]])
    if language == "URL":
        _Places(places).url_or_text(marked)
    elif places:
        _MarkupReader(_Places(places), is_xml=language == "VAST").read(marked)
    return places


class _Places:
    """Records the positions of macros, as a parser finds the placeholders that replace them."""

    def __init__(self, places: list[MacroPlace]) -> None:
        self._places = places

    def put(
        self,
        text: str,
        where: Where,
        element: str | None = None,
        attribute: str | None = None,
        parameter: str | None = None,
    ) -> None:
        """Record the given position for all macros in `text`."""
        for mark in _MARK.finditer(text) if _OPEN in text else ():
            number = int(mark[1])
            macro, line = self._places[number].macro, self._places[number].line
            self._places[number] = MacroPlace(macro, line, where, element, attribute, parameter)

    def url_or_text(
        self, value: str, element: str | None = None, attribute: str | None = None
    ) -> None:
        """Record the positions of macros in a value; one that looks like a URL is read as a URL."""
        if _OPEN not in value:
            return
        url = _url_of(value, element, attribute)
        if _is_script_url(url):
            self.put(url, "script URL", element, attribute)
        elif url[:5].lower() == "data:":
            self.put(url, "data URL", element, attribute)
        elif _URL.fullmatch(url.rstrip()) is None:
            self.put(url, "attribute" if attribute else "text", element, attribute)
            self._addresses(value, url, element, attribute)
        else:
            for number, part in enumerate(_PARTS.split(url)):
                name, equals, _ = part.partition("=")
                is_parameter = number > 0 and equals and _OPEN not in name
                self.put(
                    part,
                    "URL parameter" if is_parameter else "URL",
                    element,
                    attribute,
                    name if is_parameter else None,
                )
            self._addresses(value, url, element, attribute)

    def _addresses(self, value: str, url: str, element: str | None, attribute: str | None) -> None:
        """Record macros whose values choose a URL's scheme, its port or the end of its host."""
        if attribute is not None:
            is_url = attribute in _URL_ATTRIBUTES
        else:
            is_url = element is None or element.endswith(_URL_ELEMENTS)
        for text in (value, url):  # line ends separate URLs, or are left out of one
            for scheme in _SCHEME.finditer(text):
                if scheme["slashes"] or (is_url and scheme.start() == 0):
                    self.put(scheme[0], "scheme of a URL", element, attribute)
            for authority in _AUTHORITY.finditer(text):
                if _LITERAL_END.fullmatch(authority[1].rpartition(_CLOSE)[2]) is None:
                    self.put(authority[1], "host of a URL", element, attribute)


def _url_of(value: str, element: str | None, attribute: str | None) -> str:
    """Return an attribute's value as browsers would read it as a URL."""
    if element == "meta" and attribute == "content" and (refresh := _REFRESH.match(value)):
        value = value[refresh.end() :]
    return value.translate(_LEFT_OUT).lstrip(_BEFORE_URL)


def _is_script_url(url: str) -> bool:
    return url[:11].lower().startswith(("javascript:", "vbscript:"))


def _is_event_handler(attribute: str) -> bool:
    return attribute.startswith("on")


class _ScriptFinder(HTMLParser):
    """A parser of HTML that detects scripts in attributes."""

    found = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is not None and value.strip():
                is_url = name not in _NO_URLS and _is_script_url(_url_of(value, tag, name))
                self.found |= is_url or _is_event_handler(name)


class _MarkupReader(HTMLParser):
    """Finds the placeholders of macros in markup, which it reads as browsers do.

    It also parses XML, in which text, escaped or in a CDATA section, may be a URL or HTML.
    """

    def __init__(self, places: _Places, *, is_xml: bool) -> None:
        super().__init__(convert_charrefs=True)
        self._places = places
        self._is_xml = is_xml
        self._element: str | None = None  # the last one opened
        self._code: Where | None = None  # the kind of text, in a script or a style sheet

    def read(self, text: str) -> None:
        parse(self, text, is_xml=self._is_xml)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._code is not None:
            self._places.put(self.get_starttag_text() or "", self._code, self._element)
            return
        self._put_name(tag)
        self._element = _MARK.sub("", tag)
        self._code = _CODE.get(tag.rpartition(":")[2])
        for name, value in attrs:
            if value is not None and _OPEN in value:
                self._read_attribute(name, value)
            self._put_name(name, is_attribute=True, has_value=value is not None)

    def _put_name(self, name: str, *, is_attribute: bool = False, has_value: bool = True) -> None:
        """Record the position of macros in the name of an element or attribute.

        The position is "name", and unsafe, if the macros' values could turn the name into that of a
        script or an event handler.
        """
        if _OPEN in name:
            decides = has_value and _NAME.fullmatch(name) is not None
            where: Where = "name" if decides else "attribute" if is_attribute else "text"
            self._places.put(name, where, self._element if is_attribute else None)

    def _read_attribute(self, name: str, value: str) -> None:
        where = "event handler" if _is_event_handler(name) else _NO_URLS.get(name)
        if where is not None:
            self._places.put(value, where, self._element, name)
        else:
            self._places.url_or_text(value, self._element, name)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self._is_xml:  # HTML ignores the slash: what follows <script/> is a script
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        self._put_name(tag)
        self._element = None
        if tag.rpartition(":")[2] in ("script", "style", "svg"):
            self._code = None

    def handle_data(self, data: str) -> None:
        if _OPEN not in data:
            return
        if self._code is not None:
            self._places.put(data, self._code, self._element)
        elif not self._is_xml:
            self._places.put(data, "text", self._element)
        elif "<" in data:
            _MarkupReader(self._places, is_xml=False).read(data)
        else:
            self._places.url_or_text(data, self._element)

    def handle_comment(self, data: str) -> None:
        self._places.put(data, self._code or "comment")

    def unknown_decl(self, data: str) -> None:
        self.handle_data(data.removeprefix("CDATA["))
