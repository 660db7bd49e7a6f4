"""The kept mutants are those of the present code (`make mutants` runs them)."""

from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pytest
from support.mutants import MUTANTS, TOP, Mutant, copy_package, drawn, kept

ALL = kept()


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_and_names_its_tests(mutant: Mutant, tmp_path: Path) -> None:
    assert mutant.new != mutant.old
    copy_package(mutant, tmp_path)
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert (TOP / file).is_file(), test
        assert f"def {name.partition('[')[0]}(" in (TOP / file).read_text() or not name, test


def test_mutants_are_in_the_file_of_their_room_under_a_name_of_their_own() -> None:
    for path in MUTANTS.glob("*.toml"):
        assert {mutant.room for mutant in kept([path.stem])} == {path.stem}
    assert [
        name for name, times in Counter(mutant.name for mutant in ALL).items() if times > 1
    ] == []


def test_ambiguous_or_missing_text_names_the_mutant() -> None:
    for old in ("def ", "no such text"):
        mutant = Mutant("a name", "report/window.py", old, "", ())
        with pytest.raises(
            ValueError, match=r"a name: its `old` occurs \d+ times in report/window"
        ):
            mutant.source()


def test_mutants_are_drawn_by_the_date_and_all_in_time() -> None:
    day = date(2026, 11, 27)
    assert drawn(ALL, 10, day) == drawn(ALL, 10, day) != drawn(ALL, 10, day + timedelta(1))
    assert drawn(ALL, len(ALL) + 1, day) == ALL
    within = {mutant for n in range(100) for mutant in drawn(ALL, 10, day + timedelta(n))}
    assert within == set(ALL)


def test_the_copy_differs_in_the_mutated_file_alone(tmp_path: Path) -> None:
    mutant = next(mutant for mutant in ALL if mutant.path == "report/window.py")
    copy_package(mutant, tmp_path)
    copy = tmp_path / "snapbid"
    assert (copy / mutant.path).read_text() == mutant.source()
    assert (copy / "report/limit.py").samefile(TOP / "src/snapbid/report/limit.py")
    assert (copy / "bidding").samefile(TOP / "src/snapbid/bidding")
