"""Whether spend, holds and impressions stay within budgets and caps (contract 3).

However many shards there are: nothing here knows of them.
"""

from collections import Counter, defaultdict

from support.simulator.entries import (
    ALL_DAYS,
    JUMP_S,
    NEVER,
    STEP_S,
    Figures,
    Lost,
    Record,
    days_of_bid,
)


class LimitBooks:
    """`wrong` takes what exceeds a limit.

    `loosened_at`: when what was open ceased to be promised.
    """

    def __init__(self, wrong: list[str]) -> None:
        self.loosened_at = -1.0
        self.vague: set[str] = set()  # campaigns that a restored warehouse did not have
        self._wrong = wrong
        self._by_campaign: defaultdict[str, list[Record]] = defaultdict(list)
        self._lost: Lost | None = None  # the last loss of data
        self._jumped_at = -1.0
        self._early_s = 0.0

    def clear(self) -> None:
        """Start anew with another warehouse: nothing is promised until it owns the ledger."""
        self._by_campaign.clear()
        self._lost, self.loosened_at = None, NEVER

    def lose(self, lost: Lost) -> None:
        self._lost, self.loosened_at = lost, lost.at

    def warehouse_went_back(self, figures: Figures) -> None:
        """It may have been asked only then what was spent before the loss of data."""
        if self._lost is not None:
            known = self._lost.figures
            less = Counter({key: min(known[key], figures[key]) for key in known})
            self._lost = self._lost._replace(figures=less)

    def clock_was_set(self, by: float, now: float) -> None:
        """Note that a clock was set, perhaps that of Redis."""
        if by > JUMP_S:
            self._jumped_at = now
        elif 0 < by <= STEP_S:
            self._early_s += by

    def promised(self, record: Record) -> None:
        """Note a bid that was answered 200."""
        self._check_budget(record)
        self._check_cap(record)
        self._by_campaign[record.campaign.name].append(record)

    def _check_budget(self, new: Record) -> None:
        """After a loss of data, also with what the warehouse knew then."""
        campaign = new.campaign
        if campaign.name in self.vague or (campaign.total is None and campaign.daily is None):
            return
        known = self._lost
        self._check_sums(new, 0, 0)
        if known is not None:
            total = known.figures[ALL_DAYS, "campaign cpm", campaign.name]
            today = known.figures[known.day, "campaign cpm", campaign.name]
            if known.day not in days_of_bid(new):
                today = 0
            self._check_sums(new, total, today)

    def _check_sums(self, new: Record, total: int, today: int) -> None:
        """`total` and `today`: spent by what is in no record."""
        campaign, days = new.campaign, days_of_bid(new)
        total, today = total + new.price, today + new.price
        for record in self._by_campaign[campaign.name]:
            if record.asked_at < self.loosened_at:
                continue
            if record.is_spent(new.asked_at) or self._is_held(record, new):
                total += record.price
                if len(days) == 1 and days_of_bid(record) == days:
                    today += record.price
        budget = None if campaign.total is None else campaign.total * 1000
        day = campaign.day_nano(new.answered_wall[1]) if len(days) == 1 else None
        for used, most, name in ((total, budget, "total"), (today, day, "daily")):
            if most is not None and used > most:
                self._wrong.append(
                    f"{campaign.name} overspends: {used} of a {name} budget of {most}"
                    f" nano-USD are spent or held with the bid for {'/'.join(new.pair)}"
                )

    def _is_held(self, record: Record, new: Record) -> bool:
        return record.is_held(new.asked_at, new.answered_at, self._early_s)

    def _check_cap(self, new: Record) -> None:
        if new.campaign.name in self.vague or new.campaign.cap is None:
            return
        impressions, seconds = new.campaign.cap
        number = 1
        for record in self._by_campaign[new.campaign.name]:
            if record.user != new.user or record.asked_at < self.loosened_at:
                continue
            keeps_hold = record.asked_at > self._jumped_at  # until it is seen, also from a spool
            if record.is_seen(new.asked_at):
                is_known = keeps_hold or not record.is_seen_in_spool
                number += is_known and record.seen_wall_s + seconds > new.answered_wall[1]
            elif keeps_hold:
                number += self._is_held(record, new) and record.moved_at > new.answered_at
        if number > impressions:
            self._wrong.append(
                f"{new.campaign.name} is seen too often: {new.user} has {number} impressions of"
                f" {impressions} with the bid for {'/'.join(new.pair)}"
            )
