"""Compares the clocks of this machine, the stores and the drains.

Budgets, holds and days follow the clock of Redis; events follow the drain's. The majority decides
which clock is wrong.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from snapbid.ledger.bids.clock import OwnClock

LIMIT_S: Final = 2.0
STEADY_S: Final = 8.0  # longer than the interval between two reads of any clock
OWN: Final = "this machine"
REDIS: Final = "Redis"
POSTGRES: Final = "PostgreSQL"


class ClockDifference(NamedTuple):
    """How far (s) the clocks `names` are ahead of `others`, the majority; negative if behind."""

    names: tuple[str, ...]
    ahead_s: float
    others: tuple[str, ...]

    def __str__(self) -> str:
        way = "ahead of" if self.ahead_s > 0 else "behind"
        clocks = "the clock of" if len(self.names) == 1 else "the clocks of"
        are = "is" if len(self.names) == 1 else "are"
        seconds = f"{abs(self.ahead_s):,.0f} s"
        return f"{clocks} {_listed(self.names)} {are} {seconds} {way} {_listed(self.others)}"


class ClockWatch:
    """Compares clocks repeatedly; `differences` lists clocks that stay wrong for STEADY_S.

    A shorter difference may not be real, since the clocks are not all read at the same moment.
    """

    def __init__(self) -> None:
        self._since: tuple[float, frozenset[tuple[str, ...]]] = (0.0, frozenset())
        self.differences: list[ClockDifference] = []

    def look(self, own: Mapping[str, OwnClock], now: float) -> None:
        """Find wrong clocks; `differences` has those that have been wrong for STEADY_S.

        `own`: this machine's clock compared with each of the others; `now`: monotonic time (s).
        """
        found = find_differences(own)
        names = frozenset(each.names for each in found)
        if names != self._since[1]:
            self._since = (now, names)
        self.differences = found if now - self._since[0] >= STEADY_S else []


def _listed(names: Sequence[str]) -> str:
    """Join names with commas and `and`: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def find_differences(own: Mapping[str, OwnClock]) -> list[ClockDifference]:
    """Return the clocks that are wrong by at least LIMIT_S.

    `own` compares this machine's clock with every other clock. Clocks that agree form a group. The
    largest group is taken to be right; of several that are equally large, the one with the clock of
    Redis.
    """
    shown = {OWN: 0.0} | {
        name: -clock.ahead_s if abs(clock.ahead_s) - clock.doubt_s >= LIMIT_S else 0.0
        for name, clock in own.items()
    }
    names = sorted(shown, key=lambda name: shown[name])
    groups = [[names[0]]]
    for before, name in pairwise(names):
        if shown[name] - shown[before] >= LIMIT_S:
            groups.append([])
        groups[-1].append(name)
    right = max(groups, key=lambda group: (len(group), any(n.startswith(REDIS) for n in group)))
    return [
        ClockDifference(
            tuple(group),
            shown[group[len(group) // 2]] - shown[right[len(right) // 2]],
            tuple(right),
        )
        for group in groups
        if group is not right
    ]
