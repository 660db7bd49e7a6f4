"""`snapbid campaign check --preview`: what the page holds, and what a browser shows of it."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.browser import Browser, browser
from support.commands import invoke, succeed

CASES = sorted((Path(__file__).parents[1] / "conformance" / "cases" / "adserver").glob("*.json"))
PICTURE = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs="
HOSTILE = (
    "<p>{{open}}title}} {{campaign_id}}<script>"
    "try { parent.document.title = 'taken over' } catch { document.write('kept out') }</script>"
)


def creatives() -> list[dict[str, Any]]:
    """Those of ad servers, with a picture that is there in place of all that they load."""
    texts = [path.read_text(encoding="utf-8") for path in CASES]
    known = [json.loads(text.replace("https://cdn.example/o.svg", PICTURE)) for text in texts]
    address = {"id": "address", "media": "video", "adm": "https://ads.example/vast", "duration": 9}
    banner = {"id": "<banner>", "media": "banner", "w": 320, "h": 100, "adm": HOSTILE}
    return [banner, address, *(case["creative"] for case in known)]


@pytest.fixture
def page(tmp_path: Path) -> str:
    document = {"id": "a&b", "advertiser": "shop.example", "cpm": 1, "creatives": creatives()}
    file = tmp_path / "a.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    folder = tmp_path / "made" / "here"
    for _ in range(2):  # a page is replaced
        succeed({}, "campaign", "check", str(file), "--preview", str(folder))
    assert {each.name for each in folder.iterdir()} == {"index.html", "player.html"}
    return f"file://{folder}/index.html"


def text_of(window: Browser, frame: int, expected: str) -> str:
    """The text of a frame, as soon as there is what is expected of it."""
    window.enter(frame)
    deadline = time.monotonic() + 60
    while expected not in (shown := window.run("return document.body.innerText")) or not shown:
        assert time.monotonic() < deadline, shown
        time.sleep(0.05)
    return str(shown)


def test_a_browser_shows_each_creative(page: str) -> None:
    with browser(1280, 6000) as window:
        window.open(page)
        assert window.run("return document.title") == "Creatives"
        titles = window.run("return [...document.querySelectorAll('h2')].map(h => h.textContent)")
        assert titles == [f"a&b / {creative['id']}" for creative in creatives()]
        sizes = window.run(
            "return [...document.querySelectorAll('iframe')].map(f => [f.width, f.height])"
        )
        assert sizes[0] == ["320", "100"]
        assert window.violations() == []
        assert window.run("return document.title") == "Creatives"


SAID = {
    "<banner>": ("{{title}} a%26b", 0),
    "address": ("The ad is at https://ads.example/vast", 0),
    "audio": ("15 s, not skippable, 1 media files", 1),
    "gam-3": ("10 s, skippable after 5 s, 2 media files", 1),
    "gam-4": ("10 s, skippable after 5 s, 2 media files", 1),
    "native": ("leads to https://shop.example/?a=preview", 0),
    "native, video": ("15 s, not skippable, 1 media files", 1),
    "overlay": ("", 0),
    "pod": ("Ad 2 of 2", 2),
    "simid": ("SIMID overlay, in players that support it: https://cdn.example/simid.html", 1),
    "vpaid": ("VPAID, in players that support it: https://cdn.example/v.js", 0),
    "wrapper": ("A wrapper; the ad is at https://ads.example/vast", 0),
}


def test_each_frame_shows_its_creative_and_nothing_else(page: str) -> None:
    with browser(1280, 6000) as window:
        window.open(page)
        titles = window.run("return [...document.querySelectorAll('iframe')].map(f => f.title)")
        assert {title.removeprefix("a&b / ") for title in titles} == SAID.keys()
        for frame, title in enumerate(titles):
            expected, players = SAID[title.removeprefix("a&b / ")]
            shown = text_of(window, frame, expected) if expected else ""
            found = window.run("return document.querySelectorAll('video, audio').length")
            assert found == players, (title, shown)
            assert ("kept out" in shown) is ("title" in shown)
            window.enter(None)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    document = {"id": "c", "advertiser": "shop.example", "cpm": 1, "creatives": creatives()[:1]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    folder = str(tmp_path / "file" / "below")
    done = invoke({}, "campaign", "check", str(tmp_path / "a.json"), "--preview", folder)
    assert (done.returncode, done.stderr) == (
        1,
        f"{folder} cannot be read or written: Not a directory\n",
    )
