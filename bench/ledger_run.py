"""The ledger and the drain by themselves, on embedded stores.

    python -m bench.ledger_run [--bids 1000000]

Processor times are of this process, all threads, as the operating system counts them; the rest of
the machine is Redis and PostgreSQL.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import asyncpg
import redis
import uvloop

from bench.about import about
from snapbid.drain.drain import Drain
from snapbid.drain.shard import Shard
from snapbid.embedded import Home, Postgres, Redis
from snapbid.ledger.connection import connect
from snapbid.ledger.ledger import Ledger
from snapbid.ledger.records import WIN
from snapbid.metrics import Metrics
from snapbid.warehouse import absorb
from snapbid.warehouse.migrate import migrate

CONCURRENCIES: Final = (1, 8, 64, 256)
AUCTION: Final = "6f1c2d7e-%08x-4b8a-9f53-0d9a1c2b3e4f"
BIDS: Final = 1_000_000
MOST_BIDS: Final = 10_000_000
COUNTERS: Final = 20_000
ROUNDS: Final = 5

Work = Callable[[Ledger, int], Coroutine[Any, Any, None]]


async def _remember(ledger: Ledger, number: int) -> None:
    auction = (AUCTION % number).encode()
    done = ledger.remember(auction, number % 8 + 1, [(b"1", number % 1000 + 1, 1_230_000)], 10.0)
    assert done is not None
    assert await done


async def _settle(ledger: Ledger, number: int) -> None:
    assert await ledger.settle(WIN, (AUCTION % number).encode(), b"1") == "c"


async def _many(ledger: Ledger, work: Work, numbers: range, concurrency: int) -> dict[str, float]:
    left = iter(numbers)

    async def one() -> None:
        for number in left:
            await work(ledger, number)

    processor, started = time.process_time(), time.perf_counter()
    await asyncio.gather(*(one() for _ in range(concurrency)))
    processor, took = time.process_time() - processor, time.perf_counter() - started
    return {
        "processor_us": round(processor / len(numbers) * 1e6, 2),
        "a_second": round(len(numbers) / took),
    }


async def _drain(redis_url: str, dsn: str, metrics: Metrics) -> dict[str, float]:
    """How many changed counters the drain carries; each was counted anew before each round."""
    await migrate(dsn)
    connection = await asyncpg.connect(dsn)
    client = connect(redis_url)
    try:
        await connection.execute(
            "insert into campaign_number (id) select 'c' || n from generate_series(1, $1::int) n",
            COUNTERS,
        )
        assert await absorb.become_the_drain(connection)
        drain = Drain([Shard(client, 0)], metrics)
        await drain.begin()
        day = datetime.now(UTC).date().isoformat()
        processor = took = 0.0
        for _ in range(ROUNDS):
            pipe = client.pipeline(transaction=False)
            for number in range(1, COUNTERS + 1):
                pipe.hincrby(f"{{sb0}}:c:{day}", f"B:{number}", 1)
                pipe.sadd("{sb0}:d", f"{day} B:{number}")
            await pipe.execute()
            processor, took = processor - time.process_time(), took - time.perf_counter()
            assert await drain.round(connection) == COUNTERS
            processor, took = processor + time.process_time(), took + time.perf_counter()
    finally:
        await client.aclose()
        await connection.close()
    carried = COUNTERS * ROUNDS
    return {
        "processor_us": round(processor / carried * 1e6, 2),
        "a_second": round(carried / took),
    }


async def _run(url: str, spool: Path, bids: int) -> dict[str, Any]:
    client = redis.Redis.from_url(url)
    ledger = Ledger(url, spool, shards=1, ttl_s=7200, spool_max_bytes=1 << 20)
    await ledger.open()
    while not ledger.connected:
        await asyncio.sleep(0.01)
    figures: dict[str, Any] = {}
    try:
        part = bids // (2 * len(CONCURRENCIES))
        for place, concurrency in enumerate(CONCURRENCIES):
            numbers = range(place * part, (place + 1) * part)
            figures[f"remember, {concurrency} at once"] = await _many(
                ledger, _remember, numbers, concurrency
            )
            figures[f"settle, {concurrency} at once"] = await _many(
                ledger, _settle, numbers, concurrency
            )
        client.flushall()
        empty = client.info("memory")["used_memory"]
        await _many(ledger, _remember, range(bids), 512)
        used = client.info("memory")["used_memory"] - empty
    finally:
        await ledger.close()
        client.flushall()
        client.close()
    return figures | {"bytes_a_remembered_bid": round(used / bids, 1)}


def run(bids: int) -> dict[str, Any]:
    """The result as it is written."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="snapbid-bench-")))
        scratch.chmod(0o711)  # the database runs as another user where this one is root
        home = stack.enter_context(Home(scratch / "home"))
        server, warehouse = Redis(home), Postgres(home)
        for store in (server, warehouse):
            store.start()
            stack.callback(store.stop)
        metrics = Metrics(scratch / "metrics")
        stack.callback(metrics.close)
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        figures = runner.run(_run(server.url, scratch / "spool", bids))
        figures["drain, a changed counter"] = runner.run(_drain(server.url, warehouse.dsn, metrics))
    return {
        "kind": "ledger",
        "about": about(),
        "method": {"bids": bids, "at": datetime.now(UTC).isoformat(timespec="seconds")},
        "figures": figures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bids", type=int, default=BIDS)
    parser.add_argument("--output", type=Path, default=None)
    chosen = parser.parse_args()
    if not 1000 <= chosen.bids <= MOST_BIDS:
        parser.error(f"--bids is from 1000 to {MOST_BIDS}")
    text = json.dumps(run(chosen.bids), indent=2) + "\n"
    if chosen.output:
        chosen.output.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
