"""The modes: what is sent to a bidder, and what is measured.

A saturated bidder has 64 connections, each of which sends its next request when it has its answer.
Mixed traffic leaves on schedule at half of its capacity, however slow the answers are; latency
counts from the scheduled time. The first quarter of such a turn, in which the server accepts the
connections, does not count. Every answer of every mode is checked, after the measured time.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice
from typing import Any, Final

import msgspec

from bench.client import Each, Outcome, as_new_auctions, drive, quantile, request, run, schedule
from bench.market.bidders import BID, LIMITS, MIXED, NO_BID, NOTICES, Bidder, Started
from bench.market.contract import LATE, Auction, Breach, Judge, auctions, wins_of
from bench.market.corpus import TMAX_MS, Corpus
from bench.processes import BenchError
from bench.spread import spread
from workload.requests import Request, encode

CONNECTIONS: Final = 64
WARM_UP_S: Final = 0.5
SETTLE: Final = 0.25  # the first part of a turn of mixed traffic, whose latencies do not count
NOTICE_EVERY: Final = 10  # of mixed traffic, a win notice
ID_LENGTH: Final = 32
NUMBER: Final = 8  # digits of the id

# The auction's id, status, body and latency (s); no id for a notice.
Answer = tuple[bytes, int, bytes, float]
Wires = Sequence[bytes]


class Turns(msgspec.Struct, frozen=True):
    """The number and duration of a mode's turns."""

    rounds: int = 5
    seconds: float = 2.0
    mixed_rounds: int = 3
    mixed_seconds: float = 4.0


class Sample(msgspec.Struct):
    """One turn: processor times in µs per request (`store_us`: the stores'), and shares of a core.

    `wrong` and `late` are the shares of answers that break a rule or `tmax`. Only mixed traffic has
    `p…_ms` and `lag_ms`, the 99th percentile of how late the client sent.
    """

    requests_per_s: float
    processor_us: float
    system_us: float
    store_us: float
    server_busy: float
    client_busy: float
    wrong: float
    late: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    lag_ms: float = 0.0


class Traffic:
    """A running bidder and the requests for it: `bids` must get a bid, `no_bids` must not."""

    def __init__(self, started: Started, bidder: Bidder, corpus: Corpus, *, limited: bool) -> None:
        campaigns = corpus.limited if limited else corpus.campaigns
        self.started = started
        self.corpus = corpus
        self._asked = auctions(corpus.all_requests(), campaigns)
        self._judge = Judge(campaigns, bidder.campaign_of)
        self.all = list(map(self.wire_of, corpus.requests))
        self.bids = [wire for wire in self.all if self._asked_of(id_of(wire)).is_bid]
        self.no_bids = [wire for wire in self.all if not self._asked_of(id_of(wire)).is_bid]

    def wire_of(self, asked: Request) -> bytes:
        (body,) = encode([asked])
        return request(self.started.path, body)

    def _asked_of(self, id: bytes) -> Auction:
        return self._asked[int(id[-NUMBER:], 16)]

    def breaches(self, answer: Answer) -> list[Breach]:
        """Return the rules that an answer breaks; a notice's must have a status below 300."""
        id, status, body, latency = answer
        if not id:
            return [] if status < 300 else [Breach("answer", f"status {status} to a notice")]
        ms = latency * 1e3
        late = [Breach(LATE, f"after {ms:.0f} ms")] if ms > TMAX_MS else []
        return late + self._judge.breaches(self._asked_of(id), id.decode(), status, body)

    def wins_of(self, answers: Iterable[Answer]) -> list[bytes]:
        """Return the win notices for the bids of these answers."""
        return [wire for _, status, body, _ in answers for wire in wins_of(status, body)]


def id_of(wire: bytes) -> bytes:
    """Return the auction id in a bid request; empty for a notice."""
    at = wire.find(b'{"id":"') + len(b'{"id":"')
    return wire[at : at + ID_LENGTH] if wire.startswith(b"POST") else b""


def saturate(traffic: Traffic, wires: Wires, seconds: float) -> tuple[Sample, list[Answer]]:
    """Send requests in a closed loop for `seconds`, each time as new auctions."""
    port = traffic.started.server.port
    return _turn(traffic, lambda each: run(
        drive(port, wires, connections=CONNECTIONS, seconds=seconds, each=each)
    ))  # fmt: skip


def once(
    traffic: Traffic, wires: Wires, connections: int = CONNECTIONS
) -> tuple[Sample, list[Answer]]:
    """Send each request once, unchanged. Raises BenchError if there is none."""
    if not wires:
        raise BenchError("its bids name no win notice on this machine: SKIPPED must say so")
    port = traffic.started.server.port
    return _turn(traffic, lambda each: run(
        drive(port, wires, connections=connections, once=True, each=each)
    ))  # fmt: skip


