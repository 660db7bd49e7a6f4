"""Compares two results of load tests phase by phase, as text and as a page.

Measured phases are paired by name and rate. The others are paired by name (except steps and trials,
whose names are only numbers), and those left over by rate.
"""

import re
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from snapbid.base.words import one_line
from snapbid.loadtest import plots
from snapbid.loadtest.page import SHOWN, number, rounded, start, table
from snapbid.loadtest.plots import Line
from snapbid.loadtest.result import LoadResult, PhaseResult

HEADS: Final = ("", "A", "B", "change")
_NUMBERED: Final = re.compile(r"(step|trial) \d+", re.ASCII)
# Which phases are a pair, in the order in which pairs are looked for.
_ALIKE: Final[tuple[Callable[[PhaseResult, PhaseResult], bool], ...]] = (
    lambda a, b: a.name == b.name and a.rate == b.rate,
    lambda a, b: a.name == b.name and not _NUMBERED.fullmatch(a.name),
    lambda a, b: a.rate == b.rate,
)


class ResultError(ValueError):
    """Results cannot be read or compared; the message says why."""


class Difference(NamedTuple):
    """One figure of a phase, as measured in each of the two runs."""

    name: str
    a: float
    b: float
    is_worse: bool  # B's is more than 5% worse

    @property
    def change(self) -> str:
        """The change from A to B in percent, "same", or "new" if A is 0."""
        if self.a == self.b:
            return "same"
        return f"{100 * (self.b - self.a) / self.a:+.1f}%" if self.a else "new"


class PhasePair(NamedTuple):
    """One phase, as measured in each of the two runs."""

    name: str
    a: PhaseResult
    b: PhaseResult


def read(path: Path) -> LoadResult:
    """Read a file written by `--json`. Raises ResultError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LoadResult)
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ResultError(f"{path} is not a result of snapbid load --json: {error}") from error


def pairs(a: LoadResult, b: LoadResult) -> tuple[list[PhasePair], list[str]]:
    """Pair the measured phases of two results; also describe the phases left without a partner.

    Raises ResultError if one of the results has no measured phase.
    """
    left_a, left_b = ([phase for phase in run.phases if phase.measured] for run in (a, b))
    if not (left_a and left_b):
        raise ResultError("one of the results has no measured phase: there is nothing to compare")
    order = list(left_a)
    found: list[PhasePair] = []
    for alike in _ALIKE:
        for one in list(left_a):
            other = next((phase for phase in left_b if alike(one, phase)), None)
            if other is not None:
                left_a.remove(one)
                left_b.remove(other)
                found.append(PhasePair(_title(one, other), one, other))
    found.sort(key=lambda pair: order.index(pair.a))
    unpaired = [
        f"only in {letter}: {phase.name} at {rounded(phase.rate)}/s"
        for letter, left in (("A", left_a), ("B", left_b))
        for phase in left
    ]
    return found, unpaired


def _title(a: PhaseResult, b: PhaseResult) -> str:
    return a.name if a.name == b.name else f"{a.name} and {b.name}"


def differences(pair: PhasePair) -> list[Difference]:
    """Compare the figures of a phase in both runs."""

    def of(name: str, a: float, b: float, *, more_is_worse: bool | None) -> Difference:
        worse = more_is_worse is not None and (b > 1.05 * a if more_is_worse else b < 0.95 * a)
        return Difference(name, a, b, worse)

    a, b = pair.a, pair.b
    return [
        of("rate/s", a.rate, b.rate, more_is_worse=None),
        of("offered", a.offered, b.offered, more_is_worse=None),
        of("completed/s", a.completed_per_s, b.completed_per_s, more_is_worse=False),
        of("dropped", a.dropped, b.dropped, more_is_worse=True),
        of("errors %", a.error_percent, b.error_percent, more_is_worse=True),
        of("bid rate %", a.bid_percent, b.bid_percent, more_is_worse=False),
        *(
            of(f"{name} ms", a.latency_ms[name], b.latency_ms[name], more_is_worse=True)
            for name in SHOWN
        ),
        of("client %", a.client.cpu_percent, b.client.cpu_percent, more_is_worse=None),
    ]


def unlike(a: LoadResult, b: LoadResult) -> list[str]:
    """List the runs' differences in settings, version and target, which may explain the figures."""
    given = [("target", a.target, b.target), ("version", a.version, b.version)]
    given.append(("seed", str(a.seed), str(b.seed)))
    for name in dict.fromkeys([*a.settings, *b.settings]):
        given.append((name, a.settings.get(name, "none"), b.settings.get(name, "none")))
    return [f"{name}: {one} / {other}" for name, one, other in given if one != other]


