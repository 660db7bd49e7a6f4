"""A worker's composition: whatever is opened is closed again, also when a later step fails."""

import asyncio
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from support.client import call
from support.stack import JWT_SECRET

from snapbid.base.settings import ServingSettings, load, require_serving
from snapbid.ledger.budgets.releases import ReleaseWriter, releases_path
from snapbid.metrics import DEFINITIONS, Metrics, read
from snapbid.metrics.keys import parse_key
from snapbid.reference.geo import DEFAULT_PATH, GeoDatabaseError
from snapbid.server.app import Application
from snapbid.server.worker import Worker

Make = Callable[..., ServingSettings]


@pytest.fixture
def make(database: str, fresh_redis: str, tmp_path: Path) -> Make:
    """Settings over the tests' stores; the directory that workers share is there."""

    def settings(**environ: str) -> ServingSettings:
        made = require_serving(
            load(
                {
                    "SNAPBID_HOME": str(tmp_path),
                    "SNAPBID_REDIS_URL": fresh_redis,
                    "SNAPBID_DATABASE_URL": database,
                    "SNAPBID_JWT_SECRET": JWT_SECRET,
                    "SNAPBID_LEDGER_SHARDS": "1",
                    **environ,
                }
            )
        )
        made.runtime_dir.mkdir()
        ReleaseWriter(releases_path(made.runtime_dir)).close()
        return made

    return settings


@pytest.fixture
def clients(fresh_redis: str) -> Iterator[Callable[[], int]]:
    """How many connections Redis has, apart from those of others that it had before."""
    with redis.Redis.from_url(fresh_redis) as client:
        before = {each["id"] for each in client.client_list()}
        yield lambda: len([each for each in client.client_list() if each["id"] not in before])


def descriptors() -> set[str]:
    """What this process has open, apart from the event loop's own, and from the file of the tests'
    Redis, which a thread opens now and then to sync it.
    """
    open_files = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            file = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the directory that was listed
            continue
        if not file.endswith(".aof"):
            open_files.add(f"{name} {file}")
    return open_files


async def assert_all_closed(
    worker: Worker, settings: ServingSettings, before: set[str], clients: Callable[[], int]
) -> None:
    assert asyncio.all_tasks() == {asyncio.current_task()}
    async with asyncio.timeout(30):
        while clients():  # Redis sees an end a little later
            await asyncio.sleep(0.01)
    assert descriptors() <= before
    slot = Metrics(settings.metrics_path)
    assert slot.path.name == "worker-0.metrics", "its slot is free"
    slot.close()
    await worker.close()  # nothing is left to close


async def test_a_worker_closes_what_it_opened(make: Make, clients: Callable[[], int]) -> None:
    settings = make()
    await asyncio.to_thread(int)  # the loop's thread pool
    before = descriptors()
    worker = Worker(settings)
    await worker.open()
    assert clients() > 0
    assert await worker.missing() == ["campaigns"]
    await worker.close()
    await assert_all_closed(worker, settings, before, clients)


async def test_a_geo_database_that_has_vanished(
    make: Make, clients: Callable[[], int], tmp_path: Path
) -> None:
    geo = Path(shutil.copy(DEFAULT_PATH, tmp_path / "geo.mmdb"))
    settings = make(SNAPBID_GEO_DB=str(geo), SNAPBID_RECORD=str(tmp_path / "sample.jsonl"))
    geo.unlink()
    await asyncio.to_thread(int)
    before = descriptors()
    worker = Worker(settings)
    with pytest.raises(GeoDatabaseError):
        await worker.open()
    await assert_all_closed(worker, settings, before, clients)


async def test_failing_last_step(make: Make, clients: Callable[[], int]) -> None:
    """The stores are open by then."""
    settings = make()
    settings.catalog_path.symlink_to(settings.catalog_path)
    await asyncio.to_thread(int)
    before = descriptors()
    worker = Worker(settings)
    with pytest.raises(OSError, match="symbolic links"):
        await worker.open()
    await assert_all_closed(worker, settings, before, clients)


async def test_paths_of_no_room_and_of_each(make: Make) -> None:
    """Who answers before there is a catalog, by path and method."""
    settings = make()
    worker = Worker(settings)
    await worker.open()
    try:
        app = Application(worker)
        answered = {
            f"{method} {path}": (await call(app, method, path)).status
            for method, path in (
                ("GET", "/none"),
                ("POST", "/none"),
                ("GET", "/"),
                ("POST", "/"),
                ("GET", "/healthz"),
                ("POST", "/healthz"),
                ("GET", "/readyz"),
                ("GET", "/api/v1/openrtb2/acme/bid"),
                ("POST", "/api/v1/openrtb2/acme/bid"),
                ("POST", "/api/v1/openrtb2//bid"),
                ("GET", "/api/v1/ssp/acme/report"),
                ("POST", "/api/v1/ssp/acme/report"),
                ("GET", "/api/v1/ssp/acme/other"),
                ("GET", "/v3/s2s/event"),
                ("POST", "/v3/s2s/event"),
                ("POST", "/v3/other"),
                ("DELETE", "/rtb/win"),
                ("GET", "/rtb/other"),
                ("PUT", "/docs"),
            )
        }
    finally:
        await worker.close()
    assert answered == {
        "GET /none": 404,
        "POST /none": 404,
        "GET /": 302,
        "POST /": 405,
        "GET /healthz": 200,
        "POST /healthz": 405,
        "GET /readyz": 503,
        "GET /api/v1/openrtb2/acme/bid": 405,
        "POST /api/v1/openrtb2/acme/bid": 204,
        "POST /api/v1/openrtb2//bid": 404,
        "GET /api/v1/ssp/acme/report": 401,
        "POST /api/v1/ssp/acme/report": 405,
        "GET /api/v1/ssp/acme/other": 404,
        "GET /v3/s2s/event": 405,
        "POST /v3/s2s/event": 503,
        "POST /v3/other": 404,
        "DELETE /rtb/win": 405,
        "GET /rtb/other": 404,
        "PUT /docs": 405,
    }
    counted: Counter[str] = Counter()
    for key, count in read(settings.metrics_path).items():
        name, labels = parse_key(key)
        if name == "snapbid_http_requests_total":
            counted[labels["route"]] += count
    assert +counted == {
        "other": 4,
        "health": 3,
        "bid": 3,
        "report": 3,
        "events_single": 2,
        "win": 1,
        "docs": 3,
    }


async def test_rare_counts_have_series_from_the_start(make: Make) -> None:
    """`increase` of a series that begins with its first count is 0, and the alert does not fire."""
    settings = make()
    worker = Worker(settings)
    await worker.open()
    try:
        counts = read(settings.metrics_path)
        for result in ("taken_up", "refused"):
            assert counts[f'snapbid_catalog_swaps_total{{result="{result}"}}'] == 0
        found = re.search(r"\((.*);", DEFINITIONS["snapbid_http_requests_total"].help)
        assert found is not None
        names = set(found[1].split(", "))
        for route in names | {"other"}:
            assert counts[f'snapbid_http_requests_total{{route="{route}",status="500"}}'] == 0
        assert {"bid", "win", "events_batch", "health"} < names
    finally:
        await worker.close()
