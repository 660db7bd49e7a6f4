"""The socket runs: the product beside applications that always answer the same.

One server core, one client core; the contenders take turns for a few seconds each, in an order that
rotates from round to round, and what one adds to another is taken round by round. The steady figure
on a machine that others use too is the processor time a request, as the operating system counts it
for the worker process.

    python -m bench.socket_run [--seconds 2] [--rounds 7]
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import uvloop

from bench import requests
from bench.about import about
from bench.client import Outcome, drive, notice, request
from bench.constant import PATH
from bench.processes import BenchError, ServerProcess, cores, pinned
from bench.served import constant, product

CAMPAIGNS: Final = 10_000
CONNECTIONS: Final = 64
REQUESTS: Final = 2_000
WARM_UP_S: Final = 0.5
MOST_LATE: Final = 0.02  # of the answers of a turn
BUSY: Final = 0.9  # a server that is busy for less of the time was not the limit

# What is subtracted from what, and whether it is one of the two figures to steer by.
ADDED: Final = {
    "a bid, over 1 KB": ("bid", "constant", True),
    "a bid, over 1 KB and the body read": ("bid", "constant-read", False),
    "a no-bid, over 204": ("no-bid", "constant-204", True),
    "a no-bid, over 204 and the body read": ("no-bid", "constant-204-read", False),
    "a bid of today's sizes, over 1 KB": ("bid-today", "constant", False),
    "remembering a bid": ("bid", "bid-test", False),
    "a win notice, over 1 KB": ("win", "constant", False),
    "reading the body, over 1 KB": ("constant-read", "constant", False),
}


class Contender(msgspec.Struct):
    """A server, the requests it gets and the status that each answer must have."""

    name: str
    server: ServerProcess
    requests: Sequence[bytes]
    status: int


class Sample(msgspec.Struct):
    """One turn of a contender. Times a request in µs, latencies in ms, shares of a core;
    `late`: 204 for a bid, as a share.
    """

    requests_per_s: float
    processor_us: float
    system_us: float
    p50_ms: float
    p99_ms: float
    server_busy: float
    client_busy: float
    late: float


def measure(contender: Contender, seconds: float) -> Sample:
    """Warms up, then drives the contender for `seconds`. Raises BenchError at a wrong answer."""
    server = contender.server
    _drive(contender, WARM_UP_S)
    processor, system, own = server.processor_s(), server.system_s(), time.process_time()
    outcome = _drive(contender, seconds)
    own = time.process_time() - own
    processor, system = server.processor_s() - processor, server.system_s() - system
    count = outcome.requests
    return Sample(
        requests_per_s=count / outcome.seconds,
        processor_us=processor / count * 1e6,
        system_us=system / count * 1e6,
        p50_ms=outcome.latencies[count // 2] * 1e3,
        p99_ms=outcome.latencies[count * 99 // 100] * 1e3,
        server_busy=processor / outcome.seconds,
        client_busy=own / outcome.seconds,
        late=_late(outcome, contender),
    )


def _drive(contender: Contender, seconds: float) -> Outcome:
    work = drive(
        contender.server.port, contender.requests, connections=CONNECTIONS, seconds=seconds
    )
    outcome = _run(work)
    wrong = {status: n for status, n in outcome.statuses.items() if status != contender.status}
    if set(wrong) - {204} or _late(outcome, contender) > MOST_LATE:
        raise BenchError(f"{contender.name}: answers that are not {contender.status}: {wrong}")
    if contender.name.startswith("bid"):
        for _, body in (one for one in outcome.last if one[0] == contender.status):
            assert json.loads(body)["seatbid"][0]["bid"][0]["nurl"]
    return outcome


def _late(outcome: Outcome, contender: Contender) -> float:
    """The share of 204 where a bid was due: too late, or not remembered in time."""
    if contender.status == 204:
        return 0.0
    return outcome.statuses.get(204, 0) / outcome.requests


def _run(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def answered(server: ServerProcess, made: list[requests.Request], status: int) -> list[bytes]:
    """Those requests that the running server answers so; most must be."""
    found = []
    for body in requests.encode(made):
        wire = request(PATH, body)
        outcome = _run(drive(server.port, [wire], connections=1, once=True))
        if outcome.statuses == {status: 1}:
            found.append(wire)
    if len(found) < 0.9 * len(made):
        raise BenchError(f"only {len(found)} of {len(made)} requests are answered with {status}")
    return found


def run(seconds: float, rounds: int, scratch: Path) -> dict[str, Any]:
    """All rounds; the result as it is written."""
    result: dict[str, Any] = {"kind": "socket", "about": about()}
    server_core, client_core = cores()
    with ExitStack() as stack:
        stack.enter_context(pinned(client_core))
        contenders = _start(stack, scratch, server_core, client_core)
        samples: dict[str, list[Sample]] = {one.name: [] for one in contenders}
        for number in range(rounds):
            place = number % len(contenders)
            for one in contenders[place:] + contenders[:place]:
                samples[one.name].append(measure(one, seconds))
                print(".", end="", flush=True)
        print()
        memory = {one.name: one.server.memory_bytes() / 2**20 for one in contenders}
    result["method"] = {
        "campaigns": CAMPAIGNS,
        "connections": CONNECTIONS,
        "rounds": rounds,
        "seconds_a_turn": seconds,
        "request_bytes_median": {one.name: median(map(len, one.requests)) for one in contenders},
    }
    result["figures"] = {
        name: _medians(own) | {"memory_mib": round(memory[name], 1)}
        for name, own in samples.items()
    }
    result["added_us"] = {title: _added(samples, *pair[:2]) for title, pair in ADDED.items()}
    return result


def _start(stack: ExitStack, scratch: Path, core: int, store_core: int) -> list[Contender]:
    server = stack.enter_context(product(scratch, core, store_core, CAMPAIGNS))
    made = requests.make(REQUESTS)
    bids = answered(server, made, 200)
    wins = [notice("/rtb/win", each["id"], each["imp"][0]["id"]) for each in made]
    contenders = [
        Contender("bid", server, bids, 200),
        Contender("bid-test", server, answered(server, requests.unremembered(made), 200), 200),
        Contender("win", server, wins, 200),
        Contender("bid-today", server, answered(server, requests.grown(made), 200), 200),
        Contender("no-bid", server, answered(server, requests.no_bids(made), 204), 204),
    ]
    for name, kind, status in (
        ("constant", "full", 200),
        ("constant-read", "full_read", 200),
        ("constant-204", "empty", 204),
        ("constant-204-read", "empty_read", 204),
    ):
        other = stack.enter_context(constant(scratch, core, kind))
        contenders.append(Contender(name, other, bids, status))
    return contenders


def _medians(samples: list[Sample]) -> dict[str, float]:
    return {
        name: round(median(getattr(one, name) for one in samples), 3)
        for name in Sample.__struct_fields__
    }


def _added(samples: dict[str, list[Sample]], one: str, base: str) -> dict[str, float]:
    """Median, lowest and highest of the differences of processor time, round by round."""
    pairs = zip(samples[one], samples[base], strict=True)
    differences = [a.processor_us - b.processor_us for a, b in pairs]
    return {
        "median": round(median(differences), 2),
        "lowest": round(min(differences), 2),
        "highest": round(max(differences), 2),
    }


def disturbed(figures: dict[str, Any]) -> list[str]:
    """What kept a server from using its core: the client, or somebody else's program."""
    return [
        f"{name} ({'the client' if own['client_busy'] >= BUSY else 'other programs'})"
        for name, own in figures.items()
        if own["server_busy"] < BUSY
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="a turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=None)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="snapbid-bench-") as scratch:
        os.chmod(scratch, 0o711)  # the database runs as another user where this one is root
        result = run(chosen.seconds, chosen.rounds, Path(scratch))
    text = json.dumps(result, indent=2) + "\n"
    if chosen.output:
        chosen.output.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
