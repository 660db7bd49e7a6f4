"""The result of a run: what the terminal, the JSON file and the page all show."""

from msgspec import Struct


class ClientFigures(Struct, frozen=True):
    """The client's own state in a phase: processor time of one core, how late it sent.

    `waited_percent` of the time it was ready to run, and others had the processors.
    """

    cpu_percent: float
    waited_percent: float
    lag_p99_ms: float
    limited: bool  # the client itself was the limit
    why: str  # in words


class Failure(Struct, frozen=True):
    """A rule that answers broke, how often, and the first one."""

    rule: str
    count: int
    example: str


class Moment(Struct, frozen=True):
    """One second of a phase; latencies in ms."""

    at_s: float
    offered: int
    bad: int
    p50_ms: float
    p99_ms: float


class PhaseResult(Struct, frozen=True):
    """A phase. Every offered request is in one of `kinds`, and in `latency_ms`.

    `answered` came at all, in time or not; `latency_ms` by percentile, from the scheduled moment.
    """

    name: str
    measured: bool
    seconds: float
    rate: float
    offered: int
    answered: int
    dropped: int
    completed_per_s: float
    bid_percent: float  # of the right answers in time
    error_percent: float  # of all offered
    kinds: dict[str, int]
    latency_ms: dict[str, float]
    curve: list[tuple[float, float]]  # percent, ms
    failures: list[Failure]
    series: list[Moment]
    client: ClientFigures
    held: bool  # the objectives
    missed: str  # which one not, and by how much


class Judged(Struct, frozen=True):
    """An objective against a phase."""

    objective: str
    found: float
    met: bool
    phase: str


class NoticeFigures(Struct, frozen=True):
    """Notices by kind, and the latency of all of them."""

    fired: dict[str, int]
    failed: dict[str, int]
    latency_ms: dict[str, float]
    example: str
    elsewhere: str  # where the URLs point, if not at the target


class EventFigures(Struct, frozen=True):
    """Event batches sent beside the bids."""

    batches: int
    events_accepted: int
    failed: int
    latency_ms: dict[str, float]
    example: str


class Compared(Struct, frozen=True):
    """One number of one SSP: the client's ledger against the report's difference."""

    ssp: str
    what: str  # bids, wins, imps, micro-USD
    sent: int
    reported: int
    unanswered: int  # sent without an answer: may count or not
    agrees: bool


class Reconciliation(Struct, frozen=True):
    """`status` is exact, within bounds (of what was not answered), different, or not done."""

    status: str
    rows: list[Compared]
    detail: str


class Verdict(Struct, frozen=True):
    """`reason` is one line, why the run failed; empty where it did not."""

    ok: bool
    reason: str


class Result(Struct, frozen=True):
    """A whole run. `capacity_note` says what else than the server ended the search for it."""

    target: str
    started: str
    version: str
    seed: int
    settings: dict[str, str]
    phases: list[PhaseResult]
    objectives: list[Judged]
    capacity: float | None
    capacity_note: str
    notices: NoticeFigures
    events: EventFigures | None
    reconciliation: Reconciliation
    verdict: Verdict
