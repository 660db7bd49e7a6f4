"""What is read of VAST, and what is refused, with its line."""

import gc
import time
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from support.vast import inline, overlay, wrapper

from snapbid.campaigns import vast
from snapbid.campaigns.vast import MAX_DEPTH, MediaFile, Vast, VastError, read

FILE = (
    '<MediaFile delivery="progressive" type="video/mp4" width="640" height="360" bitrate="800">'
    "<![CDATA[https://cdn.example/a.mp4]]></MediaFile>"
)
MP4 = MediaFile("video/mp4", 2, 640, 360, 800, (800, 800))
VERSIONS = {"2.0": (2, 5), "3.0": (3, 6), "4.0": (7, 8), "4.1": (11, 12), "4.2": (13, 14)}
VERSIONS["4.3"] = (15, 16)


def refused(text: str) -> str:
    with pytest.raises(VastError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize("version", VERSIONS)
def test_inline(version: str) -> None:
    assert read(inline(version, FILE)) == Vast(
        version, False, (VERSIONS[version][0],), 15.0, (MP4,), True, False
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_wrappers_state_little(version: str) -> None:
    assert read(wrapper(version)) == Vast(version, True, (VERSIONS[version][1],))


def test_version_2_0_uses_the_2_0_1_schema() -> None:
    assert read(inline("2.0", FILE).replace("2.0", "2.0.1", 1)).version == "2.0"


def test_a_wrapper_with_a_skip_offset_is_skippable() -> None:
    linear = '<Creatives><Creative><Linear skipoffset="00:00:05"/></Creative></Creatives>'
    text = wrapper("4.2").replace("<VASTAdTagURI>", f"{linear}<VASTAdTagURI>")
    assert read(text).skippable is True
    assert read(text).linear is None


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("00:00:15", 15), (" 00:01:00.500\n", 60.5), ("01:00:06.25", 3606.25), ("00:00:00", None)],
)
def test_durations(written: str, seconds: float | None) -> None:
    vast = read(inline("3.0", FILE, duration=written))
    assert (vast.seconds, vast.untimed, vast.warnings) == (seconds, None, ())


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("15", 15), ("7.5", 7.5), ("0:00:15", 15), ("00:00:60", 60), ("00:60:00", 3600)],
)
def test_durations_as_some_write_them(written: str, seconds: float) -> None:
    vast = read(inline("3.0", FILE, duration=written))
    said = f'<Duration> must be like 00:00:15, found "{written}", line 1 of the text'
    assert (vast.seconds, vast.warnings) == (seconds, (said,))


@pytest.mark.parametrize(
    "written", ["00:15", "00:00:61", "00:00:1x", "00:00:-1", "", "[DURATION]", "9" * 30]
)
def test_malformed_durations(written: str) -> None:
    said = f'must have a <Duration> such as 00:00:15, found "{written}", line 1 of the text'
    vast = read(inline("3.0", FILE, duration=written))
    assert (vast.seconds, vast.untimed) == (None, said)
    timed = inline("3.0", FILE)
    ad = timed[timed.index("<Ad ") : timed.index("</VAST>")]
    pod = [ad.replace("<Ad ", '<Ad sequence="1" ')] * 2
    both = timed.replace(ad, pod[0] + pod[1].replace("00:00:15", written))
    assert (read(both).seconds, read(both).untimed) == (None, said)


@pytest.mark.parametrize(
    ("attributes", "file"),
    [
        ({"delivery": " streaming "}, {"delivery": 1}),
        ({"type": " Video/MP4 "}, {}),
        ({"width": "0", "height": "-1"}, {"w": None, "h": None}),
        ({"bitrate": "0"}, {"bitrate": None, "bitrates": None}),
        ({"minBitrate": "500", "maxBitrate": "900"}, {"bitrates": (500, 900)}),
        ({"bitrate": None, "maxBitrate": "900"}, {"bitrate": 900, "bitrates": (900, 900)}),
        ({"bitrate": None}, {"bitrate": None, "bitrates": None}),
        ({"apiFramework": "VPAID"}, {"api": 2}),
        ({"apiFramework": "vpaid", "type": "application/x-shockwave-flash"},
         {"api": 1, "mime": "application/x-shockwave-flash"}),
        ({"apiFramework": "FlashVars"}, {}),
        ({"apiFramework": "Not VPAID"}, {}),
    ],
)  # fmt: skip
def test_media_files(attributes: dict[str, Any], file: dict[str, Any]) -> None:
    stated = {"delivery": "progressive", "type": "video/mp4", "width": "640", "height": "360"}
    stated |= {"bitrate": "800"} | attributes
    written = " ".join(f'{name}="{value}"' for name, value in stated.items() if value is not None)
    (got,) = read(inline("3.0", f"<MediaFile {written}>https://cdn.example/</MediaFile>")).files
    assert {name: getattr(got, name) for name in MediaFile.__struct_fields__} == {
        **{name: getattr(MP4, name) for name in MediaFile.__struct_fields__},
        **file,
    }


