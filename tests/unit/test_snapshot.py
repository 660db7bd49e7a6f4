"""One snapshot takes the place of another: what a worker knows already, it goes on to know."""

import asyncio
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from support.snapshot import RATES, Geo, builder_of

from snapbid.bidding.lookups import Lookups
from snapbid.bidding.reactivation import Reactivation
from snapbid.bidding.request import decode
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.catalog.catalog import Base, Catalog, Head, Query, encode, write
from snapbid.ledger.budgets.releases import ALL, DAILY

SSPS = {"acme": ("acme", 1)}
PRICE = 2_000_000  # of every campaign whose price is not said
REFERENCES = Lookups(Geo(), RATES)


def document(id: str, **members: Any) -> dict[str, Any]:
    creative = {"id": "k", "media": "banner", "w": 300, "h": 250, "adm": f"{id} {members}"}
    common = {"id": id, "advertiser": "brand.example", "cpm": 2, "creatives": [creative]}
    return {**common, **members}


BASED = [document("a", budget={"total": 1}), document("b", budget={"daily": 1}), document("c")]


def snapshot(
    folder: Path,
    *changed: Any,
    gone: str = "",
    before: CatalogSnapshot | None = None,
    base: str = "base-1",
) -> CatalogSnapshot:
    """A snapshot of an overlay over a base of BASED."""
    index = builder_of(BASED).build()
    (folder / base).write_bytes(index)
    overlay = builder_of(changed)
    for id in gone:
        overlay.hide(id)
    about = Base(base, len(index), crc32(index), len(BASED), 1, "w")
    path = folder / "catalog"
    write(path, encode(Head(SSPS, RATES, base=about), overlay.build()))
    catalog = Catalog.open(path, before.catalog if before else None)
    made = CatalogSnapshot(catalog, REFERENCES, before=before)
    if before is not None:
        asyncio.run(made.carry_over(before))
    return made


def refused(made: CatalogSnapshot) -> set[str]:
    return {each.document.cid for each in made.refused.values()}


def rank(made: CatalogSnapshot, id: str) -> int:
    ranked = made.catalog.index.rank(id)
    assert ranked is not None
    return ranked


def test_templates_of_the_same_base_are_kept(tmp_path: Path) -> None:
    first = snapshot(tmp_path, document("b", cpm=5))
    a, b = first.template(rank(first, "a"), 0), first.template(rank(first, "b"), 0)
    assert b.price_micros == 5_000_000
    second = snapshot(tmp_path, document("n"), document("b", cpm=6), before=first)
    assert second.catalog.mapped is first.catalog.mapped
    assert second.template(rank(second, "a"), 0) is a
    assert second.template(rank(second, "b"), 0).price_micros == 6_000_000
    assert second.template(rank(second, "n"), 0).pieces != b.pieces
    third = snapshot(tmp_path, before=second, base="base-2")
    assert third.catalog.mapped is not first.catalog.mapped
    assert third.template(rank(third, "a"), 0) is not a
    assert third.template(rank(third, "b"), 0).price_micros == 2_000_000


@pytest.mark.parametrize("base", ["base-1", "base-2"])
def test_refused_campaigns_stay_refused(tmp_path: Path, base: str) -> None:
    first = snapshot(tmp_path)
    for id in ("a", "b", "c"):
        first.refuse(rank(first, id), 0, PRICE)
    assert refused(first) == {"a", "b"}, "c has no budget"
    second = snapshot(tmp_path, document("n"), before=first, base=base)
    assert refused(second) == {"a", "b"}
    assert second.is_refused(rank(second, "a"), 0, 2_000_000)
    second.reactivate([(1, 0)])  # a's number
    assert refused(second) == {"b"}


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        (document("a", budget={"total": 2}), {"b"}),
        (document("a", budget={"total": 1}, cpm=1), {"b"}),
        (document("a"), {"b"}),
        (document("a", budget={"total": 1}, name="new"), {"a", "b"}),
    ],
)
def test_changed_terms_are_retried(tmp_path: Path, changed: Any, left: set[str]) -> None:
    first = snapshot(tmp_path)
    first.refuse(rank(first, "a"), 0, PRICE)
    first.refuse(rank(first, "b"), 0, PRICE)
    assert refused(snapshot(tmp_path, changed, before=first)) == left


