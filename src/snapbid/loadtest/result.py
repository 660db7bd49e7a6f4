"""The result of a run, shown on the terminal, in the JSON file and on the page."""

from msgspec import Struct, field


class ClientFigures(Struct, frozen=True):
    """The load on the generator itself in a phase, and its delays in sending; times in ms."""

    cpu_percent: float  # of a core
    waited_percent: float  # of the time: ready to run, but without a processor
    lag_p99_ms: float
    connection_wait_p99_ms: float  # until a connection was free
    limited: bool  # whether the client was the bottleneck
    pool_full: bool  # whether requests waited for a connection, long enough to matter
    why: str  # either of them in words, or empty


class BrokenRuleCount(Struct, frozen=True):
    """A broken rule, with the number of cases and the first case."""

    rule: str  # or `dropped` and `lost`, if it is known why
    count: int
    example: str


class SeriesPoint(Struct, frozen=True):
    """The figures of one second of a phase; latencies in ms."""

    at_s: float
    offered: int
    bad: int
    p50_ms: float
    p99_ms: float


class PhaseResult(Struct, frozen=True):
    """The result of a phase; `kinds` counts each offered request once, by its outcome.

    Latency is measured from the scheduled time, for all requests except `hung up` ones.
    """

    name: str
    measured: bool
    seconds: float
    rate: float
    offered: int
    answered: int  # also late
    dropped: int
    completed_per_s: float  # answered before the phase ended, per second of it
    bid_percent: float  # of the valid answers in time
    error_percent: float  # of all offered
    kinds: dict[str, int]
    latency_ms: dict[str, float]  # by percentile
    curve: list[tuple[float, float]]  # percent, ms
    failures: list[BrokenRuleCount]
    series: list[SeriesPoint]
    client: ClientFigures
    held: bool  # the objectives
    missed: str  # the objectives that were missed, with the values
    late: int = 0  # bids in time, but after their request's `tmax`


class ObjectiveResult(Struct, frozen=True):
    """An objective, and the value measured in one phase."""

    objective: str
    value: float = field(name="found")
    met: bool
    phase: str


class NoticeFigures(Struct, frozen=True):
    """Notices fired and failed, by kind, and the latency of all kinds together."""

    fired: dict[str, int]
    failed: dict[str, int]
    latency_ms: dict[str, float]
    example: str
    elsewhere: str  # the host in the URLs, if it is not the target
    left_out: int = 0  # not fired, since their URLs name another host


class EventFigures(Struct, frozen=True):
    """Counts and latency of the event batches sent alongside the bids."""

    batches: int
    events_accepted: int
    failed: int
    latency_ms: dict[str, float]
    example: str


class ComparedFigure(Struct, frozen=True):
    """One figure of an SSP: as counted by the client (`sent`), and its increase in the report."""

    ssp: str
    what: str  # bids, wins, imps, micro-USD
    sent: int
    reported: int
    unanswered: int  # sent but never answered: may or may not count
    agrees: bool


class Reconciliation(Struct, frozen=True):
    """The comparison of the client's counts with the report."""

    status: str  # exact, within bounds (left by unanswered requests), different, not done
    rows: list[ComparedFigure]
    detail: str


class Verdict(Struct, frozen=True):
    """The verdict on a run and, if it failed, the reason."""

    ok: bool
    reason: str  # why it failed, in one line; empty if it passed


class LoadResult(Struct, frozen=True):
    """The complete result of a run, as written by `--json`."""

    target: str
    started: str
    version: str
    seed: int
    settings: dict[str, str]
    phases: list[PhaseResult]
    objectives: list[ObjectiveResult]
    capacity: float | None
    capacity_note: str  # what ended the search for the capacity, if not the server
    notices: NoticeFigures
    events: EventFigures | None
    reconciliation: Reconciliation
    verdict: Verdict
