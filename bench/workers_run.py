"""Compares a server of two workers with a server of one, both on the same core.

    python -m bench.workers_run [--rounds 11] [--seconds 2]

Each server has stores of its own, on the client's core. They take turns, saturated with bids, and
the ratios of two workers to one are taken round by round.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import redis

from bench import redis_time
from bench.client import drive, run
from bench.command import TURN_S, command, scratch
from bench.contenders import CAMPAIGNS, CONNECTIONS, REQUESTS, answered
from bench.processes import BenchError, ServerProcess, cores, pinned
from bench.served import product
from bench.socket_run import MAX_ROUNDS, MOST_LATE, WARM_UP_S
from bench.spread import spread
from workload import requests

WORKERS: Final = (1, 2)


class Turn(msgspec.Struct):
    """Bids per second, and the processor time of each bid in all workers and in Redis, in µs."""

    bids_per_s: float
    worker_us: float
    redis_us: float


class Contender:
    """A server with some workers, its Redis, and the requests it gets."""

    def __init__(self, server: ServerProcess, store: redis.Redis, wires: Sequence[bytes]) -> None:
        self._server = server
        self._store = store
        self._wires = wires

    def turn(self, seconds: float) -> Turn:
        """Saturate the server and measure it. Raises BenchError if a request got no bid."""
        self._drive(WARM_UP_S)
        worker_s, redis_s = self._server.processor_s(), self._redis_s()
        bids, took_s = self._drive(seconds)
        worker_s, redis_s = self._server.processor_s() - worker_s, self._redis_s() - redis_s
        return Turn(bids / took_s, worker_s / bids * 1e6, redis_s / bids * 1e6)

    def _drive(self, seconds: float) -> tuple[int, float]:
        work = drive(self._server.port, self._wires, connections=CONNECTIONS, seconds=seconds)
        outcome = run(work)
        bids = outcome.statuses.get(200, 0)
        if bids < (1 - MOST_LATE) * outcome.requests:
            raise BenchError(f"requests are answered with {outcome.statuses}")
        return bids, outcome.seconds

    def _redis_s(self) -> float:
        return redis_time.processor_s(self._store.info("cpu"))


@contextmanager
def contender(scratch: Path, core: int, store_core: int, workers: int) -> Iterator[Contender]:
    scratch.mkdir(mode=0o711)
    with ExitStack() as stack:
        server = stack.enter_context(product(scratch, core, store_core, CAMPAIGNS, workers))
        url = server.environ["SNAPBID_REDIS_URL"]
        store = stack.enter_context(closing(redis.Redis.from_url(url)))
        yield Contender(server, store, answered(server, requests.make(REQUESTS), 200))


@command("workers")
@click.option("--rounds", type=click.IntRange(1, MAX_ROUNDS), default=11)
@click.option("--seconds", type=TURN_S, default=2.0, help="A turn.")
def main(rounds: int, seconds: float) -> dict[str, Any]:
    """Compare two workers of a server with one; the rounds begin with each in turn."""
    core, store_core = cores()
    turns: dict[int, list[Turn]] = {workers: [] for workers in WORKERS}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        stack.enter_context(pinned(store_core))
        contenders = {
            workers: stack.enter_context(
                contender(folder / str(workers), core, store_core, workers)
            )
            for workers in WORKERS
        }
        for number in range(rounds):
            for workers in WORKERS[:: -1 if number % 2 else 1]:
                turns[workers].append(contenders[workers].turn(seconds))
    return {
        "method": {"rounds": rounds, "seconds": seconds, "connections": CONNECTIONS},
        "figures": {str(workers): _spreads(own) for workers, own in turns.items()},
        "ratios": _ratios(*(turns[workers] for workers in WORKERS)),
    }


def _spreads(turns: Sequence[Turn]) -> dict[str, Any]:
    names = Turn.__struct_fields__
    return {name: spread([getattr(turn, name) for turn in turns], 1) for name in names}


def _ratios(one: Sequence[Turn], two: Sequence[Turn]) -> dict[str, Any]:
    """Return the spread of the ratios of two workers to one, round by round."""
    pairs = list(zip(one, two, strict=True))
    return {
        name: spread([getattr(b, name) / getattr(a, name) for a, b in pairs])
        for name in Turn.__struct_fields__
    }


if __name__ == "__main__":
    main()
