"""What the books are made of: bids, answers, notices, and bounds of figures."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

WIN: Final = 1
BILLING: Final = 2
LOSS: Final = 4
DAY_S: Final = 86_400
OPEN_S: Final = 7_200  # a day closes at 02:00 of the next
ALL_DAYS: Final = -1
SLACK_S: Final = 2.0  # in what may count after the time to live, or a clock was set back
KEPT_S: Final = 1800.0  # after the time to live, for notices that wait in a spool
UNKNOWN_RUN_S: Final = 10.0  # before it came, for a worker that knows no run of Redis
EXACT_S: Final = 0.01  # a skew that no order of bids and notices suffers from
SKEW_S: Final = 600.0  # the largest with which a spooled notice finds a bid that seems to be newer
STEP_S: Final = 1.0  # the largest step of Redis' clock that the hold clock may follow
JUMP_S: Final = 900.0  # a step of Redis' clock that a hold of a cap does not survive
TAKEN_BACK_S: Final = 5.0  # with a whole wire a late bid has been taken back by then
NEVER: Final = float("inf")

Key = tuple[int, str, str]  # day since 1970, what, whose
Figures = Counter[Key]
Walls = tuple[float, float]


class Campaign(NamedTuple):
    """Prices are CPM in micro-USD, and so the cost of a bid in nano-USD; budgets in micro-USD."""

    name: str
    cpm: int
    daily: int | None = None
    total: int | None = None
    cap: tuple[int, int] | None = None  # impressions, seconds
    is_even: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether a bid may be refused by Redis."""
        return (self.daily, self.total, self.cap) != (None, None, None)

    def day_nano(self, wall_s: float) -> int | None:
        """What bids of the day may use by then, in nano-USD: `even` follows the day, plus 1%."""
        if self.daily is None:
            return None
        share = wall_s % DAY_S / DAY_S + 0.01 if self.is_even else 1.0
        return int(self.daily * 1000 * min(share, 1.0))


class Ssp(NamedTuple):
    descriptor: str
    canonical: str


@dataclass(eq=False)
class Record:
    """One bid of an answer."""

    pair: tuple[str, str]
    ssp: Ssp
    campaign: Campaign
    price: int
    user: str
    machine: str
    ttl_s: int
    hold_s: int
    asked_at: float
    asked_wall: Walls
    skew_s: float  # of its worker's time to that of Redis
    answered_at: float = NEVER
    answered_wall: Walls = (0.0, 0.0)
    promised: bool = False  # by a 200
    unknown: bool = True  # may be there, or not
    lost_at: float = NEVER  # the first loss was fired
    won_at: float = NEVER  # the first win was answered 200, within the hold
    is_won_in_spool: bool = False  # so that a loss may come first
    seen_at: float = NEVER  # the first win or billing was answered 200, within the hold
    is_seen_in_spool: bool = False
    moved_at: float = NEVER  # the first win or billing was fired that may count, or not
    seen_wall_s: float = NEVER  # the earliest that any clock showed when it came
    replaced_at: float = NEVER

    def is_spent(self, at: float) -> bool:
        """Whether it is certainly spent; a loss received before the win releases the hold."""
        return self.won_at <= at and not (self.is_won_in_spool and self.lost_at < NEVER)

    def is_seen(self, at: float) -> bool:
        """Whether an impression certainly counts, by the same rules."""
        return self.seen_at <= at and not (self.is_seen_in_spool and self.lost_at < NEVER)

    def is_held(self, begin: float, end: float, early_s: float) -> bool:
        """Whether it is certainly held throughout, if holds end early by at most this much."""
        return (
            self.promised
            and self.answered_at <= begin
            and self.asked_at + self.hold_s - early_s > end
            and min(self.lost_at, self.replaced_at) > end
        )


@dataclass(eq=False)
class Answer:
    """One bid request; `records` are the bids that it asks for."""

    ssp: Ssp
    worker: str
    records: list[Record]
    kept: list[Record] = field(default_factory=list)
    may_be_doubled: bool = False  # taken back once more, after data came back that has it

    @property
    def asked_at(self) -> float:
        return self.records[0].asked_at

    @property
    def is_open(self) -> bool:
        """Whether its outcome is not known yet."""
        return self.records[0].answered_at == NEVER


