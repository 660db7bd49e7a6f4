"""Audiences and restrictions as the drain keeps them, against a second telling (contract 12)."""

import asyncio
import json
import random
import uuid
from itertools import repeat
from typing import Any

import pytest
from support.event_bench import Bench
from support.oracle_audiences import CHANNELS, DAY_MS, NOBODYS, Oracle
from support.sending import IP, NOW
from support.stack import connected, lock_is_awaited

from snapbid.campaigns.audiences import Audience
from snapbid.campaigns.click_id import Click
from snapbid.campaigns.persons import PersonKey
from snapbid.drain import audiences as counting
from snapbid.events.outcomes import Product
from snapbid.warehouse import audiences, campaigns, conversions, persons

HOUR_MS = 3_600_000
OTHER = Product("other", frozenset({"igaming"}))
SHOWN = (
    "select member from audience_member join audience on number = audience"
    " where id = 'own' and until > now() order by member"
)
AUDIENCES: tuple[dict[str, Any], ...] = (
    {"id": "logged-in", "event": "login", "within_days": 3},
    {"id": "regulars", "event": "login", "within_days": 30, "at_least": 3},
    {"id": "openers", "event": "app_open", "within_days": 7, "at_least": 2},
    {"id": "spenders", "event": "withdraw", "within_days": 30, "min_amount_usd": 50},
)


def audience(id: str, **fields: Any) -> Audience:
    micros = (
        {"min_amount_usd": fields.pop("min_amount_usd") * 1_000_000}
        if ("min_amount_usd" in fields)
        else {}
    )
    return Audience(id, "casino", **fields, **micros)


async def define(bench: Bench, *definitions: dict[str, Any]) -> None:
    async with bench.connection.transaction():
        for each in definitions:
            number = await audiences.add(bench.connection, audience(**each))
            assert number is not None
            await audiences.complete(bench.connection, number)


async def key_of(bench: Bench) -> PersonKey:
    return PersonKey((await persons.fetch_suppression(bench.connection)).key)


async def members(bench: Bench) -> dict[str, set[int]]:
    """The present members of each audience by its id, and of products by their names."""
    rows = await bench.rows(
        "select coalesce(id, product), member from audience_member"
        " join audience on number = audience where until > now()"
    )
    found: dict[str, set[int]] = {}
    for name, member in rows:
        found.setdefault(name, set()).add(member)
    return found


async def hashed(bench: Bench, *devices: str) -> set[int]:
    key = await key_of(bench)
    return {key.member("ifa", device) for device in devices}


def said(name: str, at: int = NOW, user: str | None = "u", **context: Any) -> dict[str, Any]:
    """An event; `anonymous` in the context is the anonymous id."""
    identity = {} if user is None else {"client_user_id": user}
    if anonymous := context.pop("anonymous", None):
        identity["anonymous_id"] = anonymous
    return {
        "event": name,
        "timestamp": at,
        "identity": identity,
        "context": {"ip_address": IP, **context},
    }


def blocked(at: int = NOW, user: str = "u", reason: str = "self_exclusion") -> dict[str, Any]:
    return said("account_blocked", at, user, block_reason=reason)


def consents(at: int, *channels: str, user: str = "u") -> dict[str, Any]:
    allowed = {each: each in channels for each in CHANNELS}
    return said("marketing_consent_updated", at, user, **allowed)


def device(number: int) -> str:
    return str(uuid.UUID(int=number + (1 << 100)))


# -- against the oracle ---------------------------------------------------------------------------


