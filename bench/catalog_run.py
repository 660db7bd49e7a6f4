"""Measures large catalogs: loading, changes under traffic, and the workers' memory.

    python -m bench.catalog_run [--count 10000 --count 100000 --count 1000000]

Loading is done by the process that builds a base (`snapbid.catalog.publisher.base`). Swaps are
measured with a snapshot in this process, everything else with `snapbid serve` on embedded stores.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any, Final

import asyncpg
import click
import uvloop

from bench import loading
from bench.command import command, embedded, scratch
from bench.overlays import overlays
from bench.processes import BenchError, ServerProcess
from bench.served import SECRET, await_base
from bench.snapshot import SSP, lookups
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.campaigns.document import parse_json
from snapbid.catalog.catalog import Base, Catalog, Head, encode, write
from snapbid.catalog.payload import Builder, put
from snapbid.reference import rates
from snapbid.warehouse import campaigns as table
from workload import campaigns, pools, requests
from workload.serving import LOOPBACK, free_ports

COUNTS: Final = (10_000, 100_000, 1_000_000)
CHANGES: Final = 40
SWAPS: Final = 30
OVERLAID: Final = 2_000  # campaigns in the overlay that is swapped
TOUCHES: Final = 4_000  # requests before memory is measured
WORKERS: Final = (1, 2)
READY_S: Final = 300.0


def index_bytes(folder: Path, base: Base) -> int:
    """Return the size of the base without the campaigns' payloads."""
    path = folder / "alone"
    write(path, encode(Head({}, rates.load(), base=base), Builder().build()))
    index = Catalog.open(path).index
    return base.size - sum(len(index.payload(rank)) for rank in range(base.campaigns))


# -- a swap -------------------------------------------------------------------------------------


async def swaps(base: Base, folder: Path) -> dict[str, Any]:
    """Measure how long the event loop is blocked while it switches to a new catalog.

    Returns the median and the maximum of each swap's longest pause, in ms, and the same for equally
    long periods without a swap.
    """
    builder = Builder()
    for number, document in enumerate(campaigns.documents(OVERLAID), 1):
        put(builder, parse_json(json.dumps(document).encode()), number)
    path = folder / "swapped"
    ssps = {name: (of, number) for number, (name, of) in enumerate(pools.REGISTRY.items(), 1)}
    write(path, encode(Head(ssps, rates.load(), base=base), builder.build()))
    catalog = Catalog.open(path)
    beside = lookups(catalog)
    snapshot = CatalogSnapshot(catalog, beside)
    pauses, quiet = [], []
    for _ in range(SWAPS):
        started = time.perf_counter()
        work = asyncio.ensure_future(_swap(path, snapshot, beside))
        pauses.append(await _longest_pause(work))
        snapshot = work.result()
        pause = asyncio.ensure_future(asyncio.sleep(time.perf_counter() - started))
        quiet.append(await _longest_pause(pause))
    return {
        name: {"median_ms": round(median(times) * 1e3, 3), "most_ms": round(max(times) * 1e3, 3)}
        for name, times in (("swap", pauses), ("quiet", quiet))
    }


async def _swap(path: Path, before: CatalogSnapshot, beside: Lookups) -> CatalogSnapshot:
    """Replace a snapshot as `server.worker.Worker` does."""
    catalog = await asyncio.to_thread(Catalog.open, path, before.catalog)
    snapshot = CatalogSnapshot(catalog, beside, before=before)
    await snapshot.carry_over(before)
    return snapshot


async def _longest_pause(work: "asyncio.Future[Any]") -> float:
    longest, last = 0.0, time.perf_counter()
    while not work.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


# -- a served catalog -----------------------------------------------------------------------------


@contextmanager
def served(scratch: Path, environ: dict[str, str], workers: int) -> Iterator[ServerProcess]:
    environ = {**environ, "SNAPBID_WORKERS": str(workers)}
    log = scratch / f"serve-{workers}.log"
    server = ServerProcess(log, environ, int(environ["SNAPBID_PORT"]), "snapbid", "serve")
    try:
        server.await_ready(READY_S)
        await_base(server)
        yield server
    finally:
        server.stop()