@dataclass(eq=False)
class Notice:
    """One firing of a URL."""

    pair: tuple[str, str]
    kind: int
    reason: int
    machine: str
    sent_at: float
    sent_wall: Walls
    done_at: float = NEVER
    done_wall: Walls = (0.0, 0.0)
    skew_s: float = 0.0  # of the time that it carries to that of Redis
    is_own_time: bool = False  # which the worker did not know yet
    is_set: bool = False  # by which its own time is off: a clock was set before it was corrected
    is_replayed_late: bool = False  # perhaps, so that it is lost with the data
    is_unheard: bool = False  # by a Redis that does not know its worker, or has older data again
    heard_until: float = NEVER  # when its worker may have reached Redis for the last time
    is_of_former_run: bool = False  # Redis may have begun anew since its worker reached it
    is_spooled: bool = False
    acknowledged: bool = False
    refused: bool = False  # 503: nothing is promised; it counts if it had reached Redis
    set_back_s: float = 0.0  # records may seem to be newer by so much to one from a spool

    @property
    def may_seem_lost(self) -> bool:
        """Whether one from a spool may find no bid, or seem to be meant for one that was lost."""
        off_s = max(self.skew_s, self.set_back_s if self.is_own_time else 0.0)
        is_off = off_s > EXACT_S and self.is_of_former_run
        return is_off or self.skew_s >= SKEW_S or self.is_set or self.is_replayed_late

    @property
    def may_be_spooled(self) -> bool:
        return self.is_spooled or self.done_at == NEVER

    @property
    def spooled_skew_s(self) -> float:
        """Of the time by which it finds its bid, if it is in a spool; else it needs none."""
        return self.skew_s + self.set_back_s if self.may_be_spooled else 0.0


class Lost(NamedTuple):
    """Redis came back as it was `since`; what the warehouse had at that time (`at`)."""

    since: float
    at: float
    figures: Figures
    day: int  # since 1970 by all clocks; -1 where they do not agree


class Bounds:
    def __init__(self) -> None:
        self.lower: Counter[Key] = Counter()
        self.upper: Counter[Key] = Counter()

    def add(self, days: set[int], what: str, whose: str, number: int, must: bool) -> None:
        for day in (*sorted(days), ALL_DAYS):
            key = (day, what, whose)
            self.upper[key] += number
            if must and (day == ALL_DAYS or len(days) == 1):
                self.lower[key] += number

    def lessen(self, days: set[int], what: str, whose: str) -> None:
        """Note that one fewer may have been counted."""
        for day in (*days, ALL_DAYS):
            self.lower[day, what, whose] -= 1

    def compare(self, figures: Figures) -> list[str]:
        return [
            f"{describe(key)}: {figures[key]} counted, not {self.lower[key]} to {self.upper[key]}"
            for key in sorted({*figures, *self.upper})
            if not self.lower[key] <= figures[key] <= self.upper[key]
        ]


def days_of(walls: Walls) -> set[int]:
    """All days (since 1970) from the first time to the second."""
    return set(range(int(walls[0] // DAY_S), int(walls[1] // DAY_S) + 1))


def days_of_bid(record: Record) -> set[int]:
    last = record.answered_wall[1] if record.answered_at < NEVER else record.asked_wall[1] + 60
    return days_of((record.asked_wall[0] - record.skew_s, last + record.skew_s))


def is_closed(days: set[int], wall_s: float) -> bool:
    """Whether one of the days may be closed by then: it keeps what was counted on it."""
    return wall_s >= (min(days) + 1) * DAY_S + OPEN_S


def days_of_notice(record: Record, notice: Notice, latest_wall_s: float) -> set[int]:
    """On which it may count: the bid's while that is open by some clock, or else its own.

    One from a spool is settled at any time until now.
    """
    done = notice.done_wall[1] if notice.done_at < NEVER else notice.sent_wall[1] + 60
    if notice.is_spooled or notice.done_at == NEVER:
        done = max(done, latest_wall_s)
    first, last = notice.sent_wall[0] - notice.skew_s, done + notice.skew_s
    days = set()
    for day in days_of_bid(record):
        closes = (day + 1) * DAY_S + OPEN_S
        if first < closes:
            days.add(day)
        if last >= closes:
            days |= days_of((max(first, closes), last))
    return days


def with_totals(figures: Iterable[tuple[Key, int]]) -> Figures:
    """Figures by day, and those of all days beside them."""
    counter: Counter[Key] = Counter()
    for (day, what, whose), number in figures:
        counter[day, what, whose] += number
        counter[ALL_DAYS, what, whose] += number
    return counter


def describe(key: Key) -> str:
    day, what, whose = key
    return f"{what} of {whose}" + ("" if day == ALL_DAYS else f" on day {day}")
