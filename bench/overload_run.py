"""One worker below, at and beyond its capacity: what it answers, how late, and for whom.

First its capacity, closed loop. Then one SSP sends multiples of that on a schedule which waits for
nobody, while another sends steadily a little; beside them, in the last runs, a flood of refused
server events, reports and unknown paths. A request whose moment comes while all connections of its
sender wait for answers is not sent, as an SSP does, and counted. Latencies count from the scheduled
moment.
Recovery: the SSP's share of bids from the end of the flood on, at half the capacity.

    python -m bench.overload_run [--seconds 3] [--connections 256]
"""

import argparse
import asyncio
import json
import os
import tempfile
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import msgspec
import uvloop

from bench.about import about
from bench.client import MAX_CONNECTIONS, MAX_SECONDS, drive, request
from bench.contenders import answered
from bench.processes import ServerProcess, cores, pinned
from bench.served import product
from workload import requests
from workload.serving import LOOPBACK

CAMPAIGNS: Final = 10_000
STEP_S: Final = 0.0005
LAST_S: Final = 1.0  # for the last answers
LOADS: Final = (0.5, 1.0, 2.0, 3.0)
OTHERS_SHARE: Final = 0.05  # of the capacity, sent by the other SSP
OTHERS_PATH: Final = "/api/v1/openrtb2/nova/bid"
FLOOD: Final = (
    b"POST /v3/s2s/event HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
    b"GET /api/v1/ssp/acme/report HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
)


class Seen(msgspec.Struct):
    """One sender's run: answers by status with latencies (s), by the second that they were due."""

    rate: float
    seconds: float
    unsent: int = 0
    answers: list[tuple[int, float, float]] = []  # status, latency, due

    def figures(self) -> dict[str, float]:
        statuses = Counter(status for status, *_ in self.answers)
        latencies = sorted(latency for _, latency, _ in self.answers)
        bids = sorted(latency for status, latency, _ in self.answers if status == 200)
        return {
            "offered_per_s": round(self.rate),
            "sent_per_s": round(len(self.answers) / self.seconds),
            "bids_per_s": round(statuses[200] / self.seconds),
            "bid_share": round(statuses[200] / max(len(self.answers), 1), 3),
            "no_bids_per_s": round(statuses[204] / self.seconds),
            "other": sum(n for status, n in statuses.items() if status not in (200, 204)),
            "unsent_per_s": round(self.unsent / self.seconds),
            "p50_ms": _quantile(latencies, 0.5),
            "p99_ms": _quantile(latencies, 0.99),
            "bid_p99_ms": _quantile(bids, 0.99),
        }


def _quantile(ordered: Sequence[float], share: float) -> float:
    return round(ordered[int((len(ordered) - 1) * share)] * 1e3, 1) if ordered else 0.0


class _Connection(asyncio.Protocol):
    def __init__(self, idle: "deque[_Connection]", seen: Seen) -> None:
        self._idle = idle
        self._seen = seen
        self._buffer = b""
        self.closed = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._idle.append(self)

    def send(self, wire: bytes, due: float) -> None:
        self._due = due
        self._transport.write(wire)

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        head = data.find(b"\r\n\r\n")
        at = data.find(b"content-length: ", 0, head + 2)
        length = int(data[at + 16 : data.index(b"\r", at)]) if at >= 0 else 0
        if head < 0 or len(data) < head + 4 + length:
            self._buffer = data
            return
        self._buffer = b""
        self._seen.answers.append((int(data[9:12]), perf_counter() - self._due, self._due))
        self._idle.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True