def pss_mib(pid: int) -> float:
    """Return the proportional set size of a process (MiB)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def touch(port: int) -> None:
    """Send generated requests over enough connections to reach every worker."""
    for number, request in enumerate(requests.make(TOUCHES)):
        if number % 100 == 0:
            client = HTTPConnection(LOOPBACK, port, timeout=30)
        _winner(client, request | {"test": 1})


def _winner(client: HTTPConnection, request: Any) -> str | None:
    path = f"/api/v1/openrtb2/{SSP}/bid"
    client.request("POST", path, json.dumps(request), {"Content-Type": "application/json"})
    answer = client.getresponse()
    body = answer.read()
    if answer.status == 204:
        return None
    if answer.status != 200:
        raise BenchError(f"a bid request is answered with {answer.status}")
    return str(json.loads(body)["seatbid"][0]["bid"][0]["cid"])


PROBE: Final = {
    "id": "probe",
    "advertiser": "probe.example",
    "cpm": 900,
    "targeting": {"bundle": {"include": ["probe.app"]}},
    "creatives": [{"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "x"}],
}
ASKED: Final = {
    "id": "probe",
    "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}],
    "app": {"bundle": "probe.app"},
    "test": 1,
}


async def change_latencies(dsn: str, port: int) -> list[float]:
    """Measure the times (s) from a change's commit to the first answer that shows it; sort them.

    The changes add, pause, resume and delete a campaign in turn.
    """
    latencies = []
    connection = await asyncpg.connect(dsn)
    try:
        with closing(HTTPConnection(LOOPBACK, port, timeout=30)) as client:
            for number in range(CHANGES):
                if number % 4 == 0:
                    await table.replace_many(connection, [("probe", json.dumps(PROBE))])
                elif number % 4 == 3:
                    await connection.execute("delete from campaign where id = 'probe'")
                else:
                    status: Any = ("paused", "active")[number % 4 - 1]
                    await table.set_status(connection, "probe", status)
                committed = time.perf_counter()
                wanted = number % 4 in (0, 2)
                while (_winner(client, ASKED) == "probe") != wanted:
                    if time.perf_counter() - committed > 30:
                        raise BenchError("a change has no effect")
                latencies.append(time.perf_counter() - committed)
                await asyncio.sleep(0.01 * (number % 10))  # any time between two checks
    finally:
        await connection.close()
    return sorted(latencies)


# -- the run --------------------------------------------------------------------------------------


def measure(folder: Path, count: int) -> dict[str, Any]:
    with ExitStack() as stack:
        redis, postgres = stack.enter_context(embedded(folder / "stores"))
        asyncio.run(loading.fill(postgres.dsn, count))
        base, figures = loading.load(postgres.dsn, folder)
        figures["index_bytes_a_campaign"] = round(index_bytes(folder, base) / count, 1)
        figures["overlay"] = overlays(base, folder)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures |= runner.run(swaps(base, folder))
        port, ops_port = free_ports(2)
        environ = {
            "SNAPBID_HOME": str(folder / "home"),
            "SNAPBID_PORT": str(port),
            "SNAPBID_OPS_PORT": str(ops_port),
            "SNAPBID_DATABASE_URL": postgres.dsn,
            "SNAPBID_REDIS_URL": redis.url,
            "SNAPBID_JWT_SECRET": SECRET,
            "SNAPBID_TMAX_MS": "2000",
        }
        for workers in WORKERS:
            started = time.perf_counter()
            with served(folder, environ, workers) as server:
                figures[f"start_s_{workers}"] = round(time.perf_counter() - started, 1)
                if workers == 1:
                    latencies = asyncio.run(change_latencies(postgres.dsn, server.port))
                    figures["change_ms"] = {
                        "median": round(median(latencies) * 1e3, 1),
                        "most": round(latencies[-1] * 1e3, 1),
                    }
                touch(server.port)
                memory = sum(map(pss_mib, server.workers))
                figures[f"pss_mib_{workers}"] = round(memory, 1)
    return figures


@command("catalog")
@click.option("--count", "counts", type=int, multiple=True, default=COUNTS, help="Campaigns.")
def main(counts: tuple[int, ...]) -> dict[str, Any]:
    """Measure large catalogs."""
    figures = {}
    for count in counts:
        with scratch() as folder:
            figures[str(count)] = measure(folder, count)
        click.echo(f"{count} {json.dumps(figures[str(count)])}", err=True)
    method = {"changes": CHANGES, "swaps": SWAPS, "overlaid": OVERLAID, "touches": TOUCHES}
    return {"method": method, "figures": figures}


if __name__ == "__main__":
    main()
