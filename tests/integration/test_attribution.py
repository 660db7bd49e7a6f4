"""Attribution by the drain (contract 12): which events count for which click, exactly once."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.event_bench import CASINO, Bench
from support.event_reading import read_batch
from support.oracle_clicks import (
    CLOCKS_MS,
    EXPIRED,
    INVALID,
    LATER,
    NOBODYS,
    Happened,
    Issued,
    Sum,
    attribute,
)
from support.sending import event, money

from snapbid.base.settings import load
from snapbid.campaigns.click_id import Click, creative_digest
from snapbid.campaigns.persons import PersonKey
from snapbid.drain import forgetting
from snapbid.drain.audit import Auditor
from snapbid.drain.events import EventDrain
from snapbid.drain.replay import replay
from snapbid.events.attribution import preview, row_of
from snapbid.events.outcomes import BatchResult, Product
from snapbid.ledger.admin.audits import Difference
from snapbid.warehouse import campaigns, conversions, products, registry
from snapbid.warehouse.comparison import compare_conversions

DAY = 86_400_000
FLAGS = (INVALID, EXPIRED, LATER)
FIRST = "select coalesce(sum(first_deposits), 0)::int from conversion_daily"
AT = 1_717_243_200_000  # 2024-06-01 12:00 UTC
SHOP = Product("shop", frozenset({"igaming"}))


def document(name: str, **more: Any) -> tuple[str, str]:
    creative = {
        "id": f"{name}-banner", "media": "banner", "w": 300, "h": 250,
        "adm": "<a href='https://shop.example/?click={{click_id}}'>go</a>",
    }  # fmt: skip
    own = {"id": name, "advertiser": "shop.example", "cpm": 1, "creatives": [creative]}
    return name, json.dumps(own | more)


class Clicks(Bench):
    """A bench with campaigns `a` and `b` (a click of which counts for one day), and SSP `acme`."""

    async def prepare(self) -> None:
        self.drain = EventDrain(self.redis, self.metrics, *self.references, lambda: AT / 1000)
        for product in (CASINO, SHOP):
            await products.add(self.connection, product.name, ("igaming",))
        await registry.add(self.connection, "acme", "acme")
        await campaigns.replace_many(
            self.connection, [document("a"), document("b", attribution_days=1)]
        )

    async def click(self, campaign: str, at: int = AT, key: int = 0) -> str:
        """A click id of a bid at that time, signed with the newest key, or an earlier one."""
        keys = list((await conversions.fetch_keys(self.connection)).values())
        number = await self.connection.fetchval(
            "select number from campaign_number where id = $1", campaign
        )
        ssp = await self.connection.fetchval("select number from ssp_number")
        digest = creative_digest(f"{campaign}-banner")
        return keys[-1 - key].make(Click(number, digest, ssp, at // 1000))

    async def counted(self) -> dict[tuple[str, str], int]:
        """Conversions by campaign and event."""
        rows = await self.rows(
            "select campaign, event, sum(conversions)::int from conversion_daily group by 1, 2"
        )
        return {(campaign, name): number for campaign, name, number in rows}

    async def differing(self) -> list[tuple[str, int, int]]:
        """What the self-audit finds of the day and the next."""
        days = [date(2024, 6, 1), date(2024, 6, 2)]
        found = [await compare_conversions(self.connection, day) for day in days]
        return [(each.what, each.first, each.second) for of_day in found for each in of_day]

    async def drain_all(
        self, *documents: dict[str, Any], at: int = AT, product: Product | None = None
    ) -> None:
        more = {} if product is None else {"product": product}
        await self.accept(*documents, at=at, **more)
        await self.round()


@pytest.fixture
async def bench(database: str, fresh_redis: str, tmp_path: Path) -> AsyncIterator[Clicks]:
    async with Clicks.open(database, fresh_redis, tmp_path) as bench:
        assert isinstance(bench, Clicks)
        await bench.prepare()
        yield bench


def anonymous(name: str, id: str, click: str | None = None, user: str | None = None) -> Any:
    sent = event(name, user or "", click=click, platform="ios")
    sent["identity"] |= {"anonymous_id": id}
    if user is None:
        del sent["identity"]["client_user_id"]
    return sent


# -- what counts ----------------------------------------------------------------------------------


async def test_an_event_with_a_click_id_counts_for_its_campaign(bench: Clicks) -> None:
    await bench.drain_all(event("register", at=AT, click=await bench.click("a")))
    (row,) = await bench.rows("select * from conversion_daily")
    assert row == (date(2024, 6, 1), "a", "a-banner", "acme", "register", 1, 0, 0, 0, True)
    assert await bench.flags() == {"register": []}


async def test_later_events_of_a_person_count_for_the_last_click(bench: Clicks) -> None:
    first, second = await bench.click("a", AT), await bench.click("b", AT + 60_000)
    await bench.drain_all(event("login", "u", AT))
    await bench.drain_all(event("register", "u", click=first))
    await bench.drain_all(event("login", "u", AT + 1), event("login", "stranger"))
    assert await bench.counted() == {("a", "register"): 1, ("a", "login"): 1}
    await bench.drain_all(event("email_verified", "u", click=second), event("login", "u", AT + 2))
    assert await bench.counted() == {
        ("a", "register"): 1,
        ("a", "login"): 1,
        ("b", "email_verified"): 1,
    }
    await bench.drain_all(event("phone_verified", "u"), at=AT + 120_000)
    assert (await bench.counted())["b", "phone_verified"] == 1


@pytest.mark.parametrize(
    "id", ["null", "undefined", "None", "0", " ", "{{click_id}}", "${CLICK_ID}", "%%CLICKID%%", "-"]
)
async def test_a_placeholder_for_a_click_id_counts_as_absent(bench: Clicks, id: str) -> None:
    await bench.drain_all(event("register", "u", click=await bench.click("a")))
    await bench.drain_all(event("login", "u", click=id), event("login", "stranger", click=id))
    assert await bench.counted() == {("a", "register"): 1, ("a", "login"): 1}
    assert await bench.rows("select click_id, flags from events where event = 'login'") == [
        (id, []), (id, []),
    ]  # fmt: skip


async def test_a_person_of_another_product_is_another_person(bench: Clicks) -> None:
    await bench.drain_all(event("register", "u", click=await bench.click("a")))
    await bench.drain_all(event("login", "u"), product=SHOP)
    assert await bench.counted() == {("a", "register"): 1}


async def test_an_anonymous_person_until_an_event_has_both_ids(bench: Clicks) -> None:
    await bench.drain_all(anonymous("app_install", "x", await bench.click("a")))
    await bench.drain_all(anonymous("app_open", "x"))
    await bench.drain_all(event("login", "u", AT))  # not known to be the same yet
    await bench.drain_all(anonymous("register", "x", user="u"))
    await bench.drain_all(event("login", "u", AT + 1), anonymous("app_uninstall", "x"))
    await bench.drain_all(event("login", "u", AT + 2), anonymous("app_open", "x", user="v"))
    assert await bench.counted() == {
        ("a", "app_install"): 1,
        ("a", "app_open"): 1,
        ("a", "register"): 1,
        ("a", "login"): 2,
        ("a", "app_uninstall"): 1,
    }
    assert len(await bench.rows("select from click_link")) == 1


async def test_backfilled_events_count_for_no_later_click(bench: Clicks) -> None:
    """Whether they name it or not; clocks may differ by as much as an event may be dated ahead."""
    click = await bench.click("a")
    early = [
        event(name, "u", AT - age, own, transaction_id=f"{name} {age}", **money(500))
        for name, own in (("deposit", click), ("withdraw", None))
        for age in (CLOCKS_MS + 1, DAY, 300 * DAY)
    ]
    for documents in ([event("register", "u", AT, click)], early, list(reversed(early))):
        read = read_batch(json.dumps(documents).encode(), CASINO, AT)
        assert isinstance(read, BatchResult)
        rows = [row_of(each, CASINO.name, AT, 0) for each in read.accepted]
        shown = [each.flag for each in await preview(bench.connection, rows)]
        await bench.drain_all(*documents)
        assert await bench.counted() == {("a", "register"): 1}
        if documents == early:
            assert shown == [LATER] * 3 + [""] * 3
            assert (await bench.flags())["deposit"][0] == LATER
    await bench.drain_all(
        event("login", "u", AT - CLOCKS_MS), event("email_verified", "u", AT - CLOCKS_MS, click)
    )
    assert await bench.counted() == {
        ("a", "register"): 1, ("a", "login"): 1, ("a", "email_verified"): 1,
    }  # fmt: skip


@pytest.mark.parametrize("id", ["null", "(none)", "0", "11111111-1111-1111-1111-111111111111"])
async def test_anonymous_clicks_count_for_no_later_event(bench: Clicks, id: str) -> None:
    """An event of nobody counts for the click that it names, and makes it no person's last."""
    click = await bench.click("a")
    await bench.drain_all(event("register", id, click=click), event("login", id))
    await bench.drain_all(anonymous("app_install", id, click), anonymous("app_open", id))
    assert await bench.counted() == {("a", "register"): 1, ("a", "app_install"): 1}
    assert await bench.rows("select from click_link") == []
    await bench.drain_all(anonymous("register", id, click, user="u"), event("login", "u"))
    await bench.drain_all(anonymous("app_open", id), anonymous("app_uninstall", id, user="v"))
    assert await bench.counted() == {
        ("a", "register"): 2, ("a", "app_install"): 1, ("a", "login"): 1,
    }  # fmt: skip
    stored = await bench.rows("select distinct anonymous_id from events where event = 'app_open'")
    assert stored == [(id,)]


