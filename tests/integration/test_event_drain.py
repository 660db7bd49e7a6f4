"""The drain of events against a real Redis and warehouse: stored once, enriched, never blocked."""

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from support.event_bench import Bench
from support.sending import NOW, cashed_out, claimed, event, money, offered

from snapbid.base.redis_keys import ShardKeys
from snapbid.base.settings import load
from snapbid.drain.replay import replay
from snapbid.embedded import Home
from snapbid.events.outcomes import Product
from snapbid.queues import queue
from snapbid.warehouse import rates

# -- stored ---------------------------------------------------------------------------------------


async def test_an_event_as_it_is_stored(bench: Bench) -> None:
    sent = event(
        "deposit", "üser", 1_717_200_000_123, "click", ip_address="8.8.8.8",
        transaction_id="t", amount=10.5, currency="eur", own={"kept": [1, None, "é"]},
    )  # fmt: skip
    (event_id,) = await bench.accept(sent, at=1_717_200_001_456)
    assert await bench.round() == 1
    (row,) = await bench.connection.fetch("select * from events")
    assert row["event_id"] == event_id
    assert (row["product"], row["event"]) == ("casino", "deposit")
    assert row["occurred_at"] == datetime(2024, 6, 1, 0, 0, 0, 123_000, UTC)
    assert row["received_at"] == datetime(2024, 6, 1, 0, 0, 1, 456_000, UTC)
    assert (row["client_user_id"], row["anonymous_id"]) == ("üser", None)
    assert row["click_id"] == "click"
    context = json.loads(row["context"])
    assert (context["currency"], context["amount"]) == ("EUR", 10.5)
    assert context["own"] == {"kept": [1, None, "é"]}
    enrichment = json.loads(row["enrichment"])
    assert enrichment["geo"]["country"] == "US"
    assert enrichment["user_agent"] is None
    assert enrichment["amounts"]["amount"]["rate_date"] == "2024-05-31"
    assert row["flags"] == ["click_invalid", "reference_missing"]


async def test_an_id_is_stored_once_whatever_is_repeated(bench: Bench) -> None:
    sent = [event("login", f"u{number}") for number in range(50)]
    ids = await bench.accept(*sent, *sent)
    await bench.accept(*sent)
    await bench.round()
    await bench.accept(*reversed(sent))
    await bench.round()
    assert sorted(await bench.rows("select event_id from events")) == sorted({(id,) for id in ids})
    assert not await bench.rows("select * from event_conflicts")


@pytest.mark.parametrize("rounds", [1, 3])
async def test_the_first_is_kept_and_others_conflict(bench: Bench, rounds: int) -> None:
    def paid(amount: float) -> dict[str, Any]:
        return event("withdraw", transaction_id="t", **money(amount))

    for amount in (5, 6, 5, 6, 7):
        await bench.accept(paid(amount))
        if rounds > 1:
            await bench.round()
    await bench.round()
    amounts = "select event_id, product, (context ->> 'amount')::int from"
    (kept,) = await bench.rows(f"{amounts} events")
    assert kept[1:] == ("casino", 5)
    conflicts = await bench.rows(f"{amounts} event_conflicts order by 3")
    assert conflicts == [(kept[0], "casino", 6), (kept[0], "casino", 7)]


@pytest.mark.parametrize(
    "changed",
    [
        {"timestamp": NOW + 1},
        {"identity": {"client_user_id": "u-1", "click_id": "other"}},
        {"identity": {"client_user_id": "u-1"}},
        {"identity": {"client_user_id": "u-1", "click_id": "c", "anonymous_id": "a"}},
        {"context": {"transaction_id": "t", "ip_address": "192.0.2.1", **money(5), "own": 1}},
        {"context": {"transaction_id": "t", "ip_address": "192.0.2.2", **money(5)}},
        {"context": {"transaction_id": "t", "ip_address": "192.0.2.1", **money(5.01)}},
    ],
    ids=lambda changed: next(iter(changed)),
)
async def test_an_event_that_differs_in_anything_conflicts(
    bench: Bench, changed: dict[str, Any]
) -> None:
    first = event("withdraw", "u-1", NOW, "c", transaction_id="t", **money(5))
    assert await bench.accept(first) == await bench.accept(first | changed)
    await bench.round()
    assert len(await bench.rows("select from events")) == 1
    assert len(await bench.rows("select from event_conflicts")) == 1


async def test_storing_again_changes_nothing(bench: Bench) -> None:
    """What happens where the drain dies between the commit and the deletion of the entries."""
    documents = [offered("b"), claimed("b"), cashed_out("b", 5), event("login")]
    documents += [event("withdraw", transaction_id="t", **money(amount)) for amount in (1, 2)]
    await bench.accept(*documents)
    await bench.add(b"\xc1 is no MessagePack")
    entries: Any = await bench.redis.xrange(ShardKeys(0).events)
    everything = [
        "select * from events order by arrival",
        "select * from event_conflicts",
        "select number, payload, reason from event_dead_letters",
    ]
    await bench.round()
    before = [await bench.rows(sql) for sql in everything]
    assert [len(rows) for rows in before] == [5, 1, 1]
    for _, fields in entries:
        await bench.add(*fields.values())
    await bench.round()
    assert [await bench.rows(sql) for sql in everything] == before


