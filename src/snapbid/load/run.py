"""A run from its options to its result: phases, pacing, books, reconciliation, verdict."""

import asyncio
import gc
import signal
from datetime import UTC, datetime
from importlib.metadata import version
from random import Random
from time import perf_counter
from typing import Final, Protocol

from snapbid.load import measure, plan, reports, traffic
from snapbid.load.auctions import DEFAULT_SSP, Auction, Source, prepare, read_recording
from snapbid.load.batches import Batches
from snapbid.load.bids import Bids
from snapbid.load.books import Account, by_canonical
from snapbid.load.client import GIVE_UP_S, Client
from snapbid.load.notices import Notices
from snapbid.load.objectives import steady
from snapbid.load.options import Options
from snapbid.load.pacer import Pacer
from snapbid.load.plan import Phase, Plan, Schedule
from snapbid.load.result import (
    EventFigures,
    Judged,
    NoticeFigures,
    PhaseResult,
    Reconciliation,
    Result,
)
from snapbid.load.tally import Tally
from snapbid.load.verdict import judge
from snapbid.reference import rates

AT_ONCE: Final = 32  # sent before answers are read again
SWEEP_S: Final = 0.05
SHOW_S: Final = 0.25
FEW_CONNECTIONS: Final = 16  # of notices, and of event batches


