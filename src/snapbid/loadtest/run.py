"""Runs a load test, from options to result: phases, pacing, accounts, reconciliation, verdict."""

import asyncio
import gc
import signal
from datetime import UTC, datetime
from random import Random
from time import perf_counter
from typing import Final, Protocol

from snapbid.base.version import version
from snapbid.loadtest import measure, plan, reports, traffic
from snapbid.loadtest.accounts import Account, by_canonical
from snapbid.loadtest.auctions import (
    DEFAULT_SSP,
    Auction,
    AuctionSource,
    prepare,
    read_corpus,
    read_recording,
)
from snapbid.loadtest.bid_sender import BidSender
from snapbid.loadtest.client import GIVE_UP_S, LoadClient
from snapbid.loadtest.event_sender import EventSender
from snapbid.loadtest.notice_sender import NoticeSender
from snapbid.loadtest.objectives import steady
from snapbid.loadtest.options import Mix, Options
from snapbid.loadtest.pacer import Pacer
from snapbid.loadtest.plan import Phase, Plan, Schedule
from snapbid.loadtest.result import (
    EventFigures,
    LoadResult,
    NoticeFigures,
    ObjectiveResult,
    PhaseResult,
    Reconciliation,
)
from snapbid.loadtest.tally import Tally
from snapbid.loadtest.verdict import judge
from snapbid.reference import rates

AT_ONCE: Final = 32  # sends before answers are read
SWEEP_S: Final = 0.05
PROGRESS_S: Final = 0.25
JUDGE_S: Final = 1.0  # between checks of `--abort-on`
LEAST: Final = 50  # completed requests before a run may be aborted
SIDE_CONNECTIONS: Final = 16  # for notices and event batches


class Progress(Protocol):
    """Shows how a run proceeds."""

    def say(self, text: str) -> None:
        """Print a line."""

    def phase(self, phase: Phase, tally: Tally, elapsed_s: float) -> None:
        """Update the state of the current phase."""

    def ended(self, result: PhaseResult) -> None:
        """Print the result of a phase."""


def load_auctions(options: Options) -> list[list[Auction]]:
    """Return the bid requests to send, by mix. Raises ReplayError."""
    prepared: dict[str, list[Auction]] = {}
    for mix in options.mixes:
        if str(mix) not in prepared:
            prepared[str(mix)] = _prepared(options, mix)
    return [prepared[str(mix)] for mix in options.mixes]


def _prepared(options: Options, mix: Mix) -> list[Auction]:
    if mix.replay is not None:
        read = read_corpus if mix.replay.is_dir() else read_recording
        requests = read(mix.replay)
    else:
        generated = traffic.generate(options.requests, options.seed)
        requests = [(None, request) for request in generated]
    authority, known = options.target.authority, rates.load()
    return prepare(requests, mix.ssps, authority, known, options.seed, options.path)


async def execute(
    options: Options, auctions: list[list[Auction]], progress: Progress
) -> LoadResult:
    """Run the test. Raises OSError if the target does not answer, and ReportError."""
    return await LoadRun(options, auctions, progress).execute()


