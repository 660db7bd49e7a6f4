"""`explain` names the winner that the live decision has, and every other campaign once."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from support import oracle, strategies
from support.demand_filter import may_drop
from support.oracle_values import Document
from support.snapshot import AROUND, layered_snapshot, parsed, snapshot_of_world

from snapbid.bidding._bid_path import NoBid, search
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.campaigns.campaign import Campaign
from snapbid.catalog.payload import decode_payload
from snapbid.ledger.bids.records import LedgerBid
from snapbid.operations.explain.overview import Explanation, MatchableRequest, explain, read
from snapbid.partners.demand.clauses import clauses_of, reduced
from snapbid.partners.demand.rules import rules_of

REFUSED = "b"


def overview(
    world: oracle.World, ssp: str, request: Document, refused: frozenset[int] = frozenset()
) -> Explanation:
    """The explanation, where these campaigns (numbers) are out of money."""
    return overview_of(snapshot_of_world(world), world, ssp, request, refused)


def overview_of(
    snapshot: CatalogSnapshot,
    world: oracle.World,
    ssp: str,
    request: Document,
    refused: frozenset[int] = frozenset(),
) -> Explanation:
    documents = {campaign["id"]: parsed(campaign) for campaign in world.campaigns}

    async def look(auction: bytes, bids: list[LedgerBid], user: str | None) -> str:
        return "".join(REFUSED if number in refused else "k" for _, number, _, _ in bids)

    async def fetch(ids: Sequence[str]) -> Mapping[str, Campaign]:
        return {id: documents[id] for id in ids}

    now_ms = round(world.now.timestamp() * 1000)
    asked = read(msgspec.json.encode(request), ssp, snapshot, now_ms, 1 << 20)
    assert isinstance(asked, MatchableRequest)
    return asyncio.run(explain(asked, snapshot, look, fetch, cpu_ms=1000))


def decided(
    snapshot: CatalogSnapshot, world: oracle.World, ssp: str, request: Document
) -> tuple[dict[str, tuple[str, str, str]], str]:
    """The live decision: campaign, creative and deal by impression, and why there is none."""
    now_ms = round(world.now.timestamp() * 1000)
    asked = read(msgspec.json.encode(request), ssp, snapshot, now_ms, 1 << 20)
    assert isinstance(asked, MatchableRequest)
    decision = search(asked.request, ssp, snapshot, now_ms)
    if isinstance(decision, NoBid):
        return {}, decision.reason.value
    winners = {}
    for choice in decision.choices:
        document = decode_payload(snapshot.catalog.index.payload(choice.rank))
        deal = decision.bid_of(choice).deal
        winners[str(choice.imp.id)] = (
            document.cid, document.creatives[choice.creative].crid, deal or ""
        )  # fmt: skip
    return winners, ""


def test_the_winner_matches_the_live_decision() -> None:
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for seed in range(80):
        world = strategies.random_world(seed, 12, AROUND)
        made, rng = snapshot_of_world(world), random.Random(f"overview {seed}")
        for _ in range(5):
            ssp, request = strategies.random_request(rng, world)
            answer = overview_of(made, world, ssp, request)
            winners = {
                each.id: (each.winner.campaign, each.winner.creative, each.winner.deal or "")
                for each in answer.impressions
                if each.winner
            }
            expected, reason = decided(made, world, ssp, request)
            assert winners == expected, request
            assert answer.status == (200 if winners else 204)
            assert reason in answer.reason
            reasons[reason] += 1
            for each in answer.impressions:
                if each.refused or each.eligible:
                    told = each.eligible + sum(group.count for group in each.refused)
                    assert told == each.campaigns == 12
                    assert (each.runner_up is not None) == (each.eligible > 1)
                    outcomes.update(group.rule.split(" ")[0] for group in each.refused)
    assert len(outcomes) > 25, outcomes
    assert set(reasons) >= {"", "currency", "no_campaign", "floor_currency", "quantity"}, reasons


def test_the_next_campaign_bids_for_one_without_money() -> None:
    passed = 0
    for seed in range(120):
        world = strategies.random_world(seed, 12, AROUND)
        for number, campaign in enumerate(world.campaigns, 1):
            campaign["budget"] = {"daily": number}
        ssp, request = strategies.random_request(random.Random(f"money {seed}"), world)
        made = snapshot_of_world(world)
        before = overview_of(made, world, ssp, request)
        for imp in before.impressions:
            if imp.winner is None or imp.runner_up is None:
                continue
            names = [campaign["id"] for campaign in world.campaigns]
            poor = names.index(imp.winner.campaign) + 1
            (after,) = (
                entry
                for entry in overview_of(made, world, ssp, request, frozenset({poor})).impressions
                if entry.id == imp.id
            )  # fmt: skip
            assert after.winner == msgspec.structs.replace(imp.runner_up, code=None)
            (group,) = (entry for entry in after.refused if entry.rule == "budget spent")
            assert (group.count, group.campaigns) == (1, [imp.winner.campaign])
            assert after.eligible == imp.eligible - 1
            passed += 1
    assert passed > 3


def test_budgets_are_charged_for_all_impressions() -> None:
    world = strategies.random_world(1, 1, AROUND)
    plain = {"cpm": 2, "budget": {"total": 1}, "advertiser": "a.test"}
    creative = {"id": "k", "media": "banner", "adm": "-", "w": 1, "h": 1}
    world.campaigns[:] = [{"id": "c", "creatives": [creative], **plain}]
    documents = {"c": parsed(world.campaigns[0])}
    asked: list[int] = []

    async def look(auction: bytes, bids: list[LedgerBid], user: str | None) -> str:
        asked.extend(cost for _, _, cost, _ in bids)
        return "".join("b" if cost > 2_000_000 else "k" for _, _, cost, _ in bids)

    async def fetch(ids: Sequence[str]) -> Mapping[str, Campaign]:
        return {id: documents[id] for id in ids}

    qty: tuple[Document, ...] = ({}, {"qty": {"multiplier": 14.2}}, {"qty": {"multiplier": 0.5}})
    imps = [{"id": f"{n}", "banner": {"w": 1, "h": 1}, **each} for n, each in enumerate(qty)]
    body = msgspec.json.encode({"id": "r", "imp": imps, "dooh": {}})
    made = snapshot_of_world(world)
    matchable = read(body, next(iter(world.registry)), made, 0, 1 << 20)
    assert isinstance(matchable, MatchableRequest)
    answer = asyncio.run(explain(matchable, made, look, fetch, cpu_ms=1000))
    assert asked == [2_000_000, 28_400_000, 1_000_000]
    assert [each.winner is not None for each in answer.impressions] == [True, False, True]
    assert [each.quantity for each in answer.impressions] == [1, 14.2, 0.5]
    assert answer.impressions[1].refused[0].rule == "budget spent"


def test_a_pod_is_explained() -> None:
    """As it is decided: the advertiser of the first is refused for the second, which says why."""
    world = strategies.random_world(1, 1, AROUND)
    creative = {"id": "k", "media": "video", "adm": "-", "duration": 15}
    world.campaigns[:] = [
        {"id": f"c{n}", "advertiser": name, "cpm": 9 - n, "creatives": [creative]}
        for n, name in enumerate(("a.test", "a.test", "b.test"))
    ]
    imps = [{"id": f"{n}", "video": {"podid": "p"}} for n in range(3)]
    answer = overview(world, next(iter(world.registry)), {"id": "r", "imp": imps})
    winners = [each.winner and each.winner.campaign for each in answer.impressions]
    assert winners == ["c0", "c2", None]
    (group,) = answer.impressions[1].refused
    assert (group.rule, group.campaigns) == ("pod", ["c0", "c1"])
    assert group.why == "other impressions of its pod have a.test"
    assert group.code is not None
    assert group.code.number == 205


@pytest.mark.parametrize(("floor", "rule"), [(2, "deal terms"), (2.01, "deal floor")])
def test_a_deals_floor_is_named_only_above_the_price(floor: float, rule: str) -> None:
    world = strategies.random_world(1, 1, AROUND)
    creative = {"id": "k", "media": "banner", "adm": "-", "w": 1, "h": 1}
    deal = {"deal": {"include": ["d"]}}
    world.campaigns[:] = [
        {"id": "c", "advertiser": "a.test", "cpm": 2, "creatives": [creative], "targeting": deal}
    ]
    pmp = {"deals": [{"id": "d", "bidfloor": floor, "wseat": ["s"]}]}
    request = {"id": "r", "imp": [{"id": "1", "banner": {"w": 1, "h": 1}, "pmp": pmp}]}
    (imp,) = overview(world, next(iter(world.registry)), request).impressions
    assert [group.rule for group in imp.refused] == [rule]


def test_hidden_campaigns_are_not_named() -> None:
    """A base and an overlay are explained as the one catalog that they make."""
    for seed in range(40):
        world = strategies.random_world(seed, 12, AROUND)
        old = strategies.random_world(1000 + seed, 6, AROUND).campaigns  # c0 to c5, all outdated
        gone = [{**campaign, "id": f"gone-{campaign['id']}"} for campaign in old]
        base = [*old, *gone, *world.campaigns[6:9]]
        changed = [*world.campaigns[:6], *world.campaigns[9:]]
        layered = layered_snapshot(world, base, changed, [campaign["id"] for campaign in gone])
        ssp, request = strategies.random_request(random.Random(f"layers {seed}"), world)
        plain = overview(world, ssp, request)
        view = overview_of(layered, world, ssp, request)
        for imp, other in zip(view.impressions, plain.impressions, strict=True):
            if not other.refused and not other.eligible:
                continue  # its floor has no exchange rate
            rules = {(group.rule, group.count, frozenset(group.campaigns)) for group in imp.refused}
            assert rules == {
                (group.rule, group.count, frozenset(group.campaigns)) for group in other.refused
            }
            assert (imp.winner, imp.runner_up) == (other.winner, other.runner_up)
            assert (imp.campaigns, imp.eligible) == (12, other.eligible)


@pytest.mark.parametrize("code", ["XKX", "XK", "xkx", "UK", "EUR", "ZZZ", "United States"])
def test_invalid_country_codes_count_as_absent(code: str) -> None:
    """For the bid endpoint, for an explanation and for demand alike (contract 3, `country`)."""
    creative = {"id": "k", "media": "banner", "adm": "-", "w": 300, "h": 250}
    world = strategies.random_world(1, 1, AROUND)
    world.campaigns[:] = [
        {"id": name, "advertiser": "a.example", "cpm": 2, "creatives": [creative], **targeting}
        for name, targeting in (
            ("usa", {"targeting": {"country": {"include": ["USA"]}}}),
            ("elsewhere", {"cpm": 1, "targeting": {"country": {"exclude": ["USA"]}}}),
        )
    ]
    ssp = next(iter(world.registry))
    now_ms = round(world.now.timestamp() * 1000)
    own = map(parsed, world.campaigns)
    clauses = reduced(clause for each in own for clause in clauses_of(each, now_ms))
    made = snapshot_of_world(world)
    signals = rules_of(ssp, clauses, dict(world.usd))
    plain = {"id": "r", "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}]}
    for of_user, winner in (({}, "elsewhere"), ({"geo": {"country": "US"}}, "usa")):
        request = plain | {"device": {"geo": {"country": code}}, "user": of_user}
        winners, _ = decided(made, world, ssp, request)
        assert {campaign for campaign, *_ in winners.values()} == {winner}
        (impression,) = overview(world, ssp, request).impressions
        assert impression.winner is not None
        assert impression.winner.campaign == winner
        assert not may_drop(request, signals)
