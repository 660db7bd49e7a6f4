"""The benchmarks' page and the tables on sizing, from the results that are committed."""

import pytest

from bench import sizing
from bench.render import read, render
from bench.runs import RUNS

RESULTS = read()


@pytest.mark.parametrize("kind", RESULTS)
def test_a_section_says_when_and_where(kind: str) -> None:
    section = RUNS[kind].section.render(RESULTS[kind])
    assert section.startswith("\n## ")
    assert RESULTS[kind]["about"]["commit"] in section
    assert "{" not in section
    assert section in render(RESULTS)


@pytest.mark.parametrize("kind", RESULTS)
def test_figures_have_names_of_their_own(kind: str) -> None:
    figures = list(RUNS[kind].section.figures(RESULTS[kind]))
    assert figures
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        assert (
            figure.low is None or figure.high is None or figure.low <= figure.value <= figure.high
        )


def test_sizing_tables_match_the_results() -> None:
    page = sizing.PAGE.read_text()
    assert sizing.BEGIN + sizing.render(RESULTS) + sizing.END in page
