"""Bases of the catalog that machines share through the warehouse."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from support.stack import connected, execute

from snapbid.match.catalog import Base
from snapbid.publisher import base, sharing
from snapbid.warehouse import bases, campaigns


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "FEWEST", 1)


@pytest.fixture
def machine(database: str) -> Iterator[None]:
    """The connection of a publisher."""
    with asyncio.Runner() as runner:
        named = {"application_name": bases.PUBLISHER}
        connection = runner.run(asyncpg.connect(database, server_settings=named))
        yield
        connection.terminate()


another_machine = machine


@pytest.fixture
def machines(machine: None, another_machine: None) -> None:
    """Two of them."""


async def fill(dsn: str, *ids: str) -> None:
    creative = {"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "x"}
    common = {"advertiser": "brand.example", "cpm": 2, "creatives": [creative]}
    async with connected(dsn) as connection:
        documents = [(id, json.dumps({"id": id, **common})) for id in ids]
        await campaigns.replace_many(connection, documents)


def make(dsn: str, folder: Path, after: int = -1, *, urgent: bool = False) -> tuple[Base, bytes]:
    folder.mkdir(exist_ok=True)
    made = asyncio.run(base.make(dsn, folder, after, urgent=urgent))
    assert [path.name for path in folder.iterdir()] == [made.name]
    return made, (folder / made.name).read_bytes()


def stored(dsn: str) -> int:
    async def count() -> int:
        async with connected(dsn) as connection:
            return int(await connection.fetchval("select count(*) from catalog_base"))

    return asyncio.run(count())


def fetches(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.getMessage().startswith("fetched") for record in caplog.records)


@pytest.mark.usefixtures("machines")
def test_another_machine_fetches(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(sharing, "PART", 100)
    asyncio.run(fill(database, "a", "b"))
    (built, content), (fetched, same) = (make(database, tmp_path / name) for name in "xy")
    assert (content, built.checksum, built.revision) == (same, fetched.checksum, fetched.revision)
    assert fetches(caplog) == 1
    make(database, tmp_path / "newer", built.revision)
    assert fetches(caplog) == 1


@pytest.mark.parametrize(
    "spoil",
    [
        "update catalog_base_part set content = set_byte(content, 70, get_byte(content, 70) # 1)",
        "delete from catalog_base_part",
        "update catalog_base_part set content = content || 'x'",
    ],
)
@pytest.mark.usefixtures("machines")
def test_a_damaged_base_is_built_anew(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: str
) -> None:
    caplog.set_level(logging.INFO)
    asyncio.run(fill(database, "a", "b"))
    _, content = make(database, tmp_path / "x")
    asyncio.run(execute(database, spoil))
    assert make(database, tmp_path / "y")[1] == content
    assert "is damaged; building one" in caplog.text
    assert fetches(caplog) == 0
    make(database, tmp_path / "z")
    assert fetches(caplog) == 1


@pytest.mark.usefixtures("machine")
def test_one_machine_stores_nothing(database: str, tmp_path: Path) -> None:
    asyncio.run(fill(database, "a"))
    make(database, tmp_path / "x")
    assert stored(database) == 0


@pytest.mark.usefixtures("machines")
def test_where_bids_wait(database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is stored is fetched; else one is built, whoever else is at that."""
    caplog.set_level(logging.INFO)
    asyncio.run(fill(database, "a", "b"))

    async def beside_another() -> None:
        async with connected(database) as other:
            assert await bases.lock(other, sharing.layout(), 1)
            (tmp_path / "x").mkdir()
            await base.make(database, tmp_path / "x", urgent=True)

    asyncio.run(beside_another())
    assert stored(database) == 0
    make(database, tmp_path / "y")
    assert fetches(caplog) == 0
    make(database, tmp_path / "z", urgent=True)
    assert fetches(caplog) == 1


def test_without_the_table_each_builds(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(fill(database, "a"))
    asyncio.run(execute(database, "drop table catalog_base cascade"))
    make(database, tmp_path / "x")
    assert "no base could be fetched" in caplog.text


@pytest.mark.usefixtures("machines")
def test_other_code_builds_its_own(
    database: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    asyncio.run(fill(database, "a"))
    make(database, tmp_path / "x")
    monkeypatch.setattr(sharing, "layout", lambda: "other")
    make(database, tmp_path / "y")
    assert fetches(caplog) == 0


def test_a_builder_that_dies_frees_the_lock(database: str) -> None:
    async def die() -> None:
        async with connected(database) as first, connected(database) as second:
            assert await bases.lock(first, "x", 1)
            assert not await bases.lock(second, "x", 0.05)
            first.terminate()
            assert await bases.lock(second, "x", 30)

    asyncio.run(die())


@pytest.mark.usefixtures("machines")
def test_two_at_once(database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    asyncio.run(fill(database, "a", "b"))

    async def both() -> list[Base]:
        for name in "xy":
            (tmp_path / name).mkdir()
        return await asyncio.gather(*(base.make(database, tmp_path / name) for name in "xy"))

    one, other = asyncio.run(both())
    assert one.checksum == other.checksum
    assert fetches(caplog) == 1
