"""Whom `snapbid forget` means: a person in a product, and no namesake; in any spelling."""

import json
import uuid
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.event_bench import Bench, accepted
from support.sending import NOW, cashed_out, event, offered

from snapbid.campaigns.click_id import Click
from snapbid.campaigns.persons import PersonKey
from snapbid.campaigns.suppression import cap_names
from snapbid.drain import forgetting
from snapbid.drain.forgetting import Asked, ConsentError, ForgetError, Forgotten
from snapbid.events.catalog import EVENTS
from snapbid.events.outcomes import Product
from snapbid.queues import queue
from snapbid.warehouse import audiences, conversions, events, persons, products, registry

CASINO, SHOP = (Product(name, frozenset({"igaming"})) for name in ("casino", "shop"))
DEVICE = "4906e7ca-29bd-4bb5-9f73-2f1d47f9b0ab"
SPELLINGS = (
    DEVICE, DEVICE.upper(), DEVICE.replace("-", ""), DEVICE.replace("-", "").upper(),
    f"{{{DEVICE}}}", f"{{{DEVICE.upper()}}}", f" {DEVICE}\t",
)  # fmt: skip
AT = NOW - 1_000
MONEY: dict[str, Any] = {"transaction_id": "t-1", "amount": 5, "currency": "USD"}