def test_deleted_campaigns_are_forgotten(tmp_path: Path) -> None:
    first = snapshot(tmp_path)
    first.refuse(rank(first, "a"), 0, PRICE)
    assert refused(snapshot(tmp_path, gone="a", before=first)) == set()


def test_costs_are_refused_by_shard(tmp_path: Path) -> None:
    """A refused cost stands for every higher one; a campaign stops where its price is refused."""
    first = snapshot(tmp_path)
    first.shards = 2
    a = rank(first, "a")
    query = query_of(first)
    first.refuse(a, 0, 1_000_000)
    first.refuse(a, 1, 9_000_000)
    first.refuse(a, 1, 9_500_000)
    assert [first.is_refused(a, 0, cost) for cost in (999_999, 1_000_000, 2_000_000)] == [0, 1, 1]
    assert [first.is_refused(a, 1, cost) for cost in (8_999_999, 9_000_000, 2**63 - 1)] == [0, 1, 1]
    assert [first.is_refused_by_all(a, cost) for cost in (8_999_999, 9_000_000)] == [0, 1]
    assert bids(query) == ["a", "b", "c"]
    first.refuse(a, 1, PRICE)
    assert bids(query) == ["b", "c"]
    first.reactivate(None)
    assert bids(query) == ["a", "b", "c"]


REQUEST = b'{"id": "r", "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}]}'


def query_of(made: CatalogSnapshot) -> Query:
    return made.catalog.index.query(
        REFERENCES, decode(REQUEST), "acme", "acme", 0, refused=made.core.refused
    )


def bids(query: Query) -> list[str]:
    return [BASED[each]["id"] for each in sorted(ranks_of(query))]


def ranks_of(query: Query) -> list[int]:
    (imp,) = decode(REQUEST).imp or []
    assert query.impression(imp)
    return [best[0] for best in iter(query.next, None) if best is not None]


def bids_of(made: CatalogSnapshot) -> list[int]:
    return ranks_of(query_of(made))


@pytest.mark.parametrize("base", ["base-1", "base-2"])
def test_a_paused_campaign_does_not_bid_when_it_is_released(tmp_path: Path, base: str) -> None:
    first = snapshot(tmp_path)
    a = rank(first, "a")
    first.refuse(a, 0, PRICE)
    paused = document("a", budget={"total": 1}, status="paused")
    second = snapshot(tmp_path, paused, before=first, base=base)
    assert sorted(bids_of(second)) == sorted(rank(second, id) for id in "bc")
    second.reactivate(None)
    assert sorted(bids_of(second)) == sorted(rank(second, id) for id in "bc")
    third = snapshot(tmp_path, before=second, base=base)
    third.reactivate(None)
    assert rank(third, "a") in bids_of(third)


def test_many_refusals_can_be_waited_for(tmp_path: Path) -> None:
    """More than is carried over at once."""
    many = [document(f"m{number}", budget={"total": 1}) for number in range(120)]
    first = snapshot(tmp_path, *many)
    for each in many:
        first.refuse(rank(first, each["id"]), 0, PRICE)
    assert len(snapshot(tmp_path, *many, before=first).refused) == 120


def test_a_release_lets_a_campaign_bid_in_its_shard_alone(tmp_path: Path) -> None:
    made = CatalogSnapshot(snapshot(tmp_path).catalog, REFERENCES, shards=2)
    query = query_of(made)
    a, b = rank(made, "a"), rank(made, "b")
    for each in (a, b):
        for shard in (0, 1):
            made.refuse(each, shard, PRICE)
    assert bids(query) == ["c"]
    made.reactivate([(1, 1), (99, 0)])  # a's number; and that of none
    assert bids(query) == ["a", "c"]
    assert made.is_refused(a, 0, PRICE)
    assert not made.is_refused(a, 1, PRICE)
    made.reactivate([(1, 0), (ALL, 0)])
    assert bids(query) == ["a", "b", "c"]
    assert refused(made) == {"b"}
    made.reactivate(None)
    assert not made.refused


