"""The audit trail: every change of what an operator sets, by whom, and nothing but changes."""

import asyncio
import json
import os
import pwd
import socket
from collections.abc import Callable
from ipaddress import ip_interface
from pathlib import Path
from typing import Any, get_args

import asyncpg
import pytest
from support.commands import invoke, succeed
from support.stack import execute

from snapbid.cli.audit import KINDS, _user
from snapbid.warehouse import audit, campaigns, products, registry
from snapbid.warehouse.audit import AuditEntry, Kind

USER = f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"
SECRET = "0123456789abcdef0123456789abcdef"
CAMPAIGN: dict[str, Any] = {
    "id": "c1",
    "advertiser": "shop.example",
    "cpm": 2.5,
    "creatives": [{"id": "n", "media": "banner", "w": 300, "h": 250, "adm": "<img>" * 50}],
}


@pytest.fixture
def cli(database: str) -> Callable[..., str]:
    environ = {"SNAPBID_DATABASE_URL": database, "SNAPBID_JWT_SECRET": SECRET, "SUDO_USER": ""}

    def call(*arguments: str, **more: Any) -> str:
        return succeed(environ, *arguments, **more)

    return call


def entries(cli: Callable[..., str], *arguments: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(cli("audit", "--json", *arguments))
    return listed


def told(listed: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(each["kind"], each["object"], each["action"]) for each in listed]


def actions(listed: list[AuditEntry]) -> list[tuple[str, str | None, str, int]]:
    return [(each.kind, each.object, each.action, each.count) for each in listed]


def document(name: str, **change: Any) -> tuple[str, str]:
    return name, json.dumps({"id": name, "cpm": 1.5, **change})


def test_changes_by_commands(cli: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "campaigns.json"
    assert entries(cli) == []
    cli("ssp", "add", "acme")
    cli("ssp", "add", "nova")
    cli("ssp", "add", "nova", "--canonical", "acme")
    cli("ssp", "add", "nova", "--canonical", "acme")  # changes nothing
    file.write_text(json.dumps(CAMPAIGN))
    cli("campaign", "import", str(file))
    cli("campaign", "import", str(file))  # changes nothing
    cli("campaign", "pause", "c1")
    cli("campaign", "resume", "c1")
    file.write_text(json.dumps(CAMPAIGN | {"cpm": 250, "creatives": CAMPAIGN["creatives"] * 1}))
    cli("campaign", "import", str(file))
    key = cli("key", "issue", "shop", "--preset", "igaming").strip()
    (listed,) = json.loads(cli("key", "list", "--json"))
    cli("key", "revoke", key)
    token = cli("token", "issue", "acme").strip()

    everything = entries(cli)
    assert told(everything) == [
        ("ssp", "acme", "added"),
        ("ssp", "nova", "added"),
        ("ssp", "nova", "changed"),
        ("campaign", "c1", "added"),
        ("campaign", "c1", "paused"),
        ("campaign", "c1", "resumed"),
        ("campaign", "c1", "changed"),
        ("product", "shop", "added"),
        ("key", listed["id"], "added"),
        ("key", listed["id"], "removed"),
        ("token", "acme", "issued"),
    ]
    assert {each["actor"] for each in everything} == {USER}
    assert [each["application"] for each in everything][2:5] == [
        "snapbid ssp add", "snapbid campaign import", "snapbid campaign pause",
    ]  # fmt: skip
    details = [each["detail"] for each in everything]
    assert details[2] == {"canonical": ["nova", "acme"]}
    assert details[3]["cpm"] == [None, 2.5]
    assert details[3]["creatives"] is None  # long
    assert details[4] == {"status": ["active", "paused"]}
    assert details[6] == {"cpm": [2.5, 250]}
    assert details[8].keys() == {"product", "rate", "events", "issued_at"}
    shown = json.dumps(everything)
    assert key not in shown
    assert token not in shown
    assert token.split(".")[2] not in shown


def test_who_may_send_as_an_ssp(cli: Callable[..., str]) -> None:
    cli("ssp", "add", "acme")
    cli("ssp", "set", "acme", "--allow", "192.0.2.0/24", "--qps", "5")
    cli("ssp", "set", "acme", "--qps", "5")  # changes nothing
    cli("ssp", "remove", "acme")
    everything = entries(cli)
    assert told(everything) == [
        ("ssp", "acme", "added"),
        ("ssp", "acme", "changed"),
        ("ssp", "acme", "removed"),
    ]
    assert everything[1]["detail"] == {"allow": [[], ["192.0.2.0/24"]], "qps": [None, 5]}


def test_keys_of_a_warehouse_that_writes_bytes_as_text(
    cli: Callable[..., str], database: str
) -> None:
    asyncio.run(execute(database, 'alter role current_user set bytea_output = "escape"'))
    try:
        cli("key", "issue", "shop")
        (id,) = [line.split()[0] for line in cli("key", "list").splitlines()[1:]]
        assert told(entries(cli, id)) == [("key", id, "added")]
    finally:
        asyncio.run(execute(database, "alter role current_user reset bytea_output"))


def test_what_is_listed(cli: Callable[..., str], database: str) -> None:
    cli("ssp", "add", "acme")
    asyncio.run(execute(database, "insert into ssp values ('nova', 'nova')"))
    cli("ssp", "add", "zeta")
    first, second, third = entries(cli)
    assert (second["actor"], second["role"], second["address"]) == (None, first["role"], None)
    assert entries(cli, "nova") == [second]
    assert entries(cli, "nova", "--kind", "campaign") == []
    assert entries(cli, "--kind", "ssp", "--limit", "2") == [second, third]
    assert entries(cli, "--since", second["at"]) == [second, third]
    assert entries(cli, "--until", second["at"]) == [first]
    assert entries(cli, "--since", "2001-01-01", "--until", "2001-01-02T10:00") == []
    _, *lines = [line.split("\t") for line in cli("audit").splitlines()]
    assert [line[1:5] for line in lines] == [
        ["ssp", "acme", "added", USER],
        ["ssp", "nova", "added", f"role {second['role']}"],
        ["ssp", "zeta", "added", USER],
    ]
    assert lines[0][5] == "canonical  -> acme; descriptor  -> acme"


def test_a_wrong_time_is_refused(database: str) -> None:
    done = invoke({"SNAPBID_DATABASE_URL": database}, "audit", "--since", "yesterday")
    assert done.returncode == 2
    assert "must be a time like 2026-01-31" in done.stderr


def test_sudo_user_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert audit.this_user() == f"root@{socket.gethostname()} (sudo by alice)"
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert audit.this_user() == f"4000000@{socket.gethostname()}"


def test_the_kinds_are_those_of_the_warehouse() -> None:
    assert get_args(Kind) == KINDS


class TestPlainSql:
    async def test_it_is_recorded(self, connection: asyncpg.Connection) -> None:
        await registry.add(connection, "acme")
        await campaigns.replace_many(connection, [document("a"), document("b")])
        await connection.execute("update campaign set status = 'paused' where id = 'b'")
        await connection.execute("update campaign set status = 'paused'")
        await connection.execute(
            "update campaign set id = 'z', document = document || '{\"id\": \"z\"}' where id = 'a'"
        )
        await connection.execute("delete from campaign")
        await connection.execute("delete from ssp")
        assert actions(await audit.fetch(connection)) == [
            ("ssp", "acme", "added", 1),
            ("campaign", "a", "added", 1),
            ("campaign", "b", "added", 1),
            ("campaign", "b", "paused", 1),
            ("campaign", "a", "paused", 1),
            ("campaign", "a", "removed", 1),
            ("campaign", "z", "added", 1),
            ("campaign", "b", "removed", 1),
            ("campaign", "z", "removed", 1),
            ("ssp", "acme", "removed", 1),
        ]

    async def test_a_product_takes_its_keys_along(self, connection: asyncpg.Connection) -> None:
        key = await products.issue(connection, "shop")
        (issued,) = await products.fetch_issued(connection)
        await connection.execute("delete from product")
        await products.issue(connection, "shop")
        await connection.execute("truncate product cascade")
        told = actions(await audit.fetch(connection))
        assert set(told[2:4]) == {
            ("product", "shop", "removed", 1),
            ("key", issued.id, "removed", 1),
        }
        assert told[6:] == [("product", None, "removed", 1), ("key", None, "removed", 1)]
        assert key not in str(told)

    async def test_rolled_back_changes_are_not_recorded(
        self, connection: asyncpg.Connection
    ) -> None:
        transaction = connection.transaction()
        await transaction.start()
        await registry.add(connection, "acme")
        assert len(await audit.fetch(connection)) == 1
        await transaction.rollback()
        assert await audit.fetch(connection) == []

    @pytest.mark.parametrize(
        "statement", ["update audit set actor = 'bob'", "delete from audit", "truncate audit"]
    )
    async def test_entries_cannot_be_changed_or_removed(
        self, connection: asyncpg.Connection, statement: str
    ) -> None:
        await registry.add(connection, "acme")
        with pytest.raises(asyncpg.RestrictViolationError, match="cannot be changed or removed"):
            await connection.execute(statement)
        assert len(await audit.fetch(connection)) == 1


class TestMany:
    async def test_a_statement_for_many_is_one_entry(self, connection: asyncpg.Connection) -> None:
        names = [f"c{number}" for number in range(1001)]
        await campaigns.replace_many(connection, [document(name) for name in names])
        await campaigns.replace_many(
            connection, [document(name, cpm=2) for name in [*names[:-1], "new"]]
        )
        await connection.execute("update campaign set status = 'paused' where id <> 'c0'")
        await connection.execute("update campaign set status = 'paused'")
        await connection.execute("delete from campaign where id <> 'c0'")
        listed = await audit.fetch(connection, most=10_000)
        assert actions(listed) == [
            ("campaign", None, "added", 1001),
            ("campaign", "c0", "changed", 1),
            *(("campaign", name, "changed", 1) for name in names[1:-1]),
            ("campaign", "new", "added", 1),
            ("campaign", None, "changed", 1001),
            ("campaign", None, "changed", 1002),  # all have a new revision
            ("campaign", None, "removed", 1001),
        ]
        assert listed[0].detail == {"revisions": [1, 1001]}

    async def test_it_is_listed_for_each_campaign(self, connection: asyncpg.Connection) -> None:
        names = [f"c{number}" for number in range(1001)]
        await campaigns.replace_many(connection, [document(name) for name in names])
        await campaigns.set_status(connection, "c7", "paused")
        assert actions(await audit.fetch(connection, object="c7")) == [
            ("campaign", None, "added", 1001),
            ("campaign", "c7", "paused", 1),
        ]
        assert len(await audit.fetch(connection, object="c8")) == 1
        assert await audit.fetch(connection, object="d8") == []


def test_network_clients_are_recorded_with_their_address() -> None:
    row = {
        "id": 1, "at": None, "kind": "ssp", "object": "a", "action": "added", "count": 1,
        "detail": None, "actor": None, "role": "r", "application": "psql",
        "address": ip_interface("192.0.2.1/32"),
    }  # fmt: skip
    entry = audit._entry(row)
    assert _user(entry) == "role r@192.0.2.1 (psql)"
