"""The phases of a run: warm-up, ramp, then either fixed steps or a capacity search.

A plan is a generator: it yields the next phase and is sent that phase's result.
"""

from collections.abc import Generator
from math import sqrt
from random import Random
from typing import Annotated, Final, NamedTuple, TypeAlias

from msgspec import Meta, Struct

from snapbid.loadtest.result import PhaseResult

PRECISION: Final = 0.05  # of the capacity, relative
GROWTH: Final = 2.0
MAX_TRIALS: Final = 14
FULL: Final = 2 / 3  # of the connections
Share = Annotated[float, Meta(ge=0, le=1)]


class Faults(Struct, frozen=True, forbid_unknown_fields=True):
    """The shares of requests that are made faulty on purpose.

    `malformed` requests have truncated JSON, and should get a 400. The second half of a `slow`
    request is sent a second after the first. A `hang_up` closes the connection in the middle of the
    request. All of these count under separate kinds (see `tally`), not in the bid rate.
    """

    malformed: Share = 0.0
    slow: Share = 0.0
    hang_up: Share = 0.0

    def __post_init__(self) -> None:
        if self.malformed + self.slow + self.hang_up > 1:
            raise ValueError("the shares of faults must add up to at most 1")


class Phase(NamedTuple):
    """A period with a request rate (per second) that is constant or changes linearly."""

    name: str
    seconds: float
    rate: float
    rate_from: float | None = None  # the rate at the start; None if it is constant
    measured: bool = True
    mix: int = 0  # number of the mix to send
    faults: Faults = Faults()

    def share(self, generators: int) -> "Phase":
        """Return the phase with one generator's share of the rate."""
        rate_from = self.rate_from
        if rate_from is not None:
            rate_from /= generators
        return self._replace(rate=self.rate / generators, rate_from=rate_from)


Plan: TypeAlias = Generator[Phase, PhaseResult, None]


def fixed(warmup_s: float, ramp_s: float, rates: list[float], seconds: float) -> Plan:
    """Plan warm-up and ramp, which are shown but not measured, then each rate in turn."""
    yield from _unmeasured(warmup_s, ramp_s, rates[0])
    for number, rate in enumerate(rates, 1):
        yield Phase(f"step {number}" if len(rates) > 1 else "load", seconds, rate)


def capacity(warmup_s: float, ramp_s: float, rate: float, most: float, seconds: float) -> Plan:
    """Plan a search for the highest rate up to `most` that passes, starting at `rate`.

    Double the rate while trials pass, or halve it until one passes; then bisect the range between
    the last rates that passed and failed (log scale). A failed trial whose bottleneck was the
    client ends the search, since it shows nothing about the server.
    """
    yield from _unmeasured(warmup_s, ramp_s, rate)
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


def pool_note(trials: list[PhaseResult], connections: int) -> str:
    """Return a note if too few connections limited a search, otherwise "".

    It is not enough that all connections were busy, since any overload eventually leads to that.
    There were too few if, at the lowest rate that failed, even answers as quick as in the quickest
    trial that passed would keep a share `FULL` of the connections busy (Little's law).
    """
    held = [trial for trial in trials if trial.held]
    missed = [trial for trial in trials if not trial.held]
    if not (held and missed):
        return ""
    lowest = min(missed, key=lambda trial: trial.rate)
    answer_s = min(trial.latency_ms["p50"] for trial in held) / 1000
    if lowest.client.pool_full and lowest.rate * answer_s >= FULL * connections:
        return f"at {lowest.rate:g}/s all {connections} connections were busy: raise --connections"
    return ""


def given(phases: list[Phase]) -> Plan:
    """Plan the phases of a scenario."""
    for phase in phases:  # noqa: UP028 - the iterator of a list is sent no results
        yield phase


def _unmeasured(warmup_s: float, ramp_s: float, rate: float) -> Plan:
    if warmup_s:
        yield Phase("warm-up", warmup_s, rate, measured=False)
    if ramp_s:
        yield Phase("ramp", ramp_s, rate, rate_from=0.0, measured=False)


class Schedule:
    """The times at which a phase's requests are due, with random (Poisson) or even gaps."""

    def __init__(self, phase: Phase, start: float, random: Random, even: bool) -> None:
        self.end = start + phase.seconds
        self._start = start
        self._phase = phase
        self._random = random
        self._even = even
        # The area under the rate over time, in requests. Evenly spaced ones are due in the middle
        # of their gaps, so their number does not depend on how the last one is rounded.
        self._area = -0.5 if even else 0.0
        self.due = start
        self.advance()

    def advance(self) -> None:
        """Set `due` to the time of the next request, or to infinity at the end of the phase."""
        self._area += 1.0 if self._even else self._random.expovariate(1.0)
        phase = self._phase
        if phase.rate_from is None:
            self.due = self._start + self._area / phase.rate
        else:
            # When the area under a line from `rate_from` to `rate` reaches this many requests.
            slope = (phase.rate - phase.rate_from) / phase.seconds
            root = phase.rate_from**2 + 2 * slope * self._area
            self.due = self._start + (sqrt(max(0.0, root)) - phase.rate_from) / slope
        if self.due > self.end:
            self.due = float("inf")
