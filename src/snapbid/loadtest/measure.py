"""Computes a phase's result from its tally."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from snapbid.loadtest.objectives import Objective, judge
from snapbid.loadtest.plan import Phase
from snapbid.loadtest.result import (
    BrokenRuleCount,
    ClientFigures,
    ObjectiveResult,
    PhaseResult,
    SeriesPoint,
)
from snapbid.loadtest.tally import DROPPED, Tally

# The client was the bottleneck if it used BUSY_PERCENT of its core, or if it sent late by at least
# LATE_MS and LATE_SHARE of the measured p99. The same bounds tell whether connections were short.
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
    """Return how long this process has waited for a processor, in seconds; 0 if unknown."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def result(
    phase: Phase, tally: Tally, clocks: ClockReading, objectives: Sequence[Objective]
) -> tuple[PhaseResult, list[ObjectiveResult]]:
    """Return the phase's result and, if the phase is measured, the results of its objectives."""
    judged, missed = judge(objectives, phase.name, tally) if phase.measured else ([], "")
    figures = PhaseResult(
        name=phase.name,
        measured=phase.measured,
        seconds=round(phase.seconds, 3),
        rate=phase.rate,
        offered=tally.offered,
        answered=tally.answered,
        dropped=tally.kinds[DROPPED],
        completed_per_s=round(tally.answered_in_phase / max(phase.seconds, 1e-9), 1),
        bid_percent=round(tally.bid_percent, 3),
        error_percent=round(tally.error_percent, 4),
        kinds=dict(tally.kinds.most_common()),
        latency_ms=tally.histogram.latencies_ms(),
        curve=list(zip(CURVE, tally.histogram.percentiles(CURVE), strict=True)),
        failures=[
            BrokenRuleCount(rule, count, tally.examples[rule])
            for rule, count in tally.failures.most_common()
        ],
        series=_series(tally),
        client=_client(tally, clocks),
        held=not missed,
        missed=missed,
        late=tally.late,
    )
    return figures, judged


def _series(tally: Tally) -> list[SeriesPoint]:
    points = []
    for at_s, second in enumerate(tally.seconds):
        p50, p99 = second.histogram.percentiles((50.0, 99.0))
        points.append(SeriesPoint(at_s, second.offered, second.bad, p50, p99))
    return points


def _client(tally: Tally, clocks: ClockReading) -> ClientFigures:
    percent = 100 * clocks.processor_s / max(clocks.seconds, 1e-9)
    waited = 100 * clocks.waited_s / max(clocks.seconds, 1e-9)
    lag_ms, wait_ms = tally.lag.percentile(99.0), tally.wait.percentile(99.0)
    matters_ms = max(LATE_MS, LATE_SHARE * tally.histogram.percentile(99.0))
    late, pool_full = lag_ms >= matters_ms, wait_ms >= matters_ms
    why, broken = "", tally.examples.get(DROPPED)
    if pool_full and broken:
        why = f"connections could not be opened: {broken}"
    elif percent >= BUSY_PERCENT:
        why = "the client itself was the bottleneck: the server may sustain more"
    elif late:
        why = "the client itself sent late, waiting for a processor: latencies include that"
    elif pool_full:
        why = "all connections were busy: latencies include the wait for one"
    return ClientFigures(
        cpu_percent=round(percent, 1),
        waited_percent=round(waited, 1),
        lag_p99_ms=round(lag_ms, 3),
        connection_wait_p99_ms=round(wait_ms, 3),
        limited=late or percent >= BUSY_PERCENT,
        pool_full=pool_full,
        why=why,
    )
