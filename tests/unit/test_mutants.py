"""The kept mutants are those of the present code (`make mutants` runs them)."""

from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pytest
from support.mutants import MUTANTS, TOP, Mutant, copy_package, drawn, kept

ALL = kept()
SCRIPTS = TOP / "tests" / "faults" / "simulated"


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_names_its_tests(mutant: Mutant, tmp_path: Path) -> None:
    assert all(edit.new != edit.old for edit in (mutant, *mutant.also))
    copy_package(mutant, tmp_path)
    assert mutant.tests or mutant.soak or mutant.name == "slow allocators"
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert (TOP / file).is_file(), test
        name, _, case = name.rstrip("]").partition("[")
        assert f"def {name}(" in (TOP / file).read_text() or not name, test
        if name == "test_known_failures_stay_fixed":
            assert (SCRIPTS / f"{case}.txt").is_file(), test


def test_mutants_are_in_the_file_of_their_room_under_a_name_of_their_own() -> None:
    for path in MUTANTS.glob("*.toml"):
        assert {mutant.room for mutant in kept([path.stem])} == {path.stem}
    assert [
        name for name, times in Counter(mutant.name for mutant in ALL).items() if times > 1
    ] == []


def test_ambiguous_or_missing_text_names_the_mutant() -> None:
    for old in ("def ", "no such text"):
        mutant = Mutant(name="a name", path="report/window.py", old=old, new="")
        with pytest.raises(
            ValueError, match=r"a name: its `old` occurs \d+ times in report/window"
        ):
            mutant.sources()


def test_mutants_are_drawn_by_the_date_and_all_in_time() -> None:
    day = date(2026, 11, 27)
    assert drawn(ALL, 10, day) == drawn(ALL, 10, day) != drawn(ALL, 10, day + timedelta(1))
    assert drawn(ALL, len(ALL) + 1, day) == ALL
    within = {mutant for n in range(200) for mutant in drawn(ALL, 10, day + timedelta(n))}
    assert within == set(ALL)


def test_the_copy_differs_in_the_mutated_files_alone(tmp_path: Path) -> None:
    mutant = next(mutant for mutant in ALL if mutant.name == "any warehouse")
    copy_package(mutant, tmp_path)
    copy = tmp_path / "snapbid"
    assert {path: (copy / path).read_text() for path in mutant.sources()} == mutant.sources()
    assert len(mutant.sources()) == 4
    assert (copy / "drain/drain.py").samefile(TOP / "src/snapbid/drain/drain.py")
    assert (copy / "bidding").samefile(TOP / "src/snapbid/bidding")


def test_several_edits_of_a_file_are_one_source() -> None:
    mutant = next(mutant for mutant in ALL if mutant.name == "own clocks")
    source = mutant.sources()["ledger/scripts/clock.lua"]
    assert all(edit.new in source and edit.old not in source for edit in (mutant, *mutant.also))