@pytest.mark.parametrize(
    ("mime", "framework", "api"),
    [
        ("video/mp4", None, None),
        ("video/mp4", "VPAID", 2),
        ("application/x-shockwave-flash", "VPAID", 1),
        *(("application/javascript", name, 2) for name in (
            *("VPAID", "vpaid", " VPAID ", "VPAID2", "VPAID 2.0", "VPAID_2_0", "vpaid-2.0"),
            *(None, "", "FlashVars", "VPAID JS"))),
        *(("application/x-shockwave-flash", name, 1) for name in (
            *("VPAID 1.0", "vpaid_1_1", "VPAID/1"), *(None, " ", "clickTAG"))),
        ("application/x-shockwave-flash", "VPAID 2.0", 2),
        ("application/javascript", "VPAID 1.0", 1),
        ("application/x-javascript", None, 2),
        ("text/javascript", None, 2),
        ("Text/JavaScript; charset=utf-8", None, 2),
        ("text/html", "SIMID", 8),
        ("application/javascript", "SIMID", 8),
        ("image/png", None, None),
    ],
)  # fmt: skip
def test_a_file_that_players_run_needs_an_api(
    mime: str, framework: str | None, api: int | None
) -> None:
    stated = "" if framework is None else f' apiFramework="{framework}"'
    vast = read(inline("3.0", FILE.replace(' type="video/mp4"', f' type="{mime}"{stated}')))
    assert vast.apis == (() if api is None else (api,))
    assert vast.skippable is (False if api is None else None)


@pytest.mark.parametrize(
    ("files", "apis", "skippable"),
    [
        (FILE, (), False),
        (FILE.replace(" bit", ' apiFramework="VPAID" bit'), (2,), None),
        (FILE + FILE.replace(" bit", ' apiFramework="VPAID" bit'), (), False),
        (
            FILE.replace(' type="video/mp4"', "")
            + FILE.replace(" bit", ' apiFramework="VPAID" bit'),
            (2,),
            None,
        ),
    ],
)
def test_an_api_is_required_if_every_file_needs_one(
    files: str, apis: tuple[int, ...], skippable: bool | None
) -> None:
    vast = read(inline("3.0", files))
    assert (vast.apis, vast.skippable) == (apis, skippable)


def test_a_skip_offset() -> None:
    assert read(inline("3.0", FILE, skip="00:00:05")).skippable is True
    assert read(inline("4.2", FILE, skip="25%")).skippable is True


def test_overlays_are_not_linear() -> None:
    vast = read(inline("3.0", linear=overlay(' apiFramework="VPAID"')))
    assert (vast.linear, vast.skippable, vast.seconds, vast.apis) == (False, None, None, (2,))


def test_pods_play_in_sequence_and_other_ads_first_only() -> None:
    one = inline("3.0", FILE)
    ad = one[one.index("<Ad ") : one.index("</VAST>")]
    pod = ad.replace("<Ad ", '<Ad sequence="1" ')
    other = pod.replace("video/mp4", "video/webm").replace("00:00:15", "00:00:10")
    assert read(one.replace(ad, ad + other.replace(' sequence="1"', ""))).seconds == 15
    both = read(one.replace(ad, ad + pod + other))
    assert (both.seconds, [file.mime for file in both.files]) == (25, ["video/mp4", "video/webm"])


