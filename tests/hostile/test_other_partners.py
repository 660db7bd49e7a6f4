"""An API key writes of its own product alone: nothing of another's campaigns and persons."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.event_bench import CASINO, Bench, accepted
from support.sending import NOW, event, money

from snapbid.campaigns.audiences import Audience
from snapbid.campaigns.click_id import Click, creative_digest
from snapbid.campaigns.persons import PersonKey
from snapbid.drain import audiences as counting
from snapbid.events.outcomes import Product
from snapbid.queues import queue
from snapbid.warehouse import audiences, campaigns, conversions, persons, products, registry

RIVAL = Product("rival", frozenset({"igaming"}))
VICTIM = "11111111-2222-4333-8444-555555555555"
BATCH = 500


@pytest.fixture
async def bench(database: str, fresh_redis: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench.open(database, fresh_redis, tmp_path) as bench:
        for product in (CASINO, RIVAL):
            await products.add(bench.connection, product.name, ("igaming",))
        yield bench


async def carry(bench: Bench, product: Product, documents: list[dict[str, Any]]) -> None:
    for start in range(0, len(documents), BATCH):
        pairs = accepted(product, *documents[start : start + BATCH])
        await bench.add(queue.encode(NOW, product.name, pairs))
    while await bench.drain.round(bench.connection):
        pass


async def advertised(bench: Bench, device: str) -> set[str]:
    """The products that may not be advertised to a device, and the audiences that it is in."""
    key = PersonKey((await persons.fetch_suppression(bench.connection)).key)
    rows = await bench.rows(
        "select coalesce(id, product) from audience_member join audience on number = audience"
        " where member = $1 and until > now()",
        key.member("ifa", device),
    )
    return {name for (name,) in rows}


def visits(device: str, count: int) -> list[dict[str, Any]]:
    """Events of this many users with one device."""
    return [event("login", f"crowd-{number}", device_id=device) for number in range(count)]


# -- persons --------------------------------------------------------------------------------------


async def test_no_crowd_of_another_product_ends_a_self_exclusion(bench: Bench) -> None:
    blocked = event("account_blocked", "u", block_reason="self_exclusion", device_id=VICTIM)
    await carry(bench, CASINO, [blocked])
    assert await advertised(bench, VICTIM) == {"casino"}
    await carry(bench, RIVAL, visits(VICTIM, audiences.PERSONS + 1))
    assert await advertised(bench, VICTIM) == {"casino"}


async def test_no_crowd_of_another_product_removes_audience_members(bench: Bench) -> None:
    async with bench.connection.transaction():
        of_casino = Audience("players", "casino", event="login", within_days=30)
        assert await audiences.add(bench.connection, of_casino) is not None
    await carry(bench, CASINO, [event("login", "u", device_id=VICTIM)])
    await carry(bench, RIVAL, visits(VICTIM, audiences.PERSONS + 1))
    assert await advertised(bench, VICTIM) == {"players"}


async def test_no_crowd_of_the_own_product_ends_a_self_exclusion(bench: Bench) -> None:
    blocked = event("account_blocked", "u", block_reason="self_exclusion", device_id=VICTIM)
    await carry(bench, CASINO, [blocked])
    await carry(bench, CASINO, visits(VICTIM, audiences.PERSONS + 1))
    assert await advertised(bench, VICTIM) == {"casino"}


async def test_the_dearest_amount_is_counted(bench: Bench) -> None:
    """An amount whose micro-USD no double has is stored, and is of an audience's large ones."""
    large = Audience("large", "casino", event="withdraw", within_days=30, min_amount_usd=1_000_000)
    async with bench.connection.transaction():
        assert await audiences.add(bench.connection, large) is not None
    paid = money(1e307)
    await carry(
        bench, CASINO, [event("withdraw", "u", transaction_id="t1", device_id=VICTIM, **paid)]
    )
    assert await bench.rows("select reason from event_dead_letters") == []
    assert await advertised(bench, VICTIM) == {"large"}
    again = Audience("again", "casino", event="withdraw", within_days=30, min_amount_usd=1_000_000)
    assert await counting.add(bench.connection, again)
    assert await advertised(bench, VICTIM) == {"large", "again"}


# -- conversions ----------------------------------------------------------------------------------


async def click_of(bench: Bench, campaign: str, **more: Any) -> str:
    """A click id of a new campaign."""
    markup = "<a href='https://shop.example/?click={{click_id}}'>go</a>"
    creative = {"id": "b", "media": "banner", "w": 300, "h": 250, "adm": markup}
    own = {"id": campaign, "advertiser": "shop.example", "cpm": 1, "creatives": [creative]}
    await registry.add(bench.connection, "acme", "acme")
    await campaigns.replace_many(bench.connection, [(campaign, json.dumps(own | more))])
    (number,) = await bench.rows("select number from campaign_number where id = $1", campaign)
    (ssp,) = await bench.rows("select number from ssp_number")
    key = list((await conversions.fetch_keys(bench.connection)).values())[-1]
    return key.make(Click(number[0], creative_digest("b"), ssp[0], NOW // 1000 - 60))


async def test_events_of_another_product_count_for_no_campaign_of_a_product(bench: Bench) -> None:
    click = await click_of(bench, "own", product="casino")
    forged = [
        event("deposit", f"u{n}", click=click, transaction_id=f"t{n}", **money(1e8))
        for n in range(3)
    ]
    await carry(bench, RIVAL, [*forged, event("login", "u0")])
    assert await bench.rows("select * from conversion_daily") == []
    flagged = await bench.rows("select event from events where 'click_invalid' = any(flags)")
    assert flagged == [("deposit",)] * 3
    await carry(bench, CASINO, [event("register", "u0", click=click)])
    assert await bench.rows("select event, conversions from conversion_daily") == [("register", 1)]


async def test_any_product_counts_for_a_campaign_without_one(bench: Bench) -> None:
    click = await click_of(bench, "any")
    await carry(bench, RIVAL, [event("register", "u", click=click)])
    assert await bench.rows("select event, conversions from conversion_daily") == [("register", 1)]
