"""Ad pods: who has which impression (contract 3; OpenRTB 2.6, 7.6)."""

import json
from typing import Any

import pytest
from support.matching_cases import campaign_of
from support.snapshot import RATES, Geo, snapshot_of

from snapbid.bidding._bid_path import NoBid, propose
from snapbid.bidding.pods import pods_of
from snapbid.bidding.request import Imp, decode
from snapbid.bidding.snapshot import CatalogSnapshot


def imps(*media: dict[str, Any]) -> list[Imp]:
    numbered = [{"id": f"{number}", **medium} for number, medium in enumerate(media)]
    return decode(json.dumps({"id": "a", "imp": numbered}).encode()).imp or []


def snapshot(*advertisers: str) -> CatalogSnapshot:
    """A snapshot with a video campaign of each advertiser, the dearest first."""
    film = {"media": "video", "duration": 15}
    campaigns = [
        campaign_of({"campaign": {"id": f"c{n}", "advertiser": name, "cpm": 50 - n},
                     "creative": film})
        for n, name in enumerate(advertisers)
    ]  # fmt: skip
    return snapshot_of(campaigns, {"acme": "acme"}, RATES, Geo())


def test_a_pod_needs_two_impressions() -> None:
    alone: tuple[dict[str, Any], ...] = (
        {},
        {"video": {"podid": ""}},
        {"video": {"podid": None}},
        {"video": {"podid": "p"}},
    )
    assert pods_of(imps(*alone, {"audio": {"podid": "p"}}, {"audio": {}})) is None


def test_rivals() -> None:
    first, second, third, fourth = imps(
        {"video": {"podid": "p"}},
        {"video": {"podid": "p"}, "audio": {"podid": "p"}},
        {"audio": {"podid": "p"}},
        {"banner": {}},
    )
    pods = pods_of([first, second, third, fourth])
    assert pods is not None
    assert [pods.rivals(imp) for imp in (first, second, third, fourth)] == [[], [], [], None]
    pods.take(first, "a.example")
    pods.take(third, "b.example")
    pods.take(fourth, "c.example")
    assert [pods.rivals(imp) for imp in (first, second, third)] == [
        [],
        ["a.example", "b.example"],
        [],
    ]
    pods.release(first)
    assert pods.rivals(second) == ["b.example"]


def bids(made: CatalogSnapshot, *impressions: dict[str, Any]) -> list[str]:
    request = decode(json.dumps({"id": "a", "imp": [*impressions]}).encode())
    proposal = propose(request, "acme", made, 0)
    assert not isinstance(proposal, NoBid)
    advertiser = made.catalog.index.advertiser
    return [advertiser(choice.rank) for choice in proposal.choices]


def test_a_pod_by_number() -> None:
    """Prebid Server in Java sends numbers; OpenRTB 2.6 has text."""
    pods = [{"id": f"{n}", "video": {"podid": pod}} for n, pod in enumerate((1, 1, "1", 2, 0, 0))]
    made = snapshot("a.example", "b.example", "c.example")
    names = ["a.example", "b.example", "c.example", "a.example", "a.example", "b.example"]
    assert bids(made, *pods) == names


def test_ten_impressions_get_ten_advertisers() -> None:
    """Each the next best; those that follow are passed over however many campaigns they have."""
    names = [f"a{n % 5}.example" for n in range(40)] + [f"b{n}.example" for n in range(8)]
    pod = [{"id": f"{n}", "video": {"podid": "p"}} for n in range(14)]
    assert bids(snapshot(*names), *pod) == [*names[:5], *names[40:]]


def test_impressions_without_notices_take_no_advertiser() -> None:
    long, short = ({"id": id, "video": {"podid": "p"}} for id in ("x" * 513, "1"))
    assert bids(snapshot("a.example"), long, short) == ["a.example"]


def test_advertisers_beyond_ascii() -> None:
    made = snapshot("straße.example", "STRASSE.example", "straße.EXAMPLE", "b.example")
    pod = [{"id": f"{n}", "video": {"podid": "p"}} for n in range(3)]
    assert bids(made, *pod) == ["xn--strae-oqa.example", "strasse.example", "b.example"]


@pytest.mark.parametrize("place", [0, 1])
def test_a_guaranteed_deal_keeps_its_advertiser_wherever_its_impression_is(place: int) -> None:
    film = {"media": "video", "duration": 15}
    deal = {"targeting": {"deal": {"include": ["g"]}}}
    campaigns = [
        campaign_of({"campaign": {"id": id, "advertiser": name, "cpm": cpm} | more,
                     "creative": film})
        for id, name, cpm, more in (
            ("deal", "a.example", 3, deal), ("open", "a.example", 80, {}),
            ("other", "b.example", 75, {}),
        )
    ]  # fmt: skip
    made = snapshot_of(campaigns, {"acme": "acme"}, RATES, Geo())
    pod: list[dict[str, Any]] = [{"id": f"{n}", "video": {"podid": "p"}} for n in range(2)]
    pod[place]["pmp"] = {"deals": [{"id": "g", "guar": 1}]}
    expected = ["b.example", "b.example"]
    expected[place] = "a.example"
    assert bids(made, *pod) == expected
