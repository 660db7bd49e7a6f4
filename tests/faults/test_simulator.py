"""Runs of the simulator with fixed seeds, and every script that ever found something.

`make simulate` goes on from there; see tests/support/simulator.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.simulator.faults import OF_CLUSTERS, draft
from support.simulator.run import Result, play
from support.simulator.script import Script
from support.simulator.servers import Servers, started

Played = Callable[[int, tuple[str, ...] | None], Result]

STEPS = 120
BREAKING = tuple(OF_CLUSTERS)
QUIET = range(1, 3)
SEEDS = range(1, 5)
SEEDS_OF_CLUSTERS = range(1, 4)
FOUND = sorted((Path(__file__).parent / "simulated").glob("*.txt"))  # each found something once


def first(seeds: range) -> list[Any]:
    """`make test` plays the first, `make test-all` the others."""
    return [seeds[0], *(pytest.param(seed, marks=pytest.mark.long) for seed in seeds[1:])]


@pytest.fixture(autouse=True)
def patience() -> None:
    """Time is virtual: the product's own limits do."""


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with started() as servers:
        yield servers


@pytest.fixture(scope="module")
def played(servers: Servers) -> Played:
    """Plays a seed, with these faults or any; once, whatever tests look at the result."""
    return functools.cache(lambda seed, faults: play(servers, draft(str(seed), STEPS, faults)))


@pytest.mark.long
def test_a_seed_reproduces_its_run(servers: Servers, played: Played) -> None:
    first, second = played(3, None), play(servers, draft("3", STEPS))
    assert first.trace == second.trace
    assert first.digest == second.digest
    assert played(4, None).digest != first.digest


@pytest.mark.long
def test_a_seed_reproduces_its_run_on_a_cluster(servers: Servers, played: Played) -> None:
    second = play(servers, draft("3", STEPS, faults=BREAKING))
    assert played(3, BREAKING).trace == second.trace


def test_a_script_is_text() -> None:
    for script in (draft("7", STEPS), draft("7", STEPS, faults=BREAKING)):
        assert Script.parse(str(script)) == script


@pytest.mark.parametrize("seed", first(QUIET))
def test_the_books_balance_without_faults(played: Played, seed: int) -> None:
    result = played(seed, ())
    assert not result.differences
    assert result.counts["200"] > 10
    assert result.counts["notices"] > 10


@pytest.mark.parametrize("seed", first(SEEDS))
def test_the_books_balance_under_faults(played: Played, seed: int) -> None:
    result = played(seed, None)
    assert not result.differences


@pytest.mark.parametrize("seed", first(SEEDS_OF_CLUSTERS))
def test_the_books_balance_on_a_cluster_that_breaks(played: Played, seed: int) -> None:
    result = played(seed, BREAKING)
    assert not result.differences
    assert result.counts["200"] > 0


@pytest.mark.long
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_known_failures_stay_fixed(servers: Servers, path: Path) -> None:
    result = play(servers, Script.parse(path.read_text()))
    assert not result.differences
    assert result.counts["200"] > 0