async def _send(
    port: int, wires: Sequence[bytes], rate: float, connections: int, seconds: float
) -> tuple[Seen, int]:
    """A sender's run, and how many of its connections the server closed."""
    seen = Seen(rate, seconds)
    idle: deque[_Connection] = deque()
    loop = asyncio.get_running_loop()
    opened = [
        await loop.create_connection(lambda: _Connection(idle, seen), LOOPBACK, port)
        for _ in range(connections)
    ]
    start = perf_counter()
    number = 0
    while (now := perf_counter()) < start + seconds:
        while (due := start + number / rate) <= now:
            wire = wires[number % len(wires)]
            number += 1
            while idle and idle[0].closed:
                idle.popleft()
            if idle:
                idle.popleft().send(wire, due)
            else:
                seen.unsent += 1
        await asyncio.sleep(STEP_S)
    until = perf_counter() + LAST_S
    while len(seen.answers) + seen.unsent < number and perf_counter() < until:
        await asyncio.sleep(0.01)
    closed = sum(protocol.closed for _, protocol in opened)
    for transport, _ in opened:
        transport.close()
    return seen, closed


async def _under_load(
    port: int, wires: tuple[list[bytes], list[bytes]], rates: Sequence[float], options: Any
) -> dict[str, Any]:
    """The first SSP's requests, the other's, and the flood, at those rates (0: none)."""
    own, other = wires
    senders = {"acme": (own, options.connections), "nova": (other, 32), "flood": (FLOOD, 256)}
    names = [name for name, rate in zip(senders, rates, strict=True) if rate]
    outcomes = await asyncio.gather(
        *(
            _send(port, *senders[name][:1], rate, senders[name][1], options.seconds)
            for name, rate in zip(senders, rates, strict=True)
            if rate
        )
    )
    return {
        name: seen.figures() | {"closed": closed}
        for name, (seen, closed) in zip(names, outcomes, strict=True)
    }


async def _recovery(port: int, wires: list[bytes], capacity: float, options: Any) -> dict[str, Any]:
    """How long after the end of a flood the bids of half the capacity are all answered."""
    await _send(port, wires, 3 * capacity, options.connections, 1.0)
    ended = perf_counter()
    seen, _ = await _send(port, wires, capacity / 2, options.connections, 2.0)
    missed = [due for status, _, due in seen.answers if status != 200]
    return {
        "missed": len(missed),
        "last_missed_ms": round((max(missed) - ended) * 1e3, 1) if missed else 0,
    }


def measure(server: ServerProcess, options: Any) -> dict[str, Any]:
    made = requests.make(2_000)
    own = answered(server, made, 200)
    bodies = [wire.partition(b"\r\n\r\n")[2] for wire in own]
    wires = own, [request(OTHERS_PATH, body) for body in bodies]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(drive(server.port, own, connections=64, seconds=1.0))
        outcome = runner.run(drive(server.port, own, connections=64, seconds=options.seconds))
        capacity = outcome.statuses.get(200, 0) / outcome.seconds
        print(f"capacity {capacity:.0f} bids a second")
        figures: dict[str, Any] = {}
        plan = [(f"{load:g}x", load, 0.0) for load in LOADS]
        plan += [("0.5x, flood", 0.5, 3.0), ("1x, flood", 1.0, 3.0)]
        for name, load, flood in plan:
            rates = [share * capacity for share in (load, OTHERS_SHARE, flood)]
            figures[name] = runner.run(_under_load(server.port, wires, rates, options))
            for sender, own_figures in figures[name].items():
                print(f"{name:12} {sender:6}", own_figures, flush=True)
        recovery = runner.run(_recovery(server.port, own, capacity, options))
        print("recovery", recovery)
    return {"capacity": round(capacity), "loads": figures, "recovery": recovery}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="a load")
    parser.add_argument("--connections", type=int, default=256, help="of the first SSP")
    parser.add_argument("--output", type=Path, default=None)
    options = parser.parse_args()
    if not 0 < options.seconds <= MAX_SECONDS or not 0 < options.connections <= MAX_CONNECTIONS:
        parser.error(f"at most {MAX_SECONDS} seconds and {MAX_CONNECTIONS} connections")
    with tempfile.TemporaryDirectory(prefix="snapbid-bench-") as scratch, ExitStack() as stack:
        os.chmod(scratch, 0o711)  # the database runs as another user where this one is root
        server_core, client_core = cores()
        stack.enter_context(pinned(client_core))
        server = stack.enter_context(product(Path(scratch), server_core, client_core, CAMPAIGNS))
        result = {"kind": "overload", "about": about(), "figures": measure(server, options)}
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