async def test_products_are_kept_apart(bench: Bench) -> None:
    sent = offered("b"), claimed("b")
    await bench.accept(sent[0])
    await bench.accept(sent[1], product=Product("other", frozenset({"igaming"})))
    await bench.round()
    assert await bench.flags() == {"bonus_offered": [], "bonus_claimed": ["reference_missing"]}
    states = await bench.rows("select product, state from bonus_status order by product")
    assert states == [("casino", "offered"), ("other", "claimed")]


async def test_hostile_values_are_stored(bench: Bench) -> None:
    long = "\U0001d535" * 1024  # four bytes each
    await bench.accept(
        offered(long), claimed(long),
        event("deposit_initiated", transaction_id=long, **money(1e308)),
        event("deposit", transaction_id=long, **money(5e-324)),
        event("login", "\u0001\\\"'%s{}", user_agent="x" * 1024, deep=[[[[[{"a": 1e300}]]]]]),
    )  # fmt: skip
    await bench.round()
    assert len(await bench.rows("select * from events")) == 5
    assert not await bench.rows("select * from event_dead_letters")
    assert await bench.rows("select bonus_id from bonus_status") == [(long,)]


# -- dead letters ---------------------------------------------------------------------------------


async def refuse(bench: Bench) -> None:
    """The warehouse takes no event of a user who is refused."""
    await bench.connection.execute(
        "alter table events add constraint refused check (client_user_id not like 'refused%')"
    )


async def test_one_event_that_is_refused_blocks_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture, embedded_home: Home
) -> None:
    await refuse(bench)
    names = [f"u{number}" for number in range(200)]
    for place in (0, 77, 78, 199):
        names[place] = f"refused-{place}"
    await bench.accept(*(event("login", name) for name in names))
    await bench.add(b"broken", queue.encode(NOW, "casino", [("ev1-x", b"{}"), ("ev1-y", b"\0")]))
    assert await bench.round() == 202
    kept = await bench.rows("select client_user_id from events order by arrival")
    assert [name for (name,) in kept] == [name for name in names if "refused" not in name]
    letters = await bench.rows("select event_id, product, reason from event_dead_letters")
    assert len(letters) == 7
    assert {reason for _, _, reason in letters} == {
        "cannot be read: DecodeError",
        "cannot be read: KeyError",
        "cannot be read: ValidationError",
        "refused: CheckViolationError (23514)",
    }
    assert "refused-" not in caplog.text
    logs = [path.read_text() for path in embedded_home.log.iterdir()]
    assert any('violates check constraint "refused"' in text for text in logs)
    assert not any("refused-" in text for text in logs)

    assert await replayed(bench) == 7
    assert await bench.round() == 6
    assert len(await bench.rows("select number from event_dead_letters")) == 7
    await bench.connection.execute("alter table events drop constraint refused")
    assert await replayed(bench) == 7
    await bench.round()
    assert len(await bench.rows("select number from event_dead_letters")) == 3
    users = {name for (name,) in await bench.rows("select client_user_id from events")}
    assert users == set(names)


async def replayed(bench: Bench) -> int:
    stores = {"SNAPBID_DATABASE_URL": bench.dsn, "SNAPBID_REDIS_URL": bench.redis_url}
    return await replay(load(stores))


# -- rates ----------------------------------------------------------------------------------------


async def usd(bench: Bench, user: str, currency: str, **more: Any) -> Any:
    await bench.accept(
        event("withdraw", user, 1_717_200_000_000, transaction_id=user, amount=2,
              currency=currency, **more)
    )  # fmt: skip
    await bench.round()
    ((text,),) = await bench.rows("select enrichment from events where client_user_id = $1", user)
    return json.loads(text)["amounts"]["amount"]["usd"]


async def test_rates_of_the_operator_reach_a_running_drain(bench: Bench) -> None:
    assert await usd(bench, "1", "BTC", is_crypto=True) is None
    euros = await usd(bench, "2", "EUR")
    await rates.replace_many(
        bench.connection,
        [("BTC", date(2024, 6, 1), Decimal("67543.21")), ("EUR", date(2024, 6, 2), Decimal(9))],
    )
    assert await usd(bench, "3", "BTC", is_crypto=True) == 135_086.42
    assert await usd(bench, "4", "EUR") == euros
    await bench.connection.execute("update operator_rate set day = '2024-01-01', usd = 4")
    assert await usd(bench, "5", "EUR") == 8


# -- much of it -----------------------------------------------------------------------------------


async def test_rounds_of_many(bench: Bench) -> None:
    choose = random.Random(7)
    sent = [event("login", f"u{choose.randrange(4_000)}") for _ in range(9_000)]
    for start in range(0, len(sent), 600):
        await bench.accept(*sent[start : start + 600])
    while await bench.redis.xlen(ShardKeys(0).events):
        await bench.drain.round(bench.connection)
    ((count,),) = await bench.rows("select count(*) from events")
    assert count == len({each["identity"]["client_user_id"] for each in sent})
