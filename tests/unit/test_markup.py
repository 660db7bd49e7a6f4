"""Where macros stand in markup, and which of them percent-encoding does not protect."""

import pytest

from snapbid.campaigns.markup import (
    ADDRESSED,
    Language,
    has_script,
    macro_places,
    unprotected,
)


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
        ("<img src=https://{{imp_id}}/i>", "host of a URL, attribute src of <img>"),
        ("<img src=https://cdn.example{{imp_id}}/i>", "host of a URL, attribute src of <img>"),
        ("<img src=https://cdn.{{imp_id}}.example/i>", "host of a URL, attribute src of <img>"),
        ("<iframe src=//{{imp_id}}/f>", "host of a URL, attribute src of <iframe>"),
        ("<iframe src='/\\\t{{imp_id}}'>", "host of a URL, attribute src of <iframe>"),
        ("<a href='ht\ntps:{{imp_id}}'>", "host of a URL, attribute href of <a>"),
        ("<a href=https://t.example:{{imp_id}}/>", "host of a URL, attribute href of <a>"),
        ("<a href=https://{{imp_id}}@t.example/>", "host of a URL, attribute href of <a>"),
        ("<a href=https://{{imp_id}}.0.1/>", "host of a URL, attribute href of <a>"),
        ("<a href=app://{{imp_id}}?a>", "host of a URL, attribute href of <a>"),
        ("<a href='/?to=https://{{imp_id}}/'>", "host of a URL, attribute href of <a>"),
        ("<img srcset='/a 1x,\n//{{imp_id}}/b 2x'>", "host of a URL, attribute srcset of <img>"),
        ("<meta content='0;https://{{imp_id}}'>", "host of a URL, attribute content of <meta>"),
        ('<p data-x=\'{"u":"https:\\/\\/{{imp_id}}"}\'>', "host of a URL, attribute data-x of <p>"),
        ("<a href={{imp_id}}:f()>", "scheme of a URL, attribute href of <a>"),
        ("<a href=java{{imp_id}}://x/>", "scheme of a URL, attribute href of <a>"),
        ("<p data-x={{imp_id}}:1>", "attribute data-x of <p>"),
        ("<p title='{{imp_id}}: 20% off'>", "attribute title of <p>"),
        ("<img src={{imp_id}}/i>", "attribute src of <img>"),
        ("<img src=https://{{imp_id}}.t.example/i>", "URL, attribute src of <img>"),
        ("<img src=https://a-{{imp_id}}-b.c.t.example.:8443>", "URL, attribute src of <img>"),
        ("<img src=https://t.example//{{imp_id}}>", "URL, attribute src of <img>"),
        ("<img src=https://t.example?{{imp_id}}:80>", "URL, attribute src of <img>"),
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


@pytest.mark.parametrize(
    ("text", "language", "macros"),
    [
        ("<script>f('{{cachebuster}}')</script>", "HTML", []),
        ("<p>{{imp_id}}</p><img src=//t.example/?a={{auction_id}}>", "HTML", []),
        ("<VAST><Impression><![CDATA[//t.example/?a={{auction_id}}]]>", "VAST", []),
        ("<p>{{imp_id}}<script>f('{{auction_id}}', '{{cachebuster}}')", "HTML", ["auction_id"]),
        ("<p onclick={{imp_id}} style={{auction_id}}>", "HTML", ["imp_id", "auction_id"]),
        ("javascript:{{imp_id}}", "URL", ["imp_id"]),
    ],
)
def test_only_values_of_the_request_need_protection(
    text: str, language: Language, macros: list[str]
) -> None:
    assert [place.macro for place in unprotected(text, language)] == macros


def test_elements_of_vast_have_schemes_and_hosts() -> None:
    text = (
        "<VAST><AdServingId>{{auction_id}}:{{imp_id}}</AdServingId><MediaFile>\n"
        "<![CDATA[\nhttps://cdn.example{{imp_id}}/v.js ]]></MediaFile>"
        "<ClickThrough>{{imp_id}}:f()</ClickThrough>"
    )
    assert places(text, "VAST") == [
        "text of <adservingid>", "text of <adservingid>", "host of a URL of <mediafile>",
        "scheme of a URL of <clickthrough>",
    ]  # fmt: skip


def test_what_is_checked_at_import_alone_is_distinguished() -> None:
    text = "<a href='https://{{campaign_id}}{{auction_id}}/' onclick={{imp_id}}>"
    assert [place.macro for place in unprotected(text, "HTML")] == ["imp_id"]
    assert [place.macro for place in unprotected(text, "HTML", ADDRESSED)] == ["auction_id"]


@pytest.mark.parametrize("text", ["/" * 60_000, "a" * 60_000, ":" * 60_000, "a." * 30_000])
def test_long_values_are_read_in_linear_time(text: str) -> None:
    assert len(macro_places(f"<a href='{text}{{{{imp_id}}}}{text}'>", "HTML")) == 1


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("<script>f()</script>", True),
        ("<p onclick='f()'>", True),
        ("<p title='a'onclick=f()>", True),
        ("<svg/onload=f()>", True),
        ("<p\nONCLICK\n=\nf()>", True),
        ("<a href='\x01\x20java\tscript:f()'>", True),
        ("<a href='&#106;avascript:f()'>", True),
        ("<a href='javascript&colon;f()'>", True),
        ("<a href=VBScript:f()>", True),
        ("<object data=javascript:f()>", True),
        ("<meta http-equiv=refresh content='0; url=javascript:f()'>", True),
        ("<![if !IE]><p onclick=f()><![endif]>", True),
        ("<p onclick='f()' ", True),  # never closed
        ("<p onclick onload=''>", False),
        ("<!-- <p onclick=f()> -->", False),
        ("<style>p { background: url(javascript:f()) } /* <p onclick=f()> */</style>", False),
        ("<p title=' onclick=f()'>onclick=f() javascript:f()</p>", False),
        ("<a href='https://shop.example/?u=javascript:f()&#38;onclick=f()'>", False),
        (
            "<object data=https://cdn.example/a.swf></object><embed src=https://cdn.example/a>",
            False,
        ),
    ],
)
def test_scripts(text: str, has: bool) -> None:
    assert has_script(text) is has
