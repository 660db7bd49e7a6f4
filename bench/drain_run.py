"""Measures how late counters reach the warehouse while they change all the time.

    python -m bench.drain_run [--seconds 30] [--output FILE]

100,000 counters change each second, over 8 shards: either all that there are, or a fifth of 500,000
in turn. One `snapbid drain` carries them, or two that share the shards. A lag is the time from the
change of a counter to the commit of the transaction that absorbed it, as seen by another
connection; one counter in 1,250 is watched. Processor time is that of all drains, of all processes
of PostgreSQL, and of Redis including the changes themselves. "Changed" is the rate that was
reached; if it is lower than intended, the machine was too busy even for this client and Redis.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import asyncpg
import click
import uvloop

from bench import redis_time
from bench.command import command, embedded, scratch
from bench.processes import STOP_S, BenchError, processor_s
from snapbid.base.redis_keys import ShardKeys
from snapbid.drain.counters import ShardCounters
from snapbid.drain.watch import APPLICATION
from snapbid.redisclient.connection import connect
from snapbid.warehouse.migrate import migrate

SHARDS: Final = 8
A_SECOND: Final = 100_000
SHAPES: Final = (100_000, 500_000)  # counters in all
DRAINS: Final = (1, 2)
KINDS: Final = "BW"  # of each campaign
CHUNK: Final = 625  # campaigns whose counters one script changes
SECONDS: Final = 30
LOOK_S: Final = 0.05
PATIENCE_S: Final = 120.0

# Raises B and W of so many campaigns and names them; returns B of the first one.
_CHANGE: Final = """
local names = {}
for number = ARGV[2], ARGV[2] + ARGV[3] - 1 do
  for kind in ('BW'):gmatch('.') do
    local field = string.format('%s:%d', kind, number)
    redis.call('HINCRBY', KEYS[1], field, 1)
    names[#names + 1] = ARGV[1] .. field
  end
end
redis.call('SADD', KEYS[2], unpack(names))
return redis.call('HGET', KEYS[1], 'B:' .. ARGV[2])
"""
_ABSORBED: Final = """
    select o.shard, a.number, a.value from drain_source o join drain_absorbed a
        on a.source = o.source and a.day = $1 and a.generation = 0 and a.kind = 'B'
    where a.number = any($2)
"""
# Those of the drains, and the server's own that are always there.
_SERVERS: Final = """
    select pid from pg_stat_activity
    where application_name = $1
        or backend_type in ('walwriter', 'checkpointer', 'background writer')
"""


class Sample(NamedTuple):
    """A watched counter, the value that a change gave it, and the time of the change (s)."""

    shard: int
    number: int
    value: int
    changed_at: float


class Bench:
    """Changes counters and measures when they reach the warehouse."""

    def __init__(self, client: Any, warehouse: asyncpg.Pool, segments: Sequence[str]) -> None:
        self._client = client
        self._warehouse = warehouse
        self._segments = segments
        self._day = datetime.now(UTC).date()
        self._change = client.register_script(_CHANGE)
        self._waiting: list[Sample] = []
        self.lags: list[float] = []

    async def change(self, shard: int, first: int) -> None:
        """Change the counters of a chunk of campaigns."""
        where, day = self._segments[shard], self._day.isoformat()
        prefix = ShardKeys(shard).prefix
        changed_at = time.perf_counter()
        value = await self._change(
            keys=[f"{prefix}c:{where}:{day}", f"{prefix}d"],
            args=[f"{where} {day} ", first, CHUNK],
        )
        self._waiting.append(Sample(shard, first, int(value), changed_at))

    async def keep_changing(self, counters: int, seconds: int) -> float:
        """Change this many counters in turn, A_SECOND a second; return the rate reached."""
        chunks = counters // len(KINDS) // SHARDS // CHUNK
        each = CHUNK * len(KINDS)
        done, started = 0, time.perf_counter()
        while (now := time.perf_counter()) < started + seconds:
            due = started + done * each / A_SECOND
            if now < due:
                await asyncio.sleep(due - now)
            shard, place = done % SHARDS, done // SHARDS % chunks
            await self.change(shard, place * CHUNK + 1)
            done += 1
        return done * each / (time.perf_counter() - started)

    async def watch(self) -> None:
        """Record the lag of each change that reaches the warehouse, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        numbers = list({sample.number for sample in self._waiting})
        rows = await self._warehouse.fetch(_ABSORBED, self._day, numbers)
        now, values = time.perf_counter(), {(shard, n): value for shard, n, value in rows}
        waiting, self._waiting = self._waiting, []
        for sample in waiting:
            if values.get((sample.shard, sample.number), 0) >= sample.value:
                self.lags.append(now - sample.changed_at)
            else:
                self._waiting.append(sample)

    async def settle(self) -> None:
        """Wait until all changes have reached the warehouse."""
        async with asyncio.timeout(PATIENCE_S):
            while self._waiting:
                await asyncio.sleep(LOOK_S)

    async def processor_s(self) -> tuple[float, float]:
        """Return the processor time (s) used by PostgreSQL and by Redis so far."""
        rows = await self._warehouse.fetch(_SERVERS, APPLICATION)
        postgres = sum(processor_s(row["pid"]) for row in rows)
        return postgres, redis_time.processor_s(await self._client.info("cpu"))


@contextmanager
def _drains(count: int, environ: dict[str, str], log: Path) -> Iterator[list[int]]:
    """Run `count` drains, and yield their process ids."""
    with log.open("ab") as output:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "snapbid", "drain"],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            for _ in range(count)
        ]
    try:
        yield [process.pid for process in processes]
        if any(process.poll() is not None for process in processes):
            raise BenchError(f"a drain ended:\n{log.read_text(errors='replace')[-2000:]}")
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(STOP_S)


