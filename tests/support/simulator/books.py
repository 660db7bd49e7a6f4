"""What must be counted, from what was asked and answered alone (contract 5).

Every figure has a lower and an upper bound. They are equal unless nobody can know: a worker was
killed before it answered, or before it could take a late bid back; a notice was under way while its
pair was bid on again; a store came back with older data. Of a day's figures nothing is demanded
where the clocks do not agree on the day.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from support.simulator.entries import (
    ALL_DAYS,
    BILLING,
    EXACT_S,
    KEPT_S,
    LOSS,
    NEVER,
    SLACK_S,
    TAKEN_BACK_S,
    WIN,
    Answer,
    Bounds,
    Campaign,
    Figures,
    Lost,
    Notice,
    Record,
    Walls,
    days_of,
    days_of_bid,
    days_of_notice,
    describe,
    is_closed,
)
from support.simulator.limits import LimitBooks

TAKEN_BACK: Final = ("bids", "campaign bids")  # figures that include late bids for a moment


class Books:
    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.longest_ttl_s = 0
        self.limits = LimitBooks(self.wrong)
        self._answers: list[Answer] = []
        self._records: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
        self._notices: list[Notice] = []
        self._losses: defaultdict[tuple[str, str], list[Notice]] = defaultdict(list)
        self._lost: list[Lost] = []
        self._begun = [0.0]  # when runs of Redis did
        self._set_back: list[tuple[float, float]] = []  # when Redis' clock was, and by how much
        self._baseline: tuple[float, Figures] | None = None
        self._highest: Figures = Counter()
        self._former: set[tuple[str, str]] = set()  # pairs of another warehouse's time
        self.warehouse_is_older = False
        self.latest_wall_s = 0.0  # that any clock has shown

    def announced(self, ttl_s: int) -> None:
        """Note that a worker has started, whose TTL may apply to bids from now on."""
        self.longest_ttl_s = max(self.longest_ttl_s, ttl_s)

    # -- bids --------------------------------------------------------------------------------

    def asked(self, answer: Answer) -> None:
        self._answers.append(answer)
        for record in answer.records:
            self._records[record.pair].append(record)
            for notice in self._losses[record.pair]:  # one that is under way may meet this bid
                if record.asked_at <= notice.done_at + notice.spooled_skew_s:
                    record.lost_at = record.asked_at

    def shown(self, walls: Walls) -> None:
        """Note times that clocks have shown."""
        self.latest_wall_s = max(self.latest_wall_s, walls[1])

    def promised(self, answer: Answer, kept: list[Record], now: float, wall: Walls) -> None:
        """Note an answer of 200 with these bids."""
        self.shown(wall)
        answer.kept = kept
        for record in answer.records:
            record.answered_at, record.answered_wall = now, wall
            record.unknown, record.promised = False, False
        for record in kept:
            for older in self._records[record.pair]:
                if older is not record and older.asked_at <= record.asked_at:
                    older.replaced_at = min(older.replaced_at, record.asked_at)
            record.promised = True
            self.limits.promised(record)

    def declined(self, answer: Answer, now: float, wall: Walls) -> None:
        """It was answered 204: nothing of it may stay, unless Redis lost data meanwhile: what was
        drained by then cannot be rolled back.
        """
        self.shown(wall)
        for record in answer.records:
            record.answered_at, record.answered_wall = now, wall
            record.unknown = self._was_lost(record.asked_at, now)

    def killed(self, worker: str, now: float, bad: tuple[float, float]) -> None:
        """Whatever it had not taken back by then may stay. `bad`: when its wire was, lately."""
        since, until = bad
        for answer in self._answers:
            if answer.worker == worker and not answer.kept:
                answered_at = answer.records[0].answered_at
                if answered_at < since - TAKEN_BACK_S:
                    continue
                if now - max(answered_at, until) < TAKEN_BACK_S:
                    for record in answer.records:
                        record.unknown = True

    def is_unheard(self, bad_since: float) -> bool:
        """Whether Redis has come back with older data since; it may not know the machine yet."""
        return any(bad_since <= lost.at for lost in self._lost)

    def began(self, now: float) -> None:
        """Note that Redis, or a node of it, may have been restarted or replaced."""
        self._begun.append(now)

    def has_begun(self, bad_since: float) -> bool:
        """Whether a run of Redis has begun since."""
        return any(bad_since <= at for at in self._begun)

    def is_promised(self, pair: tuple[str, str]) -> bool:
        return pair in self._former or any(r.promised for r in self._records.get(pair, ()))

    # -- notices -----------------------------------------------------------------------------

    def fired(self, notice: Notice) -> None:
        self._notices.append(notice)
        if notice.kind == LOSS:
            self._losses[notice.pair].append(notice)
            for record in self._records.get(notice.pair, ()):
                record.lost_at = min(record.lost_at, notice.sent_at)

    def acknowledged(self, notice: Notice, now: float, wall: Walls, is_spooled: bool) -> None:
        self.shown(wall)
        notice.done_at, notice.done_wall, notice.acknowledged = now, wall, True
        notice.is_spooled = is_spooled
        if notice.kind == LOSS:
            return
        candidates = list(self._candidates(notice))
        certain = len(candidates) == 1 and self._must_be_known(candidates[0], notice)
        if is_spooled and notice.is_unheard:  # holds may end before it is replayed
            certain = False
        for record in candidates if not certain else ():  # an impression of whatever time, perhaps
            record.moved_at = min(record.moved_at, notice.sent_at)
        if not certain:
            return
        record = candidates[0]
        if record.lost_at < NEVER or record.asked_at + record.hold_s <= now:
            return
        if now < record.seen_at:
            record.seen_at = now
            record.is_seen_in_spool = is_spooled
        record.seen_wall_s = min(record.seen_wall_s, notice.sent_wall[0])
        if notice.kind == WIN:
            record.is_won_in_spool |= is_spooled
            record.won_at = min(record.won_at, now)

    def refused(self, notice: Notice, now: float, wall: Walls) -> None:
        self.shown(wall)
        notice.done_at, notice.done_wall, notice.refused = now, wall, True

    def _candidates(self, notice: Notice) -> Iterator[Record]:
        """The records that a notice may have found."""
        records = self._records.get(notice.pair, ())
        is_orphan = notice.may_be_spooled and any(  # it counts for a later bid then
            record.asked_at <= min(lost.at, notice.done_at)
            and lost.since <= record.answered_at
            and lost.at < notice.heard_until
            for record in records
            for lost in self._lost
        )
        for record in records:
            if not (record.promised or record.unknown):
                continue
            if record.asked_at > notice.done_at + notice.spooled_skew_s and not is_orphan:
                continue
            ended_at = record.answered_at if not record.unknown else record.asked_at + 10.0
            if max(notice.skew_s, notice.spooled_skew_s) > EXACT_S or not any(
                later.promised and later.answered_at <= notice.sent_at
                and later.asked_at >= ended_at
                for later in records
            ):  # fmt: skip
                yield record

    def clock_was_set(self, whose: str, by: float, now: float) -> None:
        """Note that a clock was set: a machine's, that of Redis, or all."""
        self.limits.clock_was_set(by, now)
        if by < 0 and whose in ("redis", "all"):
            self._set_back.append((now, -by))
        for notice in self._notices:  # that are corrected by both clocks once they are replayed
            if notice.is_own_time and whose in (notice.machine, "redis", "all"):
                notice.skew_s += abs(by)
                notice.is_set = True

    def outlived(self, now: float, wall_s: float, first_bad: Callable[[str], float]) -> None:
        """Clocks show so much that records are gone which notices in a spool, and bids that are to
        be taken back, need. `first_bad`: when the wire of a worker was, for the first time.
        """
        for answer in self._answers:
            since = first_bad(answer.worker) - TAKEN_BACK_S
            for record in answer.records:
                if wall_s <= record.asked_wall[0] + record.ttl_s + KEPT_S:
                    continue
                if record.is_won_in_spool:
                    record.won_at = NEVER
                if record.is_seen_in_spool:
                    record.seen_at = record.won_at = NEVER
                    record.moved_at = min(record.moved_at, now)
                if not answer.kept and record.campaign.is_limited and record.answered_at >= since:
                    record.unknown = True

    def set_back_s(self, now: float) -> float:
        """By how much records may seem to be newer than what comes now: Redis' clock was set."""
        in_all = sum(by for _, by in self._set_back)
        return sum(by for at, by in self._set_back if now - at < in_all + SLACK_S)

    # -- stores that come back with older data, machines that do not ------------------------------

    def left(self, machine: str, since: float, replayed: float) -> None:
        """What was acknowledged there since, or spooled since `replayed`, is gone with its disk."""
        for notice in self._notices:
            is_gone = notice.sent_at >= (min(since, replayed) if notice.is_spooled else since)
            notice.acknowledged &= not (is_gone and notice.machine == machine)

    def replaced(self) -> None:
        """Note that the warehouse was replaced: earlier counts no longer matter."""
        self._former |= self._records.keys()
        self._answers = [answer for answer in self._answers if answer.is_open]
        pending = {record for answer in self._answers for record in answer.records}
        self._records.clear()
        for record in pending:
            self._records[record.pair].append(record)
        self.limits.clear()
        self._notices = [notice for notice in self._notices if notice.done_at == NEVER]
        self._losses.clear()
        self._lost.clear()
        self._highest.clear()
        self._baseline = None

    def redis_went_back(
        self,
        since: float,
        now: float,
        figures: Figures,
        walls: Walls,
        bad: Callable[[str], tuple[float, float]],
    ) -> None:
        """To what it had then. `bad`: from when until when a machine hardly reached it."""
        for notice in self._notices:
            begin, end = bad(notice.machine)
            if notice.is_spooled and begin <= notice.done_at and since <= end:
                notice.is_replayed_late = True
        days = days_of(walls)
        lost = Lost(since, now, figures, min(days) if len(days) == 1 else -1)
        self._lost.append(lost)
        self.limits.lose(lost)
        self._baseline = (now, figures)
        for answer in self._answers:
            for record in answer.records:
                if since - TAKEN_BACK_S <= record.answered_at and record.asked_at <= now:
                    record.unknown = True
                    answer.may_be_doubled |= not answer.kept and not answer.is_open

    def warehouse_went_back(self, now: float, figures: Figures, gone: set[str]) -> None:
        """Note that the warehouse was restored to these figures, without some campaigns."""
        self.limits.vague |= gone
        self.limits.warehouse_went_back(figures)
        self._baseline = (now, figures)
        self._highest = Counter(figures)
        self.warehouse_is_older = True

    def _was_lost(self, begin: float, end: float) -> bool:
        return any(lost.since <= end and begin <= lost.at for lost in self._lost)

    # -- what the figures must be ------------------------------------------------------------

    def seen(self, figures: Figures) -> None:
        """The warehouse's, at some moment: they never go down but for bids taken back."""
        for key, highest in self._highest.items():
            if figures[key] < highest and key[1] not in TAKEN_BACK:
                self.wrong.append(f"{describe(key)}: went down from {highest} to {figures[key]}")
        for key, figure in figures.items():
            self._highest[key] = max(self._highest[key], figure)

    def bounds(self) -> Bounds:
        """Once all has healed and been drained."""
        whole, since, refused = Bounds(), Bounds(), Bounds()
        after = self._baseline[0] if self._baseline else NEVER
        for answer in self._answers:
            self._bound_bids(whole, answer)
            if answer.asked_at >= after:
                self._bound_bids(since, answer)
                continue
            if not answer.kept:
                self._bound_refused(refused, answer)
            if answer.may_be_doubled:
                self._bound_doubled(since, answer)
        for (record, kind), notices in self._by_record().items():
            self._bound_notices(whole, record, kind, notices)
            if min(notice.sent_at for notice in notices) >= after:
                self._bound_notices(since, record, kind, notices)
        if self._baseline is not None:
            for key, figure in (self._baseline[1] + since.lower).items():
                if key[1] in TAKEN_BACK:  # some may have been, since
                    figure = min(figure, whole.upper[key]) - refused.upper[key]
                whole.lower[key] = max(whole.lower[key], figure)
            for key in whole.lower:
                if key[1].startswith("campaign") and key[2] in self.limits.vague:
                    whole.lower[key] = 0
        return whole

    def _bound_bids(self, bounds: Bounds, answer: Answer) -> None:
        first = answer.records[0]
        days = days_of_bid(first)
        lost = self._was_lost(first.asked_at, first.answered_at)
        ssp = answer.ssp.descriptor
        if answer.kept:
            bounds.add(days, "bids", ssp, 1, not lost)
            for record in answer.kept:
                bounds.add(days, "campaign bids", record.campaign.name, 1, not lost)
        elif is_closed(days, self.latest_wall_s) or any(r.unknown for r in answer.records):
            self._bound_refused(bounds, answer)
            if answer.may_be_doubled:
                self._bound_doubled(bounds, answer)

    def _bound_refused(self, bounds: Bounds, answer: Answer) -> None:
        """It may be counted all the same: its bids may have come late."""
        days = days_of_bid(answer.records[0])
        bounds.add(days, "bids", answer.ssp.descriptor, 1, False)
        for record in answer.records:
            bounds.add(days, "campaign bids", record.campaign.name, 1, False)

    def _bound_doubled(self, bounds: Bounds, answer: Answer) -> None:
        days = days_of_bid(answer.records[0])
        bounds.lessen(days, "bids", answer.ssp.descriptor)
        for record in answer.records:
            bounds.lessen(days, "campaign bids", record.campaign.name)

    def _by_record(self) -> dict[tuple[Record, int], list[Notice]]:
        """The notices that may have found a record, by kind."""
        by_record: defaultdict[tuple[Record, int], list[Notice]] = defaultdict(list)
        for notice in self._notices:
            for record in self._candidates(notice):
                if self._may_be_known(record, notice):
                    by_record[record, notice.kind].append(notice)
        return by_record

    def _may_be_known(self, record: Record, notice: Notice) -> bool:
        latest = record.answered_wall[1] if record.answered_at < NEVER else NEVER
        came = notice.sent_wall[0] - notice.spooled_skew_s  # not known to it that clocks were set
        return came - latest <= self.longest_ttl_s + SLACK_S

    def _must_be_known(self, record: Record, notice: Notice) -> bool:
        if not notice.acknowledged or not record.promised or record.unknown:
            return False
        if notice.is_spooled and notice.may_seem_lost:
            return False
        known_until = record.asked_wall[0] + record.ttl_s
        if notice.is_spooled and self.latest_wall_s > known_until + KEPT_S:
            return False
        return record.answered_at <= notice.sent_at and notice.done_wall[1] <= known_until

    def _bound_notices(
        self, bounds: Bounds, record: Record, kind: int, notices: list[Notice]
    ) -> None:
        must = any(
            self._must_be_known(record, notice)
            and len(list(self._candidates(notice))) == 1
            and not self._was_lost(record.asked_at, record.answered_at)
            and not self._was_lost(notice.sent_at, notice.done_at)
            for notice in notices
        )
        # One that is in a spool, or was refused, may be overtaken by a repeat, which counts then.
        first = min(
            notice.done_at if notice.acknowledged and not notice.is_spooled else NEVER
            for notice in notices
        )
        days: set[int] = set()
        for notice in notices:
            if notice.sent_at <= first or not must:
                days |= days_of_notice(record, notice, self.latest_wall_s)
        times = 1 + sum(  # counted, forgotten with the data, and counted again
            any(notice.sent_at < lost.at for notice in notices)
            and any(notice.done_at > lost.at or notice.is_spooled for notice in notices)
            for lost in self._lost
        )
        name, ssp = record.campaign.name, record.ssp
        for number in range(times):
            must = must and number == 0
            if kind == WIN:
                bounds.add(days, "wins", ssp.descriptor, 1, must)
                bounds.add(days, "cpm", ssp.descriptor, record.price, must)
                bounds.add(days, "campaign wins", name, 1, must)
                bounds.add(days, "campaign cpm", name, record.price, must)
            elif kind == BILLING:
                bounds.add(days, "imps", ssp.canonical, 1, must)
                bounds.add(days, "campaign imps", name, 1, must)
            else:
                whose = f"{ssp.descriptor} {notices[0].reason}"
                bounds.add(days, "losses", whose, 1, must)

    def spent(self, campaign: Campaign) -> tuple[int, int]:
        """The least and most that wins have spent (nano-USD)."""
        bounds = Bounds()
        for (record, kind), notices in self._by_record().items():
            if kind == WIN and record.campaign is campaign:
                self._bound_notices(bounds, record, kind, notices)
        key = (ALL_DAYS, "campaign cpm", campaign.name)
        return bounds.lower[key], bounds.upper[key]

    @property
    def counts(self) -> dict[str, int]:
        """Counts for the tally."""
        return {
            "200": sum(bool(answer.kept) for answer in self._answers),
            "204": sum(not answer.kept for answer in self._answers),
            "notices": sum(notice.acknowledged for notice in self._notices),
        }