def random_events(chance: random.Random, *, shared: bool = False) -> list[dict[str, Any]]:
    """Events of some users, whose anonymous ids are `shared` or their own."""
    users = [f"u{number}" for number in range(12 if shared else chance.randint(1, 4))]
    visitors = {f"a{n}": chance.choice([None, *users]) for n in range(chance.randint(0, 4))}
    made = []
    for number in range(chance.randint(5, 60)):
        at = NOW - chance.choice([0, 1, 1, 2, 5, 20, 40]) * DAY_MS - chance.choice([0, 1, number])
        at += chance.choice([0, 0, 0, HOUR_MS])  # by a clock that may run ahead
        user: str | None = chance.choice(users)
        own: dict[str, Any] = (
            {"device_id": device(chance.randrange(40 if shared else 6))}
            if chance.random() < 0.3
            else {}
        )
        if visitors and chance.random() < 0.4:
            own["anonymous"], known = chance.choice(sorted(visitors.items()))
            user = chance.choice(users) if shared else known
            user = user if chance.random() < 0.5 else None
        elif chance.random() < 0.2:
            own["anonymous"] = NOBODYS[0]
        elif chance.random() < 0.2:
            user = NOBODYS[1]
        name = chance.choice(["login", "login", "withdraw", "block", "unblock", "consent", "reg"])
        if user is None:
            made.append(said("app_open", at, user, platform="ios", **own))
        elif name == "login":
            made.append(said("login", at, user, **own))
        elif name == "withdraw":
            paid = {"amount": chance.choice([10, 50, 80]), "currency": "USD"}
            made.append(said("withdraw", at, user, transaction_id=f"t{number}", **paid, **own))
        elif name == "block":
            reason = chance.choice(["self_exclusion", "self_exclusion", "fraud"])
            made.append(said("account_blocked", at, user, block_reason=reason, **own))
        elif name == "unblock":
            lifted = chance.choice([{}, {"previous_block_reason": "self_exclusion"},
                                    {"previous_block_reason": "fraud"}])  # fmt: skip
            made.append(said("account_unblocked", at, user, unblock_reason="other", **lifted))
        elif name == "consent":
            channels = chance.sample(CHANNELS, chance.choice([0, 0, 1, 4]))
            made.append(consents(at, *channels, user=user))
        else:
            privacy = chance.choice([{}, {"marketing_consent": chance.random() < 0.5}])
            made.append(said("register", at, user, privacy=privacy, **own))
    return made