@pytest.fixture
async def bench(database: str, fresh_redis: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench.open(database, fresh_redis, tmp_path) as bench:
        for product in (CASINO, SHOP):
            await products.add(bench.connection, product.name, ("igaming",))
        for ssp in ("acme", "nova"):
            await registry.add(bench.connection, ssp)
        yield bench


async def carry(bench: Bench, product: Product, *documents: dict[str, Any]) -> None:
    await bench.add(queue.encode(NOW, product.name, accepted(product, *documents)))
    while await bench.drain.round(bench.connection):
        pass


async def forget(bench: Bench, *ids: str, consents: bool = False, **where: Any) -> Forgotten:
    async with bench.connection.transaction():
        return await forgetting.forget(bench.connection, Asked(ids, **where), consents=consents)


async def kept(bench: Bench) -> list[tuple[str, str]]:
    """The users whose events are not emptied, with their products."""
    rows = await bench.rows(
        "select product, client_user_id from events where context <> '{}' order by arrival"
    )
    return [(product, user) for product, user in rows]


async def excluded(bench: Bench, device: str) -> set[str]:
    key = PersonKey((await persons.fetch_suppression(bench.connection)).key)
    rows = await bench.rows(
        "select product from audience_member join audience on number = audience"
        " where id is null and member = $1 and until > now()",
        key.member("ifa", device),
    )
    return {product for (product,) in rows}


def blocked(user: str, at: int = AT, **context: Any) -> dict[str, Any]:
    return event("account_blocked", user, at=at, block_reason="self_exclusion", **context)


# -- what identifies a person ---------------------------------------------------------------------


@pytest.mark.parametrize("id", ["USD", "t-1", "visa", "Mozilla/5.0"])
async def test_placeholder_ids_mean_nobody(bench: Bench, id: str) -> None:
    paid = event("deposit", "u", payment_method="visa", user_agent="Mozilla/5.0", **MONEY)
    await carry(bench, CASINO, paid)
    done = await forget(bench, id)
    assert (done.removed["events"], await kept(bench)) == (0, [("casino", "u")])
    await carry(bench, CASINO, event("deposit", "v", **MONEY | {"transaction_id": "t-2"}))
    assert await kept(bench) == [("casino", "u"), ("casino", "v")]


async def test_every_field_that_holds_an_id_is_one(bench: Bench) -> None:
    """Of the catalog those that say so; outside of it all, however deep."""
    fields = {field.path: field for name in EVENTS for field in EVENTS[name].context_fields()}
    holds = {path for path, field in fields.items() if field.identifies is not None}
    assert holds == {
        "context.device_id", "context.referral_client_user_id", "context.email_hash",
        "context.phone_hash", "context.privacy.email_hash", "context.privacy.phone_hash",
    }  # fmt: skip
    hashed = "ab" * 32
    await carry(
        bench, CASINO,
        event("login", "a", device_id="d-1"),
        event("referral_register", "b", referral_client_user_id="d-1"),
        event("login", "c", privacy={"email_hash": hashed}),
        event("phone_verified", "d", phone_hash=hashed.upper()),
        event("login", "e", own={"ids": ["x", "d-1"]}),
        event("login", "f", click="d-1"),
        event("login", "g", note="d-12"),
    )  # fmt: skip
    done = await forget(bench, "d-1", hashed, consents=True)
    assert (done.removed["events"], done.users) == (6, 4)
    assert await kept(bench) == [("casino", "b"), ("casino", "e"), ("casino", "g")]


async def test_others_events_lose_only_the_id(bench: Bench) -> None:
    """Those of whom the person referred, and those with a text that is like the id: before and
    after it is forgotten.
    """

    def events_of(letter: str) -> list[dict[str, Any]]:
        click = f"click-{letter}"
        return [
            event("referral_register", f"new-{letter}", click=click, referral_client_user_id="7"),
            event("login", f"lucky-{letter}", level="7", own={"ids": ["x", "7"], "n": 7}),
        ]

    await carry(bench, CASINO, *events_of("a"))
    done = await forget(bench, "7", products=["casino"])
    assert (done.removed["events"], done.users) == (2, 0)
    await carry(bench, CASINO, *events_of("b"), event("login", "7"))
    rows = await bench.rows(
        "select client_user_id, click_id, (context::jsonb - 'ip_address')::text from events"
        " order by client_user_id"
    )
    own = {"own": {"ids": ["x"], "n": 7}}
    assert [(user, click, json.loads(context)) for user, click, context in rows] == [
        ("lucky-a", None, own), ("lucky-b", None, own), ("new-a", "click-a", {}),
        ("new-b", "click-b", {}), (None, None, {}),
    ]  # fmt: skip


async def test_an_event_of_the_forgotten_empties_no_other_with_its_id(bench: Bench) -> None:
    """A transaction's id may come from two persons, in one batch of the drain."""
    await forget(bench, "gone", products=["casino"])
    for first, second in (("good", "gone"), ("gone", "good")):
        money = MONEY | {"transaction_id": f"t-{first}"}
        sent = [event("deposit", user, payment_method=user, **money) for user in (first, second)]
        await carry(bench, CASINO, *sent)
    assert await bench.rows(
        "select client_user_id, context ->> 'payment_method' from events order by 1"
    ) == [("good", "good"), (None, None)]
    assert await bench.rows(
        "select client_user_id, context ->> 'payment_method' from event_conflicts order by 1"
    ) == [("good", "good"), (None, None)]


async def test_conflicting_payloads_of_others_stay(bench: Bench) -> None:
    sent = [event("deposit", user, payment_method=user, **MONEY) for user in ("u", "other")]
    await carry(bench, CASINO, *sent)
    assert (await forget(bench, "u")).removed["event_conflicts"] == 0
    assert await bench.rows("select client_user_id from event_conflicts") == [("other",)]


@pytest.mark.parametrize("stored", SPELLINGS)
async def test_an_id_is_forgotten_in_any_spelling(bench: Bench, stored: str) -> None:
    """Stored and to come: of a device, of a user, in conflicting payloads and dead letters."""
    sent = event("login", "u", device_id=stored)
    await carry(bench, CASINO, sent, event("login", f"x{stored.strip()}", note="another's"))
    await carry(bench, CASINO, event("login", stored.strip()))
    envelope = json.dumps(event("login", "z", device_id=stored)).encode()
    payload = queue.encode(NOW, "casino", [("dead", envelope)])
    letters = [events.DeadLetter("dead", "casino", None, "poison", payload)]
    await events.dead_letter(bench.connection, letters)
    await bench.connection.execute(
        "insert into event_conflicts (event_id, product, client_user_id, context, digest) values"
        " ('other', 'casino', 'z', $1, 'd')", json.dumps({"device_id": stored}),
    )  # fmt: skip
    done = await forget(bench, DEVICE, consents=True)
    assert [done.removed[each] for each in ("events", "event_conflicts", "event_dead_letters")] == [
        2, 1, 1,
    ]  # fmt: skip
    assert await kept(bench) == [("casino", f"x{stored.strip()}")]
    for number, spelt in enumerate(SPELLINGS):
        await carry(bench, CASINO, event("login", f"later-{number}", device_id=spelt))
    assert await kept(bench) == [("casino", f"x{stored.strip()}")]
    assert f"ifa {DEVICE.replace('-', '')}" in done.caps


@pytest.mark.parametrize(
    ("id", "plain"),
    [
        ("ann@example.com", "ann@example.com"),
        ("ANN@Example.com", "ann@example.com"),
        ("mailto:ann@example.com?subject=x", "ann@example.com"),
        ("+442079460000", "+442079460000"),
        (" +44 (20) 7946-0000", "+442079460000"),
    ],
)
async def test_addresses_and_numbers_are_hashed(bench: Bench, id: str, plain: str) -> None:
    hashed = sha256(plain.encode()).hexdigest()
    await carry(
        bench, CASINO,
        event("login", "u", privacy={"email_hash": hashed.upper()}),
        event("login", "v", privacy={"email_hash": sha256(b"+1").hexdigest()}),
    )  # fmt: skip
    done = await forget(bench, id)
    assert (done.removed["events"], done.hashed) == (1, 1)
    await carry(bench, SHOP, event("phone_verified", "w", phone_hash=hashed))
    assert await kept(bench) == [("casino", "v")]


async def test_an_address_may_be_a_user_id(bench: Bench) -> None:
    await carry(bench, CASINO, event("login", "Ann@example.com"), event("login", "4711"))
    assert (await forget(bench, "Ann@example.com")).removed["events"] == 1
    assert (await forget(bench, "4711", "ann")).hashed == 0
    assert await kept(bench) == []


async def test_no_dead_letter_is_kept_of_the_forgotten(bench: Bench) -> None:
    """Of an event that comes later and cannot be stored; others' are kept."""
    await forget(bench, "u", products=["casino"])
    await bench.connection.execute("alter table events add constraint no check (event <> 'login')")
    for name in ("u", "v"):
        await carry(bench, CASINO, event("login", name))
    await carry(bench, SHOP, event("login", "u"))
    assert await bench.rows("select from events") == []
    rows = await bench.rows("select product, payload from event_dead_letters order by number")
    assert [(product, b'"v"' in payload) for product, payload in rows] == [
        ("casino", True),
        ("shop", False),
    ]


async def test_dead_letters_of_others_stay(bench: Bench) -> None:
    others = [event("login", user, note="1001 or so") for user in ("10010", "x", "USD", "1001")]
    letters = []
    for number, document in enumerate(others):
        payload = queue.encode(NOW, "casino", [(f"e{number}", json.dumps(document).encode())])
        letters.append(events.DeadLetter(f"e{number}", "casino", None, "poison", payload))
    letters.append(events.DeadLetter(None, None, None, "unreadable", b'\xff\x00"1001"'))
    letters.append(events.DeadLetter(None, None, None, "unreadable", b"\xff\x00 1001"))
    await events.dead_letter(bench.connection, letters)
    assert (await forget(bench, "1001", products=["shop"])).removed["event_dead_letters"] == 1
    assert (await forget(bench, "1001", products=["casino"])).removed["event_dead_letters"] == 1
    assert len(await bench.rows("select from event_dead_letters")) == 4


async def test_conflicts_belong_to_their_senders(bench: Bench) -> None:
    """Also where the stored event is another's, and where nothing else is known of the sender."""
    sent = [event("deposit", user, payment_method=user, **MONEY) for user in ("first", "u", "v")]
    sent.append(event("deposit", "w", payment_method="w", **MONEY))
    sent[-1]["identity"]["anonymous_id"] = "a"
    await carry(bench, CASINO, *sent)
    kept_of = "select context ->> 'payment_method' from event_conflicts order by 1"
    assert await bench.rows(kept_of) == [("u",), ("v",), ("w",)]
    done = await forget(bench, "u", "a")
    assert (done.removed["event_conflicts"], done.places) == (2, ["product casino"])
    assert await bench.rows(kept_of) == [("v",)]
    assert await kept(bench) == [("casino", "first")]


async def test_conflicts_of_unknown_senders_are_removed(bench: Bench) -> None:
    """Version 0.1.0 stored none: any of them may be the person's."""
    await bench.connection.execute(
        "insert into event_conflicts (event_id, product, context, digest) values"
        " ('earlier', 'casino', '{\"payment_method\": \"visa\"}', 'd'),"
        " ('empty', 'casino', '{}', 'e')"
    )
    assert (await forget(bench, "u")).removed["event_conflicts"] == 1
    assert await bench.rows("select event_id from event_conflicts") == [("empty",)]


async def test_bonuses_of_the_forgotten_have_no_status(bench: Bench) -> None:
    for user in ("u", "v", "w"):
        theirs = [offered(f"bonus-{user}"), cashed_out(f"bonus-{user}", 50)]
        for document in theirs:
            document["identity"] = {"client_user_id": user}
        await carry(bench, CASINO, *theirs)
    await forget(bench, "u")
    await forget(bench, "v")
    assert await bench.rows("select bonus_id, state, cashed_out from bonus_status") == [
        ("bonus-w", "cashed_out", 50)
    ]


# -- where ----------------------------------------------------------------------------------------


async def test_a_namesake_in_another_product_is_another_person(bench: Bench) -> None:
    mine, his = str(uuid.uuid4()), str(uuid.uuid4())
    await carry(bench, CASINO, blocked("1001", device_id=mine))
    await carry(bench, SHOP, blocked("1001", device_id=his))
    with pytest.raises(ForgetError, match=r"user of product casino, product shop, which may be"):
        await forget(bench, "1001", consents=True)
    done = await forget(bench, "1001", products=["casino"], consents=True)
    assert (done.places, done.removed["events"], done.excluded) == (["product casino"], 1, 1)
    assert (await excluded(bench, mine), await excluded(bench, his)) == (set(), {"shop"})
    await carry(bench, SHOP, event("account_unblocked", "1001", at=AT + 1,
                                   unblock_reason="cooldown_ended"))  # fmt: skip
    assert await excluded(bench, his) == set()
    await carry(bench, SHOP, blocked("1001", AT + 2), event("login", "1001", note="1001"))
    assert await excluded(bench, his) == {"shop"}
    assert await kept(bench) == [("shop", "1001")] * 4


async def test_a_namesake_is_seen_where_no_event_is_left(bench: Bench) -> None:
    for product in (CASINO, SHOP):
        await carry(bench, product, event("login", "1001", device_id=str(uuid.uuid4())))
    await bench.connection.execute("delete from events")
    with pytest.raises(ForgetError, match="--everywhere"):
        await forget(bench, "1001")
    done = await forget(bench, "1001", everywhere=True)
    assert done.places == ["product casino", "product shop", "ssp acme", "ssp nova"]
    assert await bench.rows("select from person_link") == []


async def test_a_user_of_an_ssp_is_forgotten_there(bench: Bench) -> None:
    key = PersonKey((await persons.fetch_suppression(bench.connection)).key)
    at = {name: key.member("user", "1001", name) for name in ("acme", "nova")}
    await audiences.add_list(bench.connection, "own", sorted(at.values()))
    with pytest.raises(ForgetError, match=r"ssp acme, ssp nova"):
        await forget(bench, "1001")
    done = await forget(bench, "1001", ssps=["acme"])
    assert "user acme 1001" in done.caps
    rows = await bench.rows("select member from audience_member where until > now()")
    assert rows == [(at["nova"],)]
    suppression = await persons.fetch_suppression(bench.connection)
    assert suppression.has_user("user acme 1001")
    assert not suppression.has_user("user nova 1001")
    assert "user acme 1001" not in (await forget(bench, "1001", products=["shop"])).caps


async def test_a_user_is_forgotten_under_former_canonical_ids(bench: Bench) -> None:
    key = PersonKey((await persons.fetch_suppression(bench.connection)).key)
    await registry.add(bench.connection, "acme-eu", "acme-eu")
    await audiences.add_list(bench.connection, "own", [key.member("user", "1001", "acme-eu")])
    await registry.add(bench.connection, "acme-eu", "acme")
    assert await registry.fetch_former_ids(bench.connection) == {"acme-eu": ("acme-eu",)}
    done = await forget(bench, "1001")
    assert done.places == ["ssp acme"]
    assert {"user acme 1001", "user acme-eu 1001"} <= set(done.caps)
    assert await bench.rows("select member from audience_member where until > now()") == []


def test_names_of_users_in_caps() -> None:
    everywhere = ["buyeruid {A-b}", "ifa ab", "eid {a-b}"]
    assert cap_names("{A-b}") == everywhere
    of = ["user acme {A-b}", "user nova {A-b}"]
    assert cap_names("{A-b}", ["acme", "nova"]) == of + everywhere


# -- self-exclusion -------------------------------------------------------------------------------


async def test_forgotten_persons_can_self_exclude(bench: Bench) -> None:
    """By every id that his events then show, forgotten ones too; nothing else is kept of them."""
    old, new = str(uuid.uuid4()), str(uuid.uuid4())
    await carry(bench, CASINO, blocked("u", device_id=old))
    with pytest.raises(ConsentError, match="1 person has self-excluded"):
        await forget(bench, "u", old)
    assert await excluded(bench, old) == {"casino"}
    assert (await forget(bench, "u", old, consents=True)).excluded == 1
    assert await excluded(bench, old) == set()
    await carry(bench, CASINO, event("login", "u", at=AT + 1, device_id=old))
    assert await bench.rows("select from person_link") == []
    await carry(bench, CASINO, blocked("u", AT + 2, device_id=old))
    assert await excluded(bench, old) == {"casino"}
    (key,) = (await conversions.fetch_keys(bench.connection)).values()
    member = PersonKey((await persons.fetch_suppression(bench.connection)).key).member("ifa", new)
    click = key.make(Click(7, b"abcd", 5, NOW // 1000, b"auction.", member))
    await carry(bench, CASINO, event("login", "u", at=AT + 3, click=click))
    assert await excluded(bench, new) == {"casino"}
    assert await kept(bench) == []
    assert await bench.rows("select from click_link") == []
    await carry(bench, CASINO, event("account_unblocked", "u", at=AT + 4,
                                     unblock_reason="cooldown_ended"))  # fmt: skip
    assert (await excluded(bench, old), await excluded(bench, new)) == (set(), set())


async def test_a_forgotten_device_shows_who_excluded_himself(bench: Bench) -> None:
    device = str(uuid.uuid4())
    await forget(bench, device)
    await carry(bench, CASINO, blocked("u", device_id=device))
    assert await excluded(bench, device) == {"casino"}
    assert await kept(bench) == []
