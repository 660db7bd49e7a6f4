"""`snapbid campaign check`: what it lists, what it refuses, and that it needs no stores."""

import json
from pathlib import Path
from typing import Any

from support.commands import invoke, succeed
from support.vast import inline, wrapper

FILE = (
    '<MediaFile delivery="progressive" type="video/mp4" width="640" height="360" bitrate="800">'
    "https://cdn.example/</MediaFile>"
)
LINK = {"url": "https://shop.example/"}
NATIVE = {"title": "t", "data": {"2": "d"}, "images": [{"type": 3, "url": "u"}], "link": LINK}
HEADING = "campaign\tcreative\tmedia\tmarkup\tsays"
CREATIVES: list[dict[str, Any]] = [
    {"id": "b", "media": "banner", "w": 1, "h": 1, "adm": "<iframe>"},
    {"id": "v", "media": "video", "adm": inline("4.2", FILE), "duration": 15},
    {"id": "w", "media": "audio", "adm": wrapper("3.0"), "duration": 30},
    {"id": "a", "media": "video", "adm": "https://ads.example/"},
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
        "says": {"protocols": [6]},
    }  # fmt: skip


def test_all_mistakes_by_line(tmp_path: Path) -> None:
    wrong = [{**CREATIVES[1], "duration": 30}, {**CREATIVES[4], "native": None, "adm": "<p>"}]
    documents = (campaign("c1", *wrong), campaign("c2", CREATIVES[3]), campaign("c2", {}))
    file = write(tmp_path / "a.jsonl", *documents)
    said = [
        "line 1: creatives[0].duration: must be the markup's, 15, found 30",
        "line 1: creatives[1].adm: must be a native response in JSON: Expecting value: line 1"
        " column 1 (char 0)",
        "line 3: creatives[0].id: is required",
        "line 3: creatives[0].media: is required",
        "line 3: creatives[0].adm: is required",
        'line 3: id: is the id of line 2 already: "c2"',
    ]
    done = invoke({}, "campaign", "check", file)
    assert (done.returncode, done.stderr.splitlines()) == (1, said)
    assert done.stdout == f"{HEADING}\nc2\ta\tvideo\taddress\t\n"
    done = invoke({}, "campaign", "check", "--json", file)
    assert done.returncode == 1
    listed = json.loads(done.stdout)
    assert [creative["campaign"] for creative in listed["creatives"]] == ["c2"]
    assert listed["mistakes"][0] == {
        "field": "creatives[0].duration", "rule": "must be the markup's, 15, found 30", "line": 1,
    }  # fmt: skip
    assert len(listed["mistakes"]) == len(said)


def test_a_file_without_any(tmp_path: Path) -> None:
    done = invoke({}, "campaign", "check", "--json", write(tmp_path / "a.json", []))
    assert done.returncode == 1
    assert json.loads(done.stdout)["creatives"] == []
    assert done.stderr == "the file holds no campaign\n"
    done = invoke({}, "campaign", "check", "-", input=json.dumps(campaign("c", CREATIVES[3])))
    assert (done.returncode, done.stdout) == (
        0,
        f"{HEADING}\nc\ta\tvideo\taddress\t\n",
    )
