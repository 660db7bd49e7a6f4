"""What ships is VAST without a warning, and a player agrees on what plays."""

import json
import os
import random
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support.choices import Choices
from support.exchange.scenarios import campaigns
from support.strategies import vast_of
from support.vast import IAB, why_not_played

from snapbid.campaigns.campaign import CampaignMistake
from snapbid.campaigns.campaign_file import read_file
from snapbid.campaigns.vast import VastError, read
from snapbid.embedded import demo

SAMPLES = os.environ.get("SNAPBID_VAST_SAMPLES")


def shipped() -> Iterator[Any]:
    """The campaigns of the demo and of the exchange."""
    yield from (json.loads(document) for _, document in demo.documents())
    yield from campaigns()


def test_shipped_documents_have_no_warnings() -> None:
    warnings: list[CampaignMistake] = []
    lines = "\n".join(map(json.dumps, shipped()))
    assert [*read_file("a.jsonl", BytesIO(lines.encode()), warnings)]
    assert warnings == []


def test_shipped_documents_play() -> None:
    creatives = [creative for campaign in shipped() for creative in campaign["creatives"]]
    texts = [each["adm"] for each in creatives if "<VAST" in each.get("adm", "")]
    assert len(texts) > 5
    assert [why for why in why_not_played(texts) if why is not None] == []


def refusal(text: str) -> str | None:
    try:
        read(text)
    except VastError as error:
        return str(error)
    return None


def agree(texts: list[str]) -> int:
    """What a player plays is taken, and nothing else; returns how many are refused."""
    refused = [refusal(text) for text in texts]
    for text, why, rule in zip(texts, why_not_played(texts), refused, strict=True):
        assert (why is None) is (rule is None), (text, why, rule)
    return sum(rule is not None for rule in refused)


def test_altered_documents() -> None:
    """A child left out, doubled or moved: a player says whether that plays."""
    rng = random.Random("nearby")
    made = [vast_of(Choices(rng.randint), rng.choice(("video", "audio"))) for _ in range(300)]
    assert agree(made) == 0
    assert agree([nearby(rng, text) for text in made]) > 10


def nearby(rng: random.Random, text: str) -> str:
    """The document with one child of one element left out, moved or, but for ads, doubled."""
    ElementTree.register_namespace("", IAB if IAB in text else "")
    root = ElementTree.fromstring(text)
    parents = [each for each in root.iter() if len(each)]
    parent = rng.choice(parents)
    child = rng.choice(list(parent))
    kind = rng.randrange(3)
    if kind == 2 and parent.tag.endswith(("Ad", "InLine")):
        kind = 1  # of two ads in one, or two lists of creatives, players play different ones
    if kind < 2:
        parent.remove(child)
    if kind > 0:
        parent.insert(rng.randrange(len(parent) + 1), child)
    return ElementTree.tostring(root, encoding="unicode")


@pytest.mark.skipif(not SAMPLES, reason="SNAPBID_VAST_SAMPLES names no folder of VAST documents")
def test_samples() -> None:
    paths = sorted(Path(SAMPLES or "").rglob("*.xml"))
    texts = [path.read_text(encoding="utf-8-sig", errors="replace") for path in paths]
    assert len(texts) > 10
    assert agree(texts) < len(texts)
