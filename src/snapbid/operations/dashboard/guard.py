"""Warns before an SSP throttles this bidder for late or failed answers.

Exchanges throttle a bidder whose answers are late or fail, some as soon as 15% do. The guard warns
at 5% and at 10%, in the last minute or the last 15 minutes. It counts only this machine's answers.
"""

from collections import defaultdict, deque
from typing import Final, NamedTuple

from snapbid.metrics.keys import parse_key
from snapbid.operations.dashboard.counts import BIDS, FEW, Counts

LIMIT: Final = 0.15  # share at which some exchanges throttle
WARNING: Final = 0.05
ALARM: Final = 0.10
WINDOWS: Final = {"1m": 60.0, "15m": 900.0}
OUTCOMES: Final = ("late", "overload", "store_down", "internal")
KEEP_EVERY_S: Final = 10.0


class Answers(NamedTuple):
    """Counts of an SSP's requests: all, those answered late, and those that failed, by cause."""

    requests: int = 0
    late: int = 0
    overload: int = 0
    store_down: int = 0
    internal: int = 0

    @property
    def failed(self) -> int:
        return self.overload + self.store_down + self.internal

    @property
    def are_enough(self) -> bool:
        """Whether there are enough requests for `share` to be meaningful."""
        return self.requests >= FEW

    @property
    def share(self) -> float:
        """The share of requests that failed or were late; 0 if there are too few to judge."""
        return (self.late + self.failed) / self.requests if self.are_enough else 0.0


class SspStanding(NamedTuple):
    """Counts of this machine's answers to an SSP, for each of WINDOWS."""

    ssp: str
    answers: dict[str, Answers]

    @property
    def level(self) -> int:
        """The warning level, from the highest share of late or failed answers in any window.

        0 below WARNING, 1 below ALARM, otherwise 2.
        """
        worst = max(answers.share for answers in self.answers.values())
        return (worst >= WARNING) + (worst >= ALARM)


class Guard:
    """Watches the answers to each SSP over 15 minutes; one thread writes, others read."""

    def __init__(self) -> None:
        length = int(max(WINDOWS.values()) / KEEP_EVERY_S) + 2
        self._kept: deque[tuple[float, dict[str, Answers]]] = deque(maxlen=length)
        self.standings: list[SspStanding] = []

    def add(self, at: float, counts: Counts) -> None:
        """Add a sample of the counters, taken at `at` (epoch s)."""
        now = _by_ssp(counts)
        if not self._kept or not 0 <= at - self._kept[-1][0] < KEEP_EVERY_S:
            self._kept.append((at, now))
        before = {name: self._before(at - span) for name, span in WINDOWS.items()}
        self.standings = [
            SspStanding(
                ssp, {name: _grown(of.get(ssp, Answers()), own) for name, of in before.items()}
            )
            for ssp, own in sorted(now.items())
        ]

    def _before(self, moment: float) -> dict[str, Answers]:
        """Return the newest sample from before a moment, or else the oldest."""
        for at, answers in reversed(self._kept):
            if at <= moment:
                return answers
        return self._kept[0][1]


def _by_ssp(counts: Counts) -> dict[str, Answers]:
    requests: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(Answers._fields))
    for key, value in counts.items():
        if key.startswith(BIDS):
            labels = parse_key(key)[1]
            own, outcome = requests[labels.get("ssp", "")], labels.get("outcome", "")
            own[0] += value
            if outcome in OUTCOMES:
                own[Answers._fields.index(outcome)] += value
    return {ssp: Answers(*own) for ssp, own in requests.items() if ssp}


def _grown(before: Answers, now: Answers) -> Answers:
    return Answers(*(max(new - old, 0) for old, new in zip(before, now, strict=True)))