def test_macros_are_text() -> None:
    text = inline("3.0", FILE.replace("a.mp4", "{{creative_id}}?[CACHEBUSTING]&${AUCTION_PRICE}"))
    assert read(text.replace("<Ad ", '<Ad x="{{campaign_id}} ${AUCTION_ID} [TIMESTAMP]" ')).seconds


NONE = "must be VAST 2.0 to 4.3 or the URL of a VAST document"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", f"{NONE}: it is not XML (no element found)"),
        ("<VAST", f"{NONE}: it is not XML (unclosed token)"),
        ("<html/>", f"{NONE}, found <html>"),
        ("<DAAST version='1.0'/>", f"{NONE}, found <DAAST>"),
        ("<VAST/>", 'must have the attribute "version" in <VAST>'),
        ("<VAST version='3.0'/>", "must have an <Ad> in <VAST>"),
        ("<VAST version='3.0'><Ad/></VAST>",
         "must have one <InLine> or <Wrapper> in <Ad>, found none"),
        ("<VAST version='5.0'/>", f'{NONE}, found version "5.0"'),
        ("<VAST version='1.0'/>", f'{NONE}, found version "1.0"'),
        ("<VAST version=''/>", f'{NONE}, found version ""'),
        ("<v:VAST version='4.2' xmlns:v='a'/>", f"{NONE}, found <v:VAST>"),
        ("<v:VAST version='4.2'/>", f"{NONE}: it is not XML (unbound prefix)"),
        ("<VAST version='3.0'>&nbsp;</VAST>", f"{NONE}: it is not XML (undefined entity)"),
        ("\ud800<VAST/>", f"{NONE}: it has an unpaired surrogate"),
        ("<VAST version='3.0'>\0</VAST>",
         f"{NONE}: it is not XML (not well-formed (invalid token))"),
    ],
)  # fmt: skip
def test_not_vast(text: str, rule: str) -> None:
    assert refused(text) == f"{rule}, line 1 of the text"


@pytest.mark.parametrize(
    ("stated", "version"),
    [
        ("2", "2.0"), ("2.1", "2.0"), ("3", "3.0"), ("3.0.1", "3.0"), ("4", "4.0"), ("40", "4.0"),
        ("4.1.1", "4.1"), ("4.4", "4.3"), ("4.9", "4.3"), ("4.x", "4.3"),
    ],
)  # fmt: skip
def test_the_nearest_version_counts(stated: str, version: str) -> None:
    vast = read(inline(version, FILE).replace(f'"{version}"', f'"{stated}"', 1))
    said = f'version "{stated}" counts as VAST {version}, line 1 of the text'
    assert (vast.version, vast.warnings) == (version, (said,))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", [inline, wrapper])
def test_a_missing_impression_is_the_first_warning(kind: Any, version: str) -> None:
    text = kind(version, *([FILE] if kind is inline else []))
    assert read(text).warnings == ()
    text = text.replace("<Impression>https://track.example/</Impression>", "")
    warnings = read(text.replace("<AdSystem>a</AdSystem>", "<Foo/>", 1)).warnings
    assert "the advertiser will count no impression" in warnings[0]
    assert len(warnings) == 3


def test_every_warning_has_its_line() -> None:
    text = inline("3.0", FILE).replace("><", ">\n<")
    wanted = {
        "<AdTitle>": "<Foo/>\n<AdTitle>",
        "<Creatives>": "<Bar/>\n<Creatives>",
        ' type="video/mp4" width="640"': ' type="video/mp4"',
    }
    for old, new in wanted.items():
        text = text.replace(old, new)
    lines = [
        text[: text.index(place)].count("\n") + 1 for place in ("<Foo", "<Bar", ' type="video/mp4"')
    ]
    found = [int(warning.split(", line ")[1].split()[0]) for warning in read(text).warnings]
    assert found == lines


def test_warnings_are_bounded() -> None:
    text = inline("3.0", FILE).replace("<AdTitle>", "<Foo/>" * 5_000 + "<AdTitle>")
    warnings = read(text).warnings
    assert len(warnings) == vast.MAX_WARNINGS + 1
    assert warnings[-1] == f"and {5_000 - vast.MAX_WARNINGS} more in the same document"