async def test_the_window_of_a_campaign(bench: Clicks) -> None:
    clicks = {name: await bench.click(name) for name in ("a", "b")}
    for name, days in (("a", 30), ("b", 1)):
        end = AT + days * DAY
        await bench.drain_all(event("login", f"{name} in", click=clicks[name]), at=end)
        await bench.drain_all(event("login", f"{name} out", click=clicks[name]), at=end + 1)
        await bench.drain_all(event("email_verified", f"{name} in"), at=end)
        await bench.drain_all(event("phone_verified", f"{name} in"), at=end + 1)
    assert await bench.counted() == {
        (name, sent): 1 for name in ("a", "b") for sent in ("login", "email_verified")
    }
    flags = await bench.rows("select client_user_id, flags from events where event = 'login'")
    assert dict(flags) == {
        "a in": [], "b in": [], "a out": ["click_expired"], "b out": ["click_expired"],
    }  # fmt: skip


async def test_a_forged_foreign_or_altered_id_counts_nothing(bench: Clicks) -> None:
    good, random = await bench.click("a"), Random(12)
    texts = {"gclid-EAIaIQobChMI", "xy" * 30, good[:-1], f"{good}=", good.swapcase()}
    while len(texts) < 600:
        at = random.randrange(60)
        texts.add(good[:at] + random.choice("abcXYZ019-_") + good[at + 1 :])
    texts.discard(good)
    await bench.drain_all(
        *(event("login", f"u{n}", click=it) for n, it in enumerate(sorted(texts)))
    )
    assert await bench.counted() == {}
    assert await bench.rows("select distinct flags from events") == [(["click_invalid"],)]
    await bench.drain_all(event("login", "u1", click=good))
    assert await bench.counted() == {("a", "login"): 1}


