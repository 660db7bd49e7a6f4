"""What a given traffic needs, from measured costs of single steps, and what gives way first.

The costs are processor time, microseconds, of a small server with two shared cores
(bench/README.md); a quiet or a newer one may need half. A worker's are those of a saturated one:
what a core can do. Those of Redis come from workers at half of that, whose batches are small. What
is planned with is half of what a core, a link or a disk can do.
"""

import math
from typing import Final, NamedTuple

BID_US: Final = 32.0  # of a worker
NO_BID_US: Final = 20.0
NOTICE_US: Final = 16.0
LEDGER_PLAIN_US: Final = 17.0  # of Redis, for a bid
LEDGER_LIMITED_US: Final = 40.0  # with a budget and a cap
LEDGER_NOTICE_US: Final = 30.0
COUNTER_US: Final = 10.0  # of the drain and PostgreSQL, with a counter that has changed
BID_BYTES: Final = 52  # in Redis, for as long as the bid is remembered
REQUEST_BYTES: Final = 2_250  # on the wire, headers too
RESPONSE_BYTES: Final = 1_400
NO_BID_BYTES: Final = 120
NOTICE_BYTES: Final = 400  # both ways
RECORD_BYTES: Final = 170  # of a bid between worker and Redis, and to each replica
HALF: Final = 0.5
ROUND_S: Final = 1.0  # between two looks of the drain at a counter
COUNTERS_OF_SSP: Final = 8  # bids, wins, impressions, losses by reason …
COUNTERS_OF_CAMPAIGN: Final = 4
LINK_BITS: Final = 1e9


class PlannedTraffic(NamedTuple):
    """Requests a second, and what becomes of them.

    `bid_rate`: the share that is answered with a bid; `win_rate`: that of bids that are won, each
    with a win and a billing notice, the others having a loss notice in `loss_rate` of the cases;
    `limited`: the share of bids with a budget or a cap.
    """

    qps: float
    bid_rate: float = 0.3
    win_rate: float = 0.08
    loss_rate: float = 0.0
    limited: float = 1.0
    ssps: int = 10
    campaigns: int = 1_000
    ttl_s: int = 7_200
    replicas: int = 1

    @property
    def bids(self) -> float:
        """A second."""
        return self.qps * self.bid_rate

    @property
    def notices(self) -> float:
        """A second."""
        return self.bids * (2 * self.win_rate + (1 - self.win_rate) * self.loss_rate)


class Part(NamedTuple):
    """One part: how much of it there must be, and how many requests a second a single one takes.

    `busy` is what the traffic takes of it (cores, GB, links), `needed` the number to have, None
    where there cannot be more than one.
    """

    name: str
    unit: str
    busy: float
    needed: int | None
    one_carries: float


class Capacity(NamedTuple):
    """`parts`, the one that gives way first leading; bits a second; rows a day."""

    parts: list[Part]
    bits_in: float
    bits_out: float
    ledger_bits: float
    memory_bytes: float
    rows: int


def capacity_of(traffic: PlannedTraffic) -> Capacity:
    """Work out what a traffic needs."""
    qps, bids, notices = traffic.qps, traffic.bids, traffic.notices
    worker = (bids * BID_US + (qps - bids) * NO_BID_US + notices * NOTICE_US) / 1e6
    bid_us = traffic.limited * LEDGER_LIMITED_US + (1 - traffic.limited) * LEDGER_PLAIN_US
    redis = (bids * bid_us + notices * LEDGER_NOTICE_US) / 1e6
    counters = traffic.ssps * COUNTERS_OF_SSP + traffic.campaigns * COUNTERS_OF_CAMPAIGN
    changed = min(counters / ROUND_S, 2 * (bids + notices))
    drain = changed * COUNTER_US / 1e6
    bits_in = 8 * (qps * REQUEST_BYTES + notices * NOTICE_BYTES / 2)
    answers = bids * RESPONSE_BYTES + (qps - bids) * NO_BID_BYTES
    bits_out = 8 * (answers + notices * NOTICE_BYTES / 2)
    memory = bids * traffic.ttl_s * BID_BYTES * (1 + traffic.replicas)
    link = max(bits_in, bits_out) / LINK_BITS
    parts = [
        _part("worker", "cores", worker, qps),
        _part("Redis primary", "cores", redis, qps),
        _part("network", "links of 1 Gbit/s", link, qps),
        Part("drain and PostgreSQL", "cores", drain, None, _carried(drain, qps)),
    ]
    parts.sort(key=lambda part: part.one_carries)
    return Capacity(
        parts,
        bits_in,
        bits_out,
        8 * (bids + notices) * RECORD_BYTES * (1 + traffic.replicas),
        memory,
        traffic.ssps * COUNTERS_OF_SSP + traffic.campaigns,
    )


def _part(name: str, unit: str, busy: float, qps: float) -> Part:
    return Part(name, unit, busy, max(math.ceil(busy / HALF), 1), _carried(busy, qps))


def _carried(busy: float, qps: float) -> float:
    """How many requests a second of this kind a single one carries, half loaded."""
    return HALF * qps / busy if busy else float("inf")
