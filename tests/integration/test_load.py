"""`snapbid load` against a bidder that stalls, drops, answers wrongly or has a known limit."""

import contextlib
import json
import re
import signal
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jwt
import pytest
from support.commands import invoke
from support.processes import eventually
from support.stack import Stack, run
from support.stub_bidder import NO_CONTENT, StubBidder, bid, with_body

from snapbid.campaigns import suspensions

Document = dict[str, Any]
BIDS = "/api/v1/openrtb2"
QUICK = ("--no-reconcile", "--warmup", "0s", "--requests", "200")
BIDLESS = ("--objective", "bid-rate=0%")


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Run the command; returns exit status, JSON result (None if not written) and output."""

    def call(*arguments: str, run: Any = run) -> tuple[int, Any, str]:
        file = tmp_path / "result.json"
        environ = {"SNAPBID_HOME": str(tmp_path / "home")}
        process = run(environ, "load", *arguments, "--json", str(file))
        result = json.loads(file.read_text()) if file.exists() else None
        return process.returncode, result, process.stdout + process.stderr

    return call


def measured(result: Document) -> Document:
    """The only measured phase of a result, with every request of it accounted for."""
    (phase,) = [phase for phase in result["phases"] if phase["measured"]]
    assert sum(phase["kinds"].values()) == phase["offered"]
    assert sum(second["offered"] for second in phase["series"]) == phase["offered"]
    return phase  # type: ignore[no-any-return]


def test_a_stall_is_in_the_percentiles(load: Any) -> None:
    """A closed loop would send one request a connection into the stall, and report a good p99."""
    stub = StubBidder(stall_from=100, stall_s=1.0)
    with stub.running():
        status, result, output = load(
            stub.url, *QUICK, "--rate", "100", "--duration", "4s", "--timeout", "5s",
            "--connections", "16", "--arrivals", "even", "--objective", "p99=500ms",
        )  # fmt: skip
    phase = measured(result)
    assert phase["offered"] == phase["answered"] == stub.asked["bid"] == 400
    # A quarter of the requests was due in that second, and waited half of it on average.
    assert phase["latency_ms"]["p99"] > 900
    assert phase["latency_ms"]["p90"] > 400
    assert phase["latency_ms"]["p50"] < phase["latency_ms"]["p90"]
    assert status == 1
    assert re.search(r"^FAILED: objective missed in load at 100/s: p99=500ms", output, re.M), output


def test_the_result_is_written_for_other_tools(
    load: Any, plain: tuple[str, ...], tmp_path: Path
) -> None:
    """And a file that cannot be written is refused before the run."""
    stub, xml, text = StubBidder(bid), tmp_path / "junit.xml", tmp_path / "load.prom"
    given = (*QUICK, *plain, "--rate", "50", "--duration", "1s", "--arrivals", "even")
    with stub.running():
        status, _, output = load(
            stub.url, *given, "--timeout", "10s", "--objective", "p99=20s",
            "--junit", str(xml), "--metrics", str(text),
        )  # fmt: skip
        asked = stub.asked["bid"]
        refused, _, why = load(stub.url, *given, "--junit", str(tmp_path / "no" / "junit.xml"))
        assert stub.asked["bid"] == asked == 50
    assert status == 0, output
    suite = ElementTree.parse(xml).getroot()
    assert (suite.get("failures"), suite.get("hostname")) == ("0", stub.url)
    assert 'snapbid_load_requests{kind="bid",phase="load"} 50.0' in text.read_text()
    assert refused == 2
    assert "junit.xml cannot be written: its directory does not exist" in why


def test_another_bidder_is_tested_with_a_corpus(load: Any, tmp_path: Path) -> None:
    """At its own path, by OpenRTB alone; notices go to it, and to nobody else."""
    corpus, stub = tmp_path / "corpus", StubBidder()
    corpus.mkdir()
    for number in range(3):
        imp = {"id": "1", "banner": {"w": 300, "h": 250}, "tagid": f"slot-{number}"}
        (corpus / f"{number}.json").write_text(json.dumps({"id": "x", "imp": [imp]}, indent=1))

    def answer(request: Document) -> bytes:
        seen.add(request["imp"][0]["tagid"])
        here = f"{stub.url}/won?price=${{AUCTION_PRICE}}"
        own = {"id": "1", "impid": "1", "price": 2.5, "adm": "<p>", "adomain": ["a.example"]}
        own |= {"nurl": here, "burl": "http://elsewhere.example/billed"}
        return with_body(200, json.dumps(
            {"id": request["id"], "seatbid": [{"bid": [own]}]}
        ).encode())  # fmt: skip

    seen: set[str] = set()
    stub = StubBidder(answer)
    with stub.running():
        status, result, output = load(
            stub.url, "--target-path", "/openrtb2/{ssp}/bid", "--corpus", str(corpus),
            "--ssp", "nova", "--warmup", "0s", "--rate", "50", "--duration", "1s",
            "--arrivals", "even", "--timeout", "10s", "--objective", "p99=20s", "--win-rate", "1",
            "--bill-rate", "1", "--bill-delay", "0s", "--objective", "bid-rate=100%",
        )  # fmt: skip
    assert status == 0, output
    assert measured(result)["kinds"] == {"bid": 50}
    assert seen == {"slot-0", "slot-1", "slot-2"}
    assert result["notices"]["fired"] == {"win": 50}
    assert set(stub.targets) == {"/openrtb2/nova/bid", "/won?price=2.5"}
    assert result["settings"]["traffic"] == "corpus corpus"
    assert result["reconciliation"]["status"] == "not done"


@pytest.mark.parametrize(("tmax", "late"), [({"tmax": 5}, 50), ({"tmax": 60_000}, 0), ({}, 0)])
def test_bids_after_tmax_are_counted(
    load: Any, tmp_path: Path, tmax: Document, late: int
) -> None:  # fmt: skip
    """And are bids, since only `--timeout` is a limit."""
    asked = {"id": "x", "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}], **tmax}
    (tmp_path / "asked.jsonl").write_text(json.dumps(asked))
    with StubBidder(bid, delay_s=0.02).running() as stub:
        status, result, output = load(
            stub.url, *QUICK, "--replay", str(tmp_path / "asked.jsonl"), "--rate", "50",
            "--duration", "1s", "--arrivals", "even", "--timeout", "10s", "--objective", "p99=20s",
        )  # fmt: skip
    assert status == 0, output
    assert measured(result)["kinds"] == {"bid": 50}
    assert measured(result)["late"] == late
    assert ("bids after their request's tmax: 50" in output) is (late > 0)


def test_another_bidder_may_answer_200_without_a_bid(load: Any) -> None:
    empty: list[Document] = [
        {"nbr": 2}, {"seatbid": []}, {"cur": "EUR", "seatbid": [{"bid": []}]},
    ]  # fmt: skip
    ways = cycle(empty)

    def answer(request: Document) -> bytes:
        return with_body(200, json.dumps({"id": request["id"], **next(ways)}).encode())

    with StubBidder(answer).running() as stub:
        status, result, output = load(
            stub.url, *QUICK, *BIDLESS, "--target-path", "/bid", "--rate", "50", "--duration", "1s",
            "--arrivals", "even", "--timeout", "10s", "--objective", "p99=20s",
        )  # fmt: skip
    assert status == 0, output
    assert measured(result)["kinds"] == {"no bid": 50}


def test_a_corpus_that_cannot_be_sent(load: Any, tmp_path: Path) -> None:
    def refused(*options: str) -> str:
        status, _, output = load("http://127.0.0.1:1", *QUICK, *options, run=invoke)
        assert status == 2, output
        return str(output)

    corpus, file = tmp_path / "corpus", tmp_path / "one.jsonl"
    corpus.mkdir()
    file.write_text('{"id":"1","imp":[{"id":"1","banner":{}}]}')
    assert "must contain 1 to 200000 .json files" in refused("--corpus", str(corpus))
    (corpus / "a.json").write_text("{")
    assert f"{corpus / 'a.json'}: not JSON" in refused("--corpus", str(corpus))
    both = ("--corpus", str(corpus), "--replay", str(file))
    assert "--corpus and --replay cannot be combined" in refused(*both)
    assert "--target-path must be a path" in refused("--target-path", "openrtb")


def test_requests_without_a_free_connection_are_dropped_and_counted(load: Any) -> None:
    stub = StubBidder(stall_from=20, stall_s=1.5)
    with stub.running():
        status, result, output = load(
            stub.url, *QUICK, "--rate", "50", "--duration", "3s", "--timeout", "200ms",
            "--connections", "2", "--arrivals", "even",
        )  # fmt: skip
    phase = measured(result)
    assert phase["offered"] == 150
    assert phase["dropped"] == phase["kinds"]["dropped"] > 20
    assert phase["answered"] == stub.asked["bid"] == 150 - phase["dropped"]
    assert phase["kinds"]["timeout"] >= 2
    assert phase["latency_ms"]["p90"] >= 200  # being given up on is no good latency
    assert status == 1
    assert f"dropped {phase['dropped']}" in output


def test_a_run_is_aborted_on_an_objective(load: Any) -> None:
    """It ends as failed long before its time, with all that was sent in the result."""
    stub = StubBidder(lambda _: with_body(500, b"oops"))
    with stub.running():
        status, result, output = load(
            stub.url, *QUICK, "--rate", "100", "--duration", "10m", "--timeout", "10s",
            "--abort-on", "errors=5%", "--abort-on", "p99=30s",
        )  # fmt: skip
    phase = measured(result)
    assert phase["offered"] == phase["answered"] == stub.asked["bid"] < 60_000
    assert phase["seconds"] < 600
    assert status == 1
    assert re.search(
        r"^FAILED: aborted in load after \d+ s: errors=5% \(found [\d.]+\)$", output, re.M
    ), output


def test_a_run_is_aborted_at_the_end_of_a_phase(load: Any) -> None:
    """In which fewer requests end than a check amid a phase needs; the next phase is not sent."""
    stub = StubBidder(lambda _: with_body(500, b"oops"))
    with stub.running():
        status, result, output = load(
            stub.url, *QUICK, *BIDLESS, "--steps", "20,20", "--duration", "1s", "--arrivals",
            "even", "--timeout", "10s", "--objective", "errors=100%", "--abort-on", "errors=5%",
        )  # fmt: skip
    assert measured(result)["offered"] == stub.asked["bid"] == 20
    assert status == 1
    assert output.endswith("\nFAILED: aborted in step 1 after 1 s: errors=5% (found 100)\n"), output


@pytest.mark.parametrize("more", [(), ("--find-capacity", "--max-rate", "50")])
def test_errors_are_bounded_beside_other_objectives(load: Any, more: tuple[str, ...]) -> None:
    """A bidder that refuses at once what it cannot answer is quick, and has no capacity."""
    numbers = iter(range(10_000))

    def answer(request: Document) -> bytes:
        return NO_CONTENT if next(numbers) % 2 else with_body(503, b"")

    with StubBidder(answer).running() as stub:
        status, result, output = load(
            stub.url, *QUICK, *BIDLESS, "--rate", "50", "--duration", "1s", "--arrivals", "even",
            "--timeout", "10s", "--objective", "p99=20s", *more,
        )  # fmt: skip
    assert {phase["held"] for phase in result["phases"]} == {False}
    assert re.search(
        r"/s for 1 s: 50 .*, errors 50\.000%, .* MISSED errors=0\.1% \(found 50\)$", output, re.M
    ), output
    assert (status, result["capacity"] or 0) == (1, 0)


def interrupted(process: Stack, tmp_path: Path) -> Document:
    """Press Ctrl-C, and wait for the end; returns the result that the command has written."""
    assert process.stop(signal.SIGINT) == 1
    assert process.output.endswith("\nFAILED: interrupted\n"), process.output
    return json.loads((tmp_path / "result.json").read_text())  # type: ignore[no-any-return]


@contextlib.contextmanager
def launched(tmp_path: Path, *arguments: str) -> Iterator[Stack]:
    environ = {"SNAPBID_HOME": str(tmp_path / "home")}
    given = ("--warmup", "0s", "--requests", "200", "--rate", "50", "--duration", "1s",
             "--json", str(tmp_path / "result.json"))  # fmt: skip
    process = Stack(environ, "load", *arguments, *given)
    with contextlib.closing(process):
        process.launch()
        yield process


def test_an_interrupted_run_does_not_await_answers(tmp_path: Path) -> None:
    """After the second Ctrl-C; requests that are still open count as lost."""
    with StubBidder(stall_from=1, stall_s=600).running() as stub:
        patient = ("--no-reconcile", "--timeout", "60s", "--arrivals", "even")
        with launched(tmp_path, stub.url, *patient) as process:
            eventually(lambda: stub.asked["bid"] > 0, "a bid is asked for")
            assert process.process
            process.process.send_signal(signal.SIGINT)
            eventually(lambda: "\ninterrupted: " in process.output, "the run is interrupted")
            phase = measured(interrupted(process, tmp_path))
    assert phase["kinds"] == {"lost": phase["offered"]}


def test_an_interrupted_run_does_not_await_notices(tmp_path: Path, plain: tuple[str, ...]) -> None:
    late = ("--no-reconcile", "--timeout", "10s", "--win-rate", "1", "--win-delay", "600s")
    with (
        StubBidder(bid).running() as stub,
        launched(tmp_path, stub.url, *plain, *late) as process,
    ):
        eventually(lambda: " offered, " in process.output, "the load has been sent")
        result = interrupted(process, tmp_path)
    assert measured(result)["kinds"]["bid"] == stub.asked["bid"]
    assert result["notices"]["fired"] == {}


class ReportOnce(StubBidder):
    """A bidder whose report can be read once, and then only after a minute."""

    async def _respond(self, method: str, target: str, body: bytes) -> bytes:
        if "/report?" not in target:
            return await super()._respond(method, target, body)
        self.asked["report"] += 1
        if self.asked["report"] == 1:
            return with_body(200, b'{"days":[]}')
        return b"HTTP/1.1 429 X\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n"


def test_an_interrupted_run_does_not_await_the_report(
    tmp_path: Path, plain: tuple[str, ...]
) -> None:
    token = jwt.encode({"sub": "acme"}, "a key of thirty-two bytes at least")
    with (
        ReportOnce(bid).running() as stub,
        launched(tmp_path, stub.url, *plain, "--report-token", token, "--win-rate", "0",
                 "--loss-rate", "0", "--timeout", "10s") as process,
    ):  # fmt: skip
        eventually(lambda: "rate limit is reached" in process.output, "the report is awaited")
        result = interrupted(process, tmp_path)
    assert result["reconciliation"] == {"status": "not done", "rows": [], "detail": "interrupted"}
    assert measured(result)["kinds"]["bid"] == stub.asked["bid"]


def test_a_run_that_holds_is_not_aborted(load: Any) -> None:
    with StubBidder(lambda _: NO_CONTENT).running() as stub:
        status, result, output = load(
            stub.url, *QUICK, *BIDLESS, "--rate", "100", "--duration", "3s", "--timeout", "10s",
            "--objective", "errors=0%", "--abort-on", "errors=0%", "--abort-on", "p99=30s",
        )  # fmt: skip
    assert status == 0, output
    assert measured(result)["seconds"] == 3


PHASE = "[[phase]]\nname = 'a'\nduration = '1s'\nrate = 1"
SCENARIO = """
[[phase]]
name = "calm"
duration = "1s"
rate = 50
ssps = {acme = 1}

