"""The guard per SSP: what is late or fails, before an exchange throttles for it (contract 11)."""

import pytest

from snapbid.ops.guard import Answers, Guard


def counts(**outcomes: int) -> dict[str, int]:
    return {
        f'snapbid_bid_requests_total{{outcome="{name}",ssp="acme"}}': count
        for name, count in outcomes.items()
    } | {'snapbid_bid_requests_total{outcome="bid",ssp="nova"}': 1000}


def test_what_is_late_and_what_fails() -> None:
    guard = Guard()
    guard.add(0.0, {})
    guard.add(2.0, counts(bid=50, no_campaign=20, rate=5, bad_request=5, late=7, overload=3,
                          store_down=5, internal=5))  # fmt: skip
    acme, nova = guard.standings
    assert acme.ssp == "acme"
    assert acme.answers["1m"] == acme.answers["15m"] == Answers(100, 7, 13)
    assert (acme.level, nova.level) == (2, 0)


@pytest.mark.parametrize(
    ("late", "requests", "level"),
    [(0, 1000, 0), (49, 1000, 0), (50, 1000, 1), (99, 1000, 1), (100, 1000, 2), (19, 19, 0)],
)
def test_levels(late: int, requests: int, level: int) -> None:
    guard = Guard()
    guard.add(0.0, counts())
    guard.add(2.0, counts(late=late, bid=requests - late))
    assert guard.standings[0].level == level


def test_the_two_windows() -> None:
    """A bad minute among good ones, and a bad quarter of an hour that is over."""
    guard = Guard()
    bid = late = 0
    for step in range(451):  # every 2 s
        bid += 100
        guard.add(2.0 * step, counts(bid=bid, late=late))
    for step in range(451, 482):
        late += 10
        bid += 90
        guard.add(2.0 * step, counts(bid=bid, late=late))
    acme = guard.standings[0]
    assert acme.answers["1m"].share == pytest.approx(0.1, abs=0.005)
    assert acme.answers["15m"].share == pytest.approx(0.1 * 60 / 900, abs=0.005)
    assert acme.level >= 1
    for step in range(482, 482 + 40):
        bid += 100
        guard.add(2.0 * step, counts(bid=bid, late=late))
    assert guard.standings[0].answers["1m"] == Answers(3100, 0, 0)  # of samples 10 s apart
    assert guard.standings[0].level == 0


def test_memory_is_bounded_and_counters_may_begin_anew() -> None:
    guard = Guard()
    for step in range(2000):
        guard.add(10.0 * step, counts(bid=step))
    assert len(guard._kept) <= 92
    guard.add(20_001.0, counts(bid=1))
    assert guard.standings[0].answers["1m"].requests == 0
