"""Counts how the requests of a phase ended.

Every request that was due counts under exactly one kind. The histogram has all of them except those
on which the client hung up, and those still open when a run was interrupted: answered requests with
the time from schedule to answer, dropped and lost ones with the time until they were given up on,
so missing answers never improve a percentile.
"""

from collections import Counter
from typing import Final

from msgspec import Struct, field

from snapbid.loadtest.check import BrokenRule
from snapbid.loadtest.client import Call
from snapbid.loadtest.histogram import LatencyHistogram

BID, NO_BID = "bid", "no bid"
REFUSED: Final = "refused"  # a malformed request, refused as expected
SLOW: Final = "slow"  # a request in two halves, answered normally
HUNG_UP: Final = "hung up"  # by the client, amid the request
WRONG, TIMEOUT, LOST, DROPPED = "wrong answer", "timeout", "lost", "dropped"
FAULTY: Final = (REFUSED, SLOW, HUNG_UP)  # on purpose
VALID: Final = (BID, NO_BID, *FAULTY)
UNANSWERED: Final = (DROPPED, LOST, HUNG_UP)
MAX_EXAMPLE: Final = 300  # characters


class SecondTally(Struct):
    """The requests scheduled in one second of a phase."""

    offered: int = 0
    bad: int = 0
    histogram: LatencyHistogram = field(default_factory=LatencyHistogram)

    def add(self, other: "SecondTally") -> None:
        """Add another generator's counts of the same second."""
        self.offered += other.offered
        self.bad += other.bad
        self.histogram.add(other.histogram)


class Tally(Struct, kw_only=True):
    """The counts of a phase that lasts from `start` until `until` (perf_counter times)."""

    start: float
    until: float
    timeout_s: float
    offered: int = 0
    done: int = 0
    answered_in_phase: int = 0
    late: int = 0  # bids in time, but after their request's `tmax`
    kinds: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = {}
    seconds: list[SecondTally] = []
    histogram: LatencyHistogram = field(default_factory=LatencyHistogram)  # of all seconds
    lag: LatencyHistogram = field(default_factory=LatencyHistogram)  # how late the client sent
    wait: LatencyHistogram = field(default_factory=LatencyHistogram)  # for a free connection

    def add(self, other: "Tally") -> None:
        """Add the counts of another generator in the same phase."""
        self.offered += other.offered
        self.done += other.done
        self.answered_in_phase += other.answered_in_phase
        self.late += other.late
        self.kinds += other.kinds
        self.failures += other.failures
        self.examples = other.examples | self.examples
        for number, second in enumerate(other.seconds):
            self._second(number).add(second)
        self.histogram.add(other.histogram)
        self.lag.add(other.lag)
        self.wait.add(other.wait)

    @property
    def pending(self) -> int:
        return self.offered - self.done

    @property
    def answered(self) -> int:
        """The number of requests answered, including late and wrong answers."""
        return self.done - sum(self.kinds[kind] for kind in UNANSWERED)

    @property
    def intact(self) -> int:
        """The number of requests that ended, not counting the deliberately faulty ones."""
        return self.done - sum(self.kinds[kind] for kind in FAULTY)

    @property
    def bad(self) -> int:
        """The number of requests without a valid answer in time."""
        return self.done - sum(self.kinds[kind] for kind in VALID)

    @property
    def bid_percent(self) -> float:
        """The percentage of bids among valid, timely answers, excluding faulty requests."""
        return 100 * self.kinds[BID] / max(1, self.kinds[BID] + self.kinds[NO_BID])

    @property
    def error_percent(self) -> float:
        """The percentage of offered requests without a valid answer in time."""
        return 100 * self.bad / max(1, self.offered)

    def offer(self, due: float, now: float) -> None:
        """Count a request that is due: it is sent now, or waits for a connection."""
        self.offered += 1
        self.lag.record(now - due)
        self._second(due - self.start).offered += 1

    def end(self, call: Call, now: float, kind: str) -> None:
        """Count how a request ended; an answer after the timeout counts as a timeout."""
        took = now - call.due
        if took > self.timeout_s and kind in (*VALID, WRONG):
            kind = TIMEOUT
        if call.problem:
            self.fail(BrokenRule(kind, call.problem))
        self.done += 1
        self.kinds[kind] += 1
        if kind not in UNANSWERED and now <= self.until:
            self.answered_in_phase += 1
        self.histogram.record(took)
        self.wait.record(call.waited_s)
        second = self._second(call.due - self.start)
        second.histogram.record(took)
        if kind not in VALID:
            second.bad += 1

    def hang_up(self) -> None:
        """Count a request during which the client hung up; it has no latency."""
        self.done += 1
        self.kinds[HUNG_UP] += 1

    def abandon(self) -> None:
        """Count all unfinished requests as lost; no latency is recorded for them."""
        self.kinds[LOST] += self.pending
        self.done = self.offered

    def fail(self, broken: BrokenRule) -> None:
        """Count a broken rule or connection; keep the first one of each kind as an example."""
        self.failures[broken.rule] += 1
        self.examples.setdefault(broken.rule, broken.detail[:MAX_EXAMPLE])

    def _second(self, since_start: float) -> SecondTally:
        index = int(since_start)
        while len(self.seconds) <= index:
            self.seconds.append(SecondTally())
        return self.seconds[index]
