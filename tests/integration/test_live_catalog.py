"""A catalog of a base and an overlay, kept by a running publisher over a real warehouse."""

import asyncio
import itertools
import json
import logging
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support import oracle, strategies
from support.agreement import assert_agrees
from support.campaigns import document, put
from support.commands import succeed
from support.processes import eventually
from support.snapshot import AROUND, snapshot_of_catalog
from support.stack import Databases, clean_environ, connected, execute

from snapbid.catalog.catalog import Catalog, CatalogError
from snapbid.catalog.publisher import overlay, publisher
from snapbid.catalog.publisher.base import make_base
from snapbid.catalog.publisher.publisher import CatalogPublisher
from snapbid.catalog.publisher.sharing import ObtainedBase
from snapbid.reference import rates
from snapbid.warehouse import campaigns, registry
from snapbid.warehouse.bases import PUBLISHER
from snapbid.warehouse.campaigns import WarehouseState

RUN = """
import sys, signal
from pathlib import Path
from snapbid.catalog.publisher import overlay
from snapbid.catalog.publisher.publisher import CatalogPublisher
overlay.LEAST = 5
CatalogPublisher(sys.argv[1], Path(sys.argv[2])).start()
signal.pause()
"""


POINT = {"lat": 1, "lon": 1, "km": 1}


def names(count: int, start: int = 0) -> list[str]:
    return [f"c{number}" for number in range(start, start + count)]


async def standing(dsn: str) -> WarehouseState:
    async with connected(dsn) as connection:
        return await campaigns.fetch_state(connection)


def opened(path: Path) -> Catalog | None:
    try:
        return Catalog.open(path)
    except FileNotFoundError:
        return None


def caught_up(dsn: str, path: Path) -> Catalog:
    """The catalog, once all changes until now are in it."""
    wanted = asyncio.run(standing(dsn)).revision
    catalogs: list[Catalog] = []

    def look() -> bool:
        catalog = opened(path)
        if catalog is not None and catalog.revision >= wanted:
            catalogs.append(catalog)
        return bool(catalogs)

    eventually(look, f"revision {wanted}")
    return catalogs[0]


def prices(catalog: Catalog, ids: list[str]) -> dict[str, int]:
    """The prices of those that are there, in USD."""
    ranks = {id: catalog.index.rank(id) for id in ids}
    return {
        id: catalog.index.price(rank) // 10**6 for id, rank in ranks.items() if rank is not None
    }


def bases(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.glob("base-*"))


@contextmanager
def publishing(dsn: str, path: Path) -> Iterator[None]:
    running = CatalogPublisher(dsn, path)
    running.start()
    try:
        yield
    finally:
        running.stop()


def await_base(path: Path, other: str | None = None) -> Catalog:
    """The catalog, once it has a base (another one), alone in its folder."""

    def look() -> bool:
        catalog = opened(path)
        base = catalog.base if catalog else None
        return base is not None and base.name != other and bases(path) == [base.name]

    eventually(look, "a new base")
    return Catalog.open(path)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where to publish; more than five changes make a new base."""
    monkeypatch.setattr(overlay, "LEAST", 5)
    return tmp_path / "catalog"


def test_many_campaigns_become_a_base(database: str, path: Path) -> None:
    ids = names(8)
    asyncio.run(put(database, *map(document, ids)))
    with publishing(database, path):
        catalog = await_base(path)
        assert catalog.base is not None
        assert catalog.base.campaigns == 8
        assert prices(catalog, ids) == dict.fromkeys(ids, 2)
        asyncio.run(put(database, document("c0", cpm=7), document("new")))
        asyncio.run(execute(database, "delete from campaign where id = 'c1'"))
        asyncio.run(execute(database, "update campaign set status = 'paused' where id = 'c2'"))
        after = caught_up(database, path)
        assert after.base == catalog.base
        expected = {"new": 2, **dict.fromkeys(ids, 2), "c0": 7}
        del expected["c1"]
        assert prices(after, [*ids, "new"]) == expected
        asyncio.run(put(database, *map(document, names(8, 100))))
        last = await_base(path, catalog.base.name)
        assert last.base is not None
        assert last.base.campaigns == 16
        assert len(last) == 16
        assert prices(last, [*ids, "new"]) == expected


def test_large_campaigns_become_a_base(
    database: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few they are."""
    monkeypatch.setattr(overlay, "LEAST_BYTES", 1_000_000)
    domains = [f"host{number}.example" for number in range(20_000)]
    large = document("large", targeting={"domain": {"exclude": domains}})
    with publishing(database, path):
        asyncio.run(put(database, document("small")))
        assert caught_up(database, path).base is None
        asyncio.run(put(database, large))
        assert prices(await_base(path), ["large", "small"]) == {"large": 2, "small": 2}


