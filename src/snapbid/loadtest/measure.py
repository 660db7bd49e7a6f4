"""Computes a phase's result from its tally."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from snapbid.loadtest.histogram import PERCENTILES, LatencyHistogram
from snapbid.loadtest.objectives import Objective
from snapbid.loadtest.plan import Phase
from snapbid.loadtest.result import (
    BrokenRuleCount,
    ClientFigures,
    ObjectiveResult,
    PhaseResult,
    SeriesPoint,
)
from snapbid.loadtest.tally import BID, DROPPED, HUNG_UP, LOST, NO_BID, Tally

# The client was the bottleneck if it used BUSY_PERCENT of its core, or if it sent late by at least
# LATE_MS and LATE_SHARE of the measured p99.
BUSY_PERCENT: Final = 90.0
LATE_MS: Final = 5.0
LATE_SHARE: Final = 0.1
CURVE: Final = (
    0.0, 10.0, 25.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.5, 98.0, 99.0,
    99.5, 99.75, 99.9, 99.95, 99.975, 99.99, 99.995, 99.999, 100.0,
)  # fmt: skip


class ClockReading(NamedTuple):
    """Wall-clock time, the client's processor time, and the time it waited for a processor."""

    seconds: float
    processor_s: float
    waited_s: float

    @classmethod
    def read(cls) -> "ClockReading":
        return cls(time.perf_counter(), time.process_time(), _waited_s())

    def since(self, before: "ClockReading") -> "ClockReading":
        """Return the time passed since an earlier reading."""
        return ClockReading(*(now - then for now, then in zip(self, before, strict=True)))


def _waited_s() -> float:
    """Return the seconds that this process waited for a processor; 0 if the kernel has no count."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def latencies(histogram: LatencyHistogram) -> dict[str, float]:
    """Return latencies in ms by percentile, and the maximum."""
    names = (f"p{percent:g}" for percent in PERCENTILES)
    by_percentile = dict(zip(names, histogram.percentiles(PERCENTILES), strict=True))
    return by_percentile | {"max": histogram.max_us / 1000}


def result(
    phase: Phase, tally: Tally, clocks: ClockReading, objectives: Sequence[Objective]
) -> tuple[PhaseResult, list[ObjectiveResult]]:
    """Return the phase's result and, if the phase is measured, the results of its objectives."""
    histogram = tally.histogram
    valid = tally.kinds[BID] + tally.kinds[NO_BID]
    answered = tally.done - sum(tally.kinds[kind] for kind in (DROPPED, LOST, HUNG_UP))
    figures = PhaseResult(
        name=phase.name,
        measured=phase.measured,
        seconds=round(phase.seconds, 3),
        rate=phase.rate,
        offered=tally.offered,
        answered=answered,
        dropped=tally.kinds[DROPPED],
        completed_per_s=round(answered / max(clocks.seconds, 1e-9), 1),
        bid_percent=round(100 * tally.kinds[BID] / max(1, valid), 3),
        error_percent=round(100 * tally.bad / max(1, tally.offered), 4),
        kinds=dict(tally.kinds.most_common()),
        latency_ms=latencies(histogram),
        curve=list(zip(CURVE, histogram.percentiles(CURVE), strict=True)),
        failures=[
            BrokenRuleCount(rule, count, tally.examples[rule])
            for rule, count in tally.failures.most_common()
        ],
        series=_series(tally),
        client=_client(tally, clocks, histogram.percentile(99.0)),
        held=True,
        missed="",
    )
    if not phase.measured:
        return figures, []
    judged = [objective.judge(figures) for objective in objectives]
    missed = "; ".join(
        f"{outcome.objective} (found {outcome.value:g})" for outcome in judged if not outcome.met
    )
    return replace(figures, held=not missed, missed=missed), judged


def _series(tally: Tally) -> list[SeriesPoint]:
    points = []
    for at_s, second in enumerate(tally.seconds):
        p50, p99 = second.histogram.percentiles((50.0, 99.0))
        points.append(SeriesPoint(at_s, second.offered, second.bad, p50, p99))
    return points


def _client(tally: Tally, clocks: ClockReading, p99_ms: float) -> ClientFigures:
    percent = 100 * clocks.processor_s / max(clocks.seconds, 1e-9)
    lag_ms = tally.lag.percentile(99.0)
    why = ""
    if percent >= BUSY_PERCENT:
        why = "the client itself was the bottleneck: the server may sustain more"
    elif lag_ms >= max(LATE_MS, LATE_SHARE * p99_ms):
        why = "the client itself sent late, waiting for a processor: latencies include that"
    waited = 100 * clocks.waited_s / max(clocks.seconds, 1e-9)
    return ClientFigures(round(percent, 1), round(waited, 1), round(lag_ms, 3), bool(why), why)
