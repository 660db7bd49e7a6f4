"""Measures the product over sockets, beside peers and applications with a constant answer.

The server has one core, the client another. The contenders take turns of a few seconds each, in an
order that rotates from round to round; differences and ratios between contenders are taken round by
round. The steady figure on a machine that other programs use too is the processor time per request,
as the operating system counts it for the worker process.

First each contender is saturated, which gives its capacity; then each gets half of its own.

    python -m bench.socket_run [--seconds 2] [--rounds 15] [--half-seconds 5] [--half-rounds 5]
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any, Final

import click
import msgspec

from bench.client import Outcome, drive, quantile, run, schedule
from bench.command import TURN_S, command, scratch
from bench.contenders import CAMPAIGNS, COMPARED, CONNECTIONS, Contender, start
from bench.processes import BenchError, cores, pinned
from bench.redis_time import processor_s_of
from bench.spread import spread

WARM_UP_S: Final = 0.3
MOST_LATE: Final = 0.02  # of the answers of a turn
MAX_ROUNDS: Final = 100

# Minuend, subtrahend, and whether the difference is one of the two key figures.
ADDED: Final = {
    "a bid, over 1 KB": ("bid", "constant", True),
    "a bid, over 1 KB and the body read": ("bid", "constant-read", False),
    "a no-bid, over 204": ("no-bid", "constant-204", True),
    "a no-bid, over 204 and the body read": ("no-bid", "constant-204-read", False),
    "a bid, over 1 KB without a task, and the body read": ("bid", "constant-taskless-read", False),
    "a no-bid, over 204 without a task, and the body read": (
        "no-bid",
        "constant-204-taskless-read",
        False,
    ),
    "a bid of today's sizes, over 1 KB": ("bid-today", "constant", False),
    "remembering a bid": ("bid", "bid-test", False),
    "a win notice, over 1 KB": ("win", "constant", False),
    "reading the body, over 1 KB": ("constant-read", "constant", False),
}

# Numerator, denominator and the target.
RATIOS: Final[dict[str, tuple[str, str, float | None]]] = {
    "a bid, to the constant answer": ("bid", "constant", 0.7),
    "a bid, to the constant answer with the body read": ("bid", "constant-read", None),
    "a bid, to the same without a task": ("bid", "constant-taskless-read", None),
    "a bid, to the constant answer, threads scheduled plainly": ("bid", "constant-plain", None),
    "a no-bid, to the constant 204": ("no-bid", "constant-204", None),
    "a win notice, to the constant answer": ("win", "constant", None),
    "a bid, to the FastAPI peer's": ("bid", "fastapi-bid", 8.0),
    "a no-bid, to the FastAPI peer's": ("no-bid", "fastapi-no-bid", None),
    "a win notice, to the FastAPI peer's": ("win", "fastapi-win", None),
    "the constant answer, to itself with threads scheduled plainly": (
        "constant",
        "constant-plain",
        None,
    ),
    "the constant answer, to uvicorn's": ("constant", "uvicorn-constant", None),
    "both with the body read": ("constant-read", "uvicorn-constant-read", None),
}


class Sample(msgspec.Struct):
    """One turn of a saturated contender: times per request in µs, and shares of a core.

    `late` is the share of requests answered with 204 though a bid was due.
    """

    requests_per_s: float
    processor_us: float
    system_us: float
    server_busy: float
    client_busy: float
    late: float


class HalfSample(msgspec.Struct):
    """One turn at half of a contender's capacity, with latencies from the scheduled time.

    `lag_ms` is the 99th percentile of how late the client sent although a connection was free.
    Processor times are per request; Redis' is 0 if there is no Redis.
    """

    p50_ms: float
    p99_ms: float
    p999_ms: float
    lag_ms: float
    late: float
    processor_us: float
    redis_us: float


def saturate(contender: Contender, seconds: float) -> Sample:
    """Warm up, then drive the contender for `seconds`, or through all wins of a turn.

    Raises BenchError for a wrong answer, or if a win is not counted.
    """
    server = contender.server
    a_turn = contender.wins.a_turn if contender.wins else 0
    _drive(contender, _wires(contender, a_turn // 10), WARM_UP_S)
    wires = _wires(contender, a_turn)
    processor, system, own = server.processor_s(), server.system_s(), time.process_time()
    outcome = _drive(contender, wires, seconds)
    own = time.process_time() - own
    processor, system = server.processor_s() - processor, server.system_s() - system
    count = outcome.requests
    if contender.wins:
        contender.wins.check(count)
    return Sample(
        requests_per_s=count / outcome.seconds,
        processor_us=processor / count * 1e6,
        system_us=system / count * 1e6,
        server_busy=processor / outcome.seconds,
        client_busy=own / outcome.seconds,
        late=_late(outcome, contender),
    )


def relax(contender: Contender, seconds: float, rate: float) -> HalfSample:
    """Send `rate` requests a second. Raises BenchError as `saturate` does."""
    _schedule(contender, _wires(contender, round(WARM_UP_S * rate)), WARM_UP_S, rate)
    wires = _wires(contender, round(seconds * rate))
    server, url = contender.server, contender.server.environ.get("SNAPBID_REDIS_URL")
    processor, redis = server.processor_s(), processor_s_of(url) if url else 0.0
    outcome = _schedule(contender, wires, seconds, rate)
    processor = server.processor_s() - processor
    redis = processor_s_of(url) - redis if url else 0.0
    if contender.wins:
        contender.wins.check(outcome.requests)
    return HalfSample(
        **outcome.quantiles_ms(),
        lag_ms=quantile(outcome.lags, 0.99) * 1e3,
        late=_late(outcome, contender),
        processor_us=processor / outcome.requests * 1e6,
        redis_us=redis / outcome.requests * 1e6,
    )


def _wires(contender: Contender, wins: int) -> Sequence[bytes]:
    """Return the requests of a turn: the contender's, or win notices for `wins` new bids."""
    requests = contender.requests
    return contender.wins.make(requests, wins) if contender.wins else requests


