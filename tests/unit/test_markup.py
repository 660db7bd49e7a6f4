"""Where macros stand in markup, and the quick look that spares the parser most of it."""

import random
from typing import get_args

import pytest

from snapbid.campaigns import markup
from snapbid.campaigns.markup import Language, macro_places, unprotected

LANGUAGES: tuple[Language, ...] = get_args(Language)


def places(text: str, language: Language = "HTML") -> list[str]:
    return list(map(str, macro_places(text, language)))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{{imp_id}}", "text"),
        ("<p>{{imp_id}}", "text of <p>"),
        ("<p>a</p>{{imp_id}}", "text"),
        ("<!-- {{imp_id}} -->", "comment"),
        ('<IMG ALT="{{imp_id}}">', "attribute alt of <img>"),
        ("<img src=//t.example/{{imp_id}}>", "URL, attribute src of <img>"),
        ('<img src="/i?a=1&amp;b={{imp_id}}">', "URL parameter b, attribute src of <img>"),
        ("<img src=/i?a=1&b=x-{{imp_id}}-y>", "URL parameter b, attribute src of <img>"),
        ("<img src=/i?{{imp_id}}=1>", "URL, attribute src of <img>"),
        ("<script src=/i?{{imp_id}}></script>", "URL, attribute src of <script>"),
        ("<script type=application/json>{{imp_id}}</script>", "script of <script>"),
        ("<script><p title={{imp_id}}></script>", "script of <script>"),
        ("<script>'</p>{{imp_id}}'</script>", "script of <script>"),
        ("<script></script>{{imp_id}}", "text"),
        ("<svg><script href=x /></svg>{{imp_id}}", "text"),
        ("<svg:script>{{imp_id}}</svg:script>", "script of <svg:script>"),
        ("<![CDATA[<script>{{imp_id}}", "script of <script>"),
        ("<![if !IE]>{{imp_id}}<![endif]>", "text"),
        ("<a href='javascript:{{imp_id}}", "script URL, attribute href of <a>"),
        ("<a href=\x01\x20javascript:{{imp_id}}>", "attribute href of <a>"),
        ("<a href='\x01\x20javascript:{{imp_id}}'>", "script URL, attribute href of <a>"),
        ("<object data=data:,{{imp_id}}>", "data URL, attribute data of <object>"),
        ("<p {{imp_id}}>", "attribute of <p>"),
        ("<p data-{{imp_id}}=x>", "attribute of <p>"),
        ("<p {{imp_id}}=x>", "name of <p>"),
        ("<svg:s{{imp_id}}>", "name"),
        ("&#123;&#123;auction_id}}{{imp_id}}", "text"),
        ("\ufdd0{{imp_id}}x\ufdd07\ufdd1", "text"),
    ],
)
def test_places(text: str, place: str) -> None:
    if text.startswith("<![CDATA["):  # which HTML does not have: it ends at the first `>`
        assert places(text) == ["text"]
        assert places(text, "VAST") == [place]
    elif "href=\x01\x20" in text:  # the space ends the value
        assert places(text) == ["attribute of <a>"]
    else:
        assert places(text) == [place]


def test_lines_and_order() -> None:
    text = "{{imp_id}}\n\n<p>{{cachebuster}}</p>\n<p\ntitle={{auction_id}}>"
    made = macro_places(text, "HTML")
    assert [(each.macro, each.line) for each in made] == [
        ("imp_id", 1), ("cachebuster", 3), ("auction_id", 5),
    ]  # fmt: skip


PIECES = (
    *("{{auction_id}}",) * 6,
    *("{{imp_id}}", "{{cachebuster}}", "<script", "<script>", "<SCRIPT/>", "</script>", "<style>"),
    *("</style>", "<p", "<a href=", "<a href='", ' src="', ' onload="', "on", "style=", " srcdoc="),
    *("javascript:", "java\tscript:", "data:", "&#106;", "&Tab;", "&colon;", "https://t.example/"),
    *("?a=", "&", ";", "=", "/", '"', "'", ">", " ", "\n", "x", "<", "</", "<!--", "-->", "]]>"),
    *(
        "<![CDATA[",
        "<![if x]>",
        "&lt;",
        "&gt;",
        "<svg:",
        "<svg ",
        "<meta content='1;url=",
        "</svg>",
        *(" ONCLICK=", "\x1fonload", "\u00a0onload", "\u2003=", "\u00e9", " Style", "SRCDOC="),
        *("JaVa\nScRiPt:", "VBScript:", "DA\rTA:", "&NewLine;", "{", "-", "</SCRIPT>", "\x00"),
    ),
)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_quick_look_misses_nothing(language: Language) -> None:
    rng, seen = random.Random(language), 0
    for _ in range(20_000):
        text = "".join(rng.choices(PIECES, k=rng.randint(2, 12)))
        expected = [
            place
            for place in macro_places(text, language)
            if place.where in markup.UNPROTECTED and place.macro in markup.FROM_REQUESTS
        ]
        assert unprotected(text, language) == expected, text
        seen += bool(expected)
    assert seen > 100


def test_what_is_common_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markup, "macro_places", lambda *_: pytest.fail("parsed"))
    query = "a={{auction_id}}&i={{imp_id}}&cb={{cachebuster}}"
    banner = (
        f'<a href="https://x.example/?{query}"><img src="https://t.example/{{{{imp_id}}}}"></a>'
    )
    assert (
        unprotected(f'{banner}<script async src="https://x.example/t.js?{query}"></script>', "HTML")
        == []
    )
    assert unprotected(f"<VAST><Impression><![CDATA[https://t.example/?{query}]]>", "VAST") == []
    assert unprotected("<script>f('{{cachebuster}}')</script>", "HTML") == []
