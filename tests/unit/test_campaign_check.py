"""`snapbid campaign check`: what it lists, what it refuses, and that it needs no stores."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import invoke, succeed
from support.vast import inline, wrapper

from snapbid.campaigns.review import Known
from snapbid.cli import console

FILE = (
    '<MediaFile delivery="progressive" type="video/mp4" width="640" height="360" bitrate="800">'
    "https://cdn.example/</MediaFile>"
)
LINK = {"url": "https://shop.example/"}
IMAGE = {"type": 3, "url": "https://cdn.example/"}
NATIVE = {"title": "t", "data": {"2": "d"}, "images": [IMAGE], "link": LINK}
HEADING = "campaign\tcreative\tmedia\tmarkup\tsays"
CREATIVES: list[dict[str, Any]] = [
    {"id": "b", "media": "banner", "w": 1, "h": 1, "adm": "<iframe>"},
    {"id": "v", "media": "video", "adm": inline("4.2", FILE), "duration": 15},
    {"id": "w", "media": "audio", "adm": wrapper("3.0"), "duration": 30},
    {"id": "a", "media": "video", "adm": "https://ads.example/", "duration": 15},
    {"id": "n", "media": "native", "native": {**NATIVE, "video": inline("2.0", FILE)}},
]


def campaign(id: str, *creatives: dict[str, Any]) -> dict[str, Any]:
    return {"id": id, "advertiser": "shop.example", "cpm": 1, "creatives": [*creatives]}


def write(path: Path, *documents: object) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in documents), encoding="utf-8")
    return str(path)


def test_what_markup_says(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", campaign("c1", *CREATIVES), campaign("c2", CREATIVES[3]))
    assert succeed({}, "campaign", "check", file).splitlines() == [
        HEADING,
        "c1\tb\tbanner\tHTML\ttype=4",
        "c1\tv\tvideo\tVAST 4.2\tprotocols=13 mimes=video/mp4 duration=15 bitrate=800 delivery=2"
        " linear=true skippable=false w=640 h=360",
        "c1\tw\taudio\tVAST 3.0 wrapper\tprotocols=6",
        "c1\ta\tvideo\taddress\t",
        "c1\tn\tnative\tnative\ttitle=true images=3 data=2 video=VAST 2.0 protocols=2"
        " mimes=video/mp4 duration=15",
        "c2\ta\tvideo\taddress\t",
    ]
    listed = json.loads(succeed({}, "campaign", "check", file, "--json"))
    assert listed["mistakes"] == []
    assert len(listed["creatives"]) == 6
    assert listed["creatives"][2] == {
        "campaign": "c1", "creative": "w", "media": "audio", "markup": "VAST 3.0 wrapper",
        "says": {"protocols": [6]}, "warnings": [],
    }  # fmt: skip


WARNED = {
    "id": "x", "media": "video", "adm": inline("3.0", FILE).replace("<AdTitle>t</AdTitle>", ""),
}  # fmt: skip
NO_TITLE = "adm: <InLine> has no <AdTitle>, which VAST requires, line 1 of the text"


def test_warnings_are_those_of_their_creatives(tmp_path: Path) -> None:
    text = {**CREATIVES[0], "adm": "an advertisement"}
    refused = {**campaign("c2", WARNED), "cpm": 0}
    file = write(tmp_path / "a.jsonl", campaign("c1", CREATIVES[1], WARNED, text), refused,
                 campaign("c3", CREATIVES[1]))  # fmt: skip
    done = invoke({}, "campaign", "check", file)
    lines = [
        f"warning: line 1: creatives[1].{NO_TITLE}",
        "warning: line 1: creatives[2].adm: is plain text without any HTML: write the markup of the"
        " advertisement, line 1 of the text",
        f"warning: line 2: creatives[0].{NO_TITLE}",
        "line 2: cpm: must be more than 0, found 0",
    ]
    assert (done.returncode, done.stderr.splitlines()) == (1, lines)
    listed = json.loads(invoke({}, "campaign", "check", file, "--json").stdout)
    assert [len(each["warnings"]) for each in listed["creatives"]] == [0, 1, 1, 0]
    assert listed["creatives"][1]["warnings"] == [
        {"field": "creatives[1].adm", "rule": NO_TITLE.removeprefix("adm: "), "line": 1}
    ]
    assert [each["field"] for each in listed["warnings"]] == ["creatives[0].adm"]
    assert [each["line"] for each in listed["warnings"]] == [2]


def test_warnings_of_whole_campaigns_are_in_the_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = {**campaign("c1", CREATIVES[0]), "ends_at": "2020-01-01T00:00:00Z"}
    unknown = {**campaign("c2", CREATIVES[0]), "product": "poker"}
    unknown["targeting"] = {
        "audience": {"include": ["vips"]},
        "ssp": {"include": ["acme", "Acme"], "exclude": ["nova"]},
    }
    monkeypatch.setattr(console, "has_warehouse", lambda: True)
    monkeypatch.setattr(console, "in_warehouse", lambda _: Known(set(), set(), {"acme"}))
    done = invoke({}, "campaign", "check", "--json", write(tmp_path / "a.jsonl", past, unknown))
    warnings = json.loads(done.stdout)["warnings"]
    assert [(each["field"], each["rule"].partition(":")[0]) for each in warnings] == [
        ("", "campaign c1 can never bid"),
        ("", "campaign c2 names the product 'poker', which does not exist (letter case matters), "
         "so it excludes nobody"),
        ("", "campaign c2 includes the audience 'vips', which does not exist"),
        ("", "campaign c2 includes the SSP 'Acme', which is not registered (letter case matters)"),
        ("", "campaign c2 excludes the SSP 'nova', which is not registered (letter case matters)"),
    ]  # fmt: skip
    assert done.stderr.splitlines() == [f"warning: {each['rule']}" for each in warnings]


def test_strictly_a_warning_is_a_mistake(tmp_path: Path) -> None:
    for creatives, status in (([WARNED], 1), ([CREATIVES[1]], 0)):
        file = write(tmp_path / "a.json", campaign("c1", *creatives))
        assert invoke({}, "campaign", "check", "--strict", file).returncode == status
        assert invoke({}, "campaign", "check", file).returncode == 0


def test_an_array_has_warnings_too(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([campaign("c1", CREATIVES[1], WARNED)]))
    done = invoke({}, "campaign", "check", "--json", str(tmp_path / "a.json"))
    assert [len(each["warnings"]) for each in json.loads(done.stdout)["creatives"]] == [0, 1]
    assert done.stderr == f"warning: line 1: [0].creatives[1].{NO_TITLE}\n"


def test_all_mistakes_by_line(tmp_path: Path) -> None:
    wrong = [{**CREATIVES[1], "duration": 30}, {**CREATIVES[4], "native": None, "adm": "<p>"}]
    documents = (campaign("c1", *wrong), campaign("c2", CREATIVES[3]), campaign("c2", {}))
    file = write(tmp_path / "a.jsonl", *documents)
    said = [
        "line 1: creatives[0].duration: must match the markup (15), found 30",
        "line 1: creatives[1].adm: must be a native response in JSON: Expecting value: line 1"
        " column 1 (char 0)",
        "line 3: creatives[0].id: is required",
        "line 3: creatives[0].media: is required",
        "line 3: creatives[0].adm: is required",
        'line 3: id: is already the id of line 2: "c2"',
    ]
    done = invoke({}, "campaign", "check", file)
    assert (done.returncode, done.stderr.splitlines()) == (1, said)
    assert done.stdout == f"{HEADING}\nc2\ta\tvideo\taddress\t\n"
    done = invoke({}, "campaign", "check", "--json", file)
    assert done.returncode == 1
    listed = json.loads(done.stdout)
    assert [creative["campaign"] for creative in listed["creatives"]] == ["c2"]
    assert listed["mistakes"][0] == {
        "field": "creatives[0].duration", "rule": "must match the markup (15), found 30", "line": 1,
    }  # fmt: skip
    assert len(listed["mistakes"]) == len(said)


def test_a_file_without_any(tmp_path: Path) -> None:
    done = invoke({}, "campaign", "check", "--json", write(tmp_path / "a.json", []))
    assert done.returncode == 1
    assert json.loads(done.stdout)["creatives"] == []
    assert done.stderr.startswith("the file contains no campaign: expected JSON campaigns")
    done = invoke({}, "campaign", "check", "-", input=json.dumps(campaign("c", CREATIVES[3])))
    assert (done.returncode, done.stdout) == (0, f"{HEADING}\nc\ta\tvideo\taddress\t\n")