def test_refusals_belong_to_one_snapshot(tmp_path: Path) -> None:
    """The index decides as before, and for another worker's snapshot of it."""
    made = snapshot(tmp_path)
    made.refuse(rank(made, "a"), 0, PRICE)
    others = CatalogSnapshot(made.catalog, REFERENCES)
    index = made.catalog.index
    assert bids(query_of(made)) == ["b", "c"]
    assert bids(query_of(others)) == ["a", "b", "c"]
    assert bids(index.query(REFERENCES, decode(REQUEST), "acme", "acme", 0)) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="another index"):
        snapshot(tmp_path, base="base-2").catalog.index.query(
            REFERENCES, decode(REQUEST), "acme", "acme", 0, refused=made.core.refused
        )


def test_a_refusal_is_of_one_ssp_until_another_is_refused(tmp_path: Path) -> None:
    made = snapshot(tmp_path)
    a, b = rank(made, "a"), rank(made, "b")

    def may_bid(ssp: str, of: CatalogSnapshot = made) -> list[str]:
        index = of.catalog.index
        refused = of.core.refused_for(ssp)
        return bids(index.query(REFERENCES, decode(REQUEST), ssp, ssp, 0, refused=refused))

    made.refuse(a, 0, PRICE, "acme")
    made.refuse(a, 0, PRICE, "acme")
    assert (may_bid("acme"), may_bid("other")) == (["b", "c"], ["a", "b", "c"])
    assert made.is_refused(a, 0, PRICE, "acme")
    assert not made.is_refused(a, 0, PRICE, "other")
    later = snapshot(tmp_path, before=made)
    assert (may_bid("acme", later), may_bid("other", later)) == (["b", "c"], ["a", "b", "c"])
    made.refuse(b, 0, PRICE, "other")
    assert (may_bid("acme"), may_bid("other")) == (["b", "c"], ["a", "c"])
    made.refuse(a, 0, PRICE, "other")
    for ssp in ("acme", "other", "third"):
        assert made.is_refused(a, 0, PRICE, ssp)
    assert (may_bid("acme"), may_bid("other"), may_bid("third")) == (["b", "c"], ["c"], ["b", "c"])
    made.reactivate([(0, 0)])  # no such campaign
    made.reactivate(None)
    assert (may_bid("acme"), may_bid("other")) == (["a", "b", "c"], ["a", "b", "c"])


def test_shards_refuse_an_ssp_one_by_one(tmp_path: Path) -> None:
    made = snapshot(tmp_path)
    made.shards = 2
    a = rank(made, "a")
    made.refuse(a, 0, PRICE, "acme")
    made.refuse(a, 1, PRICE, "other")
    assert not made.is_refused_by_all(a, PRICE, "acme")
    assert not made.is_refused_by_all(a, PRICE, "other")
    made.refuse(a, 1, PRICE, "acme")
    assert made.is_refused_by_all(a, PRICE, "acme")
    assert not made.is_refused_by_all(a, PRICE, "other")
    made.refuse(a, 0, PRICE, "other")
    assert made.is_refused_by_all(a, PRICE, "third")


def test_a_day_reactivates_daily_budgets(tmp_path: Path) -> None:
    daily = document("a", budget={"daily": 1})
    made = snapshot(tmp_path, daily, document("b", budget={"total": 1}))
    for each in ("a", "b"):
        made.refuse(rank(made, each), 0, PRICE)
    made.reactivate([(DAILY, 0)])
    assert refused(made) == {"b"}


async def test_a_release_is_applied_again_for_late_refusals() -> None:
    """The refusal was in flight when the release was published."""
    published: list[list[tuple[int, int]] | None] = [[(1, 0)], [], None]
    made: list[object] = []

    class Recorder:
        refused = True

        def reactivate(self, releases: object) -> None:
            made.append(releases)

    task = Reactivation(lambda: published.pop(0) if published else [], Recorder)  # type: ignore[arg-type]
    task.apply()
    task.apply()
    assert made == [[(1, 0)]]
    made.clear()
    task._again[0] = (0.0, [(1, 0)])  # a second later
    task.apply()
    assert made == [None, [(1, 0)]]
