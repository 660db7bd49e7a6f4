"""The numbers of descriptors and campaigns: made from the name, and kept for ever."""

import json
from hashlib import sha256

import asyncpg
from support.snapshot import catalog_of

from snapbid.catalog.payload import decode_payload
from snapbid.reference import rates
from snapbid.warehouse import campaigns, registry


async def put(connection: asyncpg.Connection, *names: str) -> None:
    documents = [(name, json.dumps({"id": name})) for name in names]
    await campaigns.replace_many(connection, documents)


async def campaign_numbers(connection: asyncpg.Connection) -> dict[str, int]:
    return {row.id: row.number async for row in campaigns.fetch_all(connection)}


async def known_campaigns(connection: asyncpg.Connection) -> dict[str, int]:
    return dict(await connection.fetch("select id, number from campaign_number"))


async def ssp_numbers(connection: asyncpg.Connection) -> dict[str, int]:
    numbered = await registry.fetch_numbered(connection)
    return {descriptor: number for descriptor, (_, number) in numbered.items()}


def the_number(warehouse: str, name: str, attempt: int = 0) -> int:
    digest = sha256(f"{warehouse} {attempt} {name}".encode()).digest()
    return int.from_bytes(digest[:4]) % (2**31 - 1) + 1


async def identity(connection: asyncpg.Connection) -> str:
    return str(await connection.fetchval("select id from warehouse_identity"))


async def test_every_insert_path_assigns_a_number(connection: asyncpg.Connection) -> None:
    await registry.add(connection, "acme")
    await registry.add(connection, "acme-eu", "acme")
    await connection.execute("insert into ssp values ('nova', 'nova'), ('nova-tv', 'nova')")
    own = await identity(connection)
    names = ("acme", "acme-eu", "nova", "nova-tv")
    assert await ssp_numbers(connection) == {name: the_number(own, name) for name in names}
    await put(connection, "b", "a")
    await put(connection, "a", "c")
    await connection.execute("insert into campaign values ('d', '{\"id\": \"d\"}')")
    names = ("a", "b", "c", "d")
    assert await campaign_numbers(connection) == {name: the_number(own, name) for name in names}
    (changed,) = (await campaigns.fetch_since(connection, 4)).changed
    assert (changed.id, changed.number) == ("d", the_number(own, "d"))


async def test_another_warehouse_gives_other_numbers(connection: asyncpg.Connection) -> None:
    """So that a ledger which is not its own shows as a stranger's."""
    await put(connection, "a")
    before = await campaign_numbers(connection)
    await connection.execute("truncate campaign, campaign_number")
    await connection.execute("update warehouse_identity set id = gen_random_uuid()")
    await put(connection, "a")
    assert await campaign_numbers(connection) != before


async def test_a_number_that_is_taken_is_given_to_nobody_else(
    connection: asyncpg.Connection,
) -> None:
    own = await identity(connection)
    for attempt in range(2):
        taken = the_number(own, "b", attempt)
        await connection.execute(
            "insert into campaign_number values ($1, $2)", taken, f"other {attempt}"
        )
        await connection.execute(
            "insert into ssp_number values ($1, $2, $2)", taken, f"other-{attempt}"
        )
    await put(connection, "a", "b", "c")
    assert await campaign_numbers(connection) == {
        "a": the_number(own, "a"),
        "b": the_number(own, "b", 2),
        "c": the_number(own, "c"),
    }
    await connection.execute("insert into ssp values ('a', 'a'), ('b', 'b'), ('c', 'c')")
    assert await ssp_numbers(connection) == await campaign_numbers(connection)


async def test_changes_keep_the_number(connection: asyncpg.Connection) -> None:
    await registry.add(connection, "acme")
    await put(connection, "a", "b")
    before = await campaign_numbers(connection), await ssp_numbers(connection)
    for _ in range(3):
        await put(connection, "a", "b")
        await connection.execute("update campaign set status = 'paused'")
        await registry.add(connection, "acme")
        await connection.execute("update ssp set canonical = canonical")
    assert (await campaign_numbers(connection), await ssp_numbers(connection)) == before


async def test_numbers_outlive_what_they_name(connection: asyncpg.Connection) -> None:
    await connection.execute("insert into ssp values ('acme', 'acme'), ('acme-eu', 'acme')")
    await put(connection, "a", "b")
    of_ssps, of_campaigns = await ssp_numbers(connection), await campaign_numbers(connection)
    await connection.execute("delete from ssp where descriptor = 'acme-eu'")
    await connection.execute("delete from campaign where id = 'a'")
    await connection.execute("truncate campaign")
    assert await known_campaigns(connection) == of_campaigns
    kept = await connection.fetch("select descriptor, canonical, number from ssp_number")
    assert {tuple(row) for row in kept} == {
        ("acme", "acme", of_ssps["acme"]),
        ("acme-eu", "acme", of_ssps["acme-eu"]),
    }
    await registry.add(connection, "acme-eu")
    await put(connection, "c", "b")
    assert (await campaign_numbers(connection))["b"] == of_campaigns["b"]
    assert await ssp_numbers(connection) == of_ssps
    canonical = "select canonical from ssp_number where descriptor = 'acme-eu'"
    assert await connection.fetchval(canonical) == "acme-eu"


async def test_a_renamed_one_is_another_one(connection: asyncpg.Connection) -> None:
    await registry.add(connection, "acme")
    await put(connection, "a")
    own = await identity(connection)
    await connection.execute("update ssp set descriptor = 'zeta', canonical = 'zeta'")
    await connection.execute(
        "update campaign set id = 'z', document = document || '{\"id\": \"z\"}'"
    )
    assert await ssp_numbers(connection) == {"zeta": the_number(own, "zeta")}
    assert await known_campaigns(connection) == {
        "a": the_number(own, "a"),
        "z": the_number(own, "z"),
    }


def test_the_catalog_carries_them() -> None:
    document = {
        "id": "c",
        "advertiser": "shop.example",
        "cpm": 1,
        "creatives": [{"id": "n", "media": "banner", "adm": "{}", "w": 1, "h": 1}],
    }
    ssps = {"nova": "nova", "acme": "acme", "acme-eu": "acme"}
    catalog = catalog_of([{**document, "id": "b", "cpm": 2}, document], ssps, rates.load())
    assert catalog.ssps == ssps
    assert catalog.ssp_numbers == {"nova": 1, "acme": 2, "acme-eu": 3}
    numbers = {
        payload.cid: payload.number
        for payload in map(decode_payload, map(catalog.index.payload, (0, 1)))
    }
    assert numbers == {"b": 1, "c": 2}
