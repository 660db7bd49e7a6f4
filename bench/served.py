"""Starts the contenders of the socket runs as real servers on free loopback ports."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg

from bench.command import embedded
from bench.processes import BenchError, ServerProcess, pinned
from snapbid.base.settings import load
from snapbid.catalog.catalog import Catalog
from snapbid.catalog.publisher.overlay import LEAST
from snapbid.warehouse import campaigns as table
from snapbid.warehouse import registry
from snapbid.warehouse.migrate import migrate
from workload import campaigns, pools
from workload.serving import free_ports

BASE_S: Final = 300.0
SECRET: Final = "a secret that only the benchmarks ever use"


@contextmanager
def product(
    scratch: Path,
    core: int,
    store_core: int,
    snapshot: int | Sequence[dict[str, Any]],
    workers: int = 1,
) -> Iterator[ServerProcess]:
    """Run `snapbid serve` on stores with given campaigns, or with a number of generated ones."""
    own = {"SNAPBID_JWT_SECRET": SECRET, "SNAPBID_WORKERS": str(workers)}
    with (
        stores(scratch, store_core, snapshot) as environ,
        _started(scratch, core, environ | own, "snapbid", "serve") as server,
    ):
        if (snapshot if isinstance(snapshot, int) else len(snapshot)) > LEAST:
            await_base(server)
        yield server


def await_base(server: ServerProcess) -> None:
    """Wait until the catalog has its base, since building it would disturb the measurement."""
    path = load(server.environ).catalog_path
    deadline = time.monotonic() + BASE_S
    while Catalog.open(path).base is None:
        if time.monotonic() > deadline:
            raise BenchError("no base came")
        time.sleep(0.05)


@contextmanager
def stores(
    scratch: Path, store_core: int, snapshot: int | Sequence[dict[str, Any]]
) -> Iterator[dict[str, str]]:
    """Start stores with generated or given campaigns; yield the settings that name them."""
    with ExitStack() as stack:
        with pinned(store_core):
            redis, postgres = stack.enter_context(embedded(scratch / "stores"))
        asyncio.run(_fill(postgres.dsn, snapshot))
        yield {"SNAPBID_DATABASE_URL": postgres.dsn, "SNAPBID_REDIS_URL": redis.url}


@contextmanager
def constant(scratch: Path, core: int, *kind: str) -> Iterator[ServerProcess]:
    """Run an application of `bench.constant`, by default served as the product is."""
    with _started(scratch, core, {}, "bench.constant", *kind) as server:
        yield server


@contextmanager
def uvicorn_constant(scratch: Path, core: int, kind: str) -> Iterator[ServerProcess]:
    """Run an application of `bench.constant` with uvicorn."""
    with _started(scratch, core, {}, "bench.constant", kind, "uvicorn", forks=False) as server:
        yield server


@contextmanager
def fastapi_bidder(scratch: Path, core: int, stores: Mapping[str, str]) -> Iterator[ServerProcess]:
    """Run `bench.market.fastapi_bidder` on these stores, with their campaigns."""
    environ = {name: stores[name] for name in ("SNAPBID_DATABASE_URL", "SNAPBID_REDIS_URL")}
    with _started(scratch, core, environ, "bench.market.fastapi_bidder", forks=False) as server:
        yield server


@contextmanager
def _started(
    scratch: Path,
    core: int,
    environ: dict[str, str],
    *command: str,
    forks: bool = True,
) -> Iterator[ServerProcess]:
    port, ops_port = free_ports(2)
    own = {
        "SNAPBID_HOME": str(scratch / "home"),
        "SNAPBID_PORT": str(port),
        "SNAPBID_OPS_PORT": str(ops_port),
    }
    with pinned(core):
        log = scratch / f"{'-'.join(command)}.log"
        server = ServerProcess(log, environ | own, port, *command, forks=forks)
    try:
        server.await_ready()
        yield server
    finally:
        server.stop()


async def _fill(dsn: str, snapshot: int | Sequence[dict[str, Any]]) -> None:
    await migrate(dsn)
    chosen = campaigns.documents(snapshot) if isinstance(snapshot, int) else snapshot
    documents = [(each["id"], json.dumps(each)) for each in chosen]
    connection = await asyncpg.connect(dsn)
    try:
        for descriptor, canonical in pools.REGISTRY.items():
            await registry.add(connection, descriptor, canonical)
        await table.replace_many(connection, documents)
    finally:
        await connection.close()