def test_more_changes_than_one_round_takes(
    database: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "MOST", 10)
    ids = names(20)
    asyncio.run(put(database, *map(document, ids)))
    with publishing(database, path):
        first = await_base(path)
        assert prices(first, ids) == dict.fromkeys(ids, 2)
        asyncio.run(put(database, *(document(id, cpm=3) for id in ids)))
        asyncio.run(put(database, document("c0", cpm=4)))
        after = caught_up(database, path)
        assert prices(after, ids) == {**dict.fromkeys(ids, 3), "c0": 4}


def test_the_next_publisher_goes_on_from_the_base(database: str, path: Path) -> None:
    ids = names(8)
    asyncio.run(put(database, *map(document, ids)))
    with publishing(database, path):
        before = await_base(path)
    asyncio.run(put(database, document("c0", cpm=7)))
    with publishing(database, path):
        after = caught_up(database, path)
        assert after.base == before.base
        assert prices(after, ids) == {**dict.fromkeys(ids, 2), "c0": 7}


def test_a_base_newer_than_a_restored_backup_is_not_used(
    database: str, path: Path, databases: Databases
) -> None:
    """As many campaigns have changed before the publisher starts again."""
    ids = names(8)
    asyncio.run(put(database, *map(document, ids)))
    dump = databases.dump(database)
    asyncio.run(put(database, *(document(id, cpm=7) for id in ids)))
    with publishing(database, path):
        await_base(path)
    databases.restore_in_place(dump, database)
    for cpm in range(2, 30):
        asyncio.run(put(database, document("new", cpm=cpm)))
    restored = dict.fromkeys(ids, 2)
    with publishing(database, path):
        eventually(lambda: prices(Catalog.open(path), ids) == restored, "the restored campaigns")


