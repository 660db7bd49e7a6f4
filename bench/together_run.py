"""Bids and full event batches on one worker: what the one does to the other's latency.

Bids leave on a schedule whatever the answers do (open loop), and a latency counts from the
scheduled moment. Beside them, so many senders send batches of 600 events one after the other.

    python -m bench.together_run [--seconds 10] [--rate 400]
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import asyncpg
import uvloop

from bench import events, requests
from bench.about import about
from bench.client import LOOPBACK
from bench.processes import BenchError, cores, pinned
from bench.served import product
from bench.socket_run import answered
from snapbid.warehouse import products

SENDERS: Final = (0, 1, 4)
CAMPAIGNS: Final = 10_000
CONNECTIONS: Final = 64
MAX_SECONDS: Final = 60.0
MAX_RATE: Final = 5_000


async def _exchange(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter], sent: bytes) -> int:
    """One request on a kept connection; the status."""
    reader, writer = stream
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.find(b"content-length: ")
    if at >= 0:
        await reader.readexactly(int(head[at + 16 : head.index(b"\r", at)]))
    return int(head[9:12])


async def _bids(port: int, wires: list[bytes], rate: float, seconds: float) -> list[float]:
    """Latencies in seconds, sorted; each request leaves at its time on any idle connection."""
    idle: asyncio.Queue[Any] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        idle.put_nowait(await asyncio.open_connection(LOOPBACK, port))
    latencies: list[float] = []
    start = time.perf_counter() + 0.1

    async def one(number: int) -> None:
        due = start + number / rate
        stream = await idle.get()
        status = await _exchange(stream, wires[number % len(wires)])
        latencies.append(time.perf_counter() - due)
        idle.put_nowait(stream)
        if status not in (200, 204):
            raise BenchError(f"a bid request is answered with {status}")

    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
            group.create_task(one(number))
    while not idle.empty():
        idle.get_nowait()[1].close()
    return sorted(latencies)


def _batch(key: str, seed: int) -> bytes:
    body = events.encode(events.make(seed=seed))
    return (
        b"POST /v3/s2s/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-KEY: %b\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    ) % (key.encode(), len(body), body)


async def _send_batches(port: int, batches: list[bytes], until: float) -> int:
    """Sends batches until that time of perf_counter; how many events were accepted."""
    stream = await asyncio.open_connection(LOOPBACK, port)
    accepted = 0
    while time.perf_counter() < until:
        status = await _exchange(stream, batches[accepted // events.BATCH % len(batches)])
        if status != 202:
            raise BenchError(f"a batch is answered with {status}")
        accepted += events.BATCH
    stream[1].close()
    return accepted


async def _key(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        return await products.issue(connection, "bench", ("igaming",), 1_000_000)
    finally:
        await connection.close()


async def _together(
    port: int, wires: list[bytes], batches: list[bytes], senders: int, rate: float, seconds: float
) -> dict[str, float]:
    until = time.perf_counter() + seconds
    sending = [asyncio.create_task(_send_batches(port, batches, until)) for _ in range(senders)]
    latencies = await _bids(port, wires, rate, seconds)
    accepted = sum([await one for one in sending])
    count = len(latencies)
    return {
        "events_a_second": round(accepted / seconds),
        **{
            f"bid_{name}_ms": round(latencies[min(int(count * share), count - 1)] * 1e3, 2)
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
        },
    }


async def _until_known(port: int, batch: bytes) -> None:
    """The key reaches the worker with the catalog."""
    deadline = time.monotonic() + 10
    while True:
        stream = await asyncio.open_connection(LOOPBACK, port)
        status = await _exchange(stream, batch)
        stream[1].close()
        if status == 202:
            return
        if status != 401 or time.monotonic() > deadline:
            raise BenchError(f"a batch is answered with {status}")
        await asyncio.sleep(0.1)


def run(seconds: float, rate: float, scratch: Path) -> dict[str, Any]:
    """The result as it is written."""
    server_core, client_core = cores()
    figures = {}
    with ExitStack() as stack:
        stack.enter_context(pinned(client_core))
        server = stack.enter_context(product(scratch, server_core, client_core, CAMPAIGNS))
        wires = answered(server, requests.make(500), 200)
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        key = runner.run(_key(server.environ["SNAPBID_DATABASE_URL"]))
        batches = [_batch(key, seed) for seed in range(8)]
        runner.run(_until_known(server.port, batches[0]))
        for senders in SENDERS:
            figures[f"{senders} senders"] = runner.run(
                _together(server.port, wires, batches, senders, rate, seconds)
            )
    return {
        "kind": "together",
        "about": about(),
        "method": {"seconds": seconds, "bids_a_second": rate, "campaigns": CAMPAIGNS},
        "figures": figures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=400.0, help="bid requests a second")
    parser.add_argument("--output", type=Path, default=None)
    chosen = parser.parse_args()
    if not 0 < chosen.seconds <= MAX_SECONDS or not 0 < chosen.rate <= MAX_RATE:
        parser.error(f"at most {MAX_SECONDS} seconds and {MAX_RATE} bid requests a second")
    with tempfile.TemporaryDirectory(prefix="snapbid-bench-") as scratch:
        os.chmod(scratch, 0o711)  # the database runs as another user where this one is root
        result = run(chosen.seconds, chosen.rate, Path(scratch))
    text = json.dumps(result, indent=2) + "\n"
    if chosen.output:
        chosen.output.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
