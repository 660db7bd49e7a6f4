"""Every example on the page about campaigns can be imported, and the page is complete."""

import re
from io import BytesIO
from pathlib import Path

import pytest

import snapbid.campaigns
from snapbid.campaigns import codes
from snapbid.campaigns.campaign import Campaign, CampaignMistake, Creative
from snapbid.campaigns.campaign_file import read_file
from snapbid.campaigns.document import parse
from snapbid.campaigns.vocabulary import DIMENSIONS

PAGE = (Path(snapbid.campaigns.__file__).parent / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```(jsonl?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def campaigns(kind: str, text: str) -> list[Campaign]:
    return [campaign for campaign, _ in read_file(f"example.{kind}", BytesIO(text.encode()))]


def test_there_is_an_example_of_each_media_type() -> None:
    media = {
        creative.media
        for example in EXAMPLES
        for campaign in campaigns(*example)
        for creative in campaign.creatives
    }
    assert media == {"banner", "video", "native", "audio"}


@pytest.mark.parametrize(("kind", "text"), EXAMPLES)
def test_an_example_is_imported(kind: str, text: str) -> None:
    assert campaigns(kind, text)


def test_every_field_and_dimension_is_on_the_page() -> None:
    renamed = {"cpm_micros": "cpm", "starts_at_ms": "starts_at", "ends_at_ms": "ends_at"}
    fields = [renamed.get(name, name) for name in Campaign.__struct_fields__]
    fields += [name for name in Creative.__struct_fields__ if name != "renditions"]  # no document's
    fields += [dimension.name for dimension in DIMENSIONS]
    missing = [name for name in fields if f"`{name}`" not in PAGE]
    assert not missing


def test_the_mistakes_shown_are_those_that_an_import_names() -> None:
    creative = {"id": "n", "media": "banner", "adm": "x", "w": 1, "h": 1}
    good = {"id": "a", "advertiser": "shop.example", "cpm": 1, "creatives": [creative]}
    with pytest.raises(ValueError, match=r".") as caught:
        parse({**good, "cpm": 0, "targeting": {"country": {"include": ["USA", "XX"]}}, "budgt": 1})
    mistakes: tuple[CampaignMistake, ...] = getattr(caught.value, "mistakes", ())
    assert len(mistakes) == 3
    for mistake in mistakes:
        assert str(mistake) in PAGE, mistake


def test_every_code_stands_beside_its_name() -> None:
    for dimension, names in codes.NAMES.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{dimension}`: "))
        assert re.findall(r"`(\w+)` (\w+)", row) == [
            (name, str(code)) for name, code in names.items()
        ]


def test_links_lead_to_files() -> None:
    folder = Path(snapbid.campaigns.__file__).parent
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE):
        assert (folder / link).is_file(), link
    headings = {
        re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) == headings
