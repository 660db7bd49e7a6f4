"""The VAST that ships is what the IAB Tech Lab's schemas say VAST is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import vast
from support.exchange.scenarios import campaigns
from support.vast import vast_violations

from snapbid.embedded import demo

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
