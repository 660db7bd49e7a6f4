"""The publisher against a real warehouse: what is published, and when."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.campaigns import document, put
from support.processes import eventually
from support.stack import execute

from snapbid.catalog import catalog
from snapbid.catalog.catalog import Catalog, CatalogError, Stamp
from snapbid.catalog.publisher.publisher import CatalogPublisher


async def fill(dsn: str, *ids: str, ssp: str = "acme") -> None:
    await put(dsn, *map(document, ids), ssp=ssp)


@pytest.fixture
def path(database: str, tmp_path: Path) -> Iterator[Path]:
    """Where a running publisher writes; it is stopped afterwards."""
    publisher = CatalogPublisher(database, tmp_path / "catalog")
    publisher.start()
    yield tmp_path / "catalog"
    publisher.stop()


def ids(path: Path) -> list[str]:
    index = Catalog.open(path).index
    return [id for id in ("a", "b", "c") if index.rank(id) is not None]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def scribble(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-40, os.SEEK_END)
        file.write(b"scribble")


def is_whole(path: Path) -> bool:
    try:
        Catalog.open(path)
    except CatalogError:
        return False
    return True


def test_an_empty_warehouse_is_published(path: Path) -> None:
    eventually(path.exists, "a catalog")
    catalog = Catalog.open(path)
    assert (len(catalog), catalog.ssps) == (0, {})
    assert {"USD", "EUR", "GBP", "JPY"} <= catalog.rates.usd.keys()


def test_changes_are_published(database: str, path: Path) -> None:
    asyncio.run(fill(database, "a", "b"))
    eventually(lambda: path.exists() and ids(path) == ["a", "b"], "both campaigns")
    eventually(lambda: Catalog.open(path).ssps == {"acme": "acme"}, "the SSP")
    asyncio.run(execute(database, "delete from campaign where id = 'a'"))
    eventually(lambda: ids(path) == ["b"], "one deleted")
    asyncio.run(fill(database, "c", ssp="nova"))
    eventually(lambda: ids(path) == ["b", "c"], "one added")
    eventually(lambda: "nova" in Catalog.open(path).ssps, "the SSP")
    dearer = json.dumps(document("b", cpm=7))
    asyncio.run(
        execute(database, "update campaign set document = $1::jsonb where id = 'b'", dearer)
    )
    eventually(lambda: Catalog.open(path).index.price(0) == 7_000_000, "the new price")


def test_invalid_documents_are_left_out(database: str, path: Path) -> None:
    asyncio.run(fill(database, "a"))
    eventually(lambda: path.exists() and ids(path) == ["a"], "the campaign")
    broken = json.dumps(document("a", cpm=-1))
    asyncio.run(
        execute(database, "update campaign set document = $1::jsonb where id = 'a'", broken)
    )
    eventually(lambda: ids(path) == [], "that it bids no more")
    asyncio.run(fill(database, "a", "b"))
    eventually(lambda: ids(path) == ["a", "b"], "that it bids again")


def test_lost_catalogs_are_rewritten(database: str, path: Path) -> None:
    asyncio.run(fill(database, "a"))
    eventually(lambda: path.exists() and ids(path) == ["a"], "the campaign")
    path.unlink()
    asyncio.run(execute(database, "select pg_notify('snapbid_catalog', '')"))
    eventually(path.exists, "the catalog")
    assert ids(path) == ["a"]


@pytest.mark.parametrize("spoil", [cut, scribble])
def test_damaged_catalogs_are_rewritten(
    database: str, path: Path, spoil: Callable[[Path], None]
) -> None:
    asyncio.run(fill(database, "a"))
    eventually(lambda: path.exists() and ids(path) == ["a"], "the campaign")
    spoil(path)
    with pytest.raises(CatalogError):
        Catalog.open(path)
    asyncio.run(execute(database, "select pg_notify('snapbid_catalog', '')"))
    eventually(lambda: is_whole(path), "a whole catalog")
    assert ids(path) == ["a"]


def test_it_waits_for_a_warehouse_that_is_unavailable(
    database: str, postgres_dsn: str, tmp_path: Path
) -> None:
    asyncio.run(fill(database, "a"))
    name = database.rpartition("///")[2].partition("?")[0]
    asyncio.run(execute(postgres_dsn, f'alter database "{name}" allow_connections false'))
    publisher = CatalogPublisher(database, tmp_path / "catalog")
    publisher.start()
    try:
        asyncio.run(execute(postgres_dsn, f'alter database "{name}" allow_connections true'))
        eventually((tmp_path / "catalog").exists, "a catalog")
        assert ids(tmp_path / "catalog") == ["a"]
    finally:
        publisher.stop()


def test_stopping_at_once(database: str, tmp_path: Path) -> None:
    before = threading.enumerate()
    publisher = CatalogPublisher(database, tmp_path / "catalog")
    publisher.start()
    (thread,) = set(threading.enumerate()) - {*before}
    publisher.stop()
    assert not thread.is_alive()


def test_a_catalog_that_cannot_be_written_is_not_up_to_date(
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, attempts, write = tmp_path / "catalog", list[float](), catalog.write

    def attempt(at: Path, pieces: list[catalog.Buffer]) -> Stamp:
        if at == path:
            attempts.append(time.time())
        return write(at, pieces)

    names = ("catalog", "members")
    for name in names:
        (tmp_path / f"{name}.{os.getpid()}").mkdir()  # where they would be written
    monkeypatch.setattr(catalog, "write", attempt)
    asyncio.run(fill(database, "a"))
    publisher = CatalogPublisher(database, path)
    publisher.start()
    try:
        eventually(lambda: len(attempts) > 2, "three attempts")
        assert publisher.checked_at is None
        why = [f"{tmp_path / name} cannot be written: Is a directory" for name in names]
        eventually(lambda: all(text in caplog.text for text in why), "the reasons")
        assert [caplog.text.count(text) for text in why] == [1, 1]
        assert "warehouse" not in caplog.text
        (tmp_path / f"catalog.{os.getpid()}").rmdir()
        eventually(lambda: publisher.checked_at is not None, "the catalog to be up to date")
        assert ids(path) == ["a"]
    finally:
        publisher.stop()