class LoadRun:
    """A run; call `execute` once, on a dedicated event loop."""

    def __init__(self, options: Options, auctions: list[list[Auction]], progress: Progress) -> None:
        self._options = options
        self._progress = progress
        target, patience_s = options.target, options.timeout_s
        self._client = LoadClient(target.host, target.port, options.connections, patience_s)
        self._side_client = LoadClient(target.host, target.port, SIDE_CONNECTIONS, patience_s)
        only = "" if options.ours else target.authority
        self._notices = NoticeSender(self._side_client, options.habits, options.seed, only)
        self._batches: EventSender | None = None
        if options.events is not None:
            rate, size, key = options.events
            self._batches = EventSender(
                self._side_client, target.authority, key, size, rate, options.seed
            )
        self._sources = [AuctionSource(mix) for mix in auctions]
        self._accounts = {auction.ssp: Account() for mix in auctions for auction in mix}
        self._random = Random(options.seed)
        self._bids: BidSender | None = None
        self._schedule: Schedule | None = None
        self._objectives = list(options.objectives)
        self._outcomes: list[ObjectiveResult] = []
        self._stopped = asyncio.Event()
        self._aborted = ""

    async def execute(self) -> LoadResult:
        """Run all phases and reconcile; see the function `execute`."""
        options = self._options
        started = datetime.now(UTC)
        before = {}
        reader = None
        if options.tokens is not None:
            target = options.target
            reader = reports.ReportReader(
                target.host, target.port, options.tokens, self._progress.say
            )
            before = await reader.fetch_all()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stopped.set)
        results = await self._load()
        reconciliation = Reconciliation(reports.NOT_DONE, [], "--no-reconcile")
        if reader is not None:
            self._progress.say("comparing with the report")
            accounts = by_canonical(self._accounts, options.canonical)
            reconciliation = await reports.reconcile(reader, before, accounts, self._progress.say)
        return self._result(started, results, reconciliation)

    async def _load(self) -> list[PhaseResult]:
        await self._client.open()
        await self._side_client.open()
        pacer = Pacer(self._tick)
        sweeper = asyncio.create_task(self._sweep())
        gc.collect()
        gc.freeze()
        gc.disable()  # requests make no cycles; collections would only delay some of them
        try:
            pacer.start()
            return await self._phases(self._plan())
        finally:
            gc.enable()
            sweeper.cancel()
            pacer.close()
            self._client.close()
            self._side_client.close()

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
        while not self._stopped.is_set():
            results.append(await self._phase(phase))
            self._progress.ended(results[-1])
            self._hold_to_first(results)
            try:
                phase = phases.send(results[-1])
            except StopIteration:
                break
        await self._settle_side_traffic()
        return results

    def _hold_to_first(self, results: list[PhaseResult]) -> None:
        """After the first measured phase, require its bid rate of the later ones."""
        if results[-1].measured and sum(phase.measured for phase in results) == 1:
            bid_rate = steady(self._objectives, results[-1])
            if bid_rate is not None:
                self._objectives.append(bid_rate)

    async def _phase(self, phase: Phase) -> PhaseResult:
        start = perf_counter() + SWEEP_S + 0.01  # by then the pacer has ticked again
        before = measure.ClockReading.read()
        tally = Tally(start, self._options.timeout_s)
        self._bids = BidSender(
            self._client,
            self._sources[phase.mix],
            tally,
            self._accounts,
            self._notices,
            phase.faults,
            self._random,
            ours=self._options.ours,
        )
        self._schedule = Schedule(phase, start, self._random, self._options.even)
        if self._batches is not None:
            self._batches.due = start
        judged_at = start
        while (now := perf_counter()) < self._schedule.end and not self._stopped.is_set():
            self._progress.phase(phase, tally, now - start)
            if now - judged_at >= JUDGE_S:
                judged_at = now
                self._abort_if_missed(phase, tally, before)
            await asyncio.sleep(min(PROGRESS_S, max(0.0, self._schedule.end - now)))
        while self._schedule.due < float("inf") and not self._stopped.is_set():
            await asyncio.sleep(SWEEP_S / 5)  # requests due before the end are still sent
        self._schedule.due = float("inf")
        if self._batches is not None:
            self._batches.due = float("inf")
        clocks = measure.ClockReading.read().since(before)
        if self._stopped.is_set():
            phase = phase._replace(seconds=min(phase.seconds, perf_counter() - start))
        await self._settle(tally)
        result, outcomes = measure.result(phase, tally, clocks, self._objectives)
        self._outcomes += outcomes
        return result

    def _abort_if_missed(self, phase: Phase, tally: Tally, before: measure.ClockReading) -> None:
        """End the run if the completed requests miss an objective of `--abort-on`."""
        if not (self._options.abort_on and phase.measured) or tally.done < LEAST:
            return
        clocks = measure.ClockReading.read().since(before)
        so_far, _ = measure.result(phase, tally, clocks, self._options.abort_on)
        if not so_far.held:
            seconds = perf_counter() - tally.start
            self._aborted = f"aborted in {phase.name} after {seconds:.0f} s: {so_far.missed}"
            self._stopped.set()

    async def _settle(self, tally: Tally) -> None:
        """Wait until all offered requests have ended, at the latest by their timeouts."""
        while tally.pending:
            await asyncio.sleep(SWEEP_S / 5)

    async def _settle_side_traffic(self) -> None:
        """Wait until all notices and batches are answered; some are due after the last phase."""
        batches = self._batches
        while self._notices.open or (batches is not None and batches.open):
            await asyncio.sleep(SWEEP_S)

    def _tick(self, now: float) -> float:
        """Send what is due; return when to be called again."""
        next_at = now + SWEEP_S
        schedule, bids = self._schedule, self._bids
        if schedule is not None and bids is not None:
            budget = AT_ONCE
            while schedule.due <= now and budget:
                bids.send(schedule.due, now)
                schedule.advance()
                budget -= 1
            next_at = min(next_at, schedule.due)
        notice_at = self._notices.fire(now, AT_ONCE)
        if notice_at is not None:
            next_at = min(next_at, notice_at)
        if self._batches is not None:
            self._batches.send(now)
            next_at = min(next_at, self._batches.due)
        return next_at

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = perf_counter()
            self._client.sweep(now)
            self._side_client.sweep(now)

    # -- the result ------------------------------------------------------------------------------

    def _result(
        self, started: datetime, phases: list[PhaseResult], reconciliation: Reconciliation
    ) -> LoadResult:
        options, notices = self._options, self._notice_figures()
        capacity = None
        if options.find_capacity:
            capacity = max(
                (phase.rate for phase in phases if phase.measured and phase.held), default=0.0
            )
        events = self._event_figures()
        return LoadResult(
            target=options.target.url,
            started=started.strftime("%Y-%m-%d %H:%M:%S UTC"),
            version=version(),
            seed=options.seed,
            settings=described(options),
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
        return self._aborted or ("interrupted" if self._stopped.is_set() else "")

    def _capacity_note(self, phases: list[PhaseResult]) -> str:
        last = phases[-1]
        if last.held and last.rate >= self._options.max_rate:
            return "the run held at --max-rate: the capacity may be higher"
        if not last.held and last.client.limited:
            return f"at {last.rate:g}/s {last.client.why}"
        return ""

    def _notice_figures(self) -> NoticeFigures:
        notices = self._notices
        return NoticeFigures(
            dict(notices.fired),
            dict(notices.failed),
            measure.latencies(notices.histogram),
            notices.example,
            notices.elsewhere(self._options.target.authority),
        )

    def _event_figures(self) -> EventFigures | None:
        batches = self._batches
        if batches is None:
            return None
        return EventFigures(
            batches.sent,
            batches.accepted,
            batches.failed,
            measure.latencies(batches.histogram),
            batches.example,
        )


def _traffic(options: Options, mix: Mix) -> tuple[str, str]:
    weights = ", ".join(f"{ssp}={weight:g}" for ssp, weight in mix.ssps.items())
    if mix.replay is not None:
        kind = "corpus" if mix.replay.is_dir() else "replay of"
        return weights or "as recorded", f"{kind} {mix.replay.name}"
    return weights or DEFAULT_SSP, f"{options.requests} generated requests in turn"


def described(options: Options) -> dict[str, str]:
    """Return the options as listed in the result."""
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
    if options.events is not None:
        settings["events"] = f"{options.events.rate:g}/s of {options.events.size} events each"
    return settings