def text(a: LoadResult, b: LoadResult) -> str:
    """Render the comparison for a terminal, with control characters escaped."""
    lines = [f"{name}: {run.target}, {run.started}, {_verdict(run)}" for name, run in _runs(a, b)]
    lines += [f"differs: {line}" for line in unlike(a, b)]
    paired, unpaired = pairs(a, b)
    lines += unpaired
    for pair in paired:
        lines += ["", pair.name]
        lines += [
            f"  {each.name:<12}{rounded(each.a):>12}{rounded(each.b):>12}  {each.change:>9}"
            f"{'  worse' if each.is_worse else ''}"
            for each in differences(pair)
        ]
    if a.capacity is not None and b.capacity is not None:
        lines += ["", f"capacity: {rounded(a.capacity)} / {rounded(b.capacity)} requests a second"]
    return "\n".join(map(one_line, lines))


def _runs(a: LoadResult, b: LoadResult) -> tuple[tuple[str, LoadResult], ...]:
    return ("A", a), ("B", b)


def _verdict(run: LoadResult) -> str:
    return "PASSED" if run.verdict.ok else f"FAILED: {run.verdict.reason}"


def page(a: LoadResult, b: LoadResult) -> str:
    """Render the comparison as a self-contained page."""
    return "\n".join([start("Two load tests"), *_main(a, b), "</main></body></html>", ""])


def _main(a: LoadResult, b: LoadResult) -> Iterator[str]:
    yield "<header><h1>Two load tests</h1>"
    for letter, run in _runs(a, b):
        style = "good" if run.verdict.ok else "bad"
        yield f'<p class="verdict {style}"><b>{letter}</b> {escape(run.target)}, '
        yield f"{escape(run.started)}, {escape(_verdict(run))}</p>"
    for line in unlike(a, b):
        yield f'<p class="verdict warn"><b>Differs</b> {escape(line)}</p>'
    paired, unpaired = pairs(a, b)
    for line in unpaired:
        yield f'<p class="verdict warn">{escape(line)}</p>'
    yield "</header>"
    for number_, pair in enumerate(paired, 1):
        yield f'<section class="plots">{_percentiles(pair)}{_over_time(pair)}</section>'
        yield table(f"phase-{number_}", pair.name, HEADS, map(_row, differences(pair)))


def _row(each: Difference) -> tuple[str, ...]:
    change = f'<em class="bad">{each.change}</em>' if each.is_worse else each.change
    return each.name, number(each.a), number(each.b), change


def _percentiles(pair: PhasePair) -> str:
    lines = [Line("A", "s1", pair.a.curve), Line("B", "s2", pair.b.curve)]
    values = [ms for line in lines for _, ms in line.points if ms > 0]
    y = plots.logarithmic(min(values, default=1.0), max(values, default=10.0), "ms")
    x = plots.tail("percentile of all offered requests")
    return plots.plot(f"Latency by percentile, {pair.name}", x, y, lines)


def _over_time(pair: PhasePair) -> str:
    lines = [
        Line("A p99", "s1", [(point.at_s, point.p99_ms) for point in pair.a.series]),
        Line("B p99", "s2", [(point.at_s, point.p99_ms) for point in pair.b.series]),
    ]
    values = [ms for line in lines for _, ms in line.points if ms > 0]
    longest = max(pair.a.seconds, pair.b.seconds, 1.0)
    y = plots.logarithmic(min(values, default=1.0), max(values, default=10.0), "ms, by the second")
    return plots.plot(f"p99 over time, {pair.name}", plots.linear(longest, "seconds"), y, lines)
