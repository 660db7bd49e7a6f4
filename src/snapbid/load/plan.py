"""The phases of a run: warm-up, ramp, steps, or the search for the capacity.

A plan is a generator: it yields the next phase and is sent that phase's result.
"""

from collections.abc import Generator
from math import sqrt
from random import Random
from typing import Final, NamedTuple, TypeAlias

from snapbid.load.result import PhaseResult

PRECISION: Final = 0.05  # to which the capacity is found
GROWTH: Final = 2.0
MAX_TRIALS: Final = 14


class Phase(NamedTuple):
    """So many seconds at a rate that moves evenly from one to the other, requests a second."""

    name: str
    seconds: float
    rate: float
    rate_from: float | None = None
    measured: bool = True


Plan: TypeAlias = Generator[Phase, PhaseResult, None]


def fixed(warmup_s: float, ramp_s: float, rates: list[float], seconds: float) -> Plan:
    """Warm-up and ramp, which are shown and not measured, then each rate in turn."""
    yield from _before(warmup_s, ramp_s, rates[0])
    for number, rate in enumerate(rates, 1):
        yield Phase(f"step {number}" if len(rates) > 1 else "load", seconds, rate)


def capacity(warmup_s: float, ramp_s: float, rate: float, most: float, seconds: float) -> Plan:
    """Trials from a rate on: doubled while they hold, then halving the way to the one that did not.

    A trial where the client itself was the limit ends the search: above it nothing is known.
    """
    yield from _before(warmup_s, ramp_s, rate)
    held, missed = 0.0, float("inf")
    for number in range(1, MAX_TRIALS + 1):
        result = yield Phase(f"trial {number}", seconds, rate)
        if result.held:
            held = rate
            if rate >= most:
                return
        elif result.client.limited:
            return
        else:
            missed = rate
        if missed == float("inf"):
            rate = min(rate * GROWTH, most)
        elif held == 0:
            rate /= GROWTH
            if rate < 1:
                return
        elif missed / held <= 1 + PRECISION:
            return
        else:
            rate = sqrt(held * missed)


def _before(warmup_s: float, ramp_s: float, rate: float) -> Plan:
    if warmup_s:
        yield Phase("warm-up", warmup_s, rate, measured=False)
    if ramp_s:
        yield Phase("ramp", ramp_s, rate, rate_from=0.0, measured=False)


class Schedule:
    """The moments of a phase: with random (Poisson) or even gaps."""

    def __init__(self, phase: Phase, start: float, random: Random, even: bool) -> None:
        self.end = start + phase.seconds
        self._start = start
        self._phase = phase
        self._random = random
        self._even = even
        # Of the rate over time, in requests. Even ones stand in the middle of their gaps, so that
        # their number does not hang on how the last moment is rounded.
        self._area = -0.5 if even else 0.0
        self.due = start
        self.advance()

    def advance(self) -> None:
        """Move on to the next moment; infinity where the phase is over."""
        self._area += 1.0 if self._even else self._random.expovariate(1.0)
        phase = self._phase
        if phase.rate_from is None:
            self.due = self._start + self._area / phase.rate
        else:
            # The time at which the area under a line from `rate_from` to `rate` is reached.
            slope = (phase.rate - phase.rate_from) / phase.seconds
            root = phase.rate_from**2 + 2 * slope * self._area
            self.due = self._start + (sqrt(max(0.0, root)) - phase.rate_from) / slope
        if self.due > self.end:
            self.due = float("inf")
