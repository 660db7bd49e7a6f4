"""Scenarios of the soak with fixed seeds: every fault once, and what once found something.

`make soak` goes on from there for as long as it is told to; see tests/PROMISES.md.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.soak import stage
from support.soak.registry import FAULTS
from support.soak.scenario import HANDS, Seed, run, steps

DECK = 1
# Scenarios outside of the deck in which something differed once, and what it was. None so far: what
# the soak has found has a test of its own, which needs no luck.
FOUND: dict[str, str] = {}
SEEDS = [*(Seed(DECK, hand) for hand in range(HANDS)), *map(Seed.parse, FOUND)]


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    with stage.template() as made:
        yield made


def test_a_deck_has_every_fault_once() -> None:
    for deck in (DECK, 7):
        hands = [steps(Seed(deck, hand)) for hand in range(HANDS)]
        dealt = [name for hand in hands for step in hand for name in step.faults]
        assert sorted(dealt) == sorted(FAULTS)


def test_seeds_follow_each_other() -> None:
    assert Seed.parse("3:4").next() == Seed(4, 0)
    assert str(Seed.parse("17")) == "17:0"


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_the_books_balance(template: Path, seed: Seed) -> None:
    tally = run(seed, template)
    print(tally.table())
    assert not tally.differences
    assert tally.answers["bid", 200] > 100
    assert tally.stored["events"].acknowledged > 100
    assert tally.budgets_spent, "the budget is too large to be tested"
    assert tally.users_capped, "the cap is too high to be tested"
