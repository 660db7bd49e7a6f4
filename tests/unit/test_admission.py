"""Admission: a simulated worker in simulated time, at and beyond its capacity."""

from collections import Counter, deque
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest
from support.remembered import Clock

from snapbid.bidding._bid_path import (
    FIRST_LIMIT,
    INTERVAL_S,
    LEAST_LIMIT,
    AdmissionControl,
    SspShare,
)

# What a request keeps the worker busy for, and how long Redis takes beside it.
HEAD_S, BODY_S, END_S, STORE_S = 10e-6, 70e-6, 10e-6, 1e-3
SHED_S = 15e-6
CAPACITY = 1 / (HEAD_S + BODY_S + END_S)
TMAX_S = 0.1


Item = tuple[str, str, float, float]  # head, body or end; SSP; when it came, when it was let in


class Outcome:
    """The outcome of an SSP's requests; latencies (s) of all answers."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.shed_at: list[float] = []

    @property
    def p99_s(self) -> float:
        return sorted(self.latencies)[len(self.latencies) * 99 // 100]


class Worker:
    """One thread that serves a queue in its order: heads, bodies and answers of Redis.

    Head and body of a request wait in the same queue one after the other, as in the server.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.admission = AdmissionControl(clock())
        self.outcomes: dict[str, Outcome] = {}
        self._queue: deque[Item] = deque()
        self._later: list[tuple[float, int, Item]] = []
        self._numbers = count()

    def run(self, arrivals: Iterator[tuple[float, str]]) -> None:
        """Serve (time, SSP) arrivals to the last answer."""
        for at, ssp in arrivals:
            self._put(at, ("head", ssp, at, at))
        while self._queue or self._later:
            if not self._queue:
                self.clock.now = max(self.clock.now, self._later[0][0])
            while self._later and self._later[0][0] <= self.clock.now:
                self._queue.append(heappop(self._later)[2])
            self._serve(*self._queue.popleft())

    def _put(self, at: float, item: Item) -> None:
        heappush(self._later, (at, next(self._numbers), item))

    def _serve(self, kind: str, ssp: str, came: float, entered: float) -> None:
        admission, clock = self.admission, self.clock
        share = admission.share(ssp)
        if kind == "body":
            admission.has_body(share, entered, clock.now)
            clock.now += BODY_S
            self._put(clock.now + STORE_S, ("end", ssp, came, entered))
        elif kind == "end":
            clock.now += END_S
            admission.leave(share)
            self._end(ssp, "bid", came)
        elif admission.enter(share, clock.now):
            self._queue.append(("body", ssp, came, clock.now))
            clock.now += HEAD_S
        else:
            clock.now += SHED_S
            self._end(ssp, "shed", came)
            self.outcomes[ssp].shed_at.append(came)

    def _end(self, ssp: str, what: str, came: float) -> None:
        outcome = self.outcomes.setdefault(ssp, Outcome())
        outcome.counts[what] += 1
        outcome.latencies.append(self.clock.now - came)


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


def sent(ssp: str, load: float, start: float, end: float) -> Iterator[tuple[float, str]]:
    """Arrivals at random moments, at a multiple of the worker's capacity."""
    random = Random(f"{ssp} {load}")
    at = start
    while (at := at + random.expovariate(load * CAPACITY)) < end:
        yield at, ssp


def served(clock: Clock, *arrivals: Iterator[tuple[float, str]]) -> dict[str, Outcome]:
    worker = Worker(clock)
    worker.run(arrival for group in arrivals for arrival in group)
    assert worker.admission.under_way == 0
    return worker.outcomes


def test_each_interval_has_its_own_least_wait() -> None:
    """A quiet start does not hide that every request waits later."""
    control = AdmissionControl(0.0)
    share, now = control.share("acme"), 0.0
    for wait_s in (0.0, 0.02, 0.015):
        for _ in range(10):
            assert control.enter(share, now)
            control.has_body(share, now, now + wait_s)
            control.leave(share)
        now += INTERVAL_S
        assert control.enter(share, now)  # begins the next interval
        control.has_body(share, now, now + INTERVAL_S)
        control.leave(share)
        assert control.waited_s == pytest.approx(wait_s)


