"""The warehouse on a real PostgreSQL: migrations, registry, campaigns and what changed of them."""

import asyncio
import datetime
import json
from collections.abc import Callable
from secrets import token_hex
from typing import Any

import asyncpg
import pytest
from support.stack import connected, fetch, lock_is_awaited

from snapbid.base.risks import forbids
from snapbid.base.version import version
from snapbid.campaigns.document import decode, parse
from snapbid.drain.events import STORE_ERRORS
from snapbid.embedded import Postgres, demo
from snapbid.warehouse import campaigns, fence, persons, rates, registry
from snapbid.warehouse import migrate as schema
from snapbid.warehouse.migrate import MigrationError, files, migrate
from snapbid.warehouse.risks import fetch_risks

WAIT_S = 30
TODAY = datetime.date(2024, 5, 1)
LATER = "insert into schema_migration (name, version, breaks) values ('9999_later', '7.0', $1)"


def document(name: str, **change: Any) -> tuple[str, str]:
    return name, json.dumps({"id": name, "cpm": 1.5, **change})


async def put(connection: asyncpg.Connection, *names: str) -> None:
    await campaigns.replace_many(connection, [document(name) for name in names])


class TestMigrate:
    async def test_concurrent_migrations_apply_each_file_once(self, postgres: Postgres) -> None:
        async with connected(postgres.dsn) as admin:
            await admin.execute("create database bare")
            try:
                dsn = postgres.dsn_of("bare")
                applied = await asyncio.gather(*(migrate(dsn) for _ in range(4)))
                assert sorted(applied) == [[], [], [], list(files())]
                assert await migrate(dsn) == []
            finally:
                await admin.execute("drop database bare with (force)")

    async def test_files_are_numbered_without_gaps(self) -> None:
        assert [int(name.split("_")[0]) for name in files()] == list(range(1, len(files()) + 1))

    async def test_a_newer_database_is_refused(
        self, database: str, connection: asyncpg.Connection
    ) -> None:
        await connection.execute(LATER, False)
        with pytest.raises(MigrationError, match=r"9999_later.*install 7\.0"):
            await migrate(database)

    async def test_a_migration_says_which_version_applied_it(
        self, connection: asyncpg.Connection
    ) -> None:
        versions = await connection.fetch("select distinct version from schema_migration")
        assert [row["version"] for row in versions] == [version()]

    async def test_a_migration_that_breaks_earlier_programs_is_noted(
        self, database: str, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        more = {
            "9998_plain": "-- what breaks: earlier programs\nselect 1",
            "9999_breaking": "-- Another key.\n-- breaks: earlier programs\nselect 1",
        }
        monkeypatch.setattr(schema, "files", lambda: {**files(), **more})
        assert await migrate(database) == list(more)
        breaking = await connection.fetch("select name from schema_migration where breaks")
        assert [row["name"] for row in breaking] == ["9999_breaking"]

    async def test_a_migration_ends_suspensions_without_a_creative(
        self, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        every = files()
        earlier = {name: sql for name, sql in every.items() if name < "0004"}
        async with connected(postgres.dsn) as admin:
            await admin.execute("create database released")
            try:
                dsn = postgres.dsn_of("released")
                with monkeypatch.context() as patched:
                    patched.setattr(schema, "files", lambda: earlier)
                    await migrate(dsn)
                async with connected(dsn) as connection:
                    creatives = [{"id": "bad", "adm": "<p></p>"}]
                    documents = [document("kept", creatives=creatives), document("bare")]
                    await campaigns.replace_many(connection, documents)
                    await connection.execute(
                        "insert into creative_suspension (ssp, campaign, creative, reason, losses)"
                        " select 'acme', campaign, creative, 202, 2"
                        " from unnest(array['kept', 'bare', 'gone']) campaign,"
                        " unnest(array['bad', 'renamed']) creative"
                    )
                assert await migrate(dsn) == [name for name in every if name not in earlier]
                left = "select campaign, creative, losses from creative_suspension"
                assert await fetch(dsn, left) == [("kept", "bad", 2)]
            finally:
                await admin.execute("drop database released with (force)")

    @pytest.mark.parametrize("breaks", [False, True])
    async def test_only_a_migration_that_breaks_this_program_is_refused(
        self, connection: asyncpg.Connection, breaks: bool
    ) -> None:
        """The schema stays at a rollback, and during an upgrade the older program goes on."""
        await connection.execute(LATER, breaks)
        risks = {risk.name: risk for risk in await fetch_risks(connection)}
        assert set(risks) == ({"schema"} if breaks else set())
        if breaks:
            assert forbids(risks["schema"], allow_volatile=True)
            assert "has the schema of 7.0 (migration 9999_later)" in str(risks["schema"])
            assert f"this program ({version()}) cannot use: install 7.0" in str(risks["schema"])

    async def test_a_schema_that_lacks_a_migration_is_named(
        self, connection: asyncpg.Connection
    ) -> None:
        assert await fetch_risks(connection) == []
        await connection.execute("delete from schema_migration where name = $1", max(files()))
        (risk,) = await fetch_risks(connection)
        assert (risk.name, risk.severity, risk.remedy) == ("schema", "weak", "run snapbid migrate")

    @pytest.mark.parametrize("owner", ["database %I", "role %2$I", "role %2$I in database %1$I"])
    async def test_the_end_of_a_read_only_server_is_told(self, database: str, owner: str) -> None:
        """Seen: what psql was told to run is refused there, or changes another setting."""
        setting, role = "default_transaction_read_only", f"Reader {token_hex(4)}"
        change = f"select format('alter {owner} set {setting} = on', current_database(), $1::text)"
        async with connected(database) as admin:
            await admin.execute(f'create role "{role}" superuser login')
            try:
                await admin.execute(await admin.fetchval(change, role))
                async with connected(database, role) as connection:
                    (risk,) = await fetch_risks(connection)
                    assert (risk.name, risk.severity) == ("read_only", "readonly")
                    for statement in risk.remedy.split("`")[1].rstrip(";").split(";"):  # as psql
                        await connection.execute(statement)
                async with connected(database, role) as connection:
                    assert await fetch_risks(connection) == []
            finally:
                await admin.execute(f'drop role "{role}"')


class TestRegistry:
    async def test_variants(self, connection: asyncpg.Connection) -> None:
        assert (await registry.add(connection, "acme")).outcome == "added"
        await registry.add(connection, "acme-eu", "acme")
        assert await registry.fetch_all(connection) == {"acme": "acme", "acme-eu": "acme"}

    async def test_adding_again(self, connection: asyncpg.Connection) -> None:
        await registry.add(connection, "acme")
        await registry.add(connection, "nova")
        assert (await registry.add(connection, "acme")).outcome == "unchanged"
        done = await registry.add(connection, "acme", "nova")
        assert (done.outcome, done.before) == ("updated", "acme")

    @pytest.mark.parametrize(
        ("descriptor", "canonical", "rule"),
        [
            ("new", "nobody", "'nobody' is not registered"),
            ("new", "acme-eu", "acme-eu is a variant of acme"),
            ("acme", "nova", "acme is the canonical id of acme-eu"),
            ("", None, "1 to 128 characters"),
            ("x" * 129, None, "1 to 128 characters"),
            ("a/b", None, "1 to 128 characters"),
            (".", None, "remove from URLs"),
            ("..", None, "remove from URLs"),
            ("acmé", None, "1 to 128 characters"),
            ("acme\n", None, "1 to 128 characters"),
        ],
    )
    async def test_refused(
        self, connection: asyncpg.Connection, descriptor: str, canonical: str | None, rule: str
    ) -> None:
        for known, of in demo.SSPS.items():
            await registry.add(connection, known, of)
        with pytest.raises(registry.RegistryError, match=rule):
            await registry.add(connection, descriptor, canonical)
        assert await registry.fetch_all(connection) == demo.SSPS

    @pytest.mark.parametrize(
        "sql",
        [
            "insert into ssp values ('a', 'nobody')",
            "insert into ssp values ('a', 'a'), ('b', 'a'), ('c', 'b')",
            "insert into ssp values ('a b', 'a b')",
            "delete from ssp where descriptor = 'acme'",
            "update ssp set canonical = 'nova' where descriptor = 'acme'",
        ],
    )
    async def test_plain_sql_keeps_the_rules(
        self, connection: asyncpg.Connection, sql: str
    ) -> None:
        for known, of in demo.SSPS.items():
            await registry.add(connection, known, of)
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await connection.execute(sql)


class TestCampaigns:
    async def test_import_counts_what_it_did(self, connection: asyncpg.Connection) -> None:
        done = await campaigns.replace_many(connection, [document("a"), document("b")])
        assert done == campaigns.ImportCounts(added=2, changed=0, unchanged=0)
        new = [document("a"), document("b", cpm=2), document("c")]
        done = await campaigns.replace_many(connection, new)
        assert done == campaigns.ImportCounts(added=1, changed=1, unchanged=1)

    async def test_import_keeps_a_status_that_is_not_stated(
        self, connection: asyncpg.Connection
    ) -> None:
        async def status() -> list[tuple[str, str]]:
            rows = [row async for row in campaigns.fetch_all(connection)]
            return [(row.status, json.loads(row.document)["status"]) for row in rows]

        await campaigns.replace_many(connection, [document("a")])
        assert await status() == [("active", "active")]
        await campaigns.set_status(connection, "a", "paused")
        unchanged = campaigns.ImportCounts(added=0, changed=0, unchanged=1)
        assert await campaigns.replace_many(connection, [document("a")]) == unchanged
        assert await campaigns.replace_many(connection, [document("a", status=None)]) == unchanged
        assert await status() == [("paused", "paused")]
        await campaigns.replace_many(connection, [document("a", cpm=9)])
        assert await status() == [("paused", "paused")]
        (exported,) = [row.document async for row in campaigns.fetch_all(connection)]
        await campaigns.replace_many(connection, [document("a", status="active")])
        assert await status() == [("active", "active")]
        await campaigns.replace_many(connection, [("a", exported)])
        assert await status() == [("paused", "paused")]

    async def test_import_is_all_or_nothing(self, connection: asyncpg.Connection) -> None:
        await put(connection, "a")
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await campaigns.replace_many(connection, [document("b"), ("c", '{"id": "other"}')])
        assert [row.id async for row in campaigns.fetch_all(connection)] == ["a"]

    async def test_numbers_stay_exact(self, connection: asyncpg.Connection) -> None:
        text = (
            '{"id":"a","advertiser":"shop.example","cpm":123456.740993,"budget":{"total":9007199254.740993},'
            '"creatives":[{"id":"n","media":"banner","w":1,"h":1,"adm":"\\u2028 ü"}]}'
        )
        await campaigns.replace_many(connection, [("a", text)])
        (stored,) = (await campaigns.fetch_since(connection, 0)).changed
        assert parse(decode(stored.document)) == parse(decode(text))
        assert parse(decode(stored.document)).budget.total_micros == 9_007_199_254_740_993

    async def test_pause_and_resume(self, connection: asyncpg.Connection) -> None:
        await put(connection, "a")
        assert await campaigns.set_status(connection, "a", "paused")
        assert not await campaigns.set_status(connection, "a", "paused")
        (stored,) = (await campaigns.fetch_since(connection, 0)).changed
        assert (stored.status, json.loads(stored.document)["status"]) == ("paused", "paused")
        assert await campaigns.set_status(connection, "a", "active")
        with pytest.raises(campaigns.UnknownCampaignError, match="'b'"):
            await campaigns.set_status(connection, "b", "paused")

    @pytest.mark.parametrize(
        ("sql", "status"),
        [
            ("update campaign set status = 'paused'", "paused"),
            ("""update campaign set document = document || '{"status": "paused"}'""", "paused"),
            ("""update campaign set document = document || '{"cpm": 9}'""", "active"),
            (
                """delete from campaign; insert into campaign values
                ('a', '{"id": "a", "status": "paused"}')""",
                "paused",
            ),
            (
                "delete from campaign; insert into campaign values ('a', '{\"id\": \"a\"}')",
                "active",
            ),
        ],
    )
    async def test_plain_sql_keeps_status_and_document_together(
        self, connection: asyncpg.Connection, sql: str, status: str
    ) -> None:
        await put(connection, "a")
        await connection.execute(sql)
        (stored,) = (await campaigns.fetch_since(connection, 0)).changed
        assert (stored.status, json.loads(stored.document)["status"]) == (status, status)

    @pytest.mark.parametrize(
        ("sql", "changed", "deleted"),
        [
            ("select 1", [], []),
            ("update campaign set status = 'paused' where id = 'b'", ["b"], []),
            ("delete from campaign where id in ('a', 'c')", [], ["a", "c"]),
            ("truncate campaign", [], ["a", "b", "c"]),
            (
                "update campaign set id = 'd', document = document || '{\"id\": \"d\"}'"
                " where id = 'a'",
                ["d"],
                ["a"],
            ),
            (
                "delete from campaign where id = 'a';"
                " insert into campaign values ('a', '{\"id\": \"a\"}')",
                ["a"],
                [],
            ),
        ],
    )
    async def test_changes_since(
        self, connection: asyncpg.Connection, sql: str, changed: list[str], deleted: list[str]
    ) -> None:
        await put(connection, "a", "b", "c")
        before = await campaigns.fetch_since(connection, 0)
        assert [row.id for row in before.changed] == ["a", "b", "c"]
        await connection.execute(sql)
        after = await campaigns.fetch_since(connection, before.revision)
        assert [row.id for row in after.changed] == changed
        assert sorted(after.deleted) == deleted
        again = await campaigns.fetch_since(connection, after.revision)
        assert again == campaigns.Changes(after.revision, (), ())

    async def test_a_slow_writer_is_not_missed(
        self, database: str, connection: asyncpg.Connection
    ) -> None:
        """Revisions become visible in their order, or a reader would pass over a late one."""
        async with connected(database) as slow, connected(database) as quick:
            transaction = slow.transaction()
            await transaction.start()
            await put(slow, "slow")
            second = asyncio.create_task(put(quick, "quick"))
            await lock_is_awaited(connection)
            seen = await campaigns.fetch_since(connection, 0)
            assert seen.changed == ()
            await transaction.commit()
            await second
            names = [row.id for row in (await campaigns.fetch_since(connection, 0)).changed]
            assert names == ["slow", "quick"]


@pytest.mark.parametrize(
    ("table", "fetch"),
    [
        ("warehouse_identity", fence.identity),
        ("warehouse_identity", lambda connection: fence.owner(connection, "e1", 0)),
        ("operator_rate_revision", rates.revision),
        ("suppression_key", persons.fetch_suppression),
        ("suppression_key", persons.fetch_key),
    ],
)
async def test_a_warehouse_that_is_being_restored_is_unavailable(
    connection: asyncpg.Connection, table: str, fetch: Callable[[asyncpg.Connection], Any]
) -> None:
    """Its tables exist, but have no rows yet. No event is to blame for the error."""
    await connection.execute(f"truncate {table}")
    with pytest.raises(asyncpg.CannotConnectNowError, match=f"{table} is empty") as caught:
        await fetch(connection)
    assert caught.value.sqlstate in STORE_ERRORS


@pytest.mark.parametrize(
    "sql",
    [
        "insert into ssp values ('nova', 'nova')",
        "update ssp set canonical = 'acme-eu' where descriptor = 'acme-eu'",
        "delete from ssp where descriptor = 'acme-eu'",
        "insert into campaign values ('b', '{\"id\": \"b\"}')",
        "update campaign set status = 'paused'",
        "delete from campaign",
        "truncate campaign",
    ],
)
async def test_every_change_is_announced(
    database: str, connection: asyncpg.Connection, sql: str
) -> None:
    await registry.add(connection, "acme")
    await registry.add(connection, "acme-eu", "acme")
    await put(connection, "a")
    async with connected(database) as listener:
        heard = asyncio.Event()
        await listener.add_listener("snapbid_catalog", lambda *_: heard.set())
        await connection.execute(sql)
        async with asyncio.timeout(WAIT_S):
            await heard.wait()


class TestReportTables:
    ROWS = (
        (
            "bid_daily",
            ("day", "descriptor", "bids", "wins", "win_cpm_micros"),
            ("acme-eu", 5, 2, 7),
        ),
        ("impression_daily", ("day", "ssp", "imps"), ("acme", 3)),
        ("loss_daily", ("day", "descriptor", "reason", "losses"), ("acme-eu", 102, 4)),
        (
            "campaign_daily",
            ("day", "campaign", "bids", "wins", "imps", "spend_micros"),
            ("c1", 5, 2, 3, 9),
        ),
    )

    @pytest.mark.parametrize(("table", "columns", "values"), ROWS, ids=[row[0] for row in ROWS])
    async def test_plain_inserts_add_up_beside_counted_rows(
        self,
        connection: asyncpg.Connection,
        table: str,
        columns: tuple[str, ...],
        values: tuple[Any, ...],
    ) -> None:
        names, places = ", ".join(columns), ", ".join(f"${n}" for n in range(1, len(columns) + 1))
        insert = f"insert into {table} ({names}) values ({places})"
        await connection.execute(insert, TODAY, *values)
        await connection.execute(insert, TODAY, *values)
        key = [
            name for name in columns if name in ("day", "descriptor", "ssp", "campaign", "reason")
        ]
        last = columns[-1]
        upsert = (
            f"insert into {table} ({names}, counted) values ({places}, true)"
            f" on conflict ({', '.join(key)}) where counted"
            f" do update set {last} = {table}.{last} + excluded.{last}"
        )
        await connection.execute(upsert, TODAY, *values)
        await connection.execute(upsert, TODAY, *values)
        assert await connection.fetchval(f"select count(*) from {table}") == 3
        total = await connection.fetchval(f"select sum({last}) from {table}")
        assert total == 4 * values[-1]


class TestDemo:
    async def test_an_empty_warehouse_is_seeded_once(
        self, database: str, connection: asyncpg.Connection
    ) -> None:
        assert await demo.seed(database)
        assert await registry.fetch_all(connection) == demo.SSPS
        stored = (await campaigns.fetch_since(connection, 0)).changed
        assert [row.id for row in stored] == [name for name, _ in demo.documents()]
        assert [parse(decode(row.document)).id for row in stored] == [row.id for row in stored]
        assert not await demo.seed(database)

    async def test_operator_data_is_left_alone(
        self, database: str, connection: asyncpg.Connection
    ) -> None:
        await registry.add(connection, "mine")
        assert not await demo.seed(database)
        assert await registry.fetch_all(connection) == {"mine": "mine"}
