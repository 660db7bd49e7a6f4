"""rust-rtb-bidder from a checkout of its repository, with stores of its own.

It stores no bid and returns no markup; budgets and caps are kept in the process. Event stream and
telemetry are off, and campaigns run at all hours.

By its defaults it asks Redis for each user's segments anew each minute. A saturated process is so
late for the answers that its circuit breaker opens, and then it bids for a minute or longer without
segments and caps: on a third of the requests another campaign, for half to two thirds of its
processor time. So it keeps the segments for an hour here, and a run in which the breaker opened
fails.
"""

import asyncio
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from struct import pack
from typing import Any, Final

import asyncpg
import redis

from bench.peers_market import SEGMENTS, SIZES, TMAX_MS, Campaign, users
from bench.processes import READY_S, BenchError, ServerProcess, pinned
from snapbid.embedded import Home, Postgres
from snapbid.embedded.process import spawn, stop
from snapbid.embedded.redis_server import installed
from workload.serving import LOOPBACK, free_ports

PATH: Final = "/rtb/openrtb/bid"
READY: Final = "/health/ready"
BINARY: Final = Path("target/release/bidder-server")
ALL_HOURS: Final = asyncpg.BitString("1" * 168)
ENOUGH: Final = 10**11  # cents; a day's budget
CAP: Final = 10**6
BREAKER: Final = b"bidder_circuit_breaker_opened"


def build(checkout: Path) -> Path:
    """Build the server with its release profile, which takes a while; its binary.

    Besides cargo it needs cmake and libcurl's headers.
    """
    command = ["cargo", "build", "--release", "--locked", "--bin", BINARY.name]
    if subprocess.run(command, cwd=checkout).returncode:
        raise BenchError(f"{checkout} cannot be built: {' '.join(command)} failed")
    return checkout / BINARY


@contextmanager
def rust_rtb_bidder(
    checkout: Path, scratch: Path, core: int, store_core: int, market: Sequence[Campaign]
) -> Iterator[ServerProcess]:
    """The bidder on a core, its stores on another."""
    binary = build(checkout)
    port, metrics_port, redis_port = free_ports(3)
    with ExitStack() as stack:
        postgres = Postgres(stack.enter_context(Home(scratch / "rust-stores")))
        with pinned(store_core):
            postgres.start()
            stack.callback(postgres.stop)
            stack.enter_context(_redis(scratch, redis_port))
        asyncio.run(_fill(postgres.dsn, checkout, market))
        with closing(redis.Redis(port=redis_port)) as client:
            for user, segments in users().items():
                client.set(f"v1:seg:{{u:{user}}}", pack(f"<{len(segments)}I", *segments))
        environ = {
            "BIDDER__SERVER__BIND": f"{LOOPBACK}:{port}",
            "BIDDER__METRICS__BIND": f"{LOOPBACK}:{metrics_port}",
            "BIDDER__POSTGRES__URL": postgres.dsn,
            "BIDDER__REDIS__URL": f"redis://{LOOPBACK}:{redis_port}",
            "BIDDER__REDIS__SEGMENT_CACHE_TTL_SECS": "3600",
            "BIDDER__KAFKA__BROKERS": "",
            "BIDDER__TELEMETRY__OTLP_ENDPOINT": "",
            "BIDDER__FREQ_CAP__IN_PROCESS_ENABLED": "true",
            "BIDDER__LATENCY_BUDGET__PIPELINE_DEADLINE_MS": str(TMAX_MS),
            "BIDDER__LATENCY_BUDGET__HTTP_TIMEOUT_MS": str(TMAX_MS),
            "BIDDER__WIN_NOTICE__REQUIRE_AUTH": "false",
            "BIDDER__WIN_NOTICE__NOTICE_BASE_URL": f"http://{LOOPBACK}:{port}",
            "RUST_LOG": "error",
        }
        log = scratch / "rust-rtb-bidder.log"
        command = (binary, "--config", str(checkout / "config.toml"))
        with pinned(core):
            bidder = ServerProcess(log, environ, port, *command, forks=False, ready=READY)
        stack.callback(bidder.stop)
        bidder.await_ready()
        yield bidder
        if _has_opened(metrics_port):
            raise BenchError("the peer's circuit breaker opened: it bid without segments and caps")


def _has_opened(metrics_port: int) -> bool:
    """Whether the circuit breaker has been open; its counter is there once it was."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{metrics_port}/metrics", timeout=5) as answer:
        return BREAKER in answer.read()


@contextmanager
def _redis(scratch: Path, port: int) -> Iterator[None]:
    """A Redis on a port, since the bidder takes no path of a socket."""
    command = [installed()[0].path, "--port", str(port), "--bind", LOOPBACK, "--save", ""]
    server = spawn(command, log=scratch / "rust-redis.log", env=dict(os.environ))
    try:
        with closing(redis.Redis(port=port)) as client:
            deadline = time.monotonic() + READY_S
            while not _answers(client):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise BenchError("the peer's Redis does not answer")
                time.sleep(0.02)
        yield
    finally:
        stop(server, signal.SIGTERM)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


async def _fill(dsn: str, checkout: Path, market: Sequence[Campaign]) -> None:
    """Its schema, then the campaigns; their numbers are its ids."""
    connection = await asyncpg.connect(dsn)
    try:
        for migration in sorted((checkout / "migrations").glob("*.sql")):
            await connection.execute(migration.read_text())
        await connection.execute(
            "insert into segment (name) select 'segment ' || n from generate_series(1, $1) n"
            " where n > (select count(*) from segment)", max(SEGMENTS.values)
        )  # fmt: skip
        await connection.executemany(
            "insert into campaign (id, name, advertiser_id, status, bid_floor_cents,"
            " daily_budget_cents, hourly_budget_cents, daily_cap_imps, hourly_cap_imps)"
            " overriding system value values ($1, $2, $3, 'active', $4, $5, $5, $6, $6)",
            [
                (each.number, f"campaign {each.number}", each.number % 500, each.cents, ENOUGH, CAP)
                for each in market
            ],
        )
        for table, columns, rows in _targeting(market):
            values = ", ".join(f"${n}" for n in range(1, len(columns.split(",")) + 1))
            await connection.executemany(f"insert into {table} ({columns}) values ({values})", rows)
    finally:
        await connection.close()


def _targeting(market: Sequence[Campaign]) -> Iterator[tuple[str, str, list[tuple[Any, ...]]]]:
    """Tables, their columns and rows."""
    yield (
        "campaign_targeting_segment",
        "campaign_id, segment_id",
        [(own.number, segment) for own in market for segment in own.segments],
    )
    yield (
        "campaign_targeting_geo",
        "campaign_id, geo_kind, geo_code",
        [(own.number, "country", country) for own in market for country in own.countries],
    )
    yield (
        "campaign_targeting_device",
        "campaign_id, device_type",
        [(own.number, device) for own in market for device in own.devices],
    )
    yield (
        "campaign_targeting_format",
        "campaign_id, ad_format",
        [(own.number, "BANNER") for own in market],
    )
    yield (
        "campaign_daypart",
        "campaign_id, hours_active",
        [(own.number, ALL_HOURS) for own in market],
    )
    yield (
        "creative",
        "campaign_id, ad_format, click_url, image_url, width, height",
        [
            (own.number, "BANNER", f"https://brand.example/{own.number}",
             f"https://cdn.example/{own.number}.jpg", w, h)
            for own in market for w, h in SIZES
        ],
    )  # fmt: skip