async def test_a_click_counts_for_the_product_of_its_campaign_alone(bench: Clicks) -> None:
    await campaigns.replace_many(bench.connection, [document("own", product=SHOP.name)])
    click = await bench.click("own")
    await bench.drain_all(event("login", "u1", click=click), product=CASINO)
    assert await bench.counted() == {}
    assert await bench.rows("select flags from events") == [(["click_invalid"],)]
    await bench.drain_all(event("login", "u1", click=click), product=SHOP)
    assert await bench.counted() == {("own", "login"): 1}


async def test_a_campaign_takes_its_clicks_to_another_product(bench: Clicks) -> None:
    """A click id names the campaign; what was counted, and who came by it, stays."""
    await campaigns.replace_many(bench.connection, [document("own", product=CASINO.name)])
    click = await bench.click("own")
    await bench.drain_all(event("register", "u", click=click))
    await campaigns.replace_many(bench.connection, [document("own", product=SHOP.name)])
    await bench.drain_all(event("register", "v", click=click))
    await bench.drain_all(event("email_verified", "u"))
    await bench.drain_all(event("login", "v", click=click), product=SHOP)
    assert await bench.counted() == {
        ("own", "register"): 1, ("own", "email_verified"): 1, ("own", "login"): 1,
    }  # fmt: skip


