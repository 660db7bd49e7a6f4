"""The publisher of members: changes reach the file, whatever is in the base (contract 12)."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from support.stack import Databases

from snapbid.catalog.catalog import CatalogError
from snapbid.catalog.members import OpenMembers, open_members
from snapbid.catalog.publisher import members as publishing
from snapbid.catalog.publisher.members import MemberPublisher
from snapbid.warehouse import audiences

PATIENCE_S = 60.0


class Bench:
    """A warehouse, the publisher, and the file as a worker follows it."""

    def __init__(self, dsn: str, connection: asyncpg.Connection, path: Path) -> None:
        self.dsn, self.connection, self.path = dsn, connection, path
        self.opened: OpenMembers | None = None
        self.start()

    def start(self) -> None:
        self._task = asyncio.create_task(MemberPublisher(self.dsn, self.path).follow())

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def put(self, *members: int, audience: int, until: str = "infinity") -> None:
        async with self.connection.transaction():
            await audiences.hold(self.connection)
            await self.connection.execute(
                "insert into audience_member select member, $2, $3::text::timestamptz,"
                " nextval('audience_revision') from unnest($1::bigint[]) as m (member)"
                " on conflict (member, audience) do update set until = excluded.until,"
                " revision = excluded.revision",
                list(members),
                audience,
                until,
            )

    async def publishes(self, expected: dict[int, tuple[list[str], list[str]]]) -> None:
        """Wait until this is what a worker finds of each member."""
        deadline, found = time.monotonic() + PATIENCE_S, None
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError, CatalogError):
                self.opened = open_members(self.path, self.opened)
                now = time.time_ns() // 1_000_000
                found = {each: self.opened.members.look_up(each, now) for each in expected}
                if found == expected:
                    return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{found} instead of {expected}")


@pytest.fixture
async def bench(database: str, tmp_path: Path) -> AsyncIterator[Bench]:
    connection = await asyncpg.connect(database)
    await connection.execute("insert into audience (id) values ('one'), ('two')")
    await connection.execute("insert into audience (product) values ('casino')")
    bench = Bench(database, connection, tmp_path / "members")
    yield bench
    await bench.stop()
    await bench.connection.close()


async def test_changes_reach_the_file(bench: Bench) -> None:
    await bench.publishes({7: ([], [])})
    await bench.put(7, -7, audience=1)
    await bench.put(7, audience=3)
    await bench.publishes({7: (["one"], ["casino"]), -7: (["one"], []), 8: ([], [])})
    await bench.put(7, audience=1, until="2020-01-01T00:00:00Z")
    await bench.publishes({7: ([], ["casino"])})
    await bench.connection.execute("delete from audience where id = 'one'")
    await bench.publishes({-7: ([], [])})


async def test_a_restart_goes_on_from_the_base(bench: Bench) -> None:
    await bench.put(*range(100), audience=1)
    await bench.publishes({50: (["one"], [])})
    await bench.stop()
    await bench.put(50, audience=1, until="2020-01-01T00:00:00Z")
    await bench.put(200, audience=2)
    bench.start()
    await bench.publishes({50: ([], []), 51: (["one"], []), 200: (["two"], [])})


async def test_a_base_newer_than_a_restored_warehouse_is_not_used(
    bench: Bench, databases: Databases
) -> None:
    """Even if it had as many changes since, before the publisher looked at it."""
    await bench.put(1, audience=1)
    await bench.publishes({1: (["one"], [])})
    await bench.stop()
    await bench.connection.close()
    backup = databases.copy(bench.dsn)
    bench.connection = await asyncpg.connect(bench.dsn)
    await bench.put(*range(100, 110), audience=2)
    bench.path.unlink()  # so that a base is made
    bench.start()
    await bench.publishes({1: (["one"], []), 100: (["two"], [])})
    await bench.stop()
    await bench.connection.close()
    databases.restore(backup, bench.dsn)
    bench.connection = await asyncpg.connect(bench.dsn)
    await bench.put(*range(200, 220), audience=3)
    bench.start()
    await bench.publishes({1: (["one"], []), 100: ([], []), 200: ([], ["casino"])})


async def test_a_restored_backup_is_published(bench: Bench, databases: Databases) -> None:
    """Under the publisher's session, which no statement fails."""
    await bench.put(1, audience=1)
    await bench.put(2, audience=3)
    await bench.publishes({1: (["one"], []), 2: ([], ["casino"])})
    dump = databases.dump(bench.dsn)
    await bench.put(1, 3, audience=2)
    await bench.put(2, audience=3, until="2020-01-01T00:00:00Z")
    await bench.publishes({1: (["one", "two"], []), 2: ([], []), 3: (["two"], [])})
    await asyncio.to_thread(databases.restore_in_place, dump, bench.dsn)
    await bench.publishes({1: (["one"], []), 2: ([], ["casino"]), 3: ([], [])})
    await bench.put(4, audience=3)
    await bench.publishes({3: ([], []), 4: ([], ["casino"])})


async def test_a_base_is_made_again_beside_further_changes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "LEAST", 10)
    monkeypatch.setattr(publishing, "PAGE", 7)
    chance = random.Random(5)
    present: set[int] = set()
    for _ in range(8):
        added = {chance.randint(-(2**63), 2**63 - 1) for _ in range(15)}
        ended = set(chance.sample(sorted(present), min(5, len(present))))
        await bench.put(*added, audience=1)
        await bench.put(*ended, audience=1, until="2020-01-01T00:00:00Z")
        present = (present - ended) | added
        gone: dict[int, tuple[list[str], list[str]]] = {each: ([], []) for each in ended}
        await bench.publishes({each: (["one"], []) for each in present} | gone)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        opened = open_members(bench.path, bench.opened)
        if opened.base is not None and opened.base.count >= len(present) - 10:
            break
        await asyncio.sleep(0.05)
    assert opened.base is not None
    assert opened.base.count >= len(present) - 10
    deadline = time.monotonic() + PATIENCE_S
    while len(list(bench.path.parent.glob("members-*"))) > 1 and time.monotonic() < deadline:
        await bench.put(chance.randint(0, 9), audience=2)
        await asyncio.sleep(0.05)
    assert len(list(bench.path.parent.glob("members-*"))) == 1


async def test_a_missing_base_is_made_again(bench: Bench) -> None:
    await bench.put(1, audience=1)
    await bench.publishes({1: (["one"], [])})
    (base,) = bench.path.parent.glob("members-*")
    base.unlink()
    bench.opened = None
    await bench.publishes({1: (["one"], [])})


@pytest.mark.parametrize("damage", [b"", b"nonsense"])
async def test_a_damaged_file_is_replaced(bench: Bench, damage: bytes) -> None:
    await bench.put(1, audience=1)
    await bench.publishes({1: (["one"], [])})
    bench.path.write_bytes(damage)
    deadline = time.monotonic() + PATIENCE_S
    while bench.path.read_bytes() == damage:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    await bench.publishes({1: (["one"], [])})
