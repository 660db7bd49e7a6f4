"""Categories and their mappings (contract 3), beside those of `support.oracle_categories`."""

import array
import re
from pathlib import Path

import pytest
from support import oracle_categories as plain

from snapbid.campaigns.document import IMPORTED
from snapbid.campaigns.rules import Mistakes
from snapbid.reference import taxonomies

README = Path(taxonomies.__file__).parents[1] / "campaigns" / "README.md"


def test_every_category_is_known_and_no_other() -> None:
    for family, parents in plain.parents().items():
        for id in parents:
            assert taxonomies.normal(family, id) == id
            assert taxonomies.normal(family, f" {id.lower()}\t") == id
    for unknown in ("IAB0", "IAB27", "IAB1-8", "IAB24-1", "IAB", "3", "IAB3-", "IAB3-1-1", ""):
        assert taxonomies.normal(1, unknown) is None


@pytest.mark.parametrize("written", ["iab3-1", "IAB-3-1", "iab 3 - 1", "IAB03-01", "\u00a0IAB3-1"])
def test_spellings(written: str) -> None:
    assert taxonomies.normal(1, written) == "IAB3-1"


def test_flags_mark_unmappable_categories() -> None:
    """Of a category or of one below it: neither may be served where it is blocked."""
    flags = array.array("H", taxonomies.first_flags())
    assert sum(each != 0 for each in flags) == 392
    for family, parents in plain.parents().items():
        for id in parents:
            if family == 1:
                first, _, second = id.removeprefix("IAB").partition("-")
                own = flags[int(first) * taxonomies.MAX_SECOND + int(second or 0)]
            else:
                key, own = taxonomies.listed()[family][id]
                assert key == f"{family}:{id}"
            for other in taxonomies.NAMES:
                table = plain.tables().get((family, other))
                is_lost = table is not None and not plain.below(family, id) <= table.keys()
                assert bool(own >> other & 1) is is_lost


def test_the_table_of_the_readme() -> None:
    """Pairs of taxonomies, with how many categories of the campaign's can be compared."""
    rows = re.findall(r"^\| (?:Content|Ad|Audience).*\|$", README.read_text(), re.MULTILINE)
    counts = taxonomies.counts()
    wanted = []
    for family, name in taxonomies.NAMES.items():
        cells = [
            "all" if family == other else f"{mapped} + {found}" if found else str(mapped or "-")
            for other in taxonomies.NAMES
            for mapped, found, _ in [counts[family, other]]
        ]
        wanted.append(f"| {name} ({counts[family, family][2]}) | {' | '.join(cells)} |")
    assert rows == wanted


def test_request_categories_are_mapped_if_the_campaigns_cannot_be() -> None:
    assert taxonomies.counts()[1, 2] == (377, 0, 392)
    assert taxonomies.counts()[1, 7] == (367, 0, 392)
    found = taxonomies.categories_of(2, ("1",))
    assert found.mapped == (("7:", (("7:1",),)),)
    assert found.listed == (("1:", ((("IAB2",), ("IAB2-9", "IAB2")),)),)


@pytest.mark.parametrize(
    ("product", "content"),
    [("1004", "IAB8-5"), ("1005", "IAB8-5"), ("1006", "IAB8-5"), ("1045", "IAB15"),
     ("1123", "IAB10"), ("1442", "IAB15-10")],
)  # fmt: skip
def test_where_the_published_mapping_names_another_category_than_its_id(
    product: str, content: str
) -> None:
    """Seen: spirits were mapped to cuisines, so they passed a block on alcohol."""
    (line,) = dict(taxonomies.categories_of(8, (product,)).mapped)["1:"]
    assert line[0] == content


def test_vendors_and_unknown_categories_are_in_no_family_of_a_request() -> None:
    vendor = taxonomies.categories_of(600, ("a",))
    assert vendor.family == taxonomies.OF_VENDORS
    assert vendor.mapped == (("600:", (("600:a",),)),)
    unknown = taxonomies.categories_of(1, ("IAB3", "IAB99"))
    assert unknown.family == taxonomies.UNKNOWN
    assert unknown.own
    assert not unknown.mapped
    assert not unknown.listed
    assert {taxonomies.OF_VENDORS, taxonomies.UNKNOWN}.isdisjoint(taxonomies.FAMILIES.values())


def test_import_names_all_unknown_categories() -> None:
    mistakes = Mistakes()
    document = {
        "id": "c",
        "advertiser": "a.example",
        "cpm": 1,
        "categories": ["IAB99", "iab3", "IAB-99"],
        "creatives": [{"id": "k", "media": "banner", "w": 1, "h": 1, "adm": "x"}],
    }
    IMPORTED(document, (), mistakes)
    assert [str(each).partition(":")[0] for each in mistakes] == ["categories[0]", "categories[2]"]