async def test_flags_of_clicks_and_sequences_stand_together(bench: Clicks) -> None:
    await bench.drain_all(event("deposit", click="foreign", transaction_id="t", **money(1)))
    assert await bench.flags() == {"deposit": ["click_invalid", "reference_missing"]}
    await bench.drain_all(event("deposit_initiated", transaction_id="t", **money(1)))
    assert (await bench.flags())["deposit"] == ["click_invalid", "out_of_order"]


async def test_two_keys_count_during_a_rotation(bench: Clicks) -> None:
    ids = [await bench.click("a")]
    for _ in range(2):
        await conversions.rotate_keys(bench.connection)
        ids.append(await bench.click("a"))
    await bench.drain_all(*(event("login", f"u{n}", click=id) for n, id in enumerate(ids)))
    flags = await bench.rows("select flags from events order by client_user_id")
    assert flags == [(["click_invalid"],), ([],), ([],)]
    assert await bench.counted() == {("a", "login"): 2}


async def test_numbers_keep_their_campaign(bench: Clicks) -> None:
    """A campaign that is imported anew, changed or deleted, and creatives that are gone."""
    ids = {name: await bench.click(name) for name in ("a", "b")}
    other = [{"id": "other", "media": "banner", "w": 1, "h": 1, "adm": "{{click_id}}"}]
    await campaigns.replace_many(bench.connection, [document("a", creatives=other)])
    await campaigns.delete(bench.connection, "b")
    await bench.drain_all(*(event("login", name, click=id) for name, id in ids.items()))
    counted = await bench.rows("select campaign, creative from conversion_daily order by 1")
    assert counted == [("a", "a-banner"), ("b", "b-banner")]


