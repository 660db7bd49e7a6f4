"""What the matcher does for a request grows no faster than the request (contract 3, "What a request
may cost is bounded"): counted in basic blocks of the machine code, so that no machine matters.
"""

import itertools

import pytest
from support import steps


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    environ = steps.build(tmp_path_factory.mktemp("traced"))
    if environ is None:
        pytest.skip("no C compiler that traces (gcc, or clang)")
    return steps.counted(environ)


def test_steps_are_counted(counts: dict[str, list[int]]) -> None:
    assert min(min(each) for each in counts.values()) > 100


def test_limiting_lists_are_not_scanned_per_creative(counts: dict[str, list[int]]) -> None:
    for name in ("rqddurs", "delivery", "mimes"):
        assert counts[name][-1] < 2 * counts["protocols"][-1], (name, counts)


@pytest.mark.parametrize("name", [*steps.LISTS, "campaigns", "campaigns that answer"])
def test_work_grows_no_faster_than_the_request(counts: dict[str, list[int]], name: str) -> None:
    """Twice the request takes at most twice the steps, apart from what sorting and halving add."""
    taken = counts[name]
    growth = [after / before for before, after in itertools.pairwise(taken)]
    assert max(growth) < 2.3, taken
    assert taken[-1] / taken[0] < 9, taken
