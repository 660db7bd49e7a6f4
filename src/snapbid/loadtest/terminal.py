"""Output on the terminal: progress during a run, the summary after it.

Control characters are escaped, since targets and other generators send some of the texts.
"""

import sys
from collections.abc import Iterator
from time import perf_counter

from snapbid.base.words import one_line
from snapbid.loadtest.plan import Phase
from snapbid.loadtest.result import LoadResult, PhaseResult
from snapbid.loadtest.tally import Tally

EVERY_S = 5.0  # between lines of plain progress


class PlainProgress:
    """Progress as plain lines, for a file or a pipe."""

    def __init__(self) -> None:
        self._next = 0.0

    def say(self, text: str) -> None:
        print(one_line(text), flush=True)

    def phase(self, phase: Phase, tally: Tally, elapsed_s: float) -> None:
        now = perf_counter()
        if elapsed_s >= 1 and now >= self._next:
            self._next = now + EVERY_S
            self.say(f"  {phase.name}: {_state(phase, tally, elapsed_s)}")

    def ended(self, result: PhaseResult) -> None:
        self._next = 0.0
        self.say(_ended(result))

    def close(self) -> None:
        """Do nothing; unlike a live display, plain lines need no cleanup."""


class LiveProgress:
    """Progress on one line of the terminal, rewritten as it changes."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.status import Status

        self._console = Console(highlight=False)
        self._status = Status("", console=self._console)

    def say(self, text: str) -> None:
        self._console.print(one_line(text), markup=False)

    def phase(self, phase: Phase, tally: Tally, elapsed_s: float) -> None:
        from rich.text import Text

        filled = round(24 * min(1.0, max(0.0, elapsed_s) / phase.seconds))
        bar = "━" * filled + "╌" * (24 - filled)
        state = _state(phase, tally, elapsed_s)
        self._status.update(Text(f"{one_line(phase.name)} {bar} {state}"))
        self._status.start()

    def ended(self, result: PhaseResult) -> None:
        self._status.stop()
        self.say(_ended(result))

    def close(self) -> None:
        self._status.stop()


def progress() -> PlainProgress | LiveProgress:
    """Return live progress if standard output is a terminal, otherwise plain lines."""
    return LiveProgress() if sys.stdout.isatty() else PlainProgress()


def _state(phase: Phase, tally: Tally, elapsed_s: float) -> str:
    recent = tally.seconds[-2].histogram if len(tally.seconds) > 1 else None
    p99 = f", p99 {recent.percentile(99.0):.1f} ms" if recent is not None and recent.count else ""
    bad = f", {tally.bad} bad" if tally.bad else ""
    return (
        f"{max(0.0, elapsed_s):.0f}/{phase.seconds:.0f} s, {tally.offered} sent, "
        f"{tally.pending} open{bad}{p99}"
    )


def _ended(result: PhaseResult) -> str:
    latency = result.latency_ms
    verdict = "" if not result.measured else " held" if result.held else f" MISSED {result.missed}"
    return (
        f"{result.name}: {result.rate:g}/s for {result.seconds:g} s: {result.offered} offered, "
        f"{result.answered} completed, {result.dropped} dropped, "
        f"errors {result.error_percent:.3f}%, p50 {latency['p50']:.2f} ms, "
        f"p99 {latency['p99']:.2f} ms{'' if result.measured else ' (not measured)'}{verdict}"
    )


def summary(result: LoadResult) -> str:
    """Render the result as several lines of text, for the terminal."""
    return "\n".join(map(one_line, _summary(result)))


def _summary(result: LoadResult) -> Iterator[str]:
    for phase in result.phases:
        yield ""
        yield from _phase(phase)
    yield ""
    if result.capacity is not None:
        note = f" ({result.capacity_note})" if result.capacity_note else ""
        yield f"capacity: {result.capacity:.0f} requests a second meet the objectives{note}"
    yield from _others(result)
    yield from _reconciliation(result)
    yield ""
    verdict = result.verdict
    yield "PASSED" if verdict.ok else f"FAILED: {verdict.reason}"


def _phase(phase: PhaseResult) -> Iterator[str]:
    note = "" if phase.measured else ", not measured"
    yield f"{phase.name}: {phase.rate:g}/s for {phase.seconds:g} s{note}"
    yield (
        f"  offered {phase.offered}, completed {phase.answered} ({phase.completed_per_s:g}/s), "
        f"dropped {phase.dropped}"
    )
    kinds = ", ".join(f"{kind} {count}" for kind, count in phase.kinds.items())
    yield f"  answers: {kinds or 'none'}"
    if phase.late:
        yield f"  bids after their request's tmax: {phase.late}"
    yield f"  bid rate {phase.bid_percent:.1f}%, errors {phase.error_percent:.3f}%"
    latency = "  ".join(f"{name} {value:.2f}" for name, value in phase.latency_ms.items())
    yield f"  latency (ms, from the scheduled time): {latency}"
    for failure in phase.failures:
        yield f"  {failure.count} x {failure.rule}, first: {failure.example}"
    client = phase.client
    limit = f"; {client.why}" if client.why else ""
    yield (
        f"  client: {client.cpu_percent:.0f}% of a core, waiting for it "
        f"{client.waited_percent:.0f}% of the time, sent late by {client.lag_p99_ms:.2f} ms, "
        f"waited {client.connection_wait_p99_ms:.2f} ms for a connection (p99){limit}"
    )


def _others(result: LoadResult) -> Iterator[str]:
    notices = result.notices
    if notices.fired:
        fired = ", ".join(
            f"{kind} {count}" + (f" ({notices.failed[kind]} failed)" if kind in notices.failed
                                 else "")
            for kind, count in notices.fired.items()
        )  # fmt: skip
        yield f"notices: {fired}; p99 {notices.latency_ms['p99']:.2f} ms"
        if notices.elsewhere:
            yield f"  their URLs name {notices.elsewhere}; they were fired at the target"
        if notices.example:
            yield f"  first failure: {notices.example}"
    if notices.left_out:
        yield f"notices left out, since their URLs do not name the target: {notices.left_out}"
    events = result.events
    if events is not None:
        yield (
            f"events: {events.batches} batches, {events.events_accepted} events accepted, "
            f"{events.failed} batches failed; p99 {events.latency_ms['p99']:.2f} ms"
        )
        if events.example:
            yield f"  first failure: {events.example}"


def _reconciliation(result: LoadResult) -> Iterator[str]:
    outcome = result.reconciliation
    yield f"reconciliation with the report: {outcome.status}: {outcome.detail}"
    for row in outcome.rows:
        maybe = f" (+ {row.unanswered} unanswered)" if row.unanswered else ""
        sign = "=" if row.sent == row.reported else "~" if row.agrees else "DIFFERS FROM"
        yield f"  {row.ssp} {row.what}: {row.sent} sent{maybe} {sign} {row.reported} reported"
