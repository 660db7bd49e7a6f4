"""Runs a load test, from options to result: phases, objectives, reconciliation, verdict."""

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from time import time
from typing import Any, Final, Protocol, TypeVar

from snapbid.base.version import version
from snapbid.base.words import utc
from snapbid.loadtest import joining, measure, objectives, plan, reports, traffic
from snapbid.loadtest.accounts import by_canonical
from snapbid.loadtest.auctions import DEFAULT_SSP, Auction, prepare, read_corpus, read_recording
from snapbid.loadtest.client import GIVE_UP_S
from snapbid.loadtest.event_sender import BatchCounts
from snapbid.loadtest.generator import SIDE_CONNECTIONS, Generator, RunCounts
from snapbid.loadtest.joining import JoinedGenerator
from snapbid.loadtest.notice_sender import NoticeCounts
from snapbid.loadtest.options import Mix, Options
from snapbid.loadtest.plan import Phase, Plan
from snapbid.loadtest.result import (
    EventFigures,
    LoadResult,
    NoticeFigures,
    ObjectiveResult,
    PhaseResult,
    Reconciliation,
    Verdict,
)
from snapbid.loadtest.tally import Tally
from snapbid.reference.rates import Rates

LEAST: Final = 50  # completed requests before a run may be aborted amid a phase
_T = TypeVar("_T")


class Progress(Protocol):
    """Shows the progress of a run."""

    def say(self, text: str) -> None:
        """Print a line."""

    def phase(self, phase: Phase, tally: Tally, elapsed_s: float) -> None:
        """Show the progress of the current phase."""

    def ended(self, result: PhaseResult) -> None:
        """Print the result of a phase."""


def load_auctions(options: Options, known: Rates) -> list[list[Auction]]:
    """Return the bid requests of each mix, in the order of `options.mixes`.

    `known`: the exchange rates for converting bids. Raises ReplayError.
    """
    prepared: dict[str, list[Auction]] = {}
    for mix in options.mixes:
        if str(mix) not in prepared:
            prepared[str(mix)] = _prepared(options, mix, known)
    return [prepared[str(mix)] for mix in options.mixes]


def _prepared(options: Options, mix: Mix, known: Rates) -> list[Auction]:
    if mix.replay is not None:
        read = read_corpus if mix.replay.is_dir() else read_recording
        requests = read(mix.replay)
    else:
        generated = traffic.generate(options.requests, options.seed)
        requests = [(None, request) for request in generated]
    return prepare(requests, mix.ssps, options.target.authority, known, options.seed, options.path)


async def execute(
    options: Options, auctions: list[list[Auction]], progress: Progress
) -> LoadResult:
    """Run the test, once all generators have joined.

    Raises JoinError and ReportError, and OSError if the target does not answer.
    """
    async with joining.gathered(options, progress.say) as joined:
        return await LoadRun(options, auctions, progress, joined).execute()


