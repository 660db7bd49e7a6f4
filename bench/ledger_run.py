"""Measures the ledger and the drain by themselves, on embedded stores.

    python -m bench.ledger_run [--bids 2000000] [--rounds 5]

Processor times are those of this process, with all its threads, as the operating system counts
them. Redis and PostgreSQL use the rest of the machine.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import asyncpg
import click
import redis
import uvloop

from bench import redis_time
from bench.command import command, embedded, scratch
from bench.processes import BenchError, processor_s
from bench.spread import spread
from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.counters import ShardCounters
from snapbid.drain.drain import Drain
from snapbid.embedded import Postgres
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import WIN
from snapbid.ledger.budgets.budgets import Budgets
from snapbid.ledger.budgets.limits import Limits
from snapbid.metrics import Metrics
from snapbid.redisclient.connection import connect
from snapbid.warehouse.migrate import migrate
from workload.serving import confirm_budgets

CONCURRENCIES: Final = (1, 8, 64, 256)
AUCTION: Final = "6f1c2d7e-%08x-4b8a-9f53-0d9a1c2b3e4f"
TENTHS: Final = 10  # the parts in which Redis is filled
COUNTERS: Final = 100_000
KINDS: Final = "BW"  # of each campaign; without spend, of which budgets would be told
TOLD: Final = 5_000  # campaigns in one pipeline
DRAINED: Final = {1: "", 8: ", over 8 shards"}  # shards
SETTLED: Final = "cs"  # counted; spooled, where Redis has not answered in time
MOST_A_TURN: Final = 20_000  # bids
LIMITED: Final = Limits(2_000, 10**12, 10**13, None, ((10**6, 3_600),))
HOLDS: Final = "{sb0}:fe:*"  # of users' impressions

Work = Callable[[Ledger, int], Coroutine[Any, Any, None]]


async def remember(ledger: Ledger, number: int) -> None:
    """Remember a bid for a single impression."""
    auction = (AUCTION % number).encode()
    done = ledger.remember(
        auction, number % 8 + 1, [(b"1", number % 1000 + 1, 1_230_000, None)], None, 10.0
    )
    assert done is not None
    assert await done


async def _remember_limited(ledger: Ledger, number: int) -> None:
    """Remember a bid of a campaign with a budget and a cap, each time for a different user."""
    auction, bid = (AUCTION % number).encode(), (b"1", LIMITED.campaign, 1_230_000, LIMITED)
    done = ledger.remember(auction, number % 8 + 1, [bid], f"user {number}", 10.0)
    if done is None or await done != "k":
        raise BenchError(f"bid {number} is not kept")


async def _settle(ledger: Ledger, number: int) -> None:
    letter = await ledger.settle(WIN, (AUCTION % number).encode(), b"1")
    if letter not in SETTLED:
        raise BenchError(f"win {number} is settled with {letter!r}")


async def many(ledger: Ledger, work: Work, numbers: range, concurrency: int) -> dict[str, float]:
    """Do the work for all numbers, `concurrency` at a time; return processor time and rate."""
    left = iter(numbers)

    async def commit_in_turn() -> None:
        for number in left:
            await work(ledger, number)

    processor, started = time.process_time(), time.perf_counter()
    await asyncio.gather(*(commit_in_turn() for _ in range(concurrency)))
    processor, took = time.process_time() - processor, time.perf_counter() - started
    return _each(processor, took, len(numbers))


def _each(processor_s: float, took_s: float, count: int) -> dict[str, float]:
    return {"processor_us": processor_s / count * 1e6, "a_second": count / took_s}


def _spreads(turns: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    return {name: spread([turn[name] for turn in turns], 2) for name in turns[0]}


async def _drain(
    redis_url: str, warehouse: Postgres, metrics: Metrics, rounds: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Measure how fast the drain carries counters, all of which change before each round."""
    client = connect(redis_url)
    turns: dict[str, list[dict[str, float]]] = {}

    async def times() -> dict[str, float]:
        return {
            "drain": time.process_time(),
            "PostgreSQL for the drain": processor_s(server),
            "Redis for the drain": redis_time.processor_s(await client.info("cpu")),
        }

    try:
        for count, where in DRAINED.items():
            await client.flushall()  # a ledger keeps its number of shards
            connection = await _new_warehouse(warehouse, f"drain_{count}")
            server = await connection.fetchval("select pg_backend_pid()")
            shards = [ShardCounters(client, number) for number in range(count)]
            drain = Drain(shards, Budgets(client, count, time.time), metrics)
            await drain.begin()
            await drain.round(connection)
            for _ in range(rounds):
                await _count(client, shards)
                before, started = await times(), time.perf_counter()
                assert await drain.round(connection) == COUNTERS
                took, after = time.perf_counter() - started, await times()
                for name, processor in after.items():
                    named = turns.setdefault(f"{name}, a changed counter{where}", [])
                    named.append(_each(processor - before[name], took, COUNTERS))
            await connection.close()
    finally:
        await client.aclose()
    return {name: _spreads(own) for name, own in turns.items()}


