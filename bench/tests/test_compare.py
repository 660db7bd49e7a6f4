"""Tests of which differences between results count as moves."""

from collections.abc import Iterator
from typing import Any

import pytest

from bench.compare import compare
from bench.runs import RUNS, Run
from bench.sections.parts import Figure

ABOUT = {"commit": "a", "cpu": "one"}


class Section:
    """A section with the figures of the result as they are; a higher "rate" is better."""

    def render(self, result: dict[str, Any]) -> str:
        return ""

    def figures(self, result: dict[str, Any]) -> Iterator[Figure]:
        for name, values in result["figures"].items():
            yield Figure(name, *values)._replace(less_is_better=name != "rate")


def result(about: dict[str, str] = ABOUT, **figures: tuple[float, ...]) -> dict[str, Any]:
    return {"kind": "any", "about": about, "figures": figures}


def lines(before: dict[str, Any], after: dict[str, Any], reference: str | None = None) -> str:
    run = Run(Section(), reference=reference)
    return "\n".join(compare(run, before, after, all=False))


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ((10.0,), (10.9,), ""),
        ((10.0,), (11.1,), "WORSE"),
        ((10.0,), (8.9,), "better"),
        ((10.0, 9.0, 11.0), (12.0, 11.5, 13.0), "WORSE"),
        ((10.0, 9.0, 11.0), (12.0, 11.0, 13.0), ""),
        ((10.0, 9.0, 11.0), (12.0,), "WORSE"),
        ((0.0,), (3.0,), "WORSE"),
        ((0.0,), (0.0,), ""),
    ],
)
def test_beyond_noise_and_spreads(
    before: tuple[float, ...], after: tuple[float, ...], word: str
) -> None:
    said = lines(result(time=before), result(time=after))
    assert [verdict for verdict in ("WORSE", "better") if verdict in said] == (
        [word] if word else []
    )


def test_more_is_better_of_a_rate() -> None:
    assert "better" in lines(result(rate=(10.0,)), result(rate=(12.0,)))
    assert "WORSE" in lines(result(rate=(12.0,)), result(rate=(10.0,)))


def test_drift_of_the_machine_is_not_a_move() -> None:
    before = result(time=(10.0,), other=(5.0,))
    assert "WORSE" not in lines(before, result(time=(12.4,), other=(6.0,)), "other")
    assert "the machine: +20% (other)" in lines(before, result(time=(9.0,), other=(6.0,)), "other")
    assert "WORSE" in lines(before, result(time=(14.0,), other=(6.0,)), "other")


def test_new_and_gone() -> None:
    said = lines(result(old=(1.0,), both=(1.0,)), result(new=(1.0,), both=(1.0,)))
    assert "new: new" in said
    assert "gone: old" in said
    assert "1 have not moved" in said


def test_a_different_processor_is_reported() -> None:
    assert "a different processor" in lines(result(ABOUT | {"cpu": "two"}), result())


@pytest.mark.parametrize("figures", [[], {"bid": {"median": 1}}])
def test_results_of_another_form(figures: Any) -> None:
    before = {"kind": "any", "about": ABOUT, "figures": {"bid": 1.0}}
    for run in RUNS.values():
        (_, said) = compare(run, before, before | {"figures": figures}, all=False)
        assert "not compared" in said
