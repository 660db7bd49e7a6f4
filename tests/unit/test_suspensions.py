"""Marks of creatives (contract 11, suspended creatives)."""

from hypothesis import given
from hypothesis import strategies as st

from snapbid.campaigns.suspensions import MARKS, marks_of


@given(st.lists(st.text(min_size=1), unique=True, max_size=300))
def test_each_mark_stands_for_one_creative(creatives: list[str]) -> None:
    marks = marks_of(creatives)
    assert set(marks) == set(creatives)
    given_ = [mark for mark in marks.values() if mark]
    assert len(given_) == len(set(given_)) == min(len(creatives), MARKS)
    assert set(given_) <= set(range(1, MARKS + 1))
    assert marks_of(reversed(creatives)) == marks


def test_a_mark_outlasts_changes_of_the_others() -> None:
    before = marks_of(["a", "b", "c"])
    assert len(set(before.values())) == 3
    after = marks_of(["new", "c", "a"])
    assert (after["a"], after["c"]) == (before["a"], before["c"])


def test_marks_are_the_same_in_every_process() -> None:
    """The drain reads what workers wrote, of another version, too."""
    assert marks_of(["good", "bad"]) == {"bad": 168, "good": 8}
