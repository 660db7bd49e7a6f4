"""Counts how the requests of a phase ended.

Every request that was due has exactly one kind and is in the histogram, unless the client hung up.
An answered one counts with the time since it was scheduled, a dropped or lost one with the time
until it was given up on: missing answers never improve a percentile.
"""

from collections import Counter
from typing import Final

from snapbid.loadtest.check import BrokenRule
from snapbid.loadtest.histogram import LatencyHistogram, merged

BID, NO_BID = "bid", "no bid"
REFUSED: Final = "refused"  # a malformed request, refused as expected
SLOW: Final = "slow"  # a request in two halves, answered normally
HUNG_UP: Final = "hung up"  # by the client, amid the request
WRONG, TIMEOUT, LOST, DROPPED = "wrong answer", "timeout", "lost", "dropped"
VALID: Final = (BID, NO_BID, REFUSED, SLOW, HUNG_UP)
MAX_EXAMPLE: Final = 300  # characters


class SecondTally:
    """The requests scheduled in one second of a phase."""

    __slots__ = ("bad", "histogram", "offered")

    def __init__(self) -> None:
        self.offered = 0
        self.bad = 0
        self.histogram = LatencyHistogram()


class Tally:
    """The counts of a phase that starts at a given perf_counter time."""

    def __init__(self, start: float, timeout_s: float) -> None:
        self.start = start
        self.timeout_s = timeout_s
        self.offered = 0
        self.done = 0
        self.kinds: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.seconds: list[SecondTally] = []
        self.lag = LatencyHistogram()  # how late the client sent

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
        """Count a request that was due and is now sent or waits for a connection."""
        self.offered += 1
        self.lag.record(now - due)
        self._second(due).offered += 1

    def end(self, due: float, now: float, kind: str) -> None:
        """Count how a request ended; any answer after the timeout is a timeout."""
        took = now - due
        if took > self.timeout_s and kind in (*VALID, WRONG):
            kind = TIMEOUT
        self.done += 1
        self.kinds[kind] += 1
        second = self._second(due)
        second.histogram.record(took)
        if kind not in VALID:
            second.bad += 1

    def hang_up(self) -> None:
        """Count a request that the client did not finish: it has no latency."""
        self.done += 1
        self.kinds[HUNG_UP] += 1

    def fail(self, broken: BrokenRule) -> None:
        """Count an answer that broke a rule; keep the first of each rule as the example."""
        self.failures[broken.rule] += 1
        self.examples.setdefault(broken.rule, broken.detail[:MAX_EXAMPLE])

    def _second(self, due: float) -> SecondTally:
        index = int(due - self.start)
        while len(self.seconds) <= index:
            self.seconds.append(SecondTally())
        return self.seconds[index]