@pytest.mark.parametrize("count", [3, 8], ids=["overlay", "base"])
def test_a_restored_backup_is_published(
    database: str,
    path: Path,
    databases: Databases,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under the publisher's session, which no statement fails; nobody notifies it."""
    monkeypatch.setattr(publisher, "CHECK_EVERY_S", 0.5)
    ids = names(count)
    asyncio.run(put(database, *map(document, ids)))
    dump = databases.dump(database)
    with publishing(database, path):
        asyncio.run(put(database, document("lost"), document("c0", cpm=7)))
        assert prices(caught_up(database, path), ["c0", "lost"]) == {"c0": 7, "lost": 2}
        databases.restore_in_place(dump, database)
        restored = dict.fromkeys(ids, 2)
        wanted = [*ids, "lost"]
        eventually(lambda: prices(Catalog.open(path), wanted) == restored, "what is restored")
        asyncio.run(put(database, document("new")))
        wanted.append("new")
        eventually(lambda: prices(Catalog.open(path), wanted) == restored | {"new": 2}, "a new one")


def cut(base: Path) -> None:
    base.write_bytes(base.read_bytes()[:-1])


def damage(base: Path) -> None:
    data = bytearray(base.read_bytes())
    data[-1] ^= 1
    base.write_bytes(data)


@pytest.mark.parametrize("spoil", [Path.unlink, cut, damage])
def test_incomplete_bases_are_rebuilt(
    database: str, path: Path, spoil: Callable[[Path], None]
) -> None:
    ids = names(8)
    asyncio.run(put(database, *map(document, ids)))
    with publishing(database, path):
        before = await_base(path)
    assert before.base is not None
    name = before.base.name
    spoil(path.with_name(name))
    with publishing(database, path):
        eventually(lambda: name not in bases(path), "that it is gone")
        after = await_base(path, name)
        assert prices(after, ids) == dict.fromkeys(ids, 2)


def test_a_base_of_another_warehouse_is_not_used(
    database: str, module_database: str, path: Path
) -> None:
    asyncio.run(put(module_database, *map(document, names(8))))
    with publishing(module_database, path):
        before = await_base(path)
    asyncio.run(put(database, *map(document, names(30, 50))))
    with publishing(database, path):
        catalog = await_base(path, before.base.name if before.base else None)
        assert prices(catalog, names(80)) == dict.fromkeys(names(30, 50), 2)


@pytest.mark.parametrize("rewrite", ["truncate campaign", "vacuum full campaign"])
def test_a_base_is_used_after_the_table_was_rewritten(
    database: str, path: Path, caplog: pytest.LogCaptureFixture, rewrite: str
) -> None:
    """While the publisher is connected: a rewritten table changes the warehouse's name."""
    asyncio.run(put(database, *map(document, names(8))))
    with publishing(database, path):
        before = await_base(path)
        assert before.base is not None
        asyncio.run(execute(database, rewrite))
        asyncio.run(put(database, *map(document, names(8, 100))))
        after = await_base(path, before.base.name)
        kept = [] if rewrite.startswith("truncate") else names(8)
        assert prices(after, names(200)) == dict.fromkeys([*kept, *names(8, 100)], 2)
    assert "rejected" not in caplog.text


def test_a_base_of_other_code_is_rebuilt(
    database: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade, also where its campaigns can be applied at once."""
    asyncio.run(put(database, *map(document, names(8))))
    with publishing(database, path):
        before = await_base(path)
    assert before.base is not None
    monkeypatch.setattr(publisher, "MOST", 50)
    monkeypatch.setattr(publisher, "layout", lambda: "other")
    with publishing(database, path):
        after = await_base(path, before.base.name)
    assert prices(after, names(8)) == dict.fromkeys(names(8), 2)


@pytest.mark.parametrize("cause", ["other code", "lost file", "rewritten table", "import"])
def test_changes_do_not_wait_for_a_base_from_scratch(
    database: str, path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    """They are published over what is served, until the base is ready."""
    ready = threading.Event()

    async def make(dsn: str, folder: Path, *, urgent: bool, after: int) -> ObtainedBase:
        assert not urgent
        while not ready.is_set():
            await asyncio.sleep(0.02)
        return await make_base(dsn, folder, urgent=urgent, after=after)

    async def disconnect() -> None:
        await execute(database, "vacuum full campaign")
        await execute(
            database,
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1"
            " and datname = current_database()",
            PUBLISHER,
        )

    ids = names(8)
    asyncio.run(put(database, *map(document, [] if cause == "import" else ids)))
    with publishing(database, path):
        before = caught_up(database, path) if cause == "import" else await_base(path)
    monkeypatch.setattr(publisher, "MOST", 5)
    monkeypatch.setattr(publisher, "make_base", make)
    if cause == "other code":
        monkeypatch.setattr(publisher, "layout", lambda: "other")
    started_at = time.time()
    with publishing(database, path):
        eventually(lambda: Catalog.open(path).made_at > started_at, "the next publisher's file")
        if cause == "lost file":
            assert before.base is not None
            path.with_name(before.base.name).rename(path.with_name("moved"))
        elif cause == "rewritten table":
            asyncio.run(disconnect())
        elif cause == "import":
            asyncio.run(put(database, *map(document, ids)))
        asyncio.run(put(database, document("c0", cpm=7), ssp="acme"))
        asyncio.run(execute(database, "delete from campaign where id = 'c1'"))
        expected = {**dict.fromkeys(ids, 2), "c0": 7}
        del expected["c1"]

        def look() -> bool:
            catalog = Catalog.open(path, before)
            if "acme" not in catalog.ssps:
                return False
            if cause == "import":  # its campaigns wait for the base
                return not {"c1", "c2"} & prices(catalog, ids).keys()
            return prices(catalog, ids) == expected

        eventually(look, "the changes")
        ready.set()
        name = before.base.name if before.base else None
        assert prices(await_base(path, name), ids) == expected


def test_a_rejected_base_is_removed_and_another_made_after_a_pause(
    database: str, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The table is rewritten after each base is made, before it can be used."""
    made: list[float] = []

    async def make(dsn: str, folder: Path, *, urgent: bool, after: int) -> ObtainedBase:
        obtained = await make_base(dsn, folder, urgent=urgent, after=after)
        made.append(time.monotonic())
        if len(made) < 3:
            await execute(dsn, "vacuum full campaign")
        return obtained

    monkeypatch.setattr(publisher, "make_base", make)
    monkeypatch.setattr(publisher, "REJECTED_S", 0.5)
    asyncio.run(put(database, *map(document, names(8))))
    with publishing(database, path):
        await_base(path)
        assert len(bases(path)) == 1
    assert len(made) == 3
    assert min(late - early for early, late in itertools.pairwise(made)) > 0.5
    assert caplog.text.count("rejected the base") == 2


def test_invalid_documents_from_plain_sql_do_not_bid(
    database: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in the overlay nor in a base, and the log names it."""
    nested = '{"id": "nested", "x": ' + "[" * 5000 + "]" * 5000 + "}"
    strange = {
        "a": json.dumps(document("a", cpm=-1)),
        "b": json.dumps(document("b", targeting={"geo_radius": [POINT] * 1001})),
        "c": json.dumps(document("c", creatives=[])),
        "nested": nested,
        "x" * 600: json.dumps(document("x" * 600)),
    }
    sql = "insert into campaign (id, document) values ($1, $2::jsonb)"
    for id, text in strange.items():
        asyncio.run(execute(database, sql, id, text))
    asyncio.run(put(database, document("good")))
    with caplog.at_level(logging.ERROR), publishing(database, path):
        catalog = caught_up(database, path)
        assert prices(catalog, ["good", *strange]) == {"good": 2}
        for id in strange:
            assert f"campaign '{id[:60]}' does not bid" in caplog.text
        asyncio.run(put(database, *map(document, names(8))))
        assert prices(await_base(path), ["good", *strange]) == {"good": 2}


def test_killed_publishers_leave_whole_catalogs(database: str, path: Path) -> None:
    rng = random.Random(5)
    asyncio.run(put(database, *map(document, names(12))))
    command = [sys.executable, "-c", RUN, database, str(path)]
    for turn in range(6):
        process = subprocess.Popen(command, env=clean_environ({}))
        try:
            if turn == 0:
                await_base(path)
            for number in range(4):
                changed = [document(f"c{rng.randrange(20)}", cpm=turn * 10 + number + 1)]
                asyncio.run(put(database, *changed, *map(document, names(rng.randrange(8), 100))))
                catalog = opened(path)
                assert catalog is None or catalog.index.rank("c11") is not None
            if rng.random() < 0.7:
                caught_up(database, path)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        catalog = Catalog.open(path)  # whatever was under way
        assert catalog.index.rank("c11") is not None
    with publishing(database, path):
        catalog = caught_up(database, path)
        stored = asyncio.run(documents_of(database))
        cpms = {each["id"]: each["cpm"] for each in stored}
        assert prices(catalog, [*cpms, *names(300)]) == cpms
        await_base(path)  # what was left behind is gone


def test_a_foreign_file_is_replaced(database: str, path: Path) -> None:
    path.write_bytes(b"x" * 1000)
    with pytest.raises(CatalogError):
        Catalog.open(path)
    asyncio.run(put(database, document("a")))
    with publishing(database, path):
        eventually(lambda: path.read_bytes()[:4] == b"SNAP", "a catalog")
        assert prices(caught_up(database, path), ["a"]) == {"a": 2}


async def documents_of(dsn: str) -> list[Any]:
    async with connected(dsn) as connection:
        return [json.loads(each.document) async for each in campaigns.fetch_all(connection)]


@pytest.mark.parametrize("seed", range(3))
def test_agreement_while_campaigns_change(database: str, path: Path, seed: int) -> None:
    """Import, pause, resume, price and delete at random; the catalog decides as the oracle does."""
    rng = random.Random(f"live {seed}")
    world = replace(strategies.random_world(seed, 30, AROUND), suspended=frozenset())
    spare = [
        {**each, "id": f"s{number}"}
        for number, each in enumerate(strategies.random_world(seed + 99, 40, AROUND).campaigns)
    ]
    asyncio.run(fill(database, world))
    with publishing(database, path):
        for _ in range(12):
            asyncio.run(change(database, world, spare, rng))
            made = snapshot_of_catalog(caught_up(database, path), world.gvl_id)
            for _ in range(15):
                ssp, request = strategies.random_request(rng, world)
                assert_agrees(world, made, ssp, request)


async def fill(dsn: str, world: oracle.World) -> None:
    async with connected(dsn) as connection:
        for descriptor, canonical in world.registry.items():
            if descriptor == canonical:
                await registry.add(connection, descriptor)
        for descriptor, canonical in world.registry.items():
            await registry.add(connection, descriptor, canonical)
    await put(dsn, *world.campaigns)


async def change(dsn: str, world: oracle.World, spare: list[Any], rng: random.Random) -> None:
    """Some changes, in the warehouse and in the oracle's world."""
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(["import", "status", "price", "delete"])
        if kind == "import" and spare:
            world.campaigns.append(spare.pop())
            await put(dsn, world.campaigns[-1])
            continue
        place = rng.randrange(len(world.campaigns))
        campaign = world.campaigns[place]
        if kind == "delete":
            del world.campaigns[place]
            await execute(dsn, "delete from campaign where id = $1", campaign["id"])
        elif kind == "price":
            world.campaigns[place] = campaign = {**campaign, "cpm": rng.choice([1, 3.5, 20])}
            await put(dsn, campaign)
        else:
            status: Any = rng.choice(["active", "paused"])
            world.campaigns[place] = {**campaign, "status": status}
            async with connected(dsn) as connection:
                await campaigns.set_status(connection, campaign["id"], status)


Home = tuple[Path, dict[str, str]]


@pytest.fixture
def home(database: str, fresh_redis: str, path: Path) -> Home:
    """Where a server of a home publishes its catalog, and the settings of commands there."""
    environ = {
        "SNAPBID_HOME": str(path.parent / "home"),
        "SNAPBID_DATABASE_URL": database,
        "SNAPBID_REDIS_URL": fresh_redis,
    }
    published = path.parent / "home" / "serve-8000" / "catalog"
    published.parent.mkdir(parents=True)
    return published, environ


def test_explain_uses_an_up_to_date_catalog(database: str, home: Home) -> None:
    """With hidden campaigns neither counted nor told, and without a look at the other ones."""
    path, environ = home
    request = {"id": "r", "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}]}

    def explained() -> Any:
        said = succeed(environ, "explain", "acme", "-", "--json", input=json.dumps(request))
        return json.loads(said)

    asyncio.run(put(database, *map(document, names(8)), ssp="acme"))
    with publishing(database, path):
        await_base(path)
        asyncio.run(put(database, document("c0", cpm=7), document("c3", cpm=5)))
        asyncio.run(execute(database, "delete from campaign where id = 'c1'"))
        asyncio.run(execute(database, "update campaign set status = 'paused' where id = 'c2'"))
        caught_up(database, path)
        published = explained()
    (impression,) = published["impressions"]
    assert published["campaigns_from"] == "catalog"
    assert (impression["campaigns"], impression["eligible"]) == (7, 6)
    assert impression["winner"]["campaign"] == "c0"
    assert impression["runner_up"]["campaign"] == "c3"
    assert impression["summary"] == "1 of 7: paused"
    asyncio.run(put(database, document("c0", cpm=1)))
    changed = explained()
    assert changed["campaigns_from"] == "warehouse"
    assert changed["impressions"][0]["winner"]["campaign"] == "c3"
    assert changed["impressions"][0]["summary"] == "1 of 7: paused"


def test_explain_converts_at_the_operators_rates(database: str, home: Home) -> None:
    """Whether a server of this home has published them or not."""
    path, environ = home
    imp = {"id": "1", "banner": {"w": 300, "h": 250}, "bidfloor": 20_000, "bidfloorcur": "VND"}

    def floor() -> Any:
        request = json.dumps({"id": "r", "imp": [imp]})
        said = json.loads(succeed(environ, "explain", "acme", "-", "--json", input=request))
        return said["campaigns_from"], said["impressions"][0]["floor_usd"]

    asyncio.run(put(database, *map(document, names(8)), ssp="acme"))
    with publishing(database, path):
        await_base(path)
        assert floor() == ("catalog", None)
        rate = {"currency": "VND", "date": "2026-01-01", "usd": "0.00004"}
        succeed(environ, "rates", "import", "-", input=json.dumps(rate))
        eventually(lambda: floor() == ("catalog", 0.8), "the rate")
    succeed(environ, "rates", "remove", "VND")
    assert floor() == ("warehouse", None)


def test_old_rates_are_logged(
    database: str, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = rates.load()
    monkeypatch.setattr(rates, "load", lambda: replace(bank, date=date(2020, 1, 31)))
    with publishing(database, path):
        eventually(lambda: "converted with those of 2020-01-31" in caplog.text, "a warning")
