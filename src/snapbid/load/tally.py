"""What came of the requests of one phase.

Every request that was due is in exactly one kind and in the histogram: answered, with the time from
its scheduled moment; dropped or lost, with the time after which it was given up. So no percentile
is better for what never came.
"""

from collections import Counter
from typing import Final

from snapbid.load.check import Finding
from snapbid.load.histogram import Histogram, merged

BID, NO_BID = "bid", "no bid"
WRONG, TIMEOUT, LOST, DROPPED = "wrong answer", "timeout", "lost", "dropped"
GOOD: Final = (BID, NO_BID)
MAX_EXAMPLE: Final = 300  # characters


class Second:
    """One second of a phase, by the scheduled moments."""

    __slots__ = ("bad", "histogram", "offered")

    def __init__(self) -> None:
        self.offered = 0
        self.bad = 0
        self.histogram = Histogram()


class Tally:
    """Counts of one phase that starts at a moment of perf_counter."""

    def __init__(self, start: float, timeout_s: float) -> None:
        self.start = start
        self.timeout_s = timeout_s
        self.offered = 0
        self.done = 0
        self.kinds: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.seconds: list[Second] = []
        self.lag = Histogram()  # by which the client itself sent late

    @property
    def pending(self) -> int:
        return self.offered - self.done

    @property
    def histogram(self) -> Histogram:
        return merged(second.histogram for second in self.seconds)

    @property
    def bad(self) -> int:
        """Requests without a right answer in time."""
        return self.done - sum(self.kinds[kind] for kind in GOOD)

    def offer(self, due: float, now: float) -> None:
        """A request was due, and is sent or waits for a connection now."""
        self.offered += 1
        self.lag.record(now - due)
        self._second(due).offered += 1

    def end(self, due: float, now: float, kind: str) -> None:
        """It ended in this way; an answer after the timeout is one, whatever it says."""
        took = now - due
        if took > self.timeout_s and kind in (BID, NO_BID, WRONG):
            kind = TIMEOUT
        self.done += 1
        self.kinds[kind] += 1
        second = self._second(due)
        second.histogram.record(took)
        if kind not in GOOD:
            second.bad += 1

    def fail(self, finding: Finding) -> None:
        """An answer broke a rule; the first of each stays as the example."""
        self.failures[finding.rule] += 1
        self.examples.setdefault(finding.rule, finding.found[:MAX_EXAMPLE])

    def _second(self, due: float) -> Second:
        place = int(due - self.start)
        while len(self.seconds) <= place:
            self.seconds.append(Second())
        return self.seconds[place]
