"""What a phase's counts tell: of its objectives, and of the client."""

from typing import Any

import msgspec
import pytest
from support.load_results import phase as phase_document

from snapbid.loadtest import measure, objectives
from snapbid.loadtest.client import Call
from snapbid.loadtest.measure import ClockReading
from snapbid.loadtest.plan import Phase, pool_note
from snapbid.loadtest.result import BrokenRuleCount, ClientFigures, PhaseResult
from snapbid.loadtest.tally import BID, DROPPED, NO_BID, SecondTally, Tally

IDLE = ClockReading(10.0, 0.1, 0.0)


def ended(
    tally: Tally, due: float, took_s: float, kind: str = BID, waited_s: float = 0.0,
    problem: str = "",
) -> None:  # fmt: skip
    nobody: Any = None
    call = Call(b"", due, nobody, None)
    call.waited_s = waited_s
    call.problem = problem
    tally.offer(due, due)
    tally.end(call, due + took_s, kind)


def counts(seconds: int) -> Tally:
    """The counts of a phase with two bids a second, of 10 and 20 ms."""
    tally = Tally(start=0.0, until=seconds, timeout_s=1.0)
    for second in range(seconds):
        ended(tally, second, 0.01)
        ended(tally, second + 0.5, 0.02)
    return tally


class ReadNoMore(list[SecondTally]):
    def __iter__(self) -> Any:
        raise AssertionError("a judgement each second would take longer each second")


def test_a_running_phase_is_judged_without_its_seconds() -> None:
    """On the loop that sends: what a judgement costs must not grow with the phase."""
    tally = counts(900)
    tally.seconds = ReadNoMore(tally.seconds)
    bounds = ("p50=15ms", "max=5ms", "errors=0%", "dropped=0%", "bid-rate=100%")
    given = [objectives.parse(text) for text in bounds]
    judged, missed = objectives.judge(given, "load", tally)
    assert [outcome.met for outcome in judged] == [True, False, True, True, True]
    assert missed == "max=5ms (found 20)"


def test_the_figures_of_a_phase() -> None:
    tally = counts(2)
    ended(tally, 1.9, 0.2, NO_BID)  # after the end of the phase
    figures, _ = measure.result(Phase("load", 2.0, 2.5), tally, IDLE, [])
    assert (figures.answered, figures.completed_per_s) == (5, 2.0)
    assert figures.latency_ms["max"] == pytest.approx(200, abs=0.001)
    assert (figures.bid_percent, figures.error_percent) == (80.0, 0.0)
    assert [second.offered for second in figures.series] == [2, 3]


@pytest.mark.parametrize(("waited_s", "full"), [(0.0, False), (0.004, False), (0.6, True)])
def test_a_wait_for_a_connection_counts_where_it_matters(waited_s: float, full: bool) -> None:
    tally = counts(2)
    ended(tally, 1.0, 0.7, waited_s=waited_s)
    figures, _ = measure.result(Phase("load", 2.0, 2.5), tally, IDLE, [])
    client = figures.client
    assert client.connection_wait_p99_ms == pytest.approx(waited_s * 1000, abs=0.001)
    assert (client.pool_full, client.limited, bool(client.why)) == (full, False, full)


def test_connections_that_are_refused_are_named() -> None:
    tally, refused = counts(2), "nothing listens at 127.0.0.1:9"
    for _ in range(3):
        ended(tally, 1.5, 1.1, DROPPED, waited_s=1.1, problem=refused)
    ended(tally, 1.5, 1.1, DROPPED, waited_s=1.1)
    figures, _ = measure.result(Phase("load", 2.0, 2.5), tally, IDLE, [])
    assert figures.failures == [BrokenRuleCount("dropped", 3, refused)]
    assert figures.client.why == f"connections could not be opened: {refused}"


def trial(rate: float, held: bool, p50_ms: float, pool_full: bool) -> PhaseResult:
    client = ClientFigures(2.0, 0.0, 0.1, 0.0, limited=False, pool_full=pool_full, why="")
    document = phase_document(f"{rate}", p50_ms, rate=rate, held=held, client=client)
    return msgspec.convert(document, PhaseResult, from_attributes=True)


def test_a_search_that_the_connections_end_says_so() -> None:
    """64 connections at 20 ms an answer carry 3,200 a second."""
    trials = [trial(2000, True, 20.5, False), trial(4000, False, 300.0, True),
              trial(2828, True, 21.0, True), trial(3363, False, 90.0, True)]  # fmt: skip
    assert pool_note(trials, 64) == "at 3363/s all 64 connections were busy: raise --connections"
    assert pool_note(trials[:1], 64) == pool_note(trials[1:2], 64) == ""


def test_an_overloaded_server_fills_the_connections_too() -> None:
    """Its answers take longer than below its capacity, so more connections would not help it."""
    trials = [trial(1600, True, 11.5, False), trial(3200, False, 547.0, True)]
    assert pool_note(trials, 64) == ""
    assert pool_note([trial(2000, True, 20.5, False), trial(4000, False, 90.0, False)], 64) == ""