class Shows(Protocol):
    """Live progress."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def phase(self, phase: Phase, tally: Tally, elapsed_s: float) -> None:
        """How a phase stands."""

    def ended(self, result: PhaseResult) -> None:
        """What came of it."""


def load_auctions(options: Options) -> list[Auction]:
    """What is sent. Raises ReplayError."""
    if options.replay is not None:
        requests = read_recording(options.replay)
    else:
        made = traffic.make(options.requests, options.seed)
        requests = [(None, request) for request in made]
    return prepare(requests, options.ssps, options.target.authority, rates.load(), options.seed)


class Run:
    """One run; `execute` it once, on an event loop of its own."""

    def __init__(self, options: Options, auctions: list[Auction], shows: Shows) -> None:
        self._options = options
        self._shows = shows
        aim, patience_s = options.target, options.timeout_s
        self._client = Client(aim.host, aim.port, options.connections, patience_s)
        self._others = Client(aim.host, aim.port, FEW_CONNECTIONS, patience_s)
        self._notices = Notices(self._others, options.habits, options.seed)
        self._batches: Batches | None = None
        if options.events is not None:
            rate, size, key = options.events
            self._batches = Batches(self._others, aim.authority, key, size, rate, options.seed)
        self._source = Source(auctions)
        self._accounts = {auction.ssp: Account() for auction in auctions}
        self._random = Random(options.seed)
        self._bids: Bids | None = None
        self._schedule: Schedule | None = None
        self._objectives = list(options.objectives)
        self._judged: list[Judged] = []
        self._stopped = asyncio.Event()

    @classmethod
    async def made(cls, options: Options, auctions: list[Auction], shows: Shows) -> Result:
        """The result of a run; as `execute`."""
        return await cls(options, auctions, shows).execute()

    async def execute(self) -> Result:
        """Raises OSError where the target does not answer, ReportError for the report."""
        options = self._options
        started = datetime.now(UTC)
        before = {}
        reader = None
        if options.tokens is not None:
            aim = options.target
            reader = reports.Reports(aim.host, aim.port, options.tokens, self._shows.say)
            before = await reader.fetch_all()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stopped.set)
        results = await self._load()
        reconciliation = Reconciliation(reports.NOT_DONE, [], "--no-reconcile")
        if reader is not None:
            self._shows.say("comparing with the report")
            owed = by_canonical(self._accounts, options.canonical)
            reconciliation = await reports.reconcile(reader, before, owed, self._shows.say)
        return self._result(started, results, reconciliation)

    async def _load(self) -> list[PhaseResult]:
        await self._client.open()
        await self._others.open()
        pacer = Pacer(self._tick)
        sweeper = asyncio.create_task(self._sweep())
        gc.collect()
        gc.freeze()
        gc.disable()  # requests make no cycles; looking for them would delay some of them
        try:
            pacer.start()
            return await self._phases(self._plan())
        finally:
            gc.enable()
            sweeper.cancel()
            pacer.close()
            self._client.close()
            self._others.close()

    def _plan(self) -> Plan:
        options = self._options
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
            self._shows.ended(results[-1])
            self._expect(results)
            try:
                phase = phases.send(results[-1])
            except StopIteration:
                break
        await self._settle_others()
        return results

    def _expect(self, results: list[PhaseResult]) -> None:
        """After the first measured phase its bid rate is what the others are held to."""
        if results[-1].measured and sum(one.measured for one in results) == 1:
            more = steady(self._objectives, results[-1])
            if more is not None:
                self._objectives.append(more)

    async def _phase(self, phase: Phase) -> PhaseResult:
        start = perf_counter() + SWEEP_S + 0.01  # by then the pacer has looked again
        before = measure.Clocks.read()
        tally = Tally(start, self._options.timeout_s)
        self._bids = Bids(self._client, self._source, tally, self._accounts, self._notices)
        self._schedule = Schedule(phase, start, self._random, self._options.even)
        if self._batches is not None:
            self._batches.due = start
        while (now := perf_counter()) < self._schedule.end and not self._stopped.is_set():
            self._shows.phase(phase, tally, now - start)
            await asyncio.sleep(min(SHOW_S, max(0.0, self._schedule.end - now)))
        while self._schedule.due < float("inf") and not self._stopped.is_set():
            await asyncio.sleep(SWEEP_S / 5)  # what was due before the end leaves, if late
        self._schedule.due = float("inf")
        if self._batches is not None:
            self._batches.due = float("inf")
        clocks = measure.Clocks.read().since(before)
        await self._settle(tally)
        made, judged = measure.result(phase, tally, clocks, self._objectives)
        self._judged += judged
        return made

    async def _settle(self, tally: Tally) -> None:
        """Waits until all that was offered has ended, as it must by itself."""
        while tally.pending:
            await asyncio.sleep(SWEEP_S / 5)

    async def _settle_others(self) -> None:
        """Notices leave when they are due, also after the last phase."""
        batches = self._batches
        while self._notices.open or (batches is not None and batches.open):
            await asyncio.sleep(SWEEP_S)

    def _tick(self, now: float) -> float:
        """Sends what is due; when to look again."""
        next_at = now + SWEEP_S
        schedule, bids = self._schedule, self._bids
        if schedule is not None and bids is not None:
            room = AT_ONCE
            while schedule.due <= now and room:
                bids.send(schedule.due, now)
                schedule.advance()
                room -= 1
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
            self._others.sweep(now)

    # -- the result ------------------------------------------------------------------------------

    def _result(
        self, started: datetime, phases: list[PhaseResult], reconciliation: Reconciliation
    ) -> Result:
        options, notices = self._options, self._notices_figures()
        capacity = None
        if options.find_capacity:
            capacity = max((one.rate for one in phases if one.measured and one.held), default=0.0)
        events = self._event_figures()
        return Result(
            target=options.target.url,
            started=started.strftime("%Y-%m-%d %H:%M:%S UTC"),
            version=version("snapbid"),
            seed=options.seed,
            settings=described(options),
            phases=phases,
            objectives=self._judged,
            capacity=capacity,
            capacity_note=self._note(phases) if options.find_capacity else "",
            notices=notices,
            events=events,
            reconciliation=reconciliation,
            verdict=judge(
                phases, capacity, notices, events, reconciliation, self._stopped.is_set()
            ),
        )

    def _note(self, phases: list[PhaseResult]) -> str:
        last = phases[-1]
        if last.held and last.rate >= self._options.max_rate:
            return "it holds at --max-rate: it may be higher"
        if not last.held and last.client.limited:
            return f"at {last.rate:g}/s {last.client.why}"
        return ""

    def _notices_figures(self) -> NoticeFigures:
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


def described(options: Options) -> dict[str, str]:
    """The options as the result tells them."""
    habits = options.habits
    weights = ", ".join(f"{ssp}={weight:g}" for ssp, weight in options.ssps.items())
    found = {
        "ssps": weights or ("as recorded" if options.replay else DEFAULT_SSP),
        "traffic": f"replay of {options.replay.name}" if options.replay else (
            f"{options.requests} generated requests in turns"
        ),
        "arrivals": "even" if options.even else "random (Poisson)",
        "connections": f"{options.connections} for bids, {FEW_CONNECTIONS} for the rest",
        "timeout": f"{options.timeout_s * 1000:g} ms (given up {GIVE_UP_S:g} s later)",
        "notices": f"win {habits.win:.1%} of bids, bill {habits.bill:.1%} of wins, "
        f"loss {habits.loss:.1%} of the others",
    }  # fmt: skip
    if options.events is not None:
        found["events"] = f"{options.events.rate:g}/s of {options.events.size} events each"
    return found
