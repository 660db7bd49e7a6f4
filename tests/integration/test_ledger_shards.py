"""The number of shards is the ledger's own: no process can disagree with it (contract 10)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from support.cluster import free_ports
from support.remembered import opened, until
from support.stack import JWT_SECRET, connected, run

from snapbid.base.redis_keys import ShardKeys
from snapbid.base.risks import RiskLog
from snapbid.base.settings import StoreSettings
from snapbid.catalog.catalog import Head, encode
from snapbid.catalog.payload import Builder
from snapbid.embedded import Redis
from snapbid.operations import preflight
from snapbid.reference import rates
from snapbid.warehouse import fence


@pytest.fixture
def settings(fresh_redis: str, database: str, tmp_path: Path) -> StoreSettings:
    return StoreSettings(
        base_url="", home=tmp_path / "home", redis_url=fresh_redis, database_url=database
    )


async def started(settings: StoreSettings, shards: int | None = None, **other: Any) -> int:
    """The number of shards with which a process starts; `shards`: SNAPBID_LEDGER_SHARDS."""
    wanted = structs.replace(settings, ledger_shards=shards, **other)
    return (await preflight.check(wanted, RiskLog())).shards


def differing(setting: int, known: int) -> str:
    return f"SNAPBID_LEDGER_SHARDS is {setting}, and the ledger has {known}: "


async def test_a_ledger_on_one_redis_has_one_shard(settings: StoreSettings, store: Any) -> None:
    assert await started(settings) == 1
    assert store.hget(ShardKeys(0).state, "shards") == b"1"


async def test_the_setting_applies_only_when_the_ledger_is_made(settings: StoreSettings) -> None:
    assert await started(settings, 3) == 3
    assert await started(settings) == 3
    assert await started(settings, 3) == 3
    for other in (1, 2, 4):
        with pytest.raises(preflight.VolatileStoreError, match=differing(other, 3)):
            await started(settings, other)
    assert await started(settings) == 3


async def test_processes_that_make_it_at_once_agree(settings: StoreSettings) -> None:
    """One makes it; who looks later than that, and wants another number, does not start."""
    wanted = (2, 3, 4, 5)
    results = await asyncio.gather(
        *(started(settings, shards) for shards in wanted), return_exceptions=True
    )
    made = await started(settings)
    assert made in results
    for number, result in zip(wanted, results, strict=True):
        if result != made:
            assert isinstance(result, preflight.VolatileStoreError)
            assert str(result).startswith(differing(number, made))


async def test_without_redis_the_warehouse_says_it_and_without_that_the_catalog(
    settings: StoreSettings, own_redis: Redis
) -> None:
    there = {"redis_url": own_redis.url}
    assert await started(settings, 4, **there) == 4
    own_redis.stop()
    assert await started(settings, None, **there) == 1  # nobody knows, and one Redis is one primary
    async with connected(settings.database_url) as connection:
        await fence.set_ledger(connection, ["a", "b", "c", "d"])
    assert await started(settings, None, **there) == 4
    gone = there | {"database_url": f"postgresql://127.0.0.1:{free_ports(1)[0]}/x"}
    assert await started(settings, None, **gone) == 1
    settings.catalog_path.parent.mkdir(parents=True)
    head = encode(Head({}, rates.load(), ledger=("a", "b", "c", "d")), Builder().build())
    settings.catalog_path.write_bytes(b"".join(head))
    assert await started(settings, None, **gone) == 4
    own_redis.start()
    assert await started(settings, None, **gone) == 4


async def test_startup_waits_for_an_unknown_number(settings: StoreSettings) -> None:
    first, second = free_ports(2)
    redis = f"redis+cluster://127.0.0.1:{first}"
    gone = structs.replace(
        settings, redis_url=redis, database_url=f"postgresql://127.0.0.1:{second}/x"
    )
    assert await preflight.find_shards(gone) is None
    environ = {"SNAPBID_REDIS_URL": gone.redis_url, "SNAPBID_DATABASE_URL": gone.database_url}
    done = await asyncio.to_thread(run, environ, "golive", "acme")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


async def test_a_ledger_that_has_lost_its_data_is_made_anew_with_no_fewer(
    settings: StoreSettings, store: Any
) -> None:
    assert await started(settings, 3) == 3
    async with connected(settings.database_url) as connection:
        await fence.set_ledger(connection, ["a", "b", "c"])
    store.flushall()
    assert await started(settings) == 3


async def test_a_worker_with_another_number_bids_nothing(
    settings: StoreSettings, tmp_path: Path
) -> None:
    """Also before a drain has taken the ledger over, so that the warehouse does not know it."""
    spool = tmp_path / "spool"
    async with opened(settings.redis_url, spool, shards=3, confirmed=False):
        assert await started(settings) == 3
        for shards in (1, 2, 4):
            async with opened(settings.redis_url, spool, shards=shards, wait=False) as wrong:
                await until(lambda: wrong.is_foreign)
                assert not wrong.connected


def test_programs_refuse_another_number_by_name(settings: StoreSettings, tmp_path: Path) -> None:
    assert asyncio.run(started(settings, 3)) == 3
    environ = {
        "SNAPBID_HOME": str(tmp_path / "home"),
        "SNAPBID_REDIS_URL": settings.redis_url,
        "SNAPBID_DATABASE_URL": settings.database_url,
        "SNAPBID_JWT_SECRET": JWT_SECRET,
    }
    wrong = environ | {"SNAPBID_LEDGER_SHARDS": "2"}
    for arguments in (
        ("serve",),
        ("drain",),
        ("campaign", "list", "--budgets"),
        ("forget", "--id", "u"),
        ("events", "replay"),
        ("ledger", "adopt"),
        ("ledger", "move", "--to", f"{settings.redis_url}?db=1"),
    ):
        done = run(wrong, *arguments)
        assert done.returncode in (1, 2), arguments
        assert done.stderr.startswith(differing(2, 3)), arguments
        assert done.stderr.endswith("or move the ledger with snapbid ledger move\n")
        assert done.stderr.count("\n") == 1