def relax(
    traffic: Traffic, wires: Wires, rate: float, seconds: float
) -> tuple[Sample, list[Answer]]:
    """Send `rate` requests a second for `seconds`, each time as new auctions."""
    port = traffic.started.server.port
    settle_s = seconds * SETTLE
    return _turn(traffic, lambda each: run(schedule(
        port, wires,
        connections=CONNECTIONS, rate=rate, seconds=seconds, settle_s=settle_s, each=each,
    )))  # fmt: skip


def _turn(traffic: Traffic, work: Callable[[Each], Outcome]) -> tuple[Sample, list[Answer]]:
    answers: list[Answer] = []

    def keep(wire: bytes, status: int, body: bytes, latency: float) -> None:
        answers.append((id_of(wire), status, body, latency))

    server, store_s = traffic.started.server, traffic.started.store_s or (lambda: 0.0)
    before = server.processor_s(), server.system_s(), store_s(), time.process_time()
    outcome = work(keep)
    after = server.processor_s(), server.system_s(), store_s(), time.process_time()
    processor, system, store, own = (b - a for a, b in zip(before, after, strict=True))
    count = outcome.requests
    broken = [{rule for rule, _ in traffic.breaches(answer)} for answer in answers]
    return Sample(
        requests_per_s=count / outcome.seconds,
        processor_us=processor / count * 1e6,
        system_us=system / count * 1e6,
        store_us=store / count * 1e6,
        server_busy=processor / outcome.seconds,
        client_busy=own / outcome.seconds,
        wrong=sum(map(bool, broken)) / count,
        late=sum(LATE in rules for rules in broken) / count,
        **outcome.quantiles_ms(),
        lag_ms=quantile(outcome.lags, 0.99) * 1e3,
    ), answers


def measure(traffic: Traffic, modes: Sequence[str], turns: Turns) -> dict[str, Any]:
    """Measure the modes; return medians and quartiles of their turns."""
    work: dict[str, Callable[[], dict[str, Any]]] = {
        NO_BID: lambda: _saturated(traffic, traffic.no_bids, turns),
        BID: lambda: _saturated(traffic, traffic.bids, turns),
        LIMITS: lambda: _saturated(traffic, traffic.bids, turns),
        NOTICES: lambda: _notices(traffic, turns),
        MIXED: lambda: _mixed(traffic, turns),
    }
    figures = {}
    for mode in modes:
        figures[mode] = work[mode]()
        print(f"  {mode}: {shown(figures[mode])}", flush=True)
    return figures


def shown(figures: dict[str, Any]) -> str:
    """Format a line about a mode."""
    middle = {name: own["median"] for name, own in figures.items() if isinstance(own, dict)}
    return "{requests_per_s:,.0f}/s, {processor_us:.1f} µs, {wrong:.1%} wrong".format(**middle)


def _saturated(traffic: Traffic, wires: Wires, turns: Turns) -> dict[str, Any]:
    saturate(traffic, wires, WARM_UP_S)
    return _spreads([saturate(traffic, wires, turns.seconds)[0] for _ in range(turns.rounds)])


def _notices(traffic: Traffic, turns: Turns) -> dict[str, Any]:
    """Send a win notice for each bid of a turn, and return their number and the bidder's count."""
    samples, sent, wins = [], 0, traffic.started.wins
    counted = wins() if wins else 0
    for _ in range(turns.rounds):
        notices = traffic.wins_of(saturate(traffic, traffic.bids, turns.seconds)[1])
        sent += len(notices)
        samples.append(once(traffic, notices)[0])
    figures = _spreads(samples) | {"sent": sent}
    return figures | ({"counted": wins() - counted} if wins else {})


def _mixed(traffic: Traffic, turns: Turns) -> dict[str, Any]:
    """Send the whole corpus and win notices, at half the rate of the saturated bidder."""
    saturate(traffic, traffic.all, WARM_UP_S)
    rate = saturate(traffic, traffic.all, turns.seconds)[0].requests_per_s / 2
    samples = []
    for _ in range(turns.mixed_rounds):
        wires = _woven(traffic, round(rate * turns.mixed_seconds))
        samples.append(relax(traffic, wires, rate, turns.mixed_seconds)[0])
    return _spreads(samples)


def _woven(traffic: Traffic, count: int) -> list[bytes]:
    """Return `count` requests, of which one in NOTICE_EVERY is a win notice.

    There may be fewer notices, since not every bid names a URL for them.
    """
    won = list(islice(as_new_auctions(traffic.bids), count // NOTICE_EVERY))
    notices = iter(traffic.wins_of(once(traffic, won)[1]))
    requests = cycle(traffic.all)
    return [
        (next(notices, None) if n % NOTICE_EVERY == 0 else None) or next(requests)
        for n in range(count)
    ]


def _spreads(samples: Sequence[Sample]) -> dict[str, Any]:
    fields = samples[0].__struct_fields__
    return {name: spread([getattr(sample, name) for sample in samples]) for name in fields}
