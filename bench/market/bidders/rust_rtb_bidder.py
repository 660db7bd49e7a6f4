"""rust-rtb-bidder from a checkout of its repository, with stores of its own.

Event stream and telemetry are off, and campaigns run at all hours. Each bid takes the price of a
thousand impressions from a budget, so budgets are a thousand times as large here.

By default it asks Redis for each user's segments again every minute. A saturated process gets these
answers so late that its circuit breaker opens. It then bids for a minute or longer without segments
and caps: with another campaign on a third of the requests, and for half to two thirds of its usual
processor time. So it keeps the segments for an hour here, and a run in which the breaker opened
fails.
"""

import asyncio
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from struct import pack
from typing import Any, Final

import asyncpg
import redis

from bench.market.bidders import Place, Started
from bench.market.corpus import SEGMENTS, TMAX_MS, Campaign, Corpus
from bench.processes import READY_S, BenchError, ServerProcess, pinned
from bench.redis_time import processor_s_of
from snapbid.embedded import Home, Postgres
from snapbid.embedded.process import spawn, stop
from snapbid.embedded.redis_server import installed
from workload.serving import LOOPBACK, free_ports

NAME: Final = "rust-rtb-bidder"
ABOUT: Final = (
    "The server of its repository, with its release profile. It keeps budgets and frequency caps in"
    " its process and looks users' segments up in Redis. Event stream and telemetry are off; it"
    " keeps segments for an hour, since with its default, a minute, its circuit breaker opens under"
    " load and it bids without segments and caps."
)
LACKS: Final = (
    "It knows no floors, blocks and sizes.",
    "It bids the campaign with the best score, whatever it pays.",
    "It stores no bid, and answers without markup and advertiser.",
    "A lost bid's share of a budget is not given back.",
)
REPOSITORY: Final = "https://github.com/HumbleBee14/rust-rtb-bidder"
SKIPPED: Final[Mapping[str, str]] = {}
PATH: Final = "/rtb/openrtb/bid"
WIN_PATH: Final = "/rtb/win"
READY: Final = "/health/ready"
BINARY: Final = Path("target/release/bidder-server")
ALL_HOURS: Final = asyncpg.BitString("1" * 168)
ENOUGH: Final = 10**11  # cents; a day's budget
MICROS_A_CENT: Final = 10_000
NO_CAP: Final = 10**6
BREAKER: Final = "bidder_circuit_breaker_opened"
NOTICES: Final = "bidder_win_notices_total"
REFUSED: Final = ("bidder_win_duplicate", "bidder_win_auth_failed", "bidder_win_dedup")


def build(checkout: Path) -> Path:
    """Build the server with its release profile, which takes a while; return the binary.

    Besides cargo it needs cmake and libcurl's headers.
    """
    command = ["cargo", "build", "--release", "--locked", "--bin", BINARY.name]
    if subprocess.run(command, cwd=checkout).returncode:
        raise BenchError(f"{checkout} cannot be built: {' '.join(command)} failed")
    return checkout / BINARY


def campaign_of(cid: str) -> int:
    return int(cid)


