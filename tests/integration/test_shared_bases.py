"""Bases of the catalog that machines share through the warehouse."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.campaigns import document, put
from support.processes import eventually
from support.stack import connected, execute, fetch

from snapbid.catalog.catalog import Base, Catalog
from snapbid.catalog.members import MEMBERS
from snapbid.catalog.publisher import base, publisher, sharing
from snapbid.catalog.publisher.publisher import CatalogPublisher
from snapbid.warehouse import bases


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "FEWEST", 1)


@pytest.fixture
def machine(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A machine that publishes campaigns and members."""
    published = tmp_path_factory.mktemp("machine")
    running = CatalogPublisher(database, published / "catalog")
    running.start()
    try:
        eventually(lambda: running.published_at is not None, "campaigns to be published")
        eventually((published / MEMBERS).exists, "members to be published")
        yield
    finally:
        running.stop()


another_machine = machine


@pytest.fixture
def machines(machine: None, another_machine: None) -> None:
    """Two of them."""


def make(dsn: str, folder: Path, after: int = -1, *, urgent: bool = False) -> tuple[Base, bytes]:
    folder.mkdir(exist_ok=True)
    made = asyncio.run(base.make(dsn, folder, after, urgent=urgent)).base
    assert [path.name for path in folder.iterdir()] == [made.name]
    return made, (folder / made.name).read_bytes()


def stored(dsn: str) -> int:
    return len(asyncio.run(fetch(dsn, "select from catalog_base")))


def fetches(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.getMessage().startswith("fetched") for record in caplog.records)


@pytest.mark.usefixtures("machines")
def test_another_machine_fetches(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(sharing, "PART", 100)
    asyncio.run(put(database, *map(document, "ab")))
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
    asyncio.run(put(database, *map(document, "ab")))
    _, content = make(database, tmp_path / "x")
    asyncio.run(execute(database, spoil))
    assert make(database, tmp_path / "y")[1] == content
    assert "is damaged; building one" in caplog.text
    assert fetches(caplog) == 0
    make(database, tmp_path / "z")
    assert fetches(caplog) == 1


@pytest.mark.usefixtures("machine")
def test_one_machine_stores_nothing(database: str, tmp_path: Path) -> None:
    asyncio.run(put(database, document("a")))
    make(database, tmp_path / "x")
    assert stored(database) == 0


@pytest.mark.usefixtures("machines")
def test_where_bids_wait(database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is stored is fetched; else one is built, whoever else is at that."""
    caplog.set_level(logging.INFO)
    asyncio.run(put(database, *map(document, "ab")))

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
    asyncio.run(put(database, document("a")))
    asyncio.run(execute(database, "drop table catalog_base cascade"))
    make(database, tmp_path / "x")
    assert "failed to fetch a base" in caplog.text


@pytest.mark.usefixtures("machines")
def test_other_code_builds_its_own(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    asyncio.run(put(database, document("a")))
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
    asyncio.run(put(database, *map(document, "ab")))

    async def both() -> list[sharing.ObtainedBase]:
        for name in "xy":
            (tmp_path / name).mkdir()
        makings = (base.make(database, tmp_path / name) for name in "xy")
        return await asyncio.gather(*makings)

    one, other = asyncio.run(both())
    assert one.base.checksum == other.base.checksum
    assert sorted([one.is_fetched, other.is_fetched]) == [False, True]
    assert fetches(caplog) == 1


def test_of_two_publishers_one_builds_and_the_other_fetches(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose process has `FEWEST` as it is; so it is left out, and the base made in a thread."""

    async def attempt(order: base.Order) -> sharing.ObtainedBase:
        work = base.make(order.dsn, Path(order.folder), order.after, urgent=order.urgent)
        return await asyncio.to_thread(asyncio.run, work)

    monkeypatch.setattr(base, "_attempt", attempt)
    monkeypatch.setattr(publisher, "MOST", 1)
    with contextlib.ExitStack() as stack:
        machines = {}
        for name in "xy":
            (tmp_path / name).mkdir()
            machines[name] = CatalogPublisher(database, tmp_path / name / "catalog")
            machines[name].start()
            stack.callback(machines[name].stop)
        published = machines.values()
        eventually(lambda: all(each.published_at for each in published), "an empty catalog")
        asyncio.run(put(database, *map(document, "abc")))
        eventually(lambda: all(sum(each.bases.values()) for each in published), "bases")
        assert sorted(each.bases["fetched"] for each in published) == [0, 1]
        both = [tmp_path / name / "catalog" for name in "xy"]

        def checksums() -> set[int | None]:
            opened = [Catalog.open(path).base for path in both]
            return {each.checksum if each else None for each in opened}

        eventually(lambda: None not in checksums(), "the bases to be published")
        assert len(checksums()) == 1
