"""Measures how bids and full event batches on one worker affect each other's latency.

Bids leave on a schedule, however slow the answers are (open loop), and latency counts from the
scheduled time. At the same time a number of senders send batches of 600 events back to back.

    python -m bench.together_run [--rounds 5] [--seconds 10] [--rate 400]
"""

import asyncio
import time
from contextlib import ExitStack
from typing import Any, Final

import asyncpg
import click
import uvloop

from bench import events
from bench.client import schedule
from bench.command import TURN_S, command, scratch
from bench.contenders import CAMPAIGNS, answered
from bench.processes import BenchError, cores, pinned
from bench.served import product
from bench.socket_run import MOST_LATE
from bench.spread import spread
from snapbid.warehouse import products
from workload import requests
from workload.serving import LOOPBACK

SENDERS: Final = (0, 1, 4)
CONNECTIONS: Final = 64


async def _exchange(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter], sent: bytes) -> int:
    """Send a request over an open connection; return the status of the answer."""
    reader, writer = stream
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.find(b"content-length: ")
    if at >= 0:
        await reader.readexactly(int(head[at + 16 : head.index(b"\r", at)]))
    return int(head[9:12])


def batch(key: str, seed: int) -> bytes:
    """Build the bytes of a request with 600 events."""
    body = events.encode(events.generate(seed=seed))
    return (
        b"POST /v3/s2s/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-KEY: %b\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    ) % (key.encode(), len(body), body)


async def _send_batches(port: int, batches: list[bytes], until: float) -> int:
    """Send batches until a perf_counter time; return the number of events accepted."""
    stream = await asyncio.open_connection(LOOPBACK, port)
    accepted = 0
    while time.perf_counter() < until:
        status = await _exchange(stream, batches[accepted // events.BATCH % len(batches)])
        if status != 202:
            raise BenchError(f"a batch is answered with {status}")
        accepted += events.BATCH
    stream[1].close()
    return accepted


async def issue_key(dsn: str) -> str:
    """Issue an API key for all events."""
    connection = await asyncpg.connect(dsn)
    try:
        return await products.issue(
            connection, "bench", ("igaming",), products.MAX_RATE, products.MAX_EVENTS
        )
    finally:
        await connection.close()


async def _together(
    port: int, wires: list[bytes], batches: list[bytes], senders: int, rate: float, seconds: float
) -> dict[str, float]:
    """Run a turn; return the event rate, the share of bids answered 204, and their latencies in ms.

    Raises BenchError if the share of 204s is over MOST_LATE, or another status occurs.
    """
    until = time.perf_counter() + seconds
    sending = [asyncio.create_task(_send_batches(port, batches, until)) for _ in range(senders)]
    outcome = await schedule(port, wires, connections=CONNECTIONS, rate=rate, seconds=seconds)
    accepted = sum([await sender for sender in sending])
    late = outcome.statuses.get(204, 0) / outcome.requests
    if set(outcome.statuses) - {200, 204} or late > MOST_LATE:
        raise BenchError(f"bid requests are answered with {outcome.statuses}")
    latencies = {f"bid_{name}": value for name, value in outcome.quantiles_ms().items()}
    return {"events_a_second": accepted / seconds, "late": late, **latencies}


async def until_known(port: int, request: bytes) -> None:
    """Wait until the worker knows the key."""
    deadline = time.monotonic() + 10
    while True:
        stream = await asyncio.open_connection(LOOPBACK, port)
        status = await _exchange(stream, request)
        stream[1].close()
        if status == 202:
            return
        if status != 401 or time.monotonic() > deadline:
            raise BenchError(f"a batch is answered with {status}")
        await asyncio.sleep(0.1)


@command("together")
@click.option("--rounds", type=click.IntRange(1, 20), default=5)
@click.option("--seconds", type=TURN_S, default=10.0, help="A turn.")
@click.option("--rate", type=click.FloatRange(0, 5_000, min_open=True), default=400.0,
              help="Bid requests a second.")  # fmt: skip
def main(rounds: int, seconds: float, rate: float) -> dict[str, Any]:
    """Measure bids beside event batches; each round has a turn with each number of senders."""
    server_core, client_core = cores()
    turns: dict[int, list[dict[str, float]]] = {senders: [] for senders in SENDERS}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        stack.enter_context(pinned(client_core))
        server = stack.enter_context(product(folder, server_core, client_core, CAMPAIGNS))
        wires = answered(server, requests.make(500), 200)
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        key = runner.run(issue_key(server.environ["SNAPBID_DATABASE_URL"]))
        batches = [batch(key, seed) for seed in range(8)]
        runner.run(until_known(server.port, batches[0]))
        for _ in range(rounds):
            for senders, own in turns.items():
                work = _together(server.port, wires, batches, senders, rate, seconds)
                own.append(runner.run(work))
    return {
        "method": {
            "rounds": rounds,
            "seconds": seconds,
            "bids_a_second": rate,
            "campaigns": CAMPAIGNS,
        },
        "figures": {
            f"{senders} senders": {name: spread([turn[name] for turn in own]) for name in own[0]}
            for senders, own in turns.items()
        },
    }


if __name__ == "__main__":
    main()