async def _new_warehouse(postgres: Postgres, name: str) -> asyncpg.Connection:
    """Create a database with this name, and all the campaigns that have counters."""
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute(f"create database {name}")
    await connection.close()
    dsn = postgres.dsn_of(name)
    await migrate(dsn)
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "insert into campaign_number select n, 'c' || n from generate_series(1, $1::int) n",
        COUNTERS // len(KINDS),
    )
    return connection


async def _count(client: Any, shards: list[ShardCounters]) -> None:
    """Change COUNTERS counters in all: those of KINDS, for the same campaigns in each shard."""
    day = datetime.now(UTC).date().isoformat()
    for shard in shards:
        segment, prefix = (await shard.fetch_state()).segment, ShardKeys(shard.number).prefix
        pipe = client.pipeline(transaction=False)
        for number in range(1, COUNTERS // len(KINDS) // len(shards) + 1):
            fields = [f"{kind}:{number}" for kind in KINDS]
            for field in fields:
                pipe.hincrby(f"{prefix}c:{segment}:{day}", field, 1)
            pipe.sadd(f"{prefix}d", *(f"{segment} {day} {field}" for field in fields))
            if number % TOLD == 0:
                await pipe.execute()
        await pipe.execute()


async def _commit(ledger: Ledger, rounds: int) -> dict[str, Any]:
    """Measure bids, and wins of them, by how many wait at once; each round has a turn of each."""
    turns: dict[str, list[dict[str, float]]] = {}
    numbers = range(0)
    for _ in range(rounds):
        for concurrency in CONCURRENCIES:
            count = min(2_000 * concurrency, MOST_A_TURN)  # a round trip for each takes long
            numbers = range(numbers.stop, numbers.stop + count)
            for name, work in (("remember", remember), ("settle", _settle)):
                own = turns.setdefault(f"{name}, {concurrency} at once", [])
                own.append(await many(ledger, work, numbers, concurrency))
    return {name: _spreads(own) for name, own in turns.items()}


async def _fill(ledger: Ledger, client: redis.Redis, url: str, bids: int) -> dict[str, float]:
    """Measure a bid's memory in Redis, and its processor time there as Redis fills up.

    Processor times (µs) are of the first and the last tenth of the bids. Then a tenth as many bids
    with a budget and a cap follow: their memory, and that of their users' holds, is measured too.
    """

    def processor_us() -> float:
        return redis_time.processor_s(client.info("cpu")) * 1e6

    def used() -> int:
        return int(client.info("memory")["used_memory"])

    client.flushall()
    empty = used()
    part, times = bids // TENTHS, [processor_us()]
    plain = TENTHS * part
    for first in range(0, plain, part):
        await many(ledger, remember, range(first, first + part), 512)
        times.append(processor_us())
    filled = used()
    confirm_budgets(url)
    await many(ledger, _remember_limited, range(plain, plain + part), 512)
    with_holds = used()
    for hold in client.scan_iter(HOLDS, count=1_000):
        client.delete(hold)
    without_holds = used()
    return {
        "bytes": round((filled - empty) / plain, 1),
        "limited_bytes": round((without_holds - filled) / part, 1),
        "hold_bytes": round((with_holds - without_holds) / part, 1),
        "first_us": round((times[1] - times[0]) / part, 2),
        "last_us": round((times[-1] - times[-2]) / part, 2),
    }


async def _run(url: str, spool: Path, bids: int, rounds: int) -> dict[str, Any]:
    client = redis.Redis.from_url(url)
    ledger = Ledger(url, spool, shards=1, ttl_s=7200, spool_max_bytes=1 << 20)
    await ledger.open()
    while not ledger.connected:
        await asyncio.sleep(0.01)
    try:
        figures = await _commit(ledger, rounds)
        figures["filled"] = await _fill(ledger, client, url, bids)
    finally:
        await ledger.close()
        client.flushall()
        client.close()
    return figures


@command("ledger")
@click.option("--bids", type=click.IntRange(1000, 10_000_000), default=2_000_000)
@click.option("--rounds", type=click.IntRange(1, 50), default=5)
def main(bids: int, rounds: int) -> dict[str, Any]:
    """Measure the ledger and the drain by themselves."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        server, warehouse = stack.enter_context(embedded(folder / "home"))
        metrics = Metrics(folder / "metrics")
        stack.callback(metrics.close)
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        figures = runner.run(_run(server.url, folder / "spool", bids, rounds))
        figures |= runner.run(_drain(server.url, warehouse, metrics, rounds))
    method = {"bids": bids, "rounds": rounds, "counters": COUNTERS}
    return {"method": method, "figures": figures}


if __name__ == "__main__":
    main()