class LoadRun:
    """A run; call `execute` once, on a dedicated event loop.

    If other generators have joined, all send equal shares of the rate and count as one.
    """

    def __init__(
        self,
        options: Options,
        auctions: list[list[Auction]],
        progress: Progress,
        joined: Sequence[JoinedGenerator],
    ) -> None:
        self._options = options
        self._progress = progress
        self._generator = Generator(options.share(0, 1 + len(joined)), auctions)
        self._joined = joined
        self._objectives = objectives.complete(options.objectives)
        self._outcomes: list[ObjectiveResult] = []
        self._judged_s = 0  # the second of the phase in which `--abort-on` was last checked
        self._aborted = ""
        self._sent = False  # whether all phases have ended

    async def execute(self) -> LoadResult:
        """Run all phases; then, if there are report tokens, compare the report with what was sent.

        Returns the results of the phases and of the comparison.
        """
        options = self._options
        started = time()
        before = {}
        reader = None
        if options.tokens is not None:
            target = options.target
            reader = reports.ReportReader(
                target.host, target.port, options.tokens, self._progress.say
            )
            before = await reader.fetch_all()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        results, counts = await self._load()
        reconciliation = None
        if reader is not None:
            self._progress.say("comparing with the report")
            accounts = by_canonical(counts.accounts, options.canonical)
            reconciliation = await self._unless_abandoned(
                reports.reconcile(reader, before, accounts, self._progress.say)
            )
        if reconciliation is None:
            why = "--no-reconcile" if reader is None else "interrupted"
            reconciliation = Reconciliation(reports.NOT_DONE, [], why)
        return self._result(started, results, counts, reconciliation)

    def _interrupt(self) -> None:
        """End the current phase, and with it the run; if the phases have ended, stop waiting.

        The run then no longer waits for answers, delayed notices or a complete report.
        """
        if self._sent or self._generator.stopped:
            self._generator.abandon()
        else:
            self._progress.say("interrupted: awaiting what was sent; Ctrl-C ends that, too")
        self._stop()

    async def _unless_abandoned(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Return the result of `work`, or None once the run is abandoned."""
        if self._generator.abandoned.is_set():
            work.close()
            return None
        task = asyncio.create_task(work)
        abandoned = asyncio.create_task(self._generator.abandoned.wait())
        await asyncio.wait((task, abandoned), return_when=asyncio.FIRST_COMPLETED)
        abandoned.cancel()
        if task.done():
            return task.result()
        task.cancel()
        return None

    def _stop(self) -> None:
        """End the current phase on all generators, and with it the run."""
        self._generator.stop()
        for joined in self._joined:
            joined.stop()

    async def _load(self) -> tuple[list[PhaseResult], RunCounts]:
        try:
            await self._generator.open()
            results = await self._phases(self._plan())
            self._sent = True
            counts = await self._generator.settle()
            for joined in self._joined:
                if other := await self._unless_abandoned(joined.settle()):
                    counts += other
            return results, counts
        finally:
            self._generator.close()

    def _plan(self) -> Plan:
        options = self._options
        if options.phases:
            return plan.given(options.phases)
        if options.find_capacity:
            return plan.capacity(
                options.warmup_s,
                options.ramp_s,
                options.rates[0],
                options.max_rate,
                options.duration_s,
            )
        return plan.fixed(options.warmup_s, options.ramp_s, options.rates, options.duration_s)

    async def _phases(self, phases: Plan) -> list[PhaseResult]:
        results: list[PhaseResult] = []
        phase = next(phases)
        while not self._generator.stopped:
            result = await self._phase(phase)
            results.append(result)
            self._progress.ended(result)
            if result.measured and result.held and result.bid_percent:
                self._objectives = objectives.steady(self._objectives, result)
            try:
                phase = phases.send(result)
            except StopIteration:
                break
        return results

    async def _phase(self, phase: Phase) -> PhaseResult:
        """Run a phase on all generators, each at its share of the rate."""
        share = phase.share(1 + len(self._joined))
        self._judged_s = 0
        counts, others = await asyncio.gather(
            self._generator.run(share, self._watch),
            asyncio.gather(*(self._unless_abandoned(each.run(share)) for each in self._joined)),
        )
        for other in others:
            if other is not None:
                counts += other
        if not self._generator.stopped:
            self._abort_if_missed(phase, counts.tally, counts.seconds, least=1)
        phase = phase._replace(seconds=counts.seconds)
        result, outcomes = measure.result(phase, counts.tally, counts.clocks, self._objectives)
        self._outcomes += outcomes
        return result

    def _watch(self, phase: Phase, tally: Tally, elapsed_s: float) -> None:
        self._progress.phase(phase, tally, elapsed_s)
        if int(elapsed_s) > self._judged_s:
            self._judged_s = int(elapsed_s)
            self._abort_if_missed(phase, tally, elapsed_s)

    def _abort_if_missed(
        self, phase: Phase, tally: Tally, elapsed_s: float, least: int = LEAST
    ) -> None:
        """End the run if the phase, after `least` requests, misses an objective of `--abort-on`."""
        if not (self._options.abort_on and phase.measured) or tally.done < least:
            return
        _, missed = objectives.judge(self._options.abort_on, phase.name, tally)
        if missed:
            self._aborted = f"aborted in {phase.name} after {elapsed_s:.0f} s: {missed}"
            self._stop()

    # -- the result ------------------------------------------------------------------------------

    def _result(
        self,
        started: float,
        phases: list[PhaseResult],
        counts: RunCounts,
        reconciliation: Reconciliation,
    ) -> LoadResult:
        options = self._options
        notices = _notice_figures(counts.notices, options.target.authority)
        capacity = None
        if options.find_capacity:
            capacity = max(
                (phase.rate for phase in phases if phase.measured and phase.held), default=0.0
            )
        events = None if counts.batches is None else _event_figures(counts.batches)
        return LoadResult(
            target=options.target.url,
            started=utc(started),
            version=version(),
            seed=options.seed,
            settings=described(options, 1 + len(self._joined)),
            phases=phases,
            objectives=self._outcomes,
            capacity=capacity,
            capacity_note=self._capacity_note(phases) if options.find_capacity else "",
            notices=notices,
            events=events,
            reconciliation=reconciliation,
            verdict=judge(phases, capacity, notices, events, reconciliation, self._ended_early()),
        )

    def _ended_early(self) -> str:
        return self._aborted or ("interrupted" if self._generator.stopped else "")

    def _capacity_note(self, phases: list[PhaseResult]) -> str:
        if not phases:
            return ""
        last = phases[-1]
        if last.held and last.rate >= self._options.max_rate:
            return "the run held at --max-rate: the capacity may be higher"
        if not last.held and last.client.limited:
            return f"at {last.rate:g}/s {last.client.why}"
        connections = self._options.connections * (1 + len(self._joined))
        return plan.pool_note([phase for phase in phases if phase.measured], connections)


def _notice_figures(counts: NoticeCounts, authority: str) -> NoticeFigures:
    return NoticeFigures(
        dict(counts.fired),
        dict(counts.failed),
        counts.histogram.latencies_ms(),
        counts.example,
        counts.elsewhere(authority),
        counts.left_out,
    )


def _event_figures(counts: BatchCounts) -> EventFigures:
    return EventFigures(
        counts.sent,
        counts.accepted,
        counts.failed,
        counts.histogram.latencies_ms(),
        counts.example,
    )


def _traffic(options: Options, mix: Mix) -> tuple[str, str]:
    weights = ", ".join(f"{ssp}={weight:g}" for ssp, weight in mix.ssps.items())
    if mix.replay is not None:
        kind = "corpus" if mix.replay.is_dir() else "replay of"
        return weights or "as recorded", f"{kind} {mix.replay.name}"
    return weights or DEFAULT_SSP, f"{options.requests} generated requests in turn"


def described(options: Options, generators: int) -> dict[str, str]:
    """Return the options' names and values, as the result lists them."""
    habits = options.habits
    traffic = [_traffic(options, mix) for mix in options.mixes]
    settings = {
        "ssps": "; then ".join(dict.fromkeys(ssps for ssps, _ in traffic)),
        "traffic": "; then ".join(dict.fromkeys(sent for _, sent in traffic)),
        "arrivals": "even" if options.even else "random (Poisson)",
        "connections": f"{options.connections} for bids, {SIDE_CONNECTIONS} for the rest",
        "timeout": f"{options.timeout_s * 1000:g} ms (given up {GIVE_UP_S:g} s later)",
        "notices": f"win {habits.win:.1%} of bids, bill {habits.bill:.1%} of wins, "
        f"loss {habits.loss:.1%} of the others",
    }  # fmt: skip
    if generators > 1:
        settings["generators"] = f"{generators}, each with these connections"
    if options.events is not None:
        settings["events"] = f"{options.events.rate:g}/s of {options.events.size} events each"
    return settings


def judge(
    phases: Sequence[PhaseResult],
    capacity: float | None,
    notices: NoticeFigures,
    events: EventFigures | None,
    reconciliation: Reconciliation,
    ended_early: str,
) -> Verdict:
    """Judge a run; the verdict names the first reason for its failure.

    A capacity search may miss objectives and still pass. `ended_early`: why the run was aborted; ""
    for a complete run.
    """
    measured = [phase for phase in phases if phase.measured]
    if ended_early or not measured:
        return Verdict(False, ended_early or "interrupted")
    if reconciliation.status == reports.DIFFERENT:
        return Verdict(False, f"the report differs: {reconciliation.detail}")
    if reconciliation.status == reports.NOT_DONE and reconciliation.detail != "--no-reconcile":
        return Verdict(False, reconciliation.detail)
    if missed := _missed(measured, capacity):
        return Verdict(False, missed)
    failed = sum(notices.failed.values())
    if failed:
        return Verdict(False, f"{failed} notices failed: {notices.example}")
    if events is not None and events.failed:
        return Verdict(False, f"{events.failed} event batches failed: {events.example}")
    return Verdict(True, "")


def _missed(measured: Sequence[PhaseResult], capacity: float | None) -> str:
    """Return the missed objective, or that a search found no capacity; "" if the run passed."""
    if capacity is not None:
        last = measured[-1]
        return "" if capacity > 0 else f"no rate met the objectives; {last.rate:g}/s: {last.missed}"
    for phase in measured:
        if not phase.held:
            why = f"; {phase.client.why}" if phase.client.why else ""
            return f"objective missed in {phase.name} at {phase.rate:g}/s: {phase.missed}{why}"
    return ""
