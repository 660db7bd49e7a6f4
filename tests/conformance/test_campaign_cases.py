"""Campaign documents and files against their expected values or mistakes (contract 2).

A case of a document: `change` and `remove` applied to a valid base (or `document` as a whole),
then either the fields of the `campaign`, or all `mistakes`. A case of a file: its name and text,
in which `{BASE c1}` stands for the base with that id, then either `ids` or all `mistakes`.
"""

import json
import re
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snapbid.campaigns.campaign import Campaign, CampaignError
from snapbid.campaigns.campaign_file import read_file
from snapbid.campaigns.document import parse

CASES = Path(__file__).parent / "cases" / "campaign"
BASE = {
    "id": "c1",
    "advertiser": "shop.example",
    "cpm": Decimal("2.5"),
    "creatives": [{"id": "a", "media": "banner", "w": 300, "h": 250, "adm": "<p>Hello</p>"}],
}


def load(*, files: bool) -> list[Any]:
    cases = [
        (path.stem, case)
        for path in sorted(CASES.glob("*.json"))
        for case in json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    ]
    return [
        pytest.param(case, id=f"{stem}: {case['case']}")
        for stem, case in cases
        if ("file" in case) is files
    ]


def mistakes_of(call: Any, *values: object) -> list[str]:
    with pytest.raises(CampaignError) as caught:
        call(*values)
    return [str(mistake) for mistake in caught.value.mistakes]


def plain(value: Any) -> Any:
    """The value with every field of its structs, those at their default too."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return list(map(plain, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("case", load(files=False))
def test_document(case: dict[str, Any]) -> None:
    changed = {**BASE, **case.get("change", {})}
    document = {key: value for key, value in changed.items() if key not in case.get("remove", ())}
    if "document" in case:
        document = case["document"]
    if "mistakes" in case:
        assert sorted(mistakes_of(parse, document)) == sorted(case["mistakes"])
        return
    got = json.loads(json.dumps(plain(parse(document))), parse_float=Decimal)
    assert {key: got[key] for key in case["campaign"]} == case["campaign"]


@pytest.mark.parametrize("case", load(files=True))
def test_file(case: dict[str, Any]) -> None:
    def base(match: re.Match[str]) -> str:
        return json.dumps({**BASE, "id": match[1]}, default=float)

    def read() -> list[tuple[Campaign, str]]:
        data = re.sub(r"\{BASE (\w+)\}", base, case["text"]).encode()
        return list(read_file(case["file"], BytesIO(data)))

    if "mistakes" in case:
        assert mistakes_of(read) == case["mistakes"]
    else:
        assert [campaign.id for campaign, _ in read()] == case["ids"]
        assert [json.loads(text)["id"] for _, text in read()] == case["ids"]
