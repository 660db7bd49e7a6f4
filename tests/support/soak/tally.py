"""Adds up and prints the results of scenarios."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

KINDS: Final = ("bids", "campaign bids", "wins", "cpm", "imps", "losses", "events")
TITLES: Final = {
    "bids": "answers with bids",
    "campaign bids": "bids",
    "cpm": "CPM of wins (micro-USD)",
    "imps": "impressions",
}


@dataclass
class Stored:
    """Counts of a kind: acknowledged, sent in all, and stored in the warehouse."""

    acknowledged: int = 0
    sent: int = 0
    stored: int = 0


@dataclass(order=True)
class Recovery:
    """How long a recovery took, after which faults of which scenario."""

    seconds: float = 0.0
    after: str = ""


@dataclass
class Tally:
    """The result of one scenario or many; each difference is a text with the scenario's seed."""

    scenarios: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    answers: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    stored: dict[str, Stored] = field(default_factory=lambda: {kind: Stored() for kind in KINDS})
    differences: list[str] = field(default_factory=list)
    longest: Recovery = field(default_factory=Recovery)
    budgets_spent: int = 0  # to 80% and more
    users_capped: int = 0  # users who have reached a cap
    held: int = 0  # impressions of bids that were answered 204
    conversions: int = 0  # events that count for a click
    logged: int = 0  # rows of the auction log
    admitted: int = 0  # rows that its gaps admit to be missing
    settled: Recovery = field(default_factory=Recovery)  # of the accounts, after the last answer

    @property
    def requests(self) -> int:
        return sum(self.answers.values())

    def answered(self, kind: str, statuses: Mapping[int | None, int]) -> None:
        for status, number in statuses.items():
            self.answers[kind, status] += number

    def recovered(self, seconds: float, after: str) -> None:
        self.longest = max(self.longest, Recovery(seconds, after))

    def add(self, other: "Tally") -> None:
        self.scenarios += other.scenarios
        self.faults += other.faults
        self.skipped += other.skipped
        self.answers += other.answers
        for kind, counts in other.stored.items():
            of = self.stored[kind]
            of.acknowledged += counts.acknowledged
            of.sent += counts.sent
            of.stored += counts.stored
        self.differences += other.differences
        self.budgets_spent += other.budgets_spent
        self.users_capped += other.users_capped
        self.held += other.held
        self.conversions += other.conversions
        self.logged += other.logged
        self.admitted += other.admitted
        self.longest = max(self.longest, other.longest)
        self.settled = max(self.settled, other.settled)

    def table(self) -> str:
        """The tally as text."""
        lines = [
            f"scenarios run      {self.scenarios}",
            f"faults injected    {self.faults.total()}",
            *(f"  {name:<28}{number:>6}" for name, number in sorted(self.faults.items())),
            *(f"  {name:<28}{number:>6} skipped" for name, number in sorted(self.skipped.items())),
            f"requests sent      {self.requests}",
            "answers",
            *self._answers(),
            f"{'counted':<28}{'acknowledged':>16}{'stored':>16}{'sent':>16}",
            *(
                f"  {TITLES.get(kind, kind):<26}{of.acknowledged:>16}{of.stored:>16}{of.sent:>16}"
                for kind, of in self.stored.items()
            ),
            f"differences        {len(self.differences)}",
            *(f"  {line}" for line in self.differences),
            f"budgets spent      {self.budgets_spent}, to 80% and more",
            f"users at their cap {self.users_capped}",
            f"holds left over    {self.held}, of bids that were answered 204",
            f"conversions        {self.conversions}",
            f"auction log        {self.logged} rows, {self.admitted} missing by its gaps",
            f"longest recovery   {self.longest.seconds:.1f} s, after {self.longest.after or '-'}",
            f"longest settling   {self.settled.seconds:.1f} s, of {self.settled.after or '-'}",
        ]
        return "\n".join(lines)

    def _answers(self) -> list[str]:
        kinds = sorted({kind for kind, _ in self.answers})
        rows = []
        for kind in kinds:
            by_status = {status: n for (of, status), n in self.answers.items() if of == kind}
            parts = [f"{status or 'none'}: {n}" for status, n in sorted(by_status.items(), key=str)]
            rows.append(f"  {kind:<12}{', '.join(parts)}")
        return rows