async def _turn(bench: Bench, pids: Sequence[int], counters: int, seconds: int) -> dict[str, float]:
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(bench.watch())
        for place in range(0, counters // len(KINDS) // SHARDS, CHUNK):  # all have rows by then
            for shard in range(SHARDS):
                await bench.change(shard, place + 1)
        await bench.settle()
        bench.lags.clear()
        before = sum(map(processor_s, pids)), *await bench.processor_s()
        changed = await bench.keep_changing(counters, seconds)
        await bench.settle()
        after = sum(map(processor_s, pids)), *await bench.processor_s()
        watching.cancel()
    each = [(b - a) / (changed * seconds) * 1e6 for a, b in zip(before, after, strict=True)]
    names = ("drain_us", "postgres_us", "redis_us")
    return {
        "changed_a_second": round(changed),
        "median_lag_s": round(median(bench.lags), 2),
        "greatest_lag_s": round(max(bench.lags), 2),
        **{name: round(value, 1) for name, value in zip(names, each, strict=True)},
    }


async def _run(redis_url: str, dsn: str, home: Path, seconds: int) -> dict[str, dict[str, float]]:
    environ = {name: value for name, value in os.environ.items() if name[:8] != "SNAPBID_"} | {
        "SNAPBID_REDIS_URL": redis_url,
        "SNAPBID_DATABASE_URL": dsn,
        "SNAPBID_HOME": str(home),
        "SNAPBID_LEDGER_SHARDS": str(SHARDS),
        "SNAPBID_ALLOW_VOLATILE": "1",
    }
    await migrate(dsn)
    warehouse, client = await asyncpg.create_pool(dsn, min_size=2, max_size=2), connect(redis_url)
    figures = {}
    try:
        await warehouse.execute(
            "insert into campaign_number select n, 'c' || n from generate_series(1, $1::int) n",
            max(SHAPES) // len(KINDS) // SHARDS,
        )
        states = [await ShardCounters(client, n).fetch_state() for n in range(SHARDS)]
        for counters in SHAPES:
            for count in DRAINS:
                bench = Bench(client, warehouse, [state.segment for state in states])
                with _drains(count, environ, home / "drain.log") as pids:
                    name = f"{A_SECOND:,} of {counters:,}, {count} drain{'s'[: count - 1]}"
                    figures[name] = await _turn(bench, pids, counters, seconds)
    finally:
        await client.aclose()
        await warehouse.close()
    return figures


@command("drain")
@click.option("--seconds", type=click.IntRange(1, 600), default=SECONDS)
def main(seconds: int) -> dict[str, Any]:
    """Measure the drain while counters change all the time."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        server, warehouse = stack.enter_context(embedded(folder / "home"))
        own = folder / "drain"
        own.mkdir()
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        figures = runner.run(_run(server.url, warehouse.dsn, own, seconds))
    method = {"seconds": seconds, "shards": SHARDS, "a_second": A_SECOND}
    return {"method": method, "figures": figures}


if __name__ == "__main__":
    main()
