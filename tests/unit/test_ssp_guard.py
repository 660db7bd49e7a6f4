"""The guard per SSP: shares over a minute and a quarter of an hour, its metrics and its cause."""

from collections.abc import Iterator

import pytest

from snapbid.operations.dashboard.gauges import gauges
from snapbid.operations.dashboard.guard import Answers, Guard, SspStanding
from snapbid.operations.dashboard.snapshot import OpsSnapshot

START = 1_800_000_000.0
STEP_S = 2.0


def counts(requests: int, late: int = 0, failed: int = 0, ssp: str = "acme") -> dict[str, int]:
    """The workers' counters, with failures of each kind."""
    key = 'snapbid_bid_requests_total{outcome="%s",ssp="' + ssp + '"}'
    kinds = {"late": late, "overload": failed, "bid": requests - late - failed}
    return {key % outcome: number for outcome, number in kinds.items()}


def play(guard: Guard, *rates: tuple[int, int]) -> Iterator[int]:
    """Ten requests every two seconds, for (seconds, late ones of ten); yields levels at the end."""
    at, requests, late = START, 0, 0
    guard.add(at, counts(0))
    for seconds, late_of_ten in rates:
        for _ in range(int(seconds / STEP_S)):
            at, requests, late = at + STEP_S, requests + 10, late + late_of_ten
            guard.add(at, counts(requests, late))
        (standing,) = guard.standings
        yield standing.level


def test_a_bad_minute_alarms_and_a_worse_one_is_remembered_for_a_quarter() -> None:
    """A minute with a tenth late is over when it is; 100 s without an answer in time are not."""
    guard = Guard()
    levels = play(guard, (900, 0), (60, 1), (70, 0), (100, 10), (70, 0), (900, 0), (30, 0))
    assert list(levels) == [0, 2, 0, 2, 2, 0, 0]


def test_windows_hold_their_own_counts() -> None:
    guard = Guard()
    list(play(guard, (1800, 1), (60, 5)))
    (standing,) = guard.standings
    minute, quarter = standing.answers["1m"], standing.answers["15m"]
    assert 300 <= minute.requests <= 350
    assert 150 <= minute.late <= 155
    assert 4500 <= quarter.requests <= 4550
    assert quarter.late == pytest.approx(150 + (quarter.requests - 300) / 10, abs=1)


def test_failing_statuses() -> None:
    """Failures of ours; no bid for want of a campaign, or a rate that was agreed on, is none."""
    key = 'snapbid_bid_requests_total{outcome="%s",ssp="acme"}'
    outcomes = ("bid", "late", "overload", "store_down", "internal", "no_campaign", "rate",
                "bad_request", "cut_short")  # fmt: skip
    guard = Guard()
    guard.add(START, {})
    guard.add(START + 10, {key % outcome: 10 for outcome in outcomes})
    (standing,) = guard.standings
    assert standing.answers["1m"] == standing.answers["15m"] == Answers(90, 10, 10, 10, 10)


@pytest.mark.parametrize(
    ("answers", "level"),
    [
        (Answers(1000, 49, 0), 0),
        (Answers(1000, 25, 25), 1),
        (Answers(1000, 0, 99), 1),
        (Answers(1000, 100, 0), 2),
        (Answers(19, 19, 0), 0),
        (Answers(20, 1, 0), 1),
    ],
)
def test_levels(answers: Answers, level: int) -> None:
    guard = Guard()
    guard.add(START, counts(0))
    guard.add(START + 10, counts(answers.requests, answers.late, answers.failed))
    assert [each.level for each in guard.standings] == [level]


def test_a_share_of_few_requests_is_not_published() -> None:
    """An alert would show it in place of the share that raised it."""
    standing = SspStanding("acme", {"1m": Answers(2, 1, 1), "15m": Answers(400, 20, 4)})
    series = gauges(OpsSnapshot(started_at=START, standings=[standing]))
    assert series["snapbid_ssp_answers_share"] == [
        ({"kind": "late", "ssp": "acme", "window": "15m"}, 0.05),
        ({"kind": "failed", "ssp": "acme", "window": "15m"}, 0.01),
    ]


def test_earlier_and_reset_counters_are_not_failures() -> None:
    guard = Guard()
    guard.add(START, counts(1000, late=1000))
    assert [each.level for each in guard.standings] == [0]
    guard.add(START + 10, counts(10))
    assert [each.answers["15m"] for each in guard.standings] == [Answers(0, 0, 0)]


def test_ssps_are_judged_separately() -> None:
    guard = Guard()
    guard.add(START, {})
    guard.add(START + 10, counts(100, late=50) | counts(100, ssp="nova"))
    assert {each.ssp: each.level for each in guard.standings} == {"acme": 2, "nova": 0}