[[phase]]
name = "rise"
duration = "1s"
from = 50
rate = 150
measured = false

[[phase]]
name = "odd"
duration = "2s"
rate = 100
ssps = {nova = 1}
replay = "odd.jsonl"
faults = {malformed = 0.3, slow = 0.2, hang_up = 0.2}
"""


def test_a_scenario_runs_its_phases(load: Any, tmp_path: Path) -> None:
    def answer(request: Document) -> bytes:
        seen.append(request)
        return NO_CONTENT

    seen: list[Document] = []
    (tmp_path / "odd.jsonl").write_text('{"id":"1","imp":[{"id":"odd","banner":{}}]}\n')
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    with StubBidder(answer).running() as stub:
        status, result, output = load(
            stub.url, *QUICK, *BIDLESS, "--scenario", str(tmp_path / "scenario.toml"),
            "--arrivals", "even", "--timeout", "10s", "--objective", "errors=0%",
        )  # fmt: skip
    assert status == 0, output
    calm, rise, odd = result["phases"]
    assert [phase["name"] for phase in (calm, rise, odd)] == ["calm", "rise", "odd"]
    assert [phase["measured"] for phase in (calm, rise, odd)] == [True, False, True]
    assert [phase["offered"] for phase in (calm, rise, odd)] == [50, 100, 200]
    assert calm["kinds"] == {"no bid": 50}
    assert 20 < odd["kinds"]["refused"] < 100
    assert 10 < odd["kinds"]["slow"] < 80
    assert 10 < odd["kinds"]["hung up"] < 80
    assert odd["kinds"].keys() == {"refused", "slow", "hung up", "no bid"}
    assert sum(odd["kinds"].values()) == 200
    assert odd["answered"] == 200 - odd["kinds"]["hung up"]
    oddly = [request for request in seen if request["imp"][0]["id"] == "odd"]
    assert len(oddly) == odd["kinds"]["no bid"] + odd["kinds"]["slow"]
    assert result["settings"]["ssps"] == "acme=1; then acme; then nova=1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Object missing required field `phase`"),
        ("[[phase]]\nname = 'a'\nduration = '1s'\nrate = 0", "$.phase[0].rate"),
        ("[[phase]]\nname = 'a'\nduration = 'x'\nrate = 1", "a: duration must be a duration"),
        ("[[phase]]\nname = 'a'\nduration = '1s'\nrate = 1\nrat = 2", "unknown field `rat`"),
        ("[[phase]]\nname = 'a'\nduration = '1s'\nrate = 1\nmeasured = false", "no phase is"),
        ("[[phase]]\nname = 'a'\nduration = '1s'\nrate = 1\nfrom = 1", "`from` must differ"),
        (f"{PHASE}\nfaults = {{slow = 0.6, hang_up = 0.6}}", "must add up to at most 1"),
        (f"{PHASE}\nfaults = {{slow = 2}}", "$.phase[0].faults.slow"),
        (f"{PHASE}\nssps = {{'ac me' = 1}}", "a: ssps: 'ac me' is not an SSP id"),
        ("[[phase", "scenario.toml: "),
    ],
)
def test_a_bad_scenario_is_refused(load: Any, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(text)
    status, _, output = load("http://127.0.0.1:9", "--scenario", str(file), run=invoke)
    assert status == 2
    assert words in output


def test_every_wrong_answer_is_counted_with_an_example(load: Any, plain: tuple[str, ...]) -> None:
    numbers = iter(range(10_000))

    def answer(request: Document) -> bytes:
        way = next(numbers) % 5
        if way == 0:
            return bid(request, price=0.000001, impid="nobody")
        if way == 1:
            return with_body(500, b"oops\x1b]0;title")
        if way == 2:
            return with_body(200, b"{")
        if way == 3:
            return bid(request, nurl="http://bid.example/rtb/win")
        return b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"

    with StubBidder(answer).running() as stub:
        status, result, output = load(
            stub.url, *QUICK, *plain, "--rate", "100", "--duration", "2s", "--connections", "1",
            "--arrivals", "even", "--timeout", "10s", "--objective", "errors=10%",
        )  # fmt: skip
    phase = measured(result)
    kinds = phase["kinds"]
    assert kinds["status 500"] == 40
    assert kinds["wrong answer"] == 120
    assert kinds["no bid"] == 40
    failures = {failure["rule"]: failure for failure in phase["failures"]}
    assert failures["impid"]["count"] == failures["json"]["count"] == 40
    assert failures["status 500"]["example"] == "oops\x1b]0;title"
    assert failures["nurl"]["example"] == "http://bid.example/rtb/win"
    assert phase["error_percent"] == 80
    assert status == 1
    assert r"status 500, first: oops\x1b]0;title" in output
    assert "errors=10% (found 80)" in output


def test_a_target_that_does_not_speak_http_does_not_hang_the_run(
    load: Any, plain: tuple[str, ...]
) -> None:
    """test_load_client.py has what else is no answer, and all that is one."""
    with StubBidder(lambda request: b"-ERR unknown command\r\n\r\n").running() as stub:
        status, result, _ = load(
            stub.url, *QUICK, *plain, "--rate", "50", "--duration", "1s", "--timeout", "10s"
        )
    phase = measured(result)
    assert phase["kinds"] == {"lost": phase["offered"]}
    assert status == 1


def test_notices_are_fired_as_returned_with_the_macro_replaced(
    load: Any, plain: tuple[str, ...]
) -> None:
    """At the target, though the URLs name another host."""
    with StubBidder(bid).running() as stub:
        status, result, output = load(
            stub.url, *QUICK, *plain, "--rate", "100", "--duration", "2s", "--win-rate", "0.5",
            "--bill-rate", "0.5", "--loss-rate", "1", "--bill-delay", "0s", "--timeout", "10s",
            "--objective", "errors=0%", "--arrivals", "even",
        )  # fmt: skip
    fired = result["notices"]["fired"]
    bids = measured(result)["kinds"]["bid"]
    assert fired["win"] + fired["loss"] == bids == 200
    assert stub.asked["/rtb/win"] == fired["win"] > 60
    assert stub.asked["/rtb/loss"] == fired["loss"] > 60
    assert stub.asked["/rtb/bill"] == fired["bill"] > 20
    losses = [target for target in stub.targets if target.startswith("/rtb/loss")]
    assert all(re.fullmatch(r".*&nbr=[0-9]+", target) for target in losses)
    told = {int(target.rpartition("=")[2]) for target in losses}
    assert not told & suspensions.REASONS.keys(), "creatives would be suspended after the test"
    assert "URLs name bid.example" in output
    assert status == 0


def test_the_capacity_is_not_above_what_the_server_can_do(load: Any) -> None:
    """It serves one request at a time, 10 ms each: 100 a second and no more."""
    with StubBidder(service_s=0.01).running() as stub:
        status, result, output = load(
            stub.url, *QUICK, *BIDLESS, "--find-capacity", "--rate", "20", "--duration", "2s",
            "--objective", "p99=700ms", "--objective", "errors=0%", "--timeout", "10s",
        )  # fmt: skip
    trials = [phase for phase in result["phases"] if phase["measured"]]
    assert 20 <= result["capacity"] <= 160  # a queue that grows slowly is short after 2 s
    assert result["capacity"] == max(trial["rate"] for trial in trials if trial["held"])
    assert min(trial["rate"] for trial in trials if not trial["held"]) > 100 / 2
    assert f"capacity: {result['capacity']:.0f} requests a second" in output
    assert "raise --connections" not in output
    assert status == 0


def test_the_wait_for_a_connection_is_named(load: Any) -> None:
    """The server takes any rate; two connections at 100 ms an answer carry 20 a second."""
    with StubBidder(delay_s=0.1).running() as stub:
        status, result, output = load(
            stub.url, *QUICK, *BIDLESS, "--rate", "60", "--duration", "1s", "--connections", "2",
            "--timeout", "20s", "--arrivals", "even", "--objective", "p99=500ms",
        )  # fmt: skip
    client = measured(result)["client"]
    assert client["pool_full"]
    assert client["connection_wait_p99_ms"] > 1000
    assert "all connections were busy" in client["why"] or client["limited"]
    assert output.splitlines()[-1].endswith(client["why"])
    assert status == 1


def test_a_run_without_a_bid_fails(load: Any) -> None:
    """Unless `bid-rate` says that this is right: 204 meets every other objective."""
    with StubBidder(lambda _: NO_CONTENT).running() as stub:
        run = (stub.url, *QUICK, "--rate", "50", "--duration", "1s", "--timeout", "10s")
        errors = ("--objective", "errors=0%")
        status, _, output = load(*run, *errors)
        assert load(*run, *errors, *BIDLESS)[0] == 0
    assert status == 1
    assert output.splitlines()[-1].startswith(
        "FAILED: objective missed in load at 50/s: at least one bid, since no bid-rate is given"
        " (found 0)"
    ), output


def test_faulty_requests_need_no_bid(load: Any, tmp_path: Path) -> None:
    faulty = f"{PHASE.replace('rate = 1', 'rate = 50')}\nfaults = {{malformed = 1.0}}"
    (tmp_path / "scenario.toml").write_text(faulty)
    with StubBidder(bid).running() as stub:
        status, result, output = load(
            stub.url, *QUICK, "--scenario", str(tmp_path / "scenario.toml"), "--timeout", "10s",
            "--objective", "errors=0%",
        )  # fmt: skip
    assert status == 0, output
    assert measured(result)["kinds"].keys() == {"refused"}


def test_the_bid_rate_to_keep_is_of_a_phase_that_held(load: Any, plain: tuple[str, ...]) -> None:
    """The first step fails without a bid, which would allow all later ones to have none."""
    numbers = iter(range(10_000))

    def answer(request: Document) -> bytes:
        step = next(numbers) // 50
        return (with_body(500, b"oops"), bid(request), NO_CONTENT)[step]

    with StubBidder(answer).running() as stub:
        _, result, _ = load(
            stub.url, *QUICK, *plain, "--steps", "50,50,50", "--duration", "1s", "--timeout", "10s",
            "--arrivals", "even", "--objective", "errors=0%",
        )  # fmt: skip
    assert [phase["held"] for phase in result["phases"]] == [False, True, False]
    assert "bid-rate=90% (90% of step 2's)" in result["phases"][2]["missed"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["http://192.0.2.1:80"], "--i-own-this-target"),
        (["https://127.0.0.1"], "plain HTTP"),
        (["--duration", "forever"], "--duration must be a duration"),
        (["--duration", "2h"], "--duration must be from"),
        (["--rate", "1e6"], "--rate must be from"),
        (["--rate", "nan"], "--rate must be from"),
        (["--steps", "10,70000"], "--steps must list rates"),
        (["--win-rate", "2"], "--win-rate must be from 0 to 1"),
        (["--connections", "0"], "--connections must be from 1"),
        (["--objective", "p99"], "--objective must be p50"),
        (["--ssp", "a b"], "--ssp must be ID"),
        (["--find-capacity", "--steps", "1,2"], "cannot be combined"),
        (["--find-capacity", "--abort-on", "errors=5%"], "cannot be combined"),
        (["--abort-on", "errors"], "--abort-on must be p50"),
        (
            ["--generators", "2"],
            "--generators 2 or more requires --listen, and --listen requires --generators",
        ),
        (["--listen", "127.0.0.1:0"], "--listen requires --generators"),
        (["--generators", "2", "--listen", "9700"], "--listen must be HOST:PORT"),
        (["--generators", "65", "--listen", "127.0.0.1:0"], "--generators must be from 1 to 64"),
        (["--join", "127.0.0.1"], "--join must be HOST:PORT"),
        (["--join", "127.0.0.1:9700", "--rate", "10"], "leave out --rate"),
        (["--html", "nowhere/at/all.html"], "its directory does not exist"),
        (["--rate", "0.01", "--duration", "1s"], "no request"),
        (["--requests", "10"], "--no-reconcile"),
        (["--requests", "10", "--report-token", "x"], "--report-token must be a token"),
    ],
)
def test_invalid_options_are_refused(load: Any, arguments: list[str], words: str) -> None:
    status, result, output = load(*arguments, run=invoke)
    *_, line = output.splitlines()
    assert line.startswith("snapbid load: ")
    assert words in line
    assert (status, result) == (2, None)


def test_report_tokens_are_taken_from_the_environment(tmp_path: Path) -> None:
    environ = {"SNAPBID_HOME": str(tmp_path), "SNAPBID_REPORT_TOKEN": "x y"}
    refused = invoke(environ, "load", "http://127.0.0.1:9", "--requests", "10")
    assert "--report-token must be a token" in refused.stderr
    assert "SNAPBID_REPORT_TOKEN" in invoke({}, "load", "--help").stdout


def test_the_target_is_printed_first_even_if_nothing_listens_there(load: Any) -> None:
    with StubBidder().running() as stub:
        pass
    status, result, output = load(stub.url, *QUICK)
    first, *_, last = output.splitlines()
    assert first == f"target: {stub.url}"
    assert last.startswith(f"snapbid load: {stub.url}: ")
    assert last.endswith(f"nothing listens at {stub.url.removeprefix('http://')}")
    assert "Traceback" not in output
    assert (status, result) == (1, None)


def test_a_recording_is_replayed_as_it_is(load: Any, tmp_path: Path) -> None:
    seen: list[Document] = []

    def answer(request: Document) -> bytes:
        seen.append(request)
        return NO_CONTENT

    requests: list[Document] = [
        {"id": "a", "imp": [{"id": "1", "banner": {"w": "300", "h": 250.0}}], "tmax": 7},
        {"imp": [{"id": 2, "native": {}}], "site": {"page": "é"}},
    ]
    recorded = {"at": 1, "ssp": "recorded", "request": requests[0]}
    file = tmp_path / "r.jsonl"
    file.write_text(f"{json.dumps(recorded)}\n\n{json.dumps(requests[1])}")
    replay = (*QUICK, "--replay", str(file), "--rate", "20", "--duration", "1s", "--arrivals",
              "even", "--timeout", "10s", "--objective", "errors=0%", *BIDLESS)  # fmt: skip
    with StubBidder(answer).running() as stub:
        assert load(stub.url, *replay)[0] == 0
        assert set(stub.targets) == {f"{BIDS}/recorded/bid", f"{BIDS}/acme/bid"}
        assert len({request.pop("id") for request in seen}) == 20
        rest = [
            {name: value for name, value in request.items() if name != "id"} for request in requests
        ]
        assert sorted(map(json.dumps, seen)) == sorted(map(json.dumps, rest * 10))
        stub.targets.clear()
        assert load(stub.url, *replay, "--ssp", "mine")[0] == 0
        assert set(stub.targets) == {f"{BIDS}/mine/bid"}


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "contains no requests"), ("{", "line 1: not JSON"), ("\n[]", "line 2: not a bid"),
     ('{"id":"1","imp":[{"id":"1","bidfloor":{}}]}', "request 1: imp[0].bidfloor"),
     ('{"ssp":"a\\r\\nb","request":{"imp":[{}]}}', "line 1: ssp must be an SSP id")],
)  # fmt: skip
def test_a_bad_recording_is_refused(load: Any, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "r.jsonl").write_text(text)
    replay = ("--replay", str(tmp_path / "r.jsonl"))
    status, _, output = load("http://127.0.0.1:9", *QUICK, *replay, run=invoke)
    assert status == 2
    assert words in output.splitlines()[-1]
