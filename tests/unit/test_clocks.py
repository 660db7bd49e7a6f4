"""Whose clock differs, as what this machine's shows beside each of the others tells."""

import pytest

from snapbid.ledger.bids.clock import OwnClock
from snapbid.operations.dashboard.clocks import LIMIT_S, STEADY_S, ClockWatch, find_differences

SURE = 0.01


def told(**ahead_s: float) -> list[str]:
    """The report if this machine is ahead of each by this much."""
    names = {"redis": "Redis", "postgres": "PostgreSQL", "drain": "the drain on east"}
    own = {names[name]: OwnClock(seconds, SURE) for name, seconds in ahead_s.items()}
    return [str(difference) for difference in find_differences(own)]


@pytest.mark.parametrize(
    ("ahead_s", "expected"),
    [
        ({}, []),
        ({"redis": 1.9, "postgres": -1.9, "drain": 0.0}, []),
        ({"redis": 2.005}, []),  # within doubt
        (
            {"redis": 0.0, "postgres": -1200.0, "drain": 0.0},
            ["the clock of PostgreSQL is 1,200 s ahead of this machine, Redis and the drain on"],
        ),
        (
            {"redis": 1200.0, "postgres": 1200.0, "drain": 1201.0},
            ["the clock of this machine is 1,200 s ahead of"],
        ),
        (
            {"redis": 1200.0, "postgres": 1200.0, "drain": 0.0},
            ["the clocks of this machine and the drain on east are 1,200 s ahead of"],
        ),
        (
            {"redis": 0.0, "postgres": 0.0, "drain": 5.0},
            ["the clock of the drain on east is 5 s behind this machine, Redis and PostgreSQL"],
        ),
        (
            {"redis": 0.0, "postgres": 30.0, "drain": -30.0},
            ["the clock of PostgreSQL is 30 s behind", "the clock of the drain on east is 30 s"],
        ),
    ],
)
def test_differing_clocks_are_named(ahead_s: dict[str, float], expected: list[str]) -> None:
    found = told(**ahead_s)
    assert len(found) == len(expected)
    for text, beginning in zip(found, expected, strict=True):
        assert text.startswith(beginning)


def test_clocks_differ_at_the_limit() -> None:
    assert find_differences({"Redis": OwnClock(LIMIT_S, 0.0)}) != []
    assert find_differences({"Redis": OwnClock(LIMIT_S - 0.001, 0.0)}) == []


def test_a_slow_answer_proves_nothing() -> None:
    assert find_differences({"Redis": OwnClock.compared(100.0, 100.5, 105.0)}) == []
    assert find_differences({"Redis": OwnClock.compared(100.0, 95.4, 105.0)}) != []


def test_lasting_differences_are_named() -> None:
    """Until all clocks were read anew, one that was set seems to agree with the wrong ones."""
    watch = ClockWatch()
    off, sound = OwnClock(1200, SURE), OwnClock(0, SURE)
    for now, own, named in (
        (0.0, {"Redis": off, "PostgreSQL": sound}, False),
        (5.0, {"Redis": off, "PostgreSQL": off}, False),
        (5.0 + STEADY_S - 1, {"Redis": off, "PostgreSQL": off}, False),
        (5.0 + STEADY_S, {"Redis": off, "PostgreSQL": off}, True),
        (6.0 + STEADY_S, {"Redis": sound, "PostgreSQL": sound}, False),
    ):
        watch.look(own, now)
        assert bool(watch.differences) is named
