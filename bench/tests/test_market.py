"""Tests of the benchmark of bidders: corpus, oracle, checks, page, and a run of a bidder."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.contenders import Contender, Wins, ask
from bench.market import __main__ as market
from bench.market import corpus, page, probes
from bench.market.__main__ import main, run, run_to
from bench.market.bidders import MODES, Bidder, Place, Started, load
from bench.market.bidders.snapbid import campaign_of, document
from bench.market.contract import LATE, RULES, Judge, ReceivedBid, auctions, bids_of, notice_wire
from bench.market.corpus import Campaign, Corpus
from bench.market.modes import Traffic, Turns, id_of
from bench.market.probes import LIMIT_RULES
from bench.processes import BenchError, ServerProcess, cores, pinned
from bench.sections.parts import p999_ms, system_us
from bench.socket_run import relax, saturate
from snapbid.bidding.request import decode
from snapbid.campaigns.document import parse_json
from workload.requests import Request, encode
from workload.serving import free_ports

CORPUS = corpus.make(campaigns=300, requests=120)
CAMPAIGN = Campaign(
    id=7,
    cpm_cents=250,
    advertiser="brand7.example",
    category="IAB3-2",
    segments=(1, 2),
    countries=("DEU",),
    devices=("MOBILE",),
    sizes=((300, 250),),
)
DEARER = msgspec.structs.replace(CAMPAIGN, id=8, cpm_cents=400, countries=("FRA",))
REQUEST: Request = {
    "id": "auction",
    "imp": [{"id": "1", "banner": {"w": 300, "h": 250}, "bidfloor": 2.5}],
    "device": {"devicetype": 4, "geo": {"country": "DEU"}},
    "user": {"id": "1", "data": [{"segment": [{"id": "2"}]}]},
}
BID = {"impid": "1", "price": 2.5, "cid": "campaign-7", "adm": "<a>", "w": 300, "h": 250}


def broken(request: Request, status: int, *bids: dict[str, Any], id: str = "auction") -> set[str]:
    """Return the rules that an answer breaks."""
    (asked,) = auctions([request], [CAMPAIGN, DEARER])
    body = json.dumps({"id": id, "seatbid": [{"bid": bids}]}).encode() if status == 200 else b""
    judge = Judge([CAMPAIGN, DEARER], campaign_of)
    return {breach.rule for breach in judge.breaches(asked, "auction", status, body)}


def changed(path: str, value: Any) -> Request:
    """Return the request with another value at a path such as `imp.0.bidfloor`."""
    request = deepcopy(REQUEST)
    *parents, last = path.split(".")
    at: Any = request
    for name in parents:
        at = at[int(name)] if name.isdigit() else at[name]
    at[last] = value
    return request


def test_the_expected_bid_breaks_no_rule() -> None:
    assert broken(REQUEST, 200, BID) == set()


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        (changed("device.geo.country", "USA"), "targeting"),
        (changed("device.devicetype", 2), "targeting"),
        (changed("user.data.0.segment", [{"id": "3"}]), "targeting"),
        (changed("imp.0.bidfloor", 2.51), "floor"),
        (changed("imp.0.banner", {"w": 728, "h": 90}), "size"),
        (changed("badv", ["brand7.example"]), "blocks"),
        (changed("bcat", ["IAB3"]), "blocks"),
        (changed("bcat", ["IAB3-2"]), "blocks"),
    ],
)
def test_no_bid_expected(request_: Request, rule: str) -> None:
    assert broken(request_, 204) == set()
    assert broken(request_, 200, BID) == {rule}


@pytest.mark.parametrize(
    ("bid", "rules"),
    [
        ({"price": 2.6}, {"price"}),
        ({"price": 2.49}, {"price"}),
        ({"cid": "campaign-8", "price": 4.0}, {"targeting"}),
        ({"cid": "campaign-9"}, {"answer"}),
        ({"cid": "another"}, {"answer"}),
        ({"w": 320, "h": 50}, {"size"}),
        ({"w": None, "h": None}, set()),
        ({"adm": ""}, {"markup"}),
        ({"impid": "2"}, {"answer", "missed"}),
        ({"price": "much"}, {"answer"}),
    ],
)
def test_wrong_bids(bid: dict[str, Any], rules: set[str]) -> None:
    assert broken(REQUEST, 200, BID | bid) == rules


def test_wrong_answers() -> None:
    assert broken(REQUEST, 204) == {"missed"}
    assert broken(REQUEST, 500) == {"answer"}
    assert broken(REQUEST, 200) == {"answer", "missed"}
    assert broken(REQUEST, 200, BID, BID) == {"answer"}
    assert broken(REQUEST, 200, BID, id="another") == {"answer"}


def test_the_best_campaign_is_the_highest_priced_eligible_one() -> None:
    """The oracle agrees with a check of each campaign by itself, whatever its order."""
    asked = auctions(CORPUS.requests, CORPUS.campaigns)
    judge = Judge(CORPUS.campaigns, int)
    for own in asked[:30]:
        for name, imp in own.impressions.items():
            alone = own._replace(impressions={name: imp._replace(best_cents=0)})
            bids = (
                (
                    each,
                    {"impid": name, "price": each.cpm_cents / 100, "cid": f"{each.id}", "adm": "x"},
                )
                for each in CORPUS.campaigns
            )
            taking = [
                each.cpm_cents
                for each, bid in bids
                if {breach.rule for breach in judge.breaches(alone, "a", 200, _body(bid))}
                == {"price"}
            ]
            assert imp.best_cents == max(taking, default=0)


def _body(bid: dict[str, Any]) -> bytes:
    return json.dumps({"id": "a", "seatbid": [{"bid": [bid]}]}).encode()


def test_every_rule_decides_on_some_request() -> None:
    """For each rule, some request of the corpus has a high-priced campaign that breaks it."""
    made = corpus.make(campaigns=1_000, requests=400)
    asked = auctions(made.requests, made.campaigns)
    judge = Judge(made.campaigns, int)
    dearest = sorted(made.campaigns, key=lambda each: -each.cpm_cents)[:50]
    rules = {
        breach.rule
        for own in asked
        for name in own.impressions
        for each in dearest
        for breach in judge.breaches(own, "a", 200, _body(
            {"impid": name, "price": each.cpm_cents / 100, "cid": f"{each.id}", "adm": "x"}
        ))
    }  # fmt: skip
    assert rules >= {"targeting", "floor", "size", "blocks"}
    assert 0.3 < sum(own.is_bid for own in asked) / len(asked) < 0.9


def test_the_corpus_is_the_same_for_the_same_seed() -> None:
    assert corpus.make(campaigns=300, requests=120) == CORPUS
    assert corpus.make(campaigns=300, requests=120, seed=6) != CORPUS


def test_a_request_is_known_by_its_id() -> None:
    for number, request in enumerate(CORPUS.all_requests()):
        assert int(request["id"][-8:], 16) == number
        assert request["id"] == decode(encode([request])[0]).id


def test_limited_requests_are_for_one_campaign_each() -> None:
    scarce, capped = CORPUS.limited[-2:]
    several = [each for own in CORPUS.capped.values() for each in own]
    for campaign, requests in ((scarce, CORPUS.scarce), (capped, several)):
        for asked in auctions(requests, [campaign]):
            assert asked.is_bid
        for asked in auctions(requests, CORPUS.campaigns):
            assert not asked.is_bid
    assert len({request["user"]["id"] for request in CORPUS.scarce}) == len(CORPUS.scarce)


def test_snapbid_imports_the_campaigns() -> None:
    for campaign in CORPUS.limited:
        parsed = parse_json(json.dumps(document(campaign)).encode())
        assert campaign_of(parsed.id) == campaign.id
        assert parsed.budget.daily_micros == campaign.budget_micros
        assert len(parsed.creatives) == len(campaign.sizes)
    assert CORPUS.limited[-1].cap == parsed.frequency_caps[0].impressions


def test_malformed_responses_have_no_bids() -> None:
    body = json.dumps({"id": "a", "seatbid": [{"bid": [BID]}]}).encode()
    assert [bid.cid for bid in bids_of(200, body)] == ["campaign-7"]
    for status, garbage in ((204, b""), (500, body), (200, b""), (200, b"{"), (200, b'{"id":1}')):
        assert bids_of(status, garbage) == []


@pytest.mark.parametrize(
    ("url", "wire"),
    [
        ("http://127.0.0.1:80/win?p=${AUCTION_PRICE}", b"GET /win?p=2.5 HTTP/1.1\r\n"),
        ("http://elsewhere.example/win", None),
        ("", None),
    ],
)
def test_only_notices_to_this_machine_are_sent(url: str, wire: bytes | None) -> None:
    sent = notice_wire(ReceivedBid(impid="1", price=2.5, nurl=url))
    assert sent is None if wire is None else sent is not None and sent.startswith(wire)


class OracleBidder:
    """The adapter of `bench.tests.oracle_bidder`."""

    NAME = "oracle"
    ABOUT = "It bids what the oracle says."
    LACKS: Sequence[str] = ()
    REPOSITORY = ""
    SKIPPED: Mapping[str, str] = {}

    def __init__(self, *options: str) -> None:
        self._options = options

    def campaign_of(self, cid: str) -> int:
        return int(cid)

    def start(
        self, stack: ExitStack, place: Place, corpus: Corpus, campaigns: Sequence[Campaign]
    ) -> Started:
        (port,) = free_ports(1)
        file = place.scratch / "campaigns.json"
        file.write_bytes(msgspec.json.encode(campaigns))
        command = ("bench.tests.oracle_bidder", str(port), str(file), *self._options)
        with pinned(place.core):
            server = ServerProcess(place.scratch / "log", {}, port, *command, forks=False)
        stack.callback(server.stop)
        server.await_ready()
        wins = b"GET /wins HTTP/1.1\r\nHost: bench\r\n\r\n"
        return Started(server, "/bid", lambda: int(ask(server, wins)[1]))


@pytest.fixture
def traffic() -> Traffic:
    """Return the traffic for a bidder that was not started."""
    return Traffic(Started(None, "/bid"), OracleBidder(), CORPUS, limited=True)  # type: ignore[arg-type]


def test_a_late_answer_is_wrong_whatever_it_says(traffic: Traffic) -> None:
    no_bid = id_of(traffic.no_bids[0])
    assert traffic.breaches((no_bid, 204, b"", 0.25)) == []
    assert [rule for rule, _ in traffic.breaches((no_bid, 204, b"", 0.251))] == [LATE]
    assert traffic.breaches((b"", 200, b"", 9.0)) == []  # a notice


@pytest.mark.parametrize("answer", [(204, b""), (200, b'{"id":"a","seatbid":[]}')])
def test_a_bidder_that_never_bids_keeps_no_limit(
    traffic: Traffic, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes]
) -> None:
    monkeypatch.setattr(probes, "ask", lambda server, wire: answer)
    monkeypatch.setattr(probes, "SETTLED_S", 0)
    verdicts = probes.limits(traffic)
    assert all(": 0 bids instead of" in verdict.example for verdict in verdicts.values())
    broken = {rule: verdict.broken for rule, verdict in verdicts.items()}
    assert broken == {"budget": corpus.SCARCE, "cap": corpus.CAP * len(CORPUS.capped)}


class BrokenBidder(OracleBidder):
    """A bidder that cannot be started."""

    REPOSITORY = "https://example.com/broken"

    def start(
        self, stack: ExitStack, place: Place, corpus: Corpus, campaigns: Sequence[Campaign]
    ) -> Started:
        raise BenchError("cargo build failed:\nmuch output")


def test_a_bidder_that_fails_has_the_reason_and_no_earlier_result(tmp_path: Path) -> None:
    result = page.read()["snapbid"] | {"bidder": "oracle"}
    (tmp_path / "oracle.json").write_text(json.dumps(result))
    assert "### oracle" in page.render(page.read(tmp_path))
    assert not run_to(tmp_path, BrokenBidder(), str(tmp_path), CORPUS, TURNS)
    text = page.render(page.read(tmp_path))
    assert "- `oracle` has no result: cargo build failed\n" in text
    assert "### oracle" not in text


def test_figures_of_a_busy_machine_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (1.5, 0.0, 0.0))
    monkeypatch.setattr("sys.argv", ["bench.market", "--keep"])
    monkeypatch.setattr(corpus, "make", lambda: pytest.fail("it runs"))
    with pytest.raises(SystemExit):
        main()
    assert "--keep: the load is 1.5" in capsys.readouterr().err


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_result_is_replaced_only_by_a_whole_run(
    interrupted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = page.read()["snapbid"] | {"bidder": "oracle"}

    def measure(*_: Any) -> dict[str, Any]:
        if interrupted:
            raise KeyboardInterrupt
        return result | {"seconds": 12}

    kept = tmp_path / "results"
    kept.mkdir()
    (kept / "oracle.json").write_text(json.dumps(result))
    monkeypatch.setattr("os.getloadavg", lambda: (0.5, 0.0, 0.0))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["bench.market", "--keep"])
    monkeypatch.setattr(corpus, "make", lambda: CORPUS)
    monkeypatch.setattr(page, "RESULTS", kept)
    monkeypatch.setattr(page, "PAGE", tmp_path / "RESULTS.md")
    monkeypatch.setattr(market, "OUTPUT", tmp_path / "build")
    monkeypatch.setattr(market, "load", lambda: {"oracle": OracleBidder()})
    monkeypatch.setattr(market, "run", measure)
    monkeypatch.setattr("bench.ready.check", lambda: None)
    with suppress(SystemExit, KeyboardInterrupt):
        main()
    (found,) = page.read(kept).values()
    assert found["seconds"] == (result["seconds"] if interrupted else 12)
    assert page.PAGE.exists() is not interrupted


def test_the_page_names_bidders_that_were_not_the_limit() -> None:
    result = deepcopy(page.read()["snapbid"])
    for mode in ("no-bid", "bid", "limits"):
        result["modes"][mode]["server_busy"]["median"] = 0.97
    assert "do not show" not in page.render({"snapbid": result})
    result["modes"]["bid"]["server_busy"]["median"] = 0.16
    assert "- `snapbid`: 16%" in page.render({"snapbid": result})


def test_figures_are_no_finer_than_their_data() -> None:
    assert (p999_ms(52.7, 368), p999_ms(52.7, 1_000)) == ("", "52.70")
    assert (system_us(44.6, 304), system_us(8.2, 72_000)) == ("", "8.2")
    assert "52.70" not in page.PAGE.read_text()


def test_bidders_define_what_a_run_reads() -> None:
    for name, bidder in load().items():
        assert name == bidder.NAME
        assert bidder.ABOUT
        assert bidder.SKIPPED.keys() <= set(MODES)
        assert all(each.endswith(".") for each in (bidder.ABOUT, *bidder.LACKS))


def test_the_example_adapter_is_valid() -> None:
    text = (page.HERE / "README.md").read_text()
    example: dict[str, Any] = {}
    exec(text.partition("```python\n")[2].partition("```")[0], example)
    assert {*Bidder.__annotations__, "campaign_of", "start"} <= example.keys()
    assert example["SKIPPED"].keys() <= set(MODES)
    names = example["start"].__code__.co_varnames
    assert names[:4] == Bidder.start.__code__.co_varnames[1:5]


def test_the_page_is_rendered_from_the_results() -> None:
    results = page.read()
    assert page.PAGE.read_text() == page.render(results)
    for name, result in results.items():
        assert result["modes"].keys() == set(MODES)
        assert RULES.keys() <= result["contract"].keys()
        assert f"### {name}\n" in page.PAGE.read_text()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, *cores(), None)


def test_each_win_is_of_a_bid_of_its_own(place: Place) -> None:
    made = corpus.make(campaigns=60, requests=40)
    with ExitStack() as stack:
        started = OracleBidder().start(stack, place, made, made.campaigns)
        assert started.wins is not None
        bids = Traffic(started, OracleBidder(), made, limited=False).bids
        wins = Wins(started.server.port, started.wins, a_turn=50)
        contender = Contender("win", started.server, bids, 200, wins=wins)
        saturate(contender, 1.0)
        relax(contender, 0.1, rate=500)
        assert started.wins() >= 5 + 50 + 150 + 50
        sent = len(wins.make(bids, 1))
        with pytest.raises(BenchError, match=f"0 wins were counted, {sent} sent"):
            wins.check(sent)


TURNS = Turns(rounds=1, seconds=0.2, mixed_rounds=1, mixed_seconds=0.2)


@pytest.mark.long
def test_run_of_a_conforming_bidder() -> None:
    made = corpus.make(campaigns=60, requests=40)
    result = run(OracleBidder(), None, made, TURNS)
    assert result["contract"].keys() == RULES.keys() | LIMIT_RULES.keys()
    for rule, verdict in result["contract"].items():
        assert rule == LATE or not verdict["broken"], (rule, verdict)
    assert result["modes"].keys() == set(MODES)
    for figures in result["modes"].values():
        assert figures["wrong"] == figures["late"]
        assert figures["processor_us"]["median"] > 0
    assert result["modes"]["notices"]["counted"] == result["modes"]["notices"]["sent"] > 0
    assert "| oracle |" in page.render({"oracle": result})


@pytest.mark.long
def test_run_of_a_nonconforming_bidder() -> None:
    """The bidder bids one campaign on everything, and counts a win each time it is notified."""
    made = corpus.make(campaigns=60, requests=40)
    contract = run(OracleBidder("--greedy"), None, made, TURNS)["contract"]
    kept = {rule for rule, verdict in contract.items() if not verdict["broken"]}
    assert kept - {LATE} == {"answer", "markup", "missed"}
    assert contract["budget"]["example"].endswith("40 bids instead of 20")
