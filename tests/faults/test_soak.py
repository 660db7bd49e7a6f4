"""Scenarios of the soak with fixed seeds: every fault once, and seeds that exposed a defect.

`make soak` plays more of them for as long as wanted; see tests/PROMISES.md.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.soak import stage
from support.soak.registry import OF_FLEET, OF_MACHINE, Faults
from support.soak.scenario import HANDS, Seed, run, steps

DECK = 1
PAUSE_S = 0.05  # of each connection; `make soak` pauses for a fifth of that
# Seeds outside of the deck that exposed a defect, and which. None so far: each defect has a
# separate test, which does not depend on chance.
REGRESSIONS: dict[str, str] = {}
FIRST, *OTHERS = (*(Seed(DECK, hand) for hand in range(HANDS)), *map(Seed.parse, REGRESSIONS))
SEEDS = [FIRST, *(pytest.param(seed, marks=pytest.mark.long) for seed in OTHERS)]


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    with stage.template() as made:
        yield made


@pytest.mark.parametrize("of", [OF_MACHINE, OF_FLEET], ids=["machine", "fleet"])
def test_a_deck_has_every_fault_once(of: Faults[Any]) -> None:
    for deck in (DECK, 7):
        hands = [steps(Seed(deck, hand), of) for hand in range(HANDS)]
        dealt = [name for hand in hands for step in hand for name in step.faults]
        assert sorted(dealt) == sorted(of.named)


def test_seeds_follow_each_other() -> None:
    assert Seed.parse("3:4").next() == Seed(4, 0)
    assert str(Seed.parse("17")) == "17:0"


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_the_accounts_balance(template: Path, seed: Seed) -> None:
    tally = run(seed, template, pause_s=PAUSE_S)
    print(tally.table())
    assert not tally.differences
    assert tally.answers["bid", 200] > 100
    assert tally.stored["events"].acknowledged > 100
    assert tally.conversions > 10
    assert tally.budgets_spent, "the budget is too large to be tested"
    assert tally.users_capped, "the cap is too high to be tested"


@pytest.mark.long
def test_the_accounts_of_a_fleet_balance(template: Path) -> None:
    tally = run(FIRST, template, several=True, pause_s=PAUSE_S)
    print(tally.table())
    assert not tally.differences
    assert tally.answers["bid", 200] > 100