async def test_a_number_that_the_warehouse_does_not_know_counts_as_itself(bench: Clicks) -> None:
    (key,) = (await conversions.fetch_keys(bench.connection)).values()
    id = key.make(Click(2**32 - 1, b"\0\1\2\3", 5, AT // 1000))
    await bench.drain_all(event("login", click=id))
    counted = await bench.rows("select campaign, creative, descriptor from conversion_daily")
    assert counted == [("#4294967295", "00010203", "#5")]


@pytest.mark.parametrize("removal", ["delete from campaign", "truncate campaign"])
async def test_clicks_of_a_deleted_campaign_count_as_before(bench: Clicks, removal: str) -> None:
    """For its product's events alone, and within its window."""
    await campaigns.replace_many(
        bench.connection, [document("c", attribution_days=2, product="casino")]
    )
    click = await bench.click("c")
    await bench.connection.execute(removal)
    await bench.drain_all(event("login", "u", click=click), at=AT + 2 * DAY)
    await bench.drain_all(event("login", "v", click=click), at=AT + 2 * DAY + 1)
    await bench.drain_all(event("login", "w", click=click), product=SHOP)
    assert await bench.counted() == {("c", "login"): 1}
    flags = await bench.rows("select client_user_id, flags from events")
    assert dict(flags) == {"u": [], "v": [EXPIRED], "w": [INVALID]}
    await campaigns.replace_many(bench.connection, [document("c")])
    await bench.drain_all(event("register", "w", click=click), product=SHOP)
    assert await bench.counted() == {("c", "login"): 1, ("c", "register"): 1}


# -- what it is worth -----------------------------------------------------------------------------


async def test_value_of_events(bench: Clicks) -> None:
    usd: Any = {"currency": "USD"}
    await bench.drain_all(event("register", "u", click=await bench.click("a")))
    bet: Any = {"game_type": "slot", "game_provider": "p", "bet_result": "win", **usd, "amount": 9}
    await bench.drain_all(
        event("deposit", "u", transaction_id="1", amount=100.25, **usd),
        event("deposit", "u", transaction_id="2", amount=50, **usd),
        event("deposit_failed", "u", transaction_id="3", attempted_amount=7, payment_method="c",
              failure_reason="unknown", **usd),
        event("withdraw", "u", transaction_id="4", amount=30.5, **usd),
        event("bet", "u", transaction_id="5", bet_result_amount=-20, **bet),
        event("bet", "u", transaction_id="6", bet_result_amount=5.5, **bet),
        event("bet", "u", transaction_id="7", bet_result_amount=99, is_free=True, **bet),
    )  # fmt: skip
    rows = await bench.rows(
        "select event, conversions, value_micros, first_deposits from conversion_daily order by 1"
    )
    assert rows == [
        ("bet", 3, 14_500_000, 0),
        ("deposit", 2, 150_250_000, 1),
        ("deposit_failed", 1, 0, 0),
        ("register", 1, 0, 0),
        ("withdraw", 1, -30_500_000, 0),
    ]


async def test_a_value_in_another_currency_is_that_of_the_days_rate(bench: Clicks) -> None:
    sent = event("deposit", "u", AT, await bench.click("a"), transaction_id="1", **money(10))
    await bench.drain_all(sent)
    (enriched, value) = (
        await bench.rows("select enrichment, c.value_micros from events, conversion_daily c")
    )[0]
    usd = json.loads(enriched)["amounts"]["amount"]["usd"]
    assert value == round(usd * 1_000_000) != 10_000_000


async def test_amounts_without_a_value_are_counted_separately(bench: Clicks) -> None:
    """A buyer sees that a campaign brought more than its figures say; 0 is the value of a 0."""
    await bench.drain_all(event("register", "u", click=await bench.click("a")))
    coins: Any = {"currency": "NOCOIN", "is_crypto": True}
    bet: Any = {"game_type": "slot", "game_provider": "p", "bet_result": "win", "amount": 9}
    await bench.drain_all(
        event("deposit", "u", transaction_id="1", amount=5, **coins),
        event("deposit", "u", transaction_id="2", amount=5, currency="USD"),
        event("deposit", "u", transaction_id="3", amount=0, currency="USD"),
        event("deposit", "u", transaction_id="4", amount=1_000_000_001, currency="USD"),
        event("withdraw", "u", transaction_id="5", amount=5, currency="VND"),
        event("bet", "u", transaction_id="6", bet_result_amount=-2, **bet, **coins),
        event("bet", "u", transaction_id="7", bet_result_amount=9, is_free=True, **bet, **coins),
        event("deposit", "other", transaction_id="8", amount=5, **coins),
    )
    rows = await bench.rows(
        "select event, conversions, value_micros, unvalued from conversion_daily order by 1"
    )
    assert rows == [("bet", 2, 0, 1), ("deposit", 4, 5_000_000, 2), ("register", 1, 0, 0),
                    ("withdraw", 1, 0, 1)]  # fmt: skip
    assert await bench.rows("select unvalued from campaign_performance") == [(4,)]
    assert await bench.differing() == []
    await bench.connection.execute("update conversion_daily set unvalued = 0 where event = 'bet'")
    assert await bench.differing() == [("unvalued of a a-banner acme bet", 0, 1)]


async def test_no_amount_keeps_an_event_from_being_stored(bench: Clicks) -> None:
    await bench.connection.execute(
        "insert into conversion_daily values"
        " ('2024-06-01', 'a', 'a-banner', 'acme', 'deposit', 1, 9223372036854775000, 0, 0, true)"
    )
    click = await bench.click("a")
    amounts = [1e308, 999_999_999, 1_000_000_001, 3]
    await bench.drain_all(
        *(
            event("deposit", f"u{n}", click=click, transaction_id=f"{n}", amount=amount,
                  currency="USD")
            for n, amount in enumerate(amounts)
        )
    )  # fmt: skip
    rows = await bench.rows("select conversions, value_micros from conversion_daily")
    assert rows == [(5, 2**63 - 1)]


async def test_events_count_on_the_day_of_acceptance(bench: Clicks) -> None:
    midnight = AT + DAY // 2
    click = await bench.click("a")
    for number, at in enumerate((midnight - 1, midnight)):
        await bench.drain_all(event("login", f"u{number}", AT, click), at=at)
    days = await bench.rows("select day, conversions from conversion_daily order by 1")
    assert days == [(date(2024, 6, 1), 1), (date(2024, 6, 2), 1)]


async def test_a_preview_shows_what_is_counted(bench: Clicks) -> None:
    """Repeats count nothing, of a stored event, or of one before in the batch; nor do conflicts."""
    random, received = Random(7), datetime.fromtimestamp(AT / 1000 + 60, UTC)
    clicks = [None, None, "foreign", *[await bench.click(name) for name in "ab"]]
    sent: list[dict[str, Any]] = []
    for number in range(12):
        documents = [
            event(random.choice(["login", "deposit"]), random.choice("uv"), AT + 100 * number + n,
                  random.choice(clicks), transaction_id=f"{number} {n}", **money(1))
            for n in range(8)
        ]  # fmt: skip
        sent += documents
        documents += deepcopy(random.choices(sent, k=4))
        documents[-1]["context"]["amount"] = 99
        read = read_batch(json.dumps(documents).encode(), CASINO, AT)
        assert isinstance(read, BatchResult)
        rows = [row_of(each, CASINO.name, AT + 60_000, 0) for each in read.accepted]
        found = await preview(bench.connection, rows)
        shown = [each.conversion for each in found if each.conversion is not None]
        before, first = await bench.counted(), await bench.rows(FIRST)
        await bench.drain_all(*documents, at=AT + 60_000)
        assert all(each.key.day == received.date() for each in shown)
        assert Counter((each.key.campaign, each.key.event) for each in shown) == Counter(
            await bench.counted()
        ) - Counter(before)
        added = sum(each.added.first_deposits for each in shown)
        assert await bench.rows(FIRST) == [(first[0][0] + added,)]


# -- exactly once ---------------------------------------------------------------------------------


async def test_repeats_and_conflicts_count_nothing(bench: Clicks) -> None:
    click, later = await bench.click("a"), await bench.click("b", AT + 1000)
    first = event("deposit", "u", AT, click, transaction_id="t", **money(10))
    other = event("deposit", "u", AT, later, transaction_id="t", **money(99))
    await bench.drain_all(first, first, other)
    await bench.drain_all(other, first, at=AT + DAY)
    assert await bench.counted() == {("a", "deposit"): 1}
    await bench.drain_all(event("login", "u"), at=AT + 2000)
    assert (await bench.counted())["a", "login"] == 1  # a conflict makes no click
    without = event("deposit", "v", AT, transaction_id="s", **money(10))
    await bench.drain_all(without, without | {"identity": other["identity"]})
    assert (await bench.counted())["a", "deposit"] == 1
    assert ("b", "deposit") not in await bench.counted()


async def test_a_transaction_that_fails_counts_nothing(bench: Clicks) -> None:
    click = await bench.click("a")
    await bench.connection.execute(
        "alter table events add constraint no_poison check (client_user_id <> 'poison')"
    )
    users = ["u1", "u2", "poison", "u3"]
    await bench.drain_all(*(event("login", user, AT, click) for user in users))
    assert await bench.counted() == {("a", "login"): 3}
    await bench.connection.execute("alter table events drop constraint no_poison")
    stores = {"SNAPBID_DATABASE_URL": bench.dsn, "SNAPBID_REDIS_URL": bench.redis_url}
    assert await replay(load(stores)) == 1
    await bench.round()
    assert await bench.counted() == {("a", "login"): 4}


@pytest.mark.parametrize("seed", range(3))
async def test_any_batches_count_the_same(bench: Clicks, seed: int) -> None:
    """Against a plain oracle: events with and without clicks and ids, repeated and cut anyhow."""
    random = Random(seed)
    issued = {}
    for number in range(16):
        campaign, back_ms = random.choice("ab"), random.choice((0, 20, 23, 25, 800)) * 3_600_000
        at = AT - back_ms + number * 1000
        days = 30 if campaign == "a" else 1
        click = Issued(campaign, f"{campaign}-banner", "acme", at // 1000 * 1000, days)
        issued[await bench.click(campaign, at)] = click
    happened, pending = list[Happened](), list[tuple[dict[str, Any], int]]()
    for number in range(400):
        at = AT + number * 40_000  # a third of a day in all
        user = random.choice([None, "u1", "u2", "u3", NOBODYS[0]])
        device = random.choice(["x1", "x2", NOBODYS[1]] if user is None else [None, "x1", "x2"])
        text = random.choice(
            [None, None, None, *NOBODYS, "foreign", *random.sample(list(issued), 2)]
        )
        occurred = AT + number - random.choice([0, 0, 1_800_000, CLOCKS_MS, 10 * CLOCKS_MS])
        name, amount = random.choice(["app_open", "deposit"]) if user else "app_open", 7
        more = {"transaction_id": f"t{number}"} | money(amount) if name == "deposit" else {}
        sent = event(name, user or "", occurred, text, platform="ios", **more | {
            "currency": "USD"})  # fmt: skip
        if user is None:
            del sent["identity"]["client_user_id"]
        if device is not None:
            sent["identity"]["anonymous_id"] = device
        value = amount * 1_000_000 if name == "deposit" else 0
        happened.append(Happened("casino", name, occurred, at, user, device, text, value))
        pending.append((sent, at))
        await bench.accept(sent, at=at)
        if random.random() < 0.3:  # again, amid later ones
            again, first_at = random.choice(pending[-5:])
            await bench.accept(again, at=first_at + 1)
        if random.random() < 0.1:
            await bench.round()
    await bench.round()
    expected = attribute(happened, issued)
    rows = await bench.rows(
        "select day, campaign, creative, descriptor, event, conversions, value_micros,"
        " first_deposits from conversion_daily"
    )
    assert {Sum(*row[:5]): row[5:] for row in rows} == expected.sums
    assert await bench.differing() == []
    flags = await bench.rows("select flags from events order by arrival")
    assert [next((each for each in own if each in FLAGS), "") for (own,) in flags] == expected.flags


# -- persons --------------------------------------------------------------------------------------


async def test_a_click_shows_whom_a_bid_request_named(bench: Clicks) -> None:
    """Audiences look a person up by the member in the click id."""
    (key,) = (await conversions.fetch_keys(bench.connection)).values()
    clicks = [Click(7, b"abcd", 5, AT // 1000, b"auction.", person) for person in (-81, 0)]
    await bench.drain_all(
        *(event("login", f"u{n}", click=key.make(it)) for n, it in enumerate(clicks))
    )
    user = PersonKey(await bench.connection.fetchval("select key from suppression_key"))
    assert await bench.rows("select person, member from person_link") == [
        (user.user("casino", "u0"), -81)
    ]


# -- privacy and retention ------------------------------------------------------------------------


async def test_links_are_anonymous_and_expire(bench: Clicks) -> None:
    await bench.drain_all(event("register", "somebody", click=await bench.click("b")))
    (row,) = await bench.connection.fetch("select * from click_link")
    assert b"somebody" not in repr(tuple(row)).encode()
    end = datetime.fromtimestamp(AT / 1000, UTC) + timedelta(days=1)
    assert row["expires_at"] == end
    assert await conversions.delete_expired(bench.connection, end) == 0
    assert await conversions.delete_expired(bench.connection, end + timedelta(seconds=1)) == 1


async def test_forget_removes_links_and_keeps_sums(bench: Clicks) -> None:
    click = await bench.click("a")
    await bench.drain_all(
        event("register", "u", click=click), anonymous("app_install", "x", click),
        event("register", "other", click=click),
    )  # fmt: skip
    async with bench.connection.transaction():
        await products.add(bench.connection, "casino", ("igaming",))
        asked = forgetting.Asked(["u", "x"])
        done = await forgetting.forget(bench.connection, asked, consents=True)
    assert (done.removed["events"], done.removed["click_links"]) == (2, 2)
    assert await bench.counted() == {("a", "register"): 2, ("a", "app_install"): 1}
    await bench.drain_all(event("login", "u"), event("login", "other"))
    assert (await bench.counted())["a", "login"] == 1
    assert await bench.differing() == []


# -- the self-audit -------------------------------------------------------------------------------


async def bought(bench: Clicks) -> None:
    """A click of `u` that brings a registration and two deposits, one of them the first."""
    click = await bench.click("a")
    paid = [
        event("deposit", "u", transaction_id=f"{n}", amount=10, currency="USD") for n in range(2)
    ]
    await bench.drain_all(event("register", "u", click=click), *paid, event("login", "other"))


@pytest.mark.parametrize(
    ("defect", "found"),
    [
        ("select", []),
        ("update conversion_daily set conversions = conversions + 1 where event = 'deposit'",
         [("conversions of a a-banner acme deposit", 3, 2)]),
        ("update conversion_daily set value_micros = value_micros - 1 where event = 'deposit'",
         [("value of a a-banner acme deposit", 19_999_999, 20_000_000)]),
        ("update conversion_daily set first_deposits = 0",
         [("first deposits of a a-banner acme deposit", 0, 1)]),
        ("delete from conversion_daily where event = 'register'",
         [("conversions of a a-banner acme register", 0, 1)]),
        ("delete from events where event = 'register'",
         [("conversions of a a-banner acme register", 1, 0)]),
        ("delete from events where first_deposit",
         [("conversions of a a-banner acme deposit", 2, 1),
          ("first deposits of a a-banner acme deposit", 1, 0),
          ("value of a a-banner acme deposit", 20_000_000, 10_000_000)]),
        ("update events set campaign = 'b' where event = 'register'",
         [("conversions of a a-banner acme register", 1, 0),
          ("conversions of b a-banner acme register", 0, 1)]),
    ],
)  # fmt: skip
async def test_the_audit_finds_conversions_that_differ_from_the_events(
    bench: Clicks, defect: str, found: list[tuple[str, int, int]]
) -> None:
    await bought(bench)
    await bench.connection.execute(defect)
    assert await bench.differing() == found


async def test_an_auditor_names_conversions_and_their_day(bench: Clicks) -> None:
    await bought(bench)
    auditor = Auditor(bench.redis, 1, lambda: (AT + DAY) / 1000)
    assert await auditor.audit(bench.connection) == []
    await bench.connection.execute("delete from conversion_daily where event = 'register'")
    what = "conversions of a a-banner acme register on 2024-06-01"
    assert await auditor.audit(bench.connection) == [Difference("conversions", what, 0, 1)]


async def test_corrections_and_days_whose_events_are_gone_are_no_difference(bench: Clicks) -> None:
    await bought(bench)
    await bench.connection.execute(
        "insert into conversion_daily values"
        " ('2024-06-01', 'a', 'a-banner', 'acme', 'register', -1, 0, 0, 0)"
    )
    assert await bench.differing() == []
    bench.drain = EventDrain(
        bench.redis, bench.metrics, *bench.references, lambda: (AT + 2 * DAY) / 1000, keep_days=1
    )
    await bench.connection.execute("drop table events_202406")
    await bench.drain_all(event("login", "late"), at=AT + 2 * DAY)
    assert (await bench.counted())["a", "register"] == 0
    assert await bench.differing() == []


# -- performance ----------------------------------------------------------------------------------


async def test_the_performance_of_campaigns(bench: Clicks) -> None:
    await bench.connection.execute(
        "insert into campaign_daily (day, campaign, bids, wins, imps, spend_micros) values"
        " ('2024-06-01', 'a', 10, 4, 3, 30000000), ('2024-06-02', 'a', 1, 1, 1, 10000000),"
        " ('2024-06-01', 'idle', 5, 0, 0, 0)"
    )
    click = await bench.click("a")
    usd: Any = {"currency": "USD"}
    await bench.drain_all(
        *(event("register", f"u{n}", click=click) for n in range(4)),
        event("deposit", "u1", transaction_id="1", amount=100, **usd),
        event("deposit", "u1", transaction_id="2", amount=20, **usd),
        event("withdraw", "u1", transaction_id="3", amount=50, **usd),
        event("bet", "u1", transaction_id="4", game_type="slot", game_provider="p", amount=80,
              bet_result="loss", bet_result_amount=-80, **usd),
    )  # fmt: skip
    rows = await bench.connection.fetch("select * from campaign_performance order by campaign")
    a, idle = (dict(row) for row in rows)
    assert json.loads(a.pop("conversions")) == {
        "register": 4,
        "deposit": 2,
        "withdraw": 1,
        "bet": 1,
    }
    assert {name: float(value) for name, value in a.items() if name != "campaign"} == {
        "bids": 11, "wins": 5, "imps": 4, "spend": 40, "registrations": 4, "first_deposits": 1,
        "net_deposits": 70, "gross_revenue": 80, "cost_per_registration": 10,
        "cost_per_first_deposit": 40, "return_on_spend": 2, "unvalued": 0,
    }  # fmt: skip
    assert (idle["campaign"], idle["bids"]) == ("idle", 5)
    assert idle["cost_per_registration"] is idle["return_on_spend"] is None
    of_day = await bench.rows(
        "select bids, spend from campaign_performance('2024-06-02', '2024-06-02')"
    )
    assert [(bids, float(spend)) for bids, spend in of_day] == [(1, 10.0)]