@pytest.mark.parametrize("seed", range(12))
async def test_any_events_in_any_order(bench: Bench, seed: int) -> None:
    """However they are batched, repeated and ordered, and whenever the audiences are defined."""
    chance = random.Random(seed)
    made = random_events(chance)
    sent = [*made, *chance.sample(made, len(made) // 3)]
    chance.shuffle(sent)
    batches = []
    while sent:
        some = chance.randint(1, 20)
        batches.append(sent[:some])
        del sent[:some]
    await counted_as_told(bench, chance, batches, Oracle(made, repeat(NOW)))


@pytest.mark.parametrize("seed", range(8))
async def test_users_who_share_anonymous_ids(bench: Bench, seed: int) -> None:
    """What an anonymous id does and shows is each user's behind it, in whatever order they come,
    and whenever the audiences are defined.
    """
    chance = random.Random(seed)
    made = random_events(chance, shared=True)
    chance.shuffle(made)
    await counted_as_told(bench, chance, [[each] for each in made], Oracle(made, repeat(NOW)))


async def counted_as_told(
    bench: Bench, chance: random.Random, batches: list[list[dict[str, Any]]], oracle: Oracle
) -> None:
    """Define some audiences before the events and the others after; all are as the oracle says."""
    early = chance.sample(AUDIENCES, chance.randint(0, len(AUDIENCES)))
    await define(bench, *early)
    for batch in batches:
        await bench.accept(*batch)
        if chance.random() < 0.5:
            await bench.round()
    await bench.round()
    for each in AUDIENCES:
        if each not in early:
            await counting.add(bench.connection, audience(**each))
    expected = {
        each["id"]: await hashed(bench, *oracle.members(each, NOW)) for each in AUDIENCES
    } | {"casino": await hashed(bench, *oracle.excluded())}
    assert await members(bench) == {name: who for name, who in expected.items() if who}


# -- restrictions ---------------------------------------------------------------------------------


async def test_self_exclusion_holds_until_the_account_is_unblocked(bench: Bench) -> None:
    await bench.accept(said("login", device_id=device(1)), blocked(NOW - 10))
    await bench.round()
    assert await members(bench) == {"casino": await hashed(bench, device(1))}
    await bench.accept(said("account_unblocked", NOW - 5, unblock_reason="other"))
    await bench.round()
    assert await members(bench) == {}


def unblocked(at: int, user: str = "u") -> dict[str, Any]:
    return said("account_unblocked", at, user, unblock_reason="other")


def registered(at: int, consent: bool) -> dict[str, Any]:
    return said("register", at, privacy={"marketing_consent": consent})


@pytest.mark.parametrize(
    ("restricts", "admits"),
    [
        (blocked, unblocked),
        (consents, lambda at: consents(at, "allow_sms")),
        (lambda at: registered(at, False), lambda at: registered(at, True)),
    ],
)
@pytest.mark.parametrize("ends", [True, False])
async def test_fast_clocks_decide_nothing(
    bench: Bench, restricts: Any, admits: Any, ends: bool
) -> None:
    """What comes first, dated ahead, is over with what comes next: either of the two."""
    first, second = (restricts, admits) if ends else (admits, restricts)
    await bench.accept(said("login", device_id=device(1)), first(NOW + HOUR_MS - 1))
    await bench.round()
    assert bool(await members(bench)) == ends
    await bench.accept(second(NOW + 1), at=NOW + 1)
    await bench.round()
    assert bool(await members(bench)) != ends


@pytest.mark.parametrize("seed", range(6))
async def test_any_clocks(bench: Bench, seed: int) -> None:
    """Events of some users from servers whose clocks are right, late, or ahead by up to an hour."""
    chance = random.Random(seed)
    users = [f"u{number}" for number in range(8)]
    made = [said("login", NOW, user, device_id=device(n)) for n, user in enumerate(users)]
    received = [NOW] * len(users)
    for number in range(80):
        came = NOW - 90 * 60_000 + number * 60_000
        at = came + chance.choice([0, 0, -HOUR_MS, -300_000, 300_000, HOUR_MS - 1])
        user = chance.choice(users)
        channels = chance.choice([(), ("allow_sms",)])
        kinds = [blocked(at, user), unblocked(at, user), consents(at, *channels, user=user)]
        made.append(chance.choice(kinds))
        received.append(came)
    for each, came in zip(made, received, strict=True):
        await bench.accept(each, at=came)
    await bench.round()
    expected = await hashed(bench, *Oracle(made, received).excluded())
    assert await members(bench) == ({"casino": expected} if expected else {})


@pytest.mark.parametrize("reason", ["fraud", "compliance", "other"])
async def test_blocks_for_another_reason_restrict_nobody(bench: Bench, reason: str) -> None:
    await bench.accept(said("login", device_id=device(1)), blocked(reason=reason))
    await bench.round()
    assert await members(bench) == {}


async def test_an_unblocking_for_another_reason_lifts_no_self_exclusion(bench: Bench) -> None:
    await bench.accept(said("login", device_id=device(1)), blocked(NOW - 10))
    lifted = {"unblock_reason": "other", "previous_block_reason": "fraud"}
    await bench.accept(said("account_unblocked", NOW - 5, **lifted))
    await bench.round()
    assert set(await members(bench)) == {"casino"}


async def test_anonymous_events_count_for_their_user(bench: Bench) -> None:
    await define(bench, AUDIENCES[2])
    opened = {"user": None, "anonymous": "a", "platform": "ios"}
    await bench.accept(said("app_open", NOW - 3, device_id=device(1), **opened))
    await bench.round()
    await bench.accept(said("login", NOW - 2, anonymous="a"))
    await bench.round()
    await bench.accept(said("app_open", NOW - 1, **opened))
    await bench.round()
    assert await members(bench) == {"openers": await hashed(bench, device(1))}


async def test_anonymous_events_count_for_every_user_of_the_id(bench: Bench) -> None:
    """Also for who comes later, and who was there before keeps it; `forget` ends it for one."""
    await define(bench, AUDIENCES[2])
    opened = {"user": None, "anonymous": "a", "platform": "ios"}
    for number in range(3):
        await bench.accept(said("login", user=f"u{number}", device_id=device(number)))
        await bench.accept(said("login", user=f"u{number}", anonymous="a"))
        await bench.accept(said("app_open", NOW - number, **opened))
        await bench.round()
    assert await members(bench) == {"openers": await hashed(bench, *map(device, range(3)))}
    key = await key_of(bench)
    async with bench.connection.transaction():
        await audiences.erase(bench.connection, {key.user("casino", "u1")}, set())
    kept = await hashed(bench, device(0), device(2))
    assert (await members(bench))["openers"] >= kept
    assert await bench.rows("select count(*) from person_audience") == [(2,)]


async def test_a_device_that_is_seen_later_is_excluded_too(bench: Bench) -> None:
    await bench.accept(blocked())
    await bench.round()
    assert await members(bench) == {}
    await bench.accept(said("app_install", user=None, anonymous="a", platform="ios",
                            device_id=device(7).upper()))  # fmt: skip
    await bench.round()
    await bench.accept(said("login", anonymous="a"))
    await bench.round()
    assert await members(bench) == {"casino": await hashed(bench, device(7))}


async def test_everyone_behind_an_anonymous_id_has_its_devices(bench: Bench) -> None:
    await bench.accept(said("login", user="first", anonymous="a"))
    await bench.accept(said("app_install", user=None, anonymous="a", platform="ios",
                            device_id=device(1)))  # fmt: skip
    await bench.accept(said("login", user="second", anonymous="a"), blocked(user="second"))
    await bench.round()
    assert await members(bench) == {"casino": await hashed(bench, device(1))}
    await bench.accept(said("app_open", user=None, anonymous="a", platform="ios",
                            device_id=device(2)), blocked(user="first"))  # fmt: skip
    await bench.accept(said("account_unblocked", NOW + 1, "second", unblock_reason="other"))
    await bench.round()
    assert await members(bench) == {"casino": await hashed(bench, device(1), device(2))}


async def test_a_device_of_one_user_is_that_of_all_behind_its_anonymous_id(bench: Bench) -> None:
    await bench.accept(said("login", user="first", anonymous="a"), blocked(user="first"))
    await bench.round()
    await bench.accept(said("login", user="second", anonymous="a", device_id=device(1)))
    await bench.round()
    assert await members(bench) == {"casino": await hashed(bench, device(1))}


async def test_products_restrict_for_themselves(bench: Bench) -> None:
    await bench.accept(said("login", device_id=device(1)), blocked())
    await bench.accept(said("login", device_id=device(1)), product=OTHER)
    await bench.round()
    assert set(await members(bench)) == {"casino"}


ZEROES = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    "id", [ZEROES, f"{{{ZEROES}}}", f" {{{ZEROES.replace('-', '')}}}\t", "{-}", "null", "x" * 513]
)
async def test_placeholder_devices_identify_nobody(bench: Bench, id: str) -> None:
    await bench.accept(said("login", device_id=id), blocked())
    await bench.round()
    assert await bench.rows("select * from person_link") == []


@pytest.mark.parametrize("id", [ZEROES, "null", "undefined", "(Unknown)", "0", *NOBODYS])
async def test_placeholder_ids_merge_no_users(bench: Bench, id: str) -> None:
    """Whatever an app's SDK writes for no id, in either field."""
    await define(bench, AUDIENCES[0])
    for number in range(3):
        await bench.accept(said("login", user=f"u{number}", anonymous=id, device_id=device(number)))
    await bench.accept(said("login", user=id, device_id=device(8)), blocked(user=id))
    await bench.accept(said("account_blocked", user="u0", anonymous=id,
                            block_reason="self_exclusion"))  # fmt: skip
    await bench.round()
    everyone = await hashed(bench, *map(device, range(3)))
    assert await members(bench) == {"casino": await hashed(bench, device(0)), "logged-in": everyone}
    assert await bench.rows("select * from person_alias") == []
    await counting.add(bench.connection, audience("again", event="login", within_days=3))
    assert (await members(bench))["again"] == everyone


@pytest.mark.parametrize("id", ["1111", "7", "22222222"])
async def test_customers_with_any_id_can_self_exclude(bench: Bench, id: str) -> None:
    """Advertisers number their customers: what is no id in a bid request is a person here."""
    await bench.accept(said("login", user=id, device_id=device(1)), blocked(user=id))
    await bench.round()
    assert await members(bench) == {"casino": await hashed(bench, device(1))}


async def test_no_id_is_stored_in_the_clear(bench: Bench) -> None:
    await define(bench, *AUDIENCES)
    await bench.accept(said("login", user="mary-4711", anonymous="visit-4712",
                            device_id=device(4713)), blocked(user="mary-4711"))  # fmt: skip
    await bench.round()
    for table in ("audience_member", "person_link", "person_alias", "person_audience",
                  "person_restriction"):  # fmt: skip
        rows = str(await bench.rows(f"select * from {table}"))
        assert rows != "[]"
        assert not any(id in rows for id in ("4711", "4712", device(4713)))


# -- bounds ---------------------------------------------------------------------------------------


async def test_a_person_keeps_the_last_devices(bench: Bench) -> None:
    await define(bench, AUDIENCES[0])
    for first in (0, 60):
        await bench.accept(*(said("login", NOW - n, device_id=device(n))
                             for n in range(first, first + 60)))  # fmt: skip
        await bench.round()
    found = (await members(bench))["logged-in"]
    assert len(found) == audiences.LINKS
    assert found > await hashed(bench, *map(device, range(60, 120)))


@pytest.mark.parametrize("restricting", [blocked(), consents(NOW)])
async def test_excluded_persons_keep_their_devices(
    bench: Bench, restricting: dict[str, Any]
) -> None:
    """However many follow; beyond a bound, none that is new is linked."""
    await bench.accept(restricting, said("login", device_id=device(0)))
    await bench.round()
    for first in range(1, audiences.KEPT_LINKS + 50, 50):
        many = range(first, first + 50)
        await bench.accept(*(said("login", NOW - n, device_id=device(n)) for n in many),
                           said("email_verified", NOW - first, device_id=device(0)))  # fmt: skip
        await bench.round()
    found = (await members(bench))["casino"]
    assert len(found) == audiences.KEPT_LINKS
    assert found >= await hashed(bench, *map(device, range(audiences.KEPT_LINKS - 50)))
    lifted = said("account_unblocked", NOW + 1, unblock_reason="other")
    more = consents(NOW + 1, *CHANNELS), said("login", device_id=device(999))
    await bench.accept(lifted, *more, at=NOW + 1)
    await bench.round()
    assert await members(bench) == {}
    assert len(await bench.rows("select from person_link")) == audiences.LINKS


async def test_ended_rows_are_discarded(bench: Bench) -> None:
    await define(bench, AUDIENCES[0])
    old = NOW - 40 * DAY_MS
    await bench.accept(said("login", old, device_id=device(1)), said("login", user="v"))
    await bench.round()
    await bench.connection.execute(
        "insert into audience_member values (1, 1, now() - interval '3 days', 1), (2, 1, now(), 2)"
    )
    assert await audiences.discard(bench.connection, 30) == 2
    assert await audiences.discard(bench.connection, 30) == 0
    assert len(await bench.rows("select * from person_audience")) == 1


async def test_ids_of_persons_who_were_not_seen_for_long_are_discarded(bench: Bench) -> None:
    """But not of those who are in an audience, or must get no advertisement."""
    await define(bench, AUDIENCES[1])
    for user, name in (("gone", "register"), ("regular", "login"), ("excluded", "register")):
        await bench.accept(said(name, user=user, anonymous=f"of-{user}", device_id=f"of-{user}"))
    await bench.accept(blocked(user="excluded"))
    await bench.round()

    async def known() -> list[int]:
        tables = ("person_link", "person_alias")
        return [len(await bench.rows(f"select distinct person from {each}")) for each in tables]

    before, of_members = await known(), await members(bench)
    days = await audiences.fetch_longest_window(bench.connection)
    assert days == 30
    for seen, expected in ((days, before), (days + 1, [2, 2])):
        await last_seen(bench, seen)
        while await audiences.discard(bench.connection, days):
            pass
        assert await known() == expected
    assert await members(bench) == of_members
    # The restriction holds for a device on which others are seen, too.
    await bench.accept(said("login", user="other", device_id="of-excluded"))
    await bench.round()
    assert (await members(bench))["casino"] == of_members["casino"]


async def last_seen(bench: Bench, days: int) -> None:
    """Move the time when each link and alias was last seen to almost so many days ago."""
    for table, column in (
        ("person_link", "seen_at"),
        ("person_link", "person_seen_at"),
        ("person_alias", "seen_at"),
    ):
        await bench.connection.execute(
            f"update {table} set {column} = now() - make_interval(days => $1, mins => -5)", days
        )


@pytest.mark.parametrize("ids", [{"user": "u"}, {"user": None, "anonymous": "of-u"}])
async def test_any_event_of_a_person_keeps_the_devices(bench: Bench, ids: dict[str, Any]) -> None:
    await bench.accept(said("login", user="u", anonymous="of-u", device_id=device(1)))
    await bench.round()
    await last_seen(bench, 20)
    await bench.accept(said("app_open", NOW + 1, platform="ios", **ids))
    await bench.round()
    await bench.connection.execute(
        "update person_link set seen_at = now() - interval '31 days',"
        " person_seen_at = person_seen_at - interval '29 days'"
    )
    await audiences.discard(bench.connection, 30)
    await bench.accept(blocked(user="u"))
    await bench.round()
    assert await members(bench) == {"casino": await hashed(bench, device(1))}


async def test_the_longest_window(bench: Bench) -> None:
    document = {"id": "c", "advertiser": "a.example", "attribution_days": 60}
    await campaigns.replace_many(bench.connection, [("c", json.dumps(document))])
    assert await audiences.fetch_longest_window(bench.connection) == 60
    await define(bench, {"id": "yearly", "event": "login", "within_days": 366})
    assert await audiences.fetch_longest_window(bench.connection) == 366


async def test_forgotten_persons_are_in_no_audience(bench: Bench) -> None:
    await define(bench, AUDIENCES[0])
    for user, number in (("u", 1), ("v", 2)):
        await bench.accept(said("login", user=user, anonymous=f"of-{user}",
                                device_id=device(number)), blocked(user=user))  # fmt: skip
    await bench.round()
    key = await key_of(bench)
    async with bench.connection.transaction():
        assert await audiences.erase(bench.connection, {key.user("casino", "u")}, set()) == 4
    theirs = await hashed(bench, device(2))
    # What the anonymous id shows is the person's, too, until it is named.
    assert await members(bench) == {"casino": theirs, "logged-in": theirs}
    async with bench.connection.transaction():
        await audiences.erase(bench.connection, set(), theirs)
    assert await members(bench) == {}


async def test_the_forgotten_are_on_no_list_and_behind_no_click(bench: Bench) -> None:
    """Neither on one that is imported again nor by a click id that was on its way."""
    one, two = sorted(await hashed(bench, device(1), device(2)))
    await audiences.add_list(bench.connection, "own", [one, two])
    assert await members(bench) == {"own": {one, two}}
    await persons.suppress(bench.connection, [], [one])
    async with bench.connection.transaction():
        await audiences.erase(bench.connection, set(), {one})
    assert await audiences.add_list(bench.connection, "own", [one, two]) == 1
    assert await members(bench) == {"own": {two}}
    (key,) = (await conversions.fetch_keys(bench.connection)).values()
    for user, member in (("u", one), ("v", two)):
        click = key.make(Click(7, b"abcd", 5, NOW // 1000, b"auction.", member))
        sent = blocked(user=user)
        sent["identity"]["click_id"] = click
        await bench.accept(sent)
    await bench.round()
    # What ends no self-exclusion: that a device was forgotten.
    assert await members(bench) == {"own": {two}, "casino": {one, two}}
    await define(bench, AUDIENCES[0])
    await bench.accept(said("login", user="u"), said("login", user="v"))
    await bench.round()
    assert (await members(bench))["logged-in"] == {two}


# -- definitions ----------------------------------------------------------------------------------


async def test_a_list_is_replaced_without_a_gap(bench: Bench, database: str) -> None:
    """Who is on both lists is in it all the time; who was on the first one alone, until the end."""
    await audiences.add_list(bench.connection, "own", [1, 2, 3])
    async with connected(database) as other:
        holding = other.transaction()
        await holding.start()
        await audiences.hold(other)
        adding = asyncio.create_task(audiences.add_list(bench.connection, "own", [2, 3, 4], page=2))
        await lock_is_awaited(other)
        assert [row["member"] for row in await other.fetch(SHOWN)] == [1, 2, 3]
        await holding.rollback()
        await adding
    assert await members(bench) == {"own": {2, 3, 4}}


async def test_a_definition_is_replaced_without_a_gap(bench: Bench, database: str) -> None:
    """Who was in the audience leaves it once the stored events are counted, if they say so."""
    await define(bench, {"id": "own", "event": "login", "within_days": 30})
    await bench.accept(said("login", NOW - DAY_MS, user="u", device_id=device(1)))
    await bench.accept(said("login", NOW - 9 * DAY_MS, user="v", device_id=device(2)))
    await bench.round()
    both = await hashed(bench, device(1), device(2))
    assert await members(bench) == {"own": both}
    changed = audience("own", event="login", within_days=5)
    async with connected(database) as other:
        holding = other.transaction()
        await holding.start()
        await audiences.hold(other)
        adding = asyncio.create_task(counting.add(bench.connection, changed))
        await lock_is_awaited(other)
        assert await other.fetchval("select within_days from audience") == 5
        assert {row["member"] for row in await other.fetch(SHOWN)} == both
        await holding.rollback()
        assert await adding
    assert await members(bench) == {"own": await hashed(bench, device(1))}


async def test_a_list_replaces_an_event_audience(bench: Bench) -> None:
    await define(bench, {"id": "own", "event": "login", "within_days": 3})
    await bench.accept(said("login", device_id=device(1)))
    await bench.round()
    assert await members(bench) == {"own": await hashed(bench, device(1))}
    await audiences.add_list(bench.connection, "own", [2])
    await bench.accept(said("login", NOW + 1, device_id=device(1)))
    await bench.round()
    assert await members(bench) == {"own": {2}}
    await define(bench, {"id": "own", "event": "login", "within_days": 3})
    assert await members(bench) == {}
    await bench.accept(said("login", NOW + 2, device_id=device(1)))
    await bench.round()
    assert await members(bench) == {"own": await hashed(bench, device(1))}


async def test_one_definition_is_added_once(bench: Bench) -> None:
    await define(bench, AUDIENCES[0])
    async with bench.connection.transaction():
        assert await audiences.add(bench.connection, audience(**AUDIENCES[0])) is None
        changed = AUDIENCES[0] | {"within_days": 4}
        assert await audiences.add(bench.connection, audience(**changed)) is not None
    (listed,) = await audiences.fetch_listed(bench.connection)
    assert (listed.within_days, listed.members) == (4, 0)


async def test_events_that_are_refused_count_nothing(bench: Bench) -> None:
    await define(bench, AUDIENCES[0])
    await bench.connection.execute(
        "alter table events add constraint refused check (client_user_id <> 'refused')"
    )
    await bench.accept(said("login", user="refused", device_id=device(1)),
                       said("login", user="u", device_id=device(2)))  # fmt: skip
    await bench.round()
    assert await members(bench) == {"logged-in": await hashed(bench, device(2))}


async def test_an_earlier_event_is_found_by_a_new_audience(bench: Bench) -> None:
    """Page by page, without those that are too old."""
    sent = [said("login", NOW - n, f"u{n}", device_id=device(n)) for n in range(30)]
    sent.append(said("login", NOW - 4 * DAY_MS, "old", device_id=device(99)))
    await bench.accept(*sent)
    await bench.round()
    await counting.add(bench.connection, audience(**AUDIENCES[0]), page=7)
    found = (await members(bench))["logged-in"]
    assert found == await hashed(bench, *map(device, range(30)))


TWICE = audience("twice", event="login", within_days=3, at_least=2)


async def test_events_are_stored_while_earlier_ones_are_read(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not wait until PostgreSQL has copied the earlier ones, and count once."""
    await bench.accept(said("login", NOW - 2, user="once", device_id=device(1)))
    await bench.accept(said("login", NOW - 2, user="twice", device_id=device(2)))
    await bench.round()
    opened = audiences.open_events

    async def open_later(*arguments: Any) -> None:
        await bench.accept(said("login", NOW - 1, user="twice"))
        await bench.accept(said("login", NOW - 1, user="new", device_id=device(3)))
        async with asyncio.timeout(30):
            await bench.round()
        await opened(*arguments)

    monkeypatch.setattr(audiences, "open_events", open_later)
    async with connected(database) as other:
        assert await counting.add(other, TWICE)
    assert await members(bench) == {"twice": await hashed(bench, device(2))}


async def test_an_interrupted_audience_is_added_by_repeating(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [said("login", NOW - n, f"u{n // 2}", device_id=device(n // 2)) for n in range(20)]
    await bench.accept(*sent)
    await bench.round()
    fetched = audiences.fetch_events
    pages = iter((4, 6))

    async def fetch_some(connection: Any, count: int) -> Any:
        count = next(pages)  # fails after these
        return await fetched(connection, count)

    with monkeypatch.context() as patched:
        patched.setattr(audiences, "fetch_events", fetch_some)
        with pytest.raises(RuntimeError):
            await counting.add(bench.connection, TWICE)
    (listed,) = await audiences.fetch_listed(bench.connection)
    assert not listed.complete
    async with connected(database) as other:
        added = await asyncio.gather(
            counting.add(other, TWICE, page=3),
            counting.add(bench.connection, TWICE, page=3),
        )
    assert sorted(added) == [False, True]  # the second waits for the first
    assert await members(bench) == {"twice": await hashed(bench, *map(device, range(10)))}
    (listed,) = await audiences.fetch_listed(bench.connection)
    assert listed.complete


async def test_an_interrupted_list_is_not_complete(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(audiences, "pages", interrupted)
        with pytest.raises(RuntimeError):
            await audiences.add_list(bench.connection, "own", [1, 2])
    (listed,) = await audiences.fetch_listed(bench.connection)
    assert not listed.complete
    assert await audiences.add_list(bench.connection, "own", [1, 2]) == 2
    (listed,) = await audiences.fetch_listed(bench.connection)
    assert listed.complete