def _drive(contender: Contender, wires: Sequence[bytes], seconds: float) -> Outcome:
    port, once = contender.server.port, contender.wins is not None
    work = drive(port, wires, connections=CONNECTIONS, seconds=seconds, once=once)
    return _checked(contender, run(work))


def _schedule(contender: Contender, wires: Sequence[bytes], seconds: float, rate: float) -> Outcome:
    """Send requests at this rate; send each win notice only once."""
    port = contender.server.port
    lasts = len(wires) / rate if contender.wins else seconds
    work = schedule(port, wires, connections=CONNECTIONS, rate=rate, seconds=lasts)
    return _checked(contender, run(work))


def _checked(contender: Contender, outcome: Outcome) -> Outcome:
    wrong = {status: n for status, n in outcome.statuses.items() if status != contender.status}
    if set(wrong) - {204} or _late(outcome, contender) > MOST_LATE:
        raise BenchError(f"{contender.name}: answers that are not {contender.status}: {wrong}")
    if "bid" in contender.name:
        for _, body in (answer for answer in outcome.last if answer[0] == 200):
            bid = json.loads(body)["seatbid"][0]["bid"][0]
            if not (bid.get("nurl") or bid.get("burl")):
                raise BenchError(f"{contender.name}: a bid without a notice")
    return outcome


def _late(outcome: Outcome, contender: Contender) -> float:
    """Return the share of 204s instead of a bid: it was late, or not remembered in time."""
    if contender.status == 204:
        return 0.0
    return outcome.statuses.get(204, 0) / outcome.requests


def in_turns(
    contenders: list[Contender], rounds: int, turn: Callable[[Contender], Any]
) -> dict[str, list[Any]]:
    """Return each contender's samples; each round begins with a different contender."""
    samples: dict[str, list[Any]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        place = number % len(contenders)
        for contender in contenders[place:] + contenders[:place]:
            samples[contender.name].append(turn(contender))
            print(".", end="", flush=True)
    print()
    return samples


def spreads(samples: Sequence[Sample | HalfSample]) -> dict[str, Any]:
    fields = samples[0].__struct_fields__
    return {name: spread([getattr(sample, name) for sample in samples]) for name in fields}


def _added(samples: dict[str, list[Sample]], name: str, base: str) -> dict[str, float]:
    """Return the spread of the differences in processor time, round by round."""
    pairs = zip(samples[name], samples[base], strict=True)
    return spread([a.processor_us - b.processor_us for a, b in pairs], 2)


def ratios(samples: dict[str, list[Sample]], name: str, base: str) -> dict[str, Any]:
    """Return the ratios of requests per second, and per processor second, round by round."""
    pairs = list(zip(samples[name], samples[base], strict=True))
    return {
        "requests": spread([a.requests_per_s / b.requests_per_s for a, b in pairs]),
        "processor": spread([b.processor_us / a.processor_us for a, b in pairs]),
    }


@command("socket")
@click.option("--seconds", type=TURN_S, default=2.0, help="A turn of a saturated server.")
@click.option("--rounds", type=click.IntRange(1, MAX_ROUNDS), default=15)
@click.option("--half-seconds", type=TURN_S, default=5.0, help="A turn at half capacity.")
@click.option("--half-rounds", type=click.IntRange(1, MAX_ROUNDS), default=5)
def main(seconds: float, rounds: int, half_seconds: float, half_rounds: int) -> dict[str, Any]:
    """Measure the product beside peers, over sockets."""
    result: dict[str, Any] = {}
    server_core, client_core = cores()
    with ExitStack() as stack:
        stack.enter_context(pinned(client_core))
        folder = stack.enter_context(scratch())
        contenders = start(stack, folder, server_core, client_core)
        full = in_turns(contenders, rounds, lambda contender: saturate(contender, seconds))
        capacity = {
            name: median(sample.requests_per_s for sample in samples)
            for name, samples in full.items()
        }
        rated = [contender for contender in contenders if contender.rated]
        half = in_turns(
            rated,
            half_rounds,
            lambda contender: relax(contender, half_seconds, capacity[contender.name] / 2),
        )
        memory = {
            contender.name: contender.server.memory_bytes() / 2**20 for contender in contenders
        }
    result["method"] = {
        "campaigns": CAMPAIGNS,
        "connections": CONNECTIONS,
        "rounds": rounds,
        "seconds_a_turn": seconds,
        "half_rounds": half_rounds,
        "half_seconds_a_turn": half_seconds,
        "compared": COMPARED,
        "request_bytes_median": {
            contender.name: median(map(len, contender.requests))
            for contender in contenders
            if contender.wins is None
        },
        "wins_a_turn": {each.name: each.wins.a_turn for each in contenders if each.wins},
    }
    result["figures"] = {
        name: spreads(own) | {"memory_mib": round(memory[name], 1)} for name, own in full.items()
    }
    result["half"] = {
        name: spreads(own) | {"requests_per_s": round(capacity[name] / 2)}
        for name, own in half.items()
    }
    result["added_us"] = {title: _added(full, *pair[:2]) for title, pair in ADDED.items()}
    result["ratios"] = {title: ratios(full, *pair[:2]) for title, pair in RATIOS.items()}
    return result


if __name__ == "__main__":
    main()
