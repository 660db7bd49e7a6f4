"""Options: how they are parsed, and the messages of those that are refused."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from snapbid.bidding.request import decode
from snapbid.loadtest import objectives, options, scenario
from snapbid.loadtest.accounts import Account
from snapbid.loadtest.check import ReceivedResponse, parse, request_limits
from snapbid.loadtest.client import Call
from snapbid.loadtest.notice_sender import Delay, NoticeHabits, NoticeSender
from snapbid.loadtest.options import Mix, OptionError
from snapbid.loadtest.plan import MAX_TRIALS, Faults, Phase, Schedule, capacity, fixed
from snapbid.loadtest.result import ClientFigures, PhaseResult
from snapbid.reference import rates


def phase_result(phase: Phase, held: bool, limited: bool = False) -> PhaseResult:
    client = ClientFigures(10.0, 0.0, 0.1, 0.0, limited, pool_full=False, why="")
    return PhaseResult(
        phase.name, phase.measured, phase.seconds, phase.rate, 10, 10, 0, 1.0, 50.0, 0.0,
        {}, {"p99": 5.0}, [], [], [], client, held, "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "url", "loopback"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", True),
        ("http://localhost", "http://localhost:80", True),
        ("http://[::1]:9/", "http://[::1]:9", True),
        ("http://bid.example:8000", "http://bid.example:8000", False),
        ("http://192.0.2.7:80", "http://192.0.2.7:80", False),
    ],
)
def test_targets(text: str, url: str, loopback: bool) -> None:
    target = options.target(text)
    assert (target.url, target.loopback) == (url, loopback)


@pytest.mark.parametrize(
    "text", ["https://a.example", "a.example:80", "http://", "http://a:b:1", "http://a/rtb", ""]
)
def test_targets_that_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="http://HOST:PORT"):
        options.target(text)


class Calls:
    """A client that keeps what it should send."""

    def __init__(self) -> None:
        self.wires: list[bytes] = []

    def submit(self, call: Call) -> None:
        self.wires.append(call.wire)


@pytest.mark.parametrize(
    ("address", "url", "is_fired"),
    [
        ("http://127.0.0.1", "http://127.0.0.1/win?x", True),
        ("http://127.0.0.1:80", "http://127.0.0.1/win?x", True),
        ("http://127.0.0.1", "http://127.0.0.1:80/win?x", True),
        ("http://bid.example:8000", "http://Bid.Example:8000/win?x", True),
        ("http://[::1]", "http://[::1]/win?x", True),
        ("http://127.0.0.1", "http://127.0.0.1:8000/win?x", False),
        ("http://127.0.0.1", "https://127.0.0.1/win?x", False),
        ("http://127.0.0.1", "http://127.0.0.1:port/win?x", False),
        ("http://127.0.0.1", "http://other.example/win?x", False),
    ],
)
def test_notices_are_fired_if_they_name_the_target(address: str, url: str, is_fired: bool) -> None:
    calls = Calls()
    sender = notice_sender(calls, url, options.target(address).authority)
    sender.fire(1.0, 10)
    assert (len(calls.wires), sender.counts.left_out) == ((1, 0) if is_fired else (0, 1))
    assert sender.counts.elsewhere(options.target(address).authority) == ""


def fired(url: str) -> list[bytes]:
    """The requests for the win notice of a bid with this `nurl`."""
    calls = Calls()
    notice_sender(calls, url, only="").fire(1.0, 10)
    return calls.wires


def notice_sender(client: Any, url: str, only: str) -> NoticeSender:
    """A sender that has yet to fire the win notice of a bid with this `nurl`."""
    now = Delay(0.0, 0.0)
    habits = NoticeHabits(1.0, 0.0, 0.0, now, now, now)
    sender = NoticeSender(client, habits, 1, 1.0, only)
    bid = {"id": "1", "impid": "1", "price": 1.0, "nurl": url}
    response = parse(json.dumps({"id": "a", "seatbid": [{"bid": [bid]}]}).encode(), ours=False)
    assert isinstance(response, ReceivedResponse)
    request = decode(json.dumps({"id": "a", "imp": [{"id": "1", "banner": {}}]}).encode())
    sender.plan(response, request_limits(request, rates.load()), Account(), 0.0)
    return sender


@pytest.mark.parametrize(
    ("rest", "path"),
    [
        ("", "/"),
        ("?win=1", "/?win=1"),
        ("/", "/"),
        ("/win?u=http://a.example/b", "/win?u=http://a.example/b"),
        ("/win?a=%20;b&c={d}|", "/win?a=%20;b&c={d}|"),
        ("/win#part", "/win"),
        ("/win?a=b c\r\nd=\u00e9", "/win?a=b%20c%0D%0Ad=%C3%A9"),
    ],
)
def test_the_path_of_a_notice(rest: str, path: str) -> None:
    (wire,) = fired(f"http://127.0.0.1:9410{rest}")
    assert wire == f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:9410\r\n\r\n".encode()


def test_times() -> None:
    assert options.duration("--x", "500ms") == 0.5
    assert options.duration("--x", "2m") == 120
    assert options.duration("--x", "1.5") == 1.5
    assert options.delay("--x", "20ms-2s") == (0.02, 2.0)
    assert options.delay("--x", "1s") == (1.0, 1.0)
    for text in ("forever", "inf", "nan", "-1", "1d", "5h", ""):
        with pytest.raises(OptionError, match="--x must be"):
            options.duration("--x", text)
    with pytest.raises(OptionError, match="ascending range"):
        options.delay("--x", "2s-1s")


def test_ssps() -> None:
    assert options.ssps(("acme=3", "acme-eu/acme", "nova=0.5")) == (
        {"acme": 3.0, "acme-eu": 1.0, "nova": 0.5},
        {"acme-eu": "acme"},
    )
    for text in ("", "a=0", "a=x", "a b", "a/", "a=1e9", "a=."):
        with pytest.raises(OptionError, match="--ssp must be"):
            options.ssps((text,))


def test_rates() -> None:
    assert options.rates("500,1000") == [500, 1000]
    for text in ("", "0", "a", "1,,2", "nan", "inf", "60000"):
        with pytest.raises(OptionError, match="--steps must list"):
            options.rates(text)


def test_objectives() -> None:
    assert objectives.parse("p99.9=1.5s")[:2] == ("p99.9", 1500)
    assert objectives.parse("errors=0.1%")[:2] == ("errors", 0.1)
    assert objectives.parse("bid-rate=20%")[:2] == ("bid-rate", 20)
    for text in ("p99", "p98=1ms", "p99=5", "errors=1", "errors=101%", "p99=.ms", "x=1%"):
        with pytest.raises(ValueError, match="must be p50"):
            objectives.parse(text)


def test_the_bid_rate_shows_shed_load() -> None:
    first = phase_result(Phase("step 1", 1, 1), held=True)
    given = objectives.complete([objectives.parse("p99=10ms")])
    assert given[2:] == [objectives.SOME_BID]
    latency, _, steady = objectives.steady(given, first)
    assert latency == given[0]
    assert steady[:2] == ("bid-rate", 45.0)
    own = [objectives.parse("bid-rate=1%"), objectives.parse("errors=1%")]
    assert objectives.steady(objectives.complete(own), first) == own


def test_the_bound_on_errors_stays_unless_another_is_given() -> None:
    """A bidder that refuses all requests at once meets any bound on latency."""

    def completed(*texts: str) -> list[str]:
        return [each.text for each in objectives.complete([*map(objectives.parse, texts)])]

    assert completed("p99=50ms", "bid-rate=0%") == ["p99=50ms", "bid-rate=0%", "errors=0.1%"]
    assert completed("dropped=1%", "bid-rate=0%")[2:] == ["errors=0.1%"]
    assert completed("errors=5%", "bid-rate=0%") == ["errors=5%", "bid-rate=0%"]
    assert completed(*objectives.DEFAULTS, "bid-rate=0%")[:2] == [*objectives.DEFAULTS]


# -- plans ---------------------------------------------------------------------------------------


def test_steps_follow_warm_up_and_ramp() -> None:
    phases = list(fixed(2, 3, [10, 20], 5))
    assert [(phase.name, phase.rate, phase.measured) for phase in phases] == [
        ("warm-up", 10, False),
        ("ramp", 10, False),
        ("step 1", 10, True),
        ("step 2", 20, True),
    ]


def search(holds_up_to: float, start: float, most: float = 10_000) -> list[float]:
    """The rates that are tried if every rate up to a bound holds."""
    plan = capacity(0, 0, start, most, 1)
    phase = next(plan)
    tried = [phase.rate]
    while True:
        try:
            phase = plan.send(phase_result(phase, phase.rate <= holds_up_to))
        except StopIteration:
            return tried
        tried.append(phase.rate)


@pytest.mark.parametrize("bound", [3, 40, 100, 777, 5000])
def test_the_capacity_is_found_to_a_twentieth(bound: float) -> None:
    tried = search(bound, 100)
    capacity_found = max(rate for rate in tried if rate <= bound)
    assert bound / 1.05 <= capacity_found <= bound
    assert len(tried) <= MAX_TRIALS


def test_the_search_ends() -> None:
    assert search(1e9, 100, most=900)[-1] == 900
    assert max(search(0, 100)) == 100
    assert min(search(0, 100)) >= 1


def test_the_search_ends_when_the_client_is_the_bottleneck() -> None:
    plan = capacity(0, 0, 100, 1000, 1)
    phase = next(plan)
    with pytest.raises(StopIteration):
        plan.send(phase_result(phase, held=False, limited=True))


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("rate_from", [None, 0.0])
def test_a_schedule_has_its_rate(even: bool, rate_from: float | None) -> None:
    import random

    schedule = Schedule(Phase("x", 10, 1000, rate_from), 5.0, random.Random(1), even)
    moments = []
    while schedule.due < float("inf"):
        moments.append(schedule.due)
        schedule.advance()
    expected = 10_000 if rate_from is None else 5_000
    assert len(moments) == pytest.approx(expected, rel=0.001 if even else 0.05)
    assert moments == sorted(moments)
    assert moments[0] >= 5
    assert moments[-1] <= 15
    second_half = sum(moment > 10 for moment in moments) / len(moments)
    assert second_half == pytest.approx(0.5 if rate_from is None else 0.75, abs=0.02)


def test_the_documented_scenario_is_valid(tmp_path: Path) -> None:
    text = files("snapbid.loadtest").joinpath("README.md").read_text(encoding="utf-8")
    file = tmp_path / "scenario.toml"
    file.write_text(text.partition("```toml\n")[2].partition("```")[0])
    phases, mixes = scenario.planned(scenario.read(file), Mix({"own": 1.0}, None))
    assert [(phase.rate_from, phase.rate, phase.measured) for phase in phases] == [
        (None, 500, True),
        (500, 2000, False),
        (None, 2000, True),
    ]
    faults = Faults(malformed=0.01, slow=0.02, hang_up=0.01)
    assert [phase.faults for phase in phases] == [Faults(), Faults(), faults]
    assert mixes[0] == Mix({"own": 1.0}, None)
    assert mixes[2] == Mix({"acme": 1, "nova": 4}, tmp_path / "spike.jsonl")