@pytest.mark.parametrize("load", [0.5, 0.8, 0.95])
def test_nothing_is_shed_below_the_capacity(clock: Clock, load: float) -> None:
    outcome = served(clock, sent("a", load, 0, 2))["a"]
    assert outcome.counts["shed"] == 0


@pytest.mark.parametrize("load", [1.5, 2, 3])
def test_excess_load_is_shed_in_time(clock: Clock, load: float) -> None:
    outcome = served(clock, sent("a", load, 0, 2))["a"]
    assert outcome.p99_s < 0.75 * TMAX_S
    spent_s = 2 - outcome.counts["shed"] * SHED_S
    assert outcome.counts["bid"] > 0.95 * spent_s * CAPACITY, "the worker was idle"


def test_a_flood_of_one_ssp_does_not_shed_the_others(clock: Clock) -> None:
    flood, other = sent("a", 3, 0, 2), sent("b", 0.1, 0, 2)
    outcomes = served(clock, flood, other)
    assert outcomes["b"].counts["shed"] < 0.02 * outcomes["b"].counts.total()
    assert outcomes["b"].p99_s < 0.75 * TMAX_S
    assert outcomes["a"].counts["shed"] > outcomes["a"].counts["bid"]


def test_two_floods_have_the_same_share(clock: Clock) -> None:
    outcomes = served(clock, sent("a", 2, 0, 2), sent("b", 1, 0, 2))
    bids = [outcomes[ssp].counts["bid"] for ssp in "ab"]
    assert min(bids) > 0.8 * max(bids)


def test_shedding_ends_with_the_flood(clock: Clock) -> None:
    outcome = served(clock, sent("a", 3, 0, 1), sent("a", 0.8, 1, 2))["a"]
    assert max(outcome.shed_at) < 1 + TMAX_S


def test_a_burst_is_taken_as_a_whole(clock: Clock) -> None:
    burst = ((1.0, "a") for _ in range(FIRST_LIMIT // 2))
    assert served(clock, burst)["a"].counts["shed"] == 0


def test_after_a_pause_most_queued_requests_are_shed(clock: Clock) -> None:
    """The worker stood still for so long that most of what waits is late already."""
    arrivals = sent("a", 0.9, 0, 1)
    late = ((1.0 + at, ssp) for at, ssp in sent("a", 0.9, 0, 1))
    worker = Worker(clock)
    worker.run(arrivals)
    clock.now = 1.5
    worker.run(late)
    assert worker.outcomes["a"].counts["shed"]
    assert max(worker.outcomes["a"].shed_at) < 1.8


def filled(clock: Clock) -> tuple[AdmissionControl, SspShare]:
    """A worker with as many half-sent requests as it takes on."""
    admission = AdmissionControl(clock())
    share = admission.share("a")
    for _ in range(FIRST_LIMIT):
        assert admission.enter(share, clock.now)
    assert not admission.enter(share, clock.now)
    return admission, share


def test_half_sent_requests_take_no_capacity(clock: Clock) -> None:
    admission, share = filled(clock)
    for under_way in (FIRST_LIMIT, 0, 0):
        clock.now += INTERVAL_S
        assert admission.enter(share, clock.now) is (under_way < FIRST_LIMIT)
        assert admission.under_way >= under_way
    assert admission.under_way < 10


@pytest.mark.parametrize("intervals", [0, 1, 2, 3])
def test_late_bodies_are_counted(clock: Clock, intervals: int) -> None:
    admission = AdmissionControl(clock())
    share, other = admission.share("a"), admission.share("b")
    entered = clock.now
    assert admission.enter(share, entered)
    for _ in range(intervals):
        clock.now += INTERVAL_S
        assert admission.enter(other, clock.now)
        admission.has_body(other, clock.now, clock.now)
        admission.leave(other)
    assert admission.under_way == share.under_way == (intervals < 2)
    admission.has_body(share, entered, clock.now)
    assert admission.under_way == share.under_way == 1
    admission.leave(share)
    assert admission.under_way == share.under_way == 0


def test_the_limit_has_a_minimum(clock: Clock) -> None:
    admission, share = filled(clock)
    for _ in range(FIRST_LIMIT):
        admission.has_body(share, clock.now, clock.now)
    for _ in range(3):  # intervals in which nothing is completed
        clock.now += INTERVAL_S
        assert not admission.enter(share, clock.now)
    assert admission.limit == LEAST_LIMIT
