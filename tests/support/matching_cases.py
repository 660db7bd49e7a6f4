"""Loads the hand-written cases of `tests/conformance/cases/matching/*.json`.

A case changes a plain campaign (a banner of 300 by 250 at 2 USD) and a plain request for it:
`campaign`, `creative`, `request` and `imp` set members, `media` replaces the impression's banner.
`says` states the case in words, `refused` is the only rule that refuses (absent: it bids), `deal`
the deal of the bid. `ssp`, `now`, `gvl_id` and `rates` (USD per unit) set the environment.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path

from support import pools
from support.oracle import Document, World
from support.strategies import Surroundings

FOLDER = Path(__file__).parents[1] / "conformance" / "cases" / "matching"
KEYS = {"says", "campaign", "creative", "request", "imp", "media", "refused", "deal"} | {
    "ssp",
    "now",
    "gvl_id",
    "rates",
}


@dataclass(frozen=True)
class MatchingCase:
    """A campaign, an impression and the expected result; `name` is file and sentence."""

    name: str
    world: World
    descriptor: str
    request: Document
    refused: str | None
    deal: str | None


def load(around: Surroundings | None = None) -> list[MatchingCase]:
    """Load every case, optionally with other surroundings."""
    return [
        case_of(f"{path.stem}: {document['says']}", document, around or Surroundings())
        for path in sorted(FOLDER.glob("*.json"))
        for document in json.loads(path.read_text())
    ]


def case_of(name: str, document: Document, around: Surroundings) -> MatchingCase:
    """Build a case."""
    if unknown := document.keys() - KEYS:
        raise ValueError(f"{name}: unknown keys {sorted(unknown)}")
    rates = {code: Fraction(rate) for code, rate in document.get("rates", {}).items()}
    world = World(
        campaigns=[campaign_of(document)],
        registry=dict(pools.REGISTRY),
        now=datetime.fromisoformat(document.get("now", "2026-03-04T12:00:00Z")),
        gvl_id=document.get("gvl_id"),
        **{**vars(around), "usd": {**around.usd, **rates}},
    )
    return MatchingCase(
        name=name,
        world=world,
        descriptor=document.get("ssp", "acme"),
        request=request_of(document),
        refused=document.get("refused"),
        deal=document.get("deal"),
    )


def campaign_of(document: Document) -> Document:
    """Build the campaign of a case."""
    creative = {"id": "k", "media": "banner", "adm": "<p></p>", "w": 300, "h": 250}
    if "native" in document.get("creative", {}):
        del creative["adm"]
    return {
        "id": "c",
        "advertiser": "brand.example",
        "cpm": 2,
        "creatives": [{**creative, **document.get("creative", {})}],
        **document.get("campaign", {}),
    }


def request_of(document: Document) -> Document:
    """Build the request of a case."""
    media = document.get("media", {"banner": {"w": 300, "h": 250}})
    imp = {"id": "1", **media, **document.get("imp", {})}
    return {"id": "auction", "imp": [imp], **document.get("request", {})}
