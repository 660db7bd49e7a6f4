"""The VAST that ships is what the IAB Tech Lab's schemas say VAST is; what is read is no other."""

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support import vast
from support.choices import Choices
from support.exchange.scenarios import campaigns
from support.strategies import vast_of
from support.vast import IAB, inline, vast_violations, wrapper

from snapbid.embedded import demo
from snapbid.match.vast import VastError, read

pytestmark = pytest.mark.skipif(
    not vast.FOLDER, reason="SNAPBID_VAST_SCHEMAS names no checkout of the IAB's VAST schemas"
)
INLINE = (
    '<VAST version="4.2" xmlns="http://www.iab.com/VAST"><Ad id="1"><InLine>'
    "<AdSystem>a</AdSystem><Impression>https://a.example/</Impression>"
    "<AdServingId>1</AdServingId><AdTitle>t</AdTitle><Creatives><Creative><Linear>"
    '<Duration>00:00:15</Duration><MediaFiles><MediaFile delivery="progressive" type="audio/mpeg"'
    ' width="0" height="0">https://a.example/a.mp3</MediaFile></MediaFiles></Linear>'
    '<UniversalAdId idRegistry="unknown">unknown</UniversalAdId></Creative></Creatives>'
    "</InLine></Ad></VAST>"
)


def documents() -> Iterator[Any]:
    """Every VAST of the demo and of the exchange's campaigns."""
    known = [json.loads(document) for _, document in demo.documents()]
    for campaign in [*known, *campaigns()]:
        for creative in campaign["creatives"]:
            if "<VAST" in creative.get("adm", ""):
                yield pytest.param(creative["adm"], id=f"{campaign['id']}-{creative['id']}")


@pytest.mark.parametrize("text", [*documents()])
def test_what_ships(text: str) -> None:
    assert [*vast_violations(text)] == []


def test_the_judge_can_refuse() -> None:
    assert [*vast_violations(INLINE)] == []
    late = INLINE.replace("<Impression>https://a.example/</Impression>", "")
    assert "Impression" in " ".join(vast_violations(late))
    (said,) = vast_violations(INLINE.replace("4.2", "4.9"))
    assert said == "there is no schema of VAST 4.9"


def test_every_version_has_its_schema() -> None:
    assert vast.FOLDER is not None
    for name in vast.SCHEMAS.values():
        assert (Path(vast.FOLDER) / name).exists()


# -- what is read ---------------------------------------------------------------------------------


SAMPLES = os.environ.get("SNAPBID_VAST_SAMPLES")
VERSIONS = [*vast.SCHEMAS]


def refusal(text: str) -> str | None:
    try:
        read(text)
    except VastError as error:
        return str(error)
    return None


@pytest.mark.skipif(not SAMPLES, reason="SNAPBID_VAST_SAMPLES names no folder of VAST documents")
def test_samples() -> None:
    judged = 0
    for path in sorted(Path(SAMPLES or "").rglob("*.xml")):
        text = path.read_text(encoding="utf-8-sig")
        verdicts = [*vast_violations(text)]
        judged += not verdicts
        assert (refusal(text) is None) is (not verdicts), (path.name, refusal(text), verdicts)
    assert judged > 10


@pytest.mark.parametrize("seed", range(40))
def test_documents_and_others_nearby(seed: int) -> None:
    """A child left out, doubled or moved: the schema says whether that is VAST."""
    rng = random.Random(f"judged {seed}")
    refused = 0
    for _ in range(12):
        text = vast_of(Choices(rng.randint), rng.choice(("video", "audio")))
        assert ([*vast_violations(text)], refusal(text)) == ([], None), text
        near = nearby(rng, text)
        verdicts = [*vast_violations(near)]
        assert (refusal(near) is None) is (not verdicts), (near, refusal(near), verdicts)
        refused += bool(verdicts)
    assert refused


def nearby(rng: random.Random, text: str) -> str:
    """The document with one child of one element changed; an ad there must be."""
    ElementTree.register_namespace("", IAB if IAB in text else "")
    root = ElementTree.fromstring(text)
    parents = [each for each in root.iter() if len(each) and each is not root]
    parent = rng.choice(
        [each for each in parents if not each.tag.endswith("}Ad") and each.tag != "Ad"]
    )
    child = rng.choice(list(parent))
    kind = rng.randrange(3)
    if kind < 2:
        parent.remove(child)
    if kind > 0:
        parent.insert(rng.randrange(len(parent) + 1), child)
    return ElementTree.tostring(root, encoding="unicode")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("make", [inline, wrapper])
def test_namespaces(version: str, make: Any) -> None:
    text = make(version, *([FILE] if make is inline else []))
    assert [*vast_violations(text)] == []
    other = re.sub(r' xmlns="[^"]*"', "", text)
    if other == text:
        other = text.replace("<VAST ", f'<VAST xmlns="{IAB}" ')
    assert [*vast_violations(other)]
    assert "namespace" in (refusal(other) or "")


FILE = (
    '<MediaFile delivery="progressive" type="video/mp4" width="640" height="360">'
    "https://cdn.example/</MediaFile>"
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["delivery", "type", "width", "height"])
def test_attributes_of_media_files(version: str, name: str) -> None:
    text = re.sub(rf' {name}="[^"]*"', "", inline(version, FILE))
    assert [*vast_violations(text)]
    assert f'attribute "{name}"' in (refusal(text) or "")
