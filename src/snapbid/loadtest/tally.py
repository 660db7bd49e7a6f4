"""Counts how the requests of a phase ended.

Every request that was due counts under exactly one kind. The histogram has all of them except those
on which the client hung up. An answered request counts with the time since it was scheduled, a
dropped or lost one with the time until it was given up on, so missing answers never improve a
percentile.
"""

from collections import Counter
from typing import Final

from msgspec import Struct, field

from snapbid.loadtest.check import BrokenRule
from snapbid.loadtest.histogram import LatencyHistogram, merged

BID, NO_BID = "bid", "no bid"
REFUSED: Final = "refused"  # a malformed request, refused as expected
SLOW: Final = "slow"  # a request in two halves, answered normally
HUNG_UP: Final = "hung up"  # by the client, amid the request
WRONG, TIMEOUT, LOST, DROPPED = "wrong answer", "timeout", "lost", "dropped"
VALID: Final = (BID, NO_BID, REFUSED, SLOW, HUNG_UP)
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
    """The counts of a phase that starts at a given perf_counter time."""

    start: float
    timeout_s: float
    offered: int = 0
    done: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = {}
    seconds: list[SecondTally] = []
    lag: LatencyHistogram = field(default_factory=LatencyHistogram)  # how late the client sent

    def add(self, other: "Tally") -> None:
        """Add the counts of another generator in the same phase."""
        self.offered += other.offered
        self.done += other.done
        self.kinds += other.kinds
        self.failures += other.failures
        self.examples = other.examples | self.examples
        for number, second in enumerate(other.seconds):
            self._second(number).add(second)
        self.lag.add(other.lag)

    @property
    def pending(self) -> int:
        return self.offered - self.done

    @property
    def histogram(self) -> LatencyHistogram:
        return merged(second.histogram for second in self.seconds)

    @property
    def bad(self) -> int:
        """The number of requests without a valid answer in time."""
        return self.done - sum(self.kinds[kind] for kind in VALID)

    def offer(self, due: float, now: float) -> None:
        """Count a request that is due: it is sent now, or waits for a connection."""
        self.offered += 1
        self.lag.record(now - due)
        self._second(due - self.start).offered += 1

    def end(self, due: float, now: float, kind: str) -> None:
        """Count how a request ended; an answer after the timeout counts as a timeout."""
        took = now - due
        if took > self.timeout_s and kind in (*VALID, WRONG):
            kind = TIMEOUT
        self.done += 1
        self.kinds[kind] += 1
        second = self._second(due - self.start)
        second.histogram.record(took)
        if kind not in VALID:
            second.bad += 1

    def hang_up(self) -> None:
        """Count a request that the client broke off; it has no latency."""
        self.done += 1
        self.kinds[HUNG_UP] += 1

    def fail(self, broken: BrokenRule) -> None:
        """Count an answer that broke a rule; keep the first one for each rule as an example."""
        self.failures[broken.rule] += 1
        self.examples.setdefault(broken.rule, broken.detail[:MAX_EXAMPLE])

    def _second(self, since_start: float) -> SecondTally:
        index = int(since_start)
        while len(self.seconds) <= index:
            self.seconds.append(SecondTally())
        return self.seconds[index]
