"""Normalised forms in the warehouse: the import stores them, plain SQL clears them."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from support import strategies
from support.stack import Databases, connected

from snapbid.campaigns.campaign import Campaign
from snapbid.campaigns.campaign_file import read_file
from snapbid.campaigns.normalised import RULES, encode, load
from snapbid.catalog.catalog import Base
from snapbid.catalog.publisher import base
from snapbid.catalog.publisher import overlay as module
from snapbid.catalog.publisher.overlay import Overlay
from snapbid.warehouse import campaigns

CREATIVE = {"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "x"}
DOCUMENT = {"id": "a", "advertiser": "shop.example", "cpm": 2, "creatives": [CREATIVE]}


async def put(
    connection: asyncpg.Connection, *documents: dict[str, Any], rules: int = RULES
) -> campaigns.ImportCounts:
    """As the import does it."""
    lines = b"\n".join(json.dumps(document).encode() for document in documents)
    read = read_file("-", BytesIO(lines))
    records = [(campaign.id, text, encode(campaign)) for campaign, text in read]
    return await campaigns.replace_many(connection, records, rules)


async def stored(connection: asyncpg.Connection, id: str = "a") -> campaigns.StoredCampaign:
    changes = await campaigns.fetch_since(connection, 0)
    return next(campaign for campaign in changes.changed if campaign.id == id)


def loaded(campaign: campaigns.StoredCampaign) -> Campaign:
    row = campaign.row(RULES)
    return load(row.content, is_normalised=row.is_normalised, is_active=row.is_active)


async def test_the_import_stores_the_form(connection: asyncpg.Connection) -> None:
    await put(connection, DOCUMENT)
    campaign = await stored(connection)
    assert campaign.rules == RULES
    assert campaign.row(RULES).is_normalised
    assert loaded(campaign).cpm_micros == 2_000_000


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("update campaign set status = 'paused'", True),
        ("""update campaign set document = document || '{"status": "paused"}'""", True),
        ("update campaign set document = document", True),
        ("update campaign set created_at = now()", True),
        ("""update campaign set document = document || '{"cpm": 3}'""", False),
        ("""update campaign set document = document || '{"cpm": 3}', status = 'paused'""", False),
        (
            "insert into campaign (id, document)"
            " select id, document || '{\"cpm\": 3}' from campaign"
            " on conflict (id) do update set document = excluded.document",
            False,
        ),
        (
            "create temporary table kept as select id, document from campaign;"
            " delete from campaign; insert into campaign (id, document) select * from kept",
            False,
        ),
    ],
)
async def test_plain_sql_clears_the_form_of_a_document_that_it_changes(
    connection: asyncpg.Connection, sql: str, kept: bool
) -> None:
    await put(connection, DOCUMENT)
    await connection.execute(sql)
    campaign = await stored(connection)
    assert campaign.row(RULES).is_normalised is kept
    document = json.loads(campaign.document)
    assert loaded(campaign).cpm_micros == document["cpm"] * 1_000_000
    assert loaded(campaign).status == campaign.status == document["status"]


async def test_a_broken_rule_is_noticed_where_plain_sql_broke_it(
    connection: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await put(connection, DOCUMENT, {**DOCUMENT, "id": "b"})
    await connection.execute(
        """update campaign set document = document || '{"cpm": 0}' where id = 'b'"""
    )
    overlay = Overlay(None)
    overlay.apply(await campaigns.fetch_since(connection, 0))
    assert "campaign 'b' does not bid: cpm: must be more than 0" in caplog.text
    assert "'a'" not in caplog.text


async def test_a_new_base_is_due_before_replaced_values_fill_the_memory(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as segments that a vendor replaces each hour: the builder never forgets one."""
    monkeypatch.setattr(module, "MOST_UNUSED", 100)
    overlay = Overlay(None)
    for hour, is_large in enumerate([False, False, False, True]):
        segments = [f"{hour}-{n}" for n in range(50)]
        await put(connection, DOCUMENT | {"targeting": {"segment": {"include": segments}}})
        overlay.apply(await campaigns.fetch_since(connection, overlay.revision))
        overlay.build()
        assert overlay.is_large == is_large, hour


async def test_forms_of_other_rule_versions_are_not_used(connection: asyncpg.Connection) -> None:
    await put(connection, DOCUMENT, rules=RULES - 1)
    campaign = await stored(connection)
    assert campaign.normalised is not None
    assert not campaign.row(RULES).is_normalised
    assert loaded(campaign).id == "a"


async def test_importing_again_brings_the_form_up_to_date(connection: asyncpg.Connection) -> None:
    """Without a new revision: the campaign has not changed."""
    await campaigns.replace_many(connection, [("a", json.dumps(DOCUMENT))])
    before = await stored(connection)
    for rules in (RULES - 1, RULES, RULES):
        counts = await put(connection, DOCUMENT, rules=rules)
        assert counts == campaigns.ImportCounts(added=0, changed=0, unchanged=1)
        after = await stored(connection)
        assert (after.rules, after.revision) == (rules, before.revision)
    await campaigns.replace_many(connection, [("a", json.dumps(DOCUMENT))])
    assert (await stored(connection)).rules == RULES


@pytest.mark.parametrize("rules", [RULES, RULES - 1, None])
async def test_copies_hold_what_is_valid(connection: asyncpg.Connection, rules: int | None) -> None:
    await put(connection, DOCUMENT, {**DOCUMENT, "id": "ü" * 9, "status": "paused"})
    await campaigns.replace_many(connection, [("c", json.dumps({**DOCUMENT, "id": "c"}))])
    rows: list[campaigns.CampaignRow] = []
    async with connection.transaction(readonly=True):
        await campaigns.copy_all(connection, rules, rows.extend)
    by_id = {row.id.decode(): row for row in rows}
    valid = rules == RULES
    normalised = {id: row.is_normalised for id, row in by_id.items()}
    assert normalised == {"a": valid, "ü" * 9: valid, "c": False}
    for id, row in by_id.items():
        campaign = load(row.content, is_normalised=row.is_normalised, is_active=row.is_active)
        assert (campaign.id, campaign.status == "active") == (id, row.is_active)
        assert row == (await stored(connection, id)).row(rules or 0)


async def test_sql_and_import_give_the_same_catalog(
    databases: Databases, database: str, tmp_path: Path
) -> None:
    known = {"categories": ["IAB3", "iab-1-6"], "cattax": 1}  # import refuses what is none
    world = strategies.random_world(1, 80, strategies.Surroundings())
    documents = [each | known for each in world.campaigns]
    with databases.fresh() as other:
        async with connected(other) as plain, connected(database) as imported:
            await plain.executemany(
                "insert into campaign (id, document) values ($1, $2)",
                [(document["id"], json.dumps(document)) for document in documents],
            )
            for document in documents:
                await put(imported, document)
            for connection in (plain, imported):
                await connection.execute("update campaign set created_at = '2026-01-01'")
            assert await index_of(plain) == await index_of(imported)
        made = [(await base.make(url, tmp_path)).base for url in (other, database)]
        assert [content(tmp_path, each) for each in made] == [content(tmp_path, made[1])] * 2


async def index_of(connection: asyncpg.Connection) -> bytearray:
    overlay = Overlay(None)
    overlay.apply(await campaigns.fetch_since(connection, 0))
    return overlay.build()


def content(folder: Path, made: Base) -> tuple[int, int]:
    return made.campaigns, (folder / made.name).stat().st_size