def start(stack: ExitStack, place: Place, corpus: Corpus, campaigns: Sequence[Campaign]) -> Started:
    assert place.checkout is not None
    binary = build(place.checkout)
    port, metrics_port, redis_port = free_ports(3)
    postgres = Postgres(stack.enter_context(Home(place.scratch / "rust-stores")))
    with pinned(place.store_core):
        postgres.start()
        stack.callback(postgres.stop)
        stack.enter_context(_redis(place.scratch, redis_port))
    asyncio.run(_fill(postgres.dsn, place.checkout, campaigns))
    with closing(redis.Redis(port=redis_port)) as client:
        for user, segments in corpus.users.items():
            client.set(f"v1:seg:{{u:{user}}}", pack(f"<{len(segments)}I", *segments))
    redis_url = f"redis://{LOOPBACK}:{redis_port}"
    environ = {
        "BIDDER__SERVER__BIND": f"{LOOPBACK}:{port}",
        "BIDDER__METRICS__BIND": f"{LOOPBACK}:{metrics_port}",
        "BIDDER__POSTGRES__URL": postgres.dsn,
        "BIDDER__REDIS__URL": redis_url,
        "BIDDER__REDIS__SEGMENT_CACHE_TTL_SECS": "3600",
        "BIDDER__KAFKA__BROKERS": "",
        "BIDDER__TELEMETRY__OTLP_ENDPOINT": "",
        "BIDDER__FREQ_CAP__IN_PROCESS_ENABLED": "true",
        "BIDDER__LATENCY_BUDGET__PIPELINE_DEADLINE_MS": str(TMAX_MS),
        "BIDDER__LATENCY_BUDGET__HTTP_TIMEOUT_MS": str(TMAX_MS),
        "BIDDER__WIN_NOTICE__REQUIRE_AUTH": "false",
        "BIDDER__WIN_NOTICE__NOTICE_BASE_URL": f"http://{LOOPBACK}:{port}{WIN_PATH}",
        "RUST_LOG": "error",
    }
    log = place.scratch / "rust-rtb-bidder.log"
    command = (binary, "--config", str(place.checkout / "config.toml"))
    with pinned(place.core):
        bidder = ServerProcess(log, environ, port, *command, forks=False, ready=READY)
    stack.callback(bidder.stop)
    bidder.await_ready()
    stack.callback(_check_breaker, metrics_port)
    return Started(bidder, PATH, lambda: _wins(metrics_port), lambda: processor_s_of(redis_url))


def _check_breaker(metrics_port: int) -> None:
    """Raise BenchError if the circuit breaker has ever opened; only then does its counter exist."""
    if any(name.startswith(BREAKER) for name in _metrics(metrics_port)):
        raise BenchError("the bidder's circuit breaker opened: it bid without segments and caps")


def _wins(metrics_port: int) -> int:
    """Return the number of notices less those that the bidder refused or had already counted."""
    own = _metrics(metrics_port)
    refused = sum(n for name, n in own.items() if name.startswith(REFUSED))
    return int(own.get(NOTICES, 0) - refused)


def _metrics(port: int) -> dict[str, float]:
    """Return the values of a page of Prometheus metrics, by name and labels."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


@contextmanager
def _redis(scratch: Path, port: int) -> Iterator[None]:
    """Run a Redis on a TCP port, since the bidder cannot use a unix socket."""
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


async def _fill(dsn: str, checkout: Path, campaigns: Sequence[Campaign]) -> None:
    """Create the bidder's schema, and store the campaigns under their own ids."""
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
            list(map(_campaign, campaigns)),
        )
        for table, columns, rows in _targeting(campaigns):
            values = ", ".join(f"${n}" for n in range(1, len(columns.split(",")) + 1))
            await connection.executemany(f"insert into {table} ({columns}) values ({values})", rows)
    finally:
        await connection.close()


def _campaign(own: Campaign) -> tuple[Any, ...]:
    micros = own.budget_micros
    budget = ENOUGH if micros is None else min(micros * 1_000 // MICROS_A_CENT, ENOUGH)
    return own.id, f"campaign {own.id}", own.id % 500, own.cpm_cents, budget, own.cap or NO_CAP


def _targeting(campaigns: Sequence[Campaign]) -> Iterator[tuple[str, str, list[tuple[Any, ...]]]]:
    """Yield the targeting tables, each with its columns and rows."""
    yield (
        "campaign_targeting_segment",
        "campaign_id, segment_id",
        [(own.id, segment) for own in campaigns for segment in own.segments],
    )
    yield (
        "campaign_targeting_geo",
        "campaign_id, geo_kind, geo_code",
        [(own.id, "country", country) for own in campaigns for country in own.countries],
    )
    yield (
        "campaign_targeting_device",
        "campaign_id, device_type",
        [(own.id, device) for own in campaigns for device in own.devices],
    )
    yield (
        "campaign_targeting_format",
        "campaign_id, ad_format",
        [(own.id, "BANNER") for own in campaigns],
    )
    yield (
        "campaign_daypart",
        "campaign_id, hours_active",
        [(own.id, ALL_HOURS) for own in campaigns],
    )
    yield (
        "creative",
        "campaign_id, ad_format, click_url, image_url, width, height",
        [
            (own.id, "BANNER", f"https://brand.example/{own.id}",
             f"https://cdn.example/{own.id}.jpg", w, h)
            for own in campaigns for w, h in own.sizes
        ],
    )  # fmt: skip