def test_an_ad_of_nothing_keeps_players_from_the_others() -> None:
    text = inline("3.0", FILE)
    line = text.replace("</VAST>", "\n<Ad/></VAST>")
    said = "must have one <InLine> or <Wrapper> in <Ad>, found none, line 2 of the text"
    assert refused(line) == said


def test_ads_that_are_not_played_add_no_facts() -> None:
    one = inline("3.0", FILE)
    ad = one[one.index("<Ad ") : one.index("</VAST>")]
    file = FILE.replace("video/mp4", "video/webm").replace(" bit", ' apiFramework="VPAID" bit')
    other = ad.replace(FILE, file).replace("<Linear>", '<Linear skipoffset="00:00:05">')
    wrapped = wrapper("3.0")[len('<VAST version="3.0">') : -len("</VAST>")]
    for unplayed in (other, other.replace("<Duration>00:00:15</Duration>", ""), wrapped):
        both = read(one.replace(ad, ad + unplayed))
        assert msgspec.structs.replace(both, warnings=()) == read(one)
        pod = ad.replace("<Ad ", '<Ad sequence="1" ')
        behind = read(one.replace(ad, unplayed + pod))
        assert msgspec.structs.replace(behind, warnings=()) == read(one)


# -- what means harm ------------------------------------------------------------------------------


LAUGHS = "".join(f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 40))


@pytest.mark.parametrize(
    "prolog",
    [
        "<!DOCTYPE VAST>",
        "\ufeff<?xml version='1.0'?>\n<!-- a --> <!-- b -->\n<!DOCTYPE VAST SYSTEM 'file:///etc/passwd'>",
        f"<!DOCTYPE VAST [<!ENTITY l0 'ha'>{LAUGHS}]>",
        "<!DOCTYPE VAST [<!ENTITY x SYSTEM 'https://stranger.example/'>]>",
        "<!DOCTYPE",
    ],
)
def test_document_types_are_refused(prolog: str) -> None:
    said = refused(prolog + inline("3.0", FILE).replace("</AdTitle>", "&l39;&x;</AdTitle>"))
    assert said.startswith("must have no DOCTYPE, line ")


def test_html_in_a_section_may_have_a_document_type() -> None:
    html = "<![CDATA[<!DOCTYPE html><html></html>]]>"
    assert read(inline("3.0", FILE).replace("<AdTitle>t", f"<AdTitle>{html}")).seconds == 15


def test_depth_is_bounded() -> None:
    def nested(depth: int) -> str:
        inner = "<a>" * depth + "</a>" * depth
        extension = f"<Extensions><Extension>{inner}</Extension></Extensions>"
        return inline("3.0", FILE).replace("</InLine>", f"{extension}</InLine>")

    assert read(nested(MAX_DEPTH - 2)).seconds == 15
    for depth in (MAX_DEPTH + 1, 9_000):
        assert refused(nested(depth)).startswith(f"must not be nested deeper than {MAX_DEPTH}")


def test_size_is_bounded() -> None:
    text = inline("3.0", FILE)
    assert refused(text + " " * 70_000) == "must have at most 65536 characters, line 1 of the text"


@pytest.mark.parametrize(
    "text",
    [
        "<VAST " + " ".join(f'a{n}="x"' for n in range(7_000)) + "/>",
        f'<VAST version="{"x" * 65_000}"/>',
        "<" + "x" * 65_000 + "/>",
        "<!---->" * 9_000 + "<VAST/>",
        "<? ?>" * 13_000,
        " " * 65_000 + "x",
        "<a>" * 21_000,
        "&#x20;" * 10_000,
        "<!--" * 16_000,
    ],
    ids=range(9),
)
def test_parsing_time_is_bounded(text: str) -> None:
    began = time.process_time()
    refused(text)
    assert time.process_time() - began < 1  # it takes some milliseconds


def test_parsing_leaves_no_garbage() -> None:
    gc.collect()
    gc.disable()
    try:
        for number in range(20):
            read(inline("3.0", FILE, duration=f"00:00:{number:02}"))
            with suppress(VastError):
                read(f"<a{number}/>")
        assert not [each for each in gc.get_objects() if type(each).__name__ == "_VastReader"]
    finally:
        gc.enable()
