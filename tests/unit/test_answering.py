"""The native bid path: a coroutine that frees its share of admission however it ends."""

import asyncio
import gc
import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.matching_cases import campaign_of
from support.snapshot import RATES, Geo, snapshot_of

from snapbid.base.errors import BadRequest, BodyTimeout, TooLarge, UnsupportedMediaType
from snapbid.base.http import AwaitedMessages, Disconnected, HeaderList, Message
from snapbid.bidding.bounds import LARGE
from snapbid.bidding.endpoint import Bidding, BidEndpoint
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.reasons import Reason
from snapbid.bidding.request_stats import MEANINGLESS, SAMPLED, RequestStats
from snapbid.bidding.response import response_writer
from snapbid.metrics import Metrics
from snapbid.operations.golive.examination import Sample, examine

BODY = b'{"id":"a","imp":[{"id":"1","banner":{"w":300,"h":250}}]}'
UNANSWERED = BODY.replace(b"300", b"301")
JSON_TYPE = (b"content-type", b"application/json")


def head(body: bytes = BODY, *more: tuple[bytes, bytes]) -> HeaderList:
    return [JSON_TYPE, (b"content-length", b"%d" % len(body)), *more]


def message(body: bytes = BODY, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class PlayedLedger:
    """A ledger whose verdicts the test sets; `asked` are the bids of each answer."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.verdicts: asyncio.Future[Any] | None = None

    def remember(self, auction: bytes, ssp: int, bids: Any, user: Any, *_: object) -> Any:
        self.asked.append((auction, ssp, bids, user))
        return self.verdicts

    def when_certain(self, then: Any) -> None:
        then()

    def shard_of(self, auction: bytes) -> int:
        return 0


class Played:
    """An endpoint, and the futures that its requests await."""

    def __init__(self, folder: Path) -> None:
        self.metrics = Metrics(folder)
        self.ledger = PlayedLedger()
        own: Any = self.ledger
        self.bidding = Bidding(
            response_writer("http://bid.example"), own, self.metrics, max_bytes=1024, tmax_ms=10_000
        )
        self.snapshot = snapshot_of([campaign_of({})], {"acme": "acme"}, RATES, Geo())
        self.request_stats = RequestStats()
        self.endpoint = BidEndpoint("acme", self.snapshot, self.bidding, self.request_stats)
        self.share = self.bidding.admission.share("acme")

    def future(self) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().create_future()

    def sent(self, body: bytes = BODY) -> "asyncio.Future[Any]":
        """The future that a request awaits, resolved with a body."""
        coming = self.future()
        coming.set_result(message(body))
        return coming

    def ask(self, coming: Any, headers: HeaderList | None = None) -> Any:
        return self.endpoint(head() if headers is None else headers, lambda: coming)

    @property
    def under_way(self) -> tuple[int, int]:
        return self.share.under_way, self.share.reading


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    played = Played(tmp_path)
    yield played
    played.metrics.close()


async def test_the_states_of_a_bid(played: Played) -> None:
    coming, played.ledger.verdicts = played.future(), played.future()
    call = played.ask(coming)
    assert played.under_way == (0, 0), "nothing happens before it is awaited"
    assert next(call) is coming
    assert played.under_way == (1, 1)
    coming.set_result(message())
    assert next(call) is played.ledger.verdicts
    assert played.under_way == (1, 0)
    (auction, ssp, ((imp, *_),), user), *_ = played.ledger.asked
    assert (auction, ssp, imp, user) == (b"a", 1, b"1", None)
    played.ledger.verdicts.set_result("k")
    with pytest.raises(StopIteration) as stop:
        next(call)
    answer = stop.value.value
    assert answer.start["status"] == 200
    assert json.loads(answer.body)["seatbid"][0]["bid"][0]["impid"] == "1"
    assert played.under_way == (0, 0)
    assert dict(played.request_stats.counts.statuses) == {200: 1}
    with pytest.raises(RuntimeError, match="already awaited"):
        next(call)


async def test_coroutines_accept_send(played: Played) -> None:
    coming = played.future()
    call = played.ask(coming, head(UNANSWERED))
    assert call.send(None) is coming
    coming.set_result(message(UNANSWERED))
    with pytest.raises(StopIteration) as stop:
        call.send(None)
    assert stop.value.value.start["status"] == 204
    assert not played.ledger.asked
    assert played.under_way == (0, 0)


async def test_kept_samples_are_bounded(played: Played) -> None:
    """What is long is not: it would be kept for a while, too."""
    long = UNANSWERED[:-1] + b',"x":"' + b"x" * LARGE + b'"}'

    async def ask(body: bytes) -> None:
        coming = played.sent(body)
        await played.ask(coming, head(body))

    played.bidding.max_bytes = 2 * LARGE
    played.endpoint = BidEndpoint("acme", played.snapshot, played.bidding, played.request_stats)
    for _ in range(SAMPLED + 5):
        await ask(UNANSWERED)
    samples = played.request_stats.take_samples(2)
    assert len(samples) == SAMPLED
    body, request, ssp, snapshot, now_ms, reason = samples[0]
    assert (body, request.id, ssp, snapshot) == (UNANSWERED, "a", "acme", played.snapshot)
    assert (now_ms > 0, reason) == (True, Reason.NO_CAMPAIGN)
    for each in (long, UNANSWERED, long, UNANSWERED, UNANSWERED):
        await ask(each)
    assert [body for body, *_ in played.request_stats.take_samples(2)] == [UNANSWERED] * 2
    await ask(BODY)
    assert [reason for *_, reason in played.request_stats.take_samples(0)] == [None]
    await ask(BODY)
    assert played.request_stats.take_samples(0) == []


@pytest.mark.parametrize(("verdicts", "reason"), [("", Reason.LATE), ("t", Reason.TAKEN)])
async def test_other_verdicts(played: Played, verdicts: str, reason: Reason) -> None:
    """None in time, or another family has a bid on the auction: no bid."""
    played.ledger.verdicts = played.future()
    coming = played.sent()
    asked = asyncio.create_task(played.ask(coming))
    while not played.ledger.asked:
        await asyncio.sleep(0)
    played.ledger.verdicts.set_result(verdicts)
    assert (await asked).start["status"] == 204
    assert played.under_way == (0, 0)
    assert dict(played.request_stats.counts.statuses) == {204: 1}
    counted = played.metrics.counter("snapbid_bid_requests_total", ssp="acme", outcome=reason.value)
    assert counted.value == 1


async def test_a_ledger_that_is_unavailable(played: Played) -> None:
    coming = played.sent()
    assert (await played.ask(coming)).start["status"] == 204
    assert played.under_way == (0, 0)


@pytest.mark.parametrize(
    ("headers", "body", "error"),
    [
        (head(BODY + b" "), BODY, BadRequest),  # cut short
        (head(b"[]"), b"[]", BadRequest),
        (head(b"{}"), b"{}", BadRequest),
        (head(b"\xff"), b"\xff", BadRequest),
        ([(b"content-type", b"text/plain"), *head()[1:]], BODY, UnsupportedMediaType),
        (head(b"x" * 1025), b"x" * 1025, TooLarge),
        ([JSON_TYPE], b"x" * 1025, TooLarge),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
async def test_refusals(
    played: Played, headers: HeaderList, body: bytes, error: type[Exception]
) -> None:
    coming = played.sent(body)
    with pytest.raises(error):
        await played.ask(coming, headers)
    assert played.under_way == (0, 0)
    assert played.request_stats.counts.statuses


@pytest.mark.parametrize("headers", [[JSON_TYPE], head(), head(BODY, (b"content-encoding", b""))])
async def test_a_body_in_parts(played: Played, headers: HeaderList) -> None:
    parts = [message(BODY[:10], more=True), message(BODY[10:])]
    played.ledger.verdicts = played.future()
    played.ledger.verdicts.set_result("k")

    async def receive() -> Message:
        await asyncio.sleep(0)
        return parts.pop(0)

    assert (await played.endpoint(headers, receive)).start["status"] == 200
    assert played.under_way == (0, 0)


async def test_a_client_that_hangs_up(played: Played) -> None:
    coming = played.future()
    coming.set_result({"type": "http.disconnect"})
    with pytest.raises(Disconnected):
        await played.ask(coming)
    assert played.under_way == (0, 0)
    assert not played.request_stats.counts.statuses


@pytest.mark.parametrize("late", [True, False])
async def test_missing_bodies_time_out(played: Played, late: bool) -> None:
    """Its future is cancelled by the deadline, which says so, or by the server."""
    messages = AwaitedMessages()
    played.bidding.body_deadline.current = messages
    played.endpoint = BidEndpoint("acme", played.snapshot, played.bidding, played.request_stats)
    coming = played.future()
    asked = asyncio.create_task(played.ask(coming))
    await asyncio.sleep(0)
    assert list(messages) == [coming]
    messages.late = late
    coming.cancel()
    with pytest.raises(BodyTimeout if late else asyncio.CancelledError):
        await asked
    assert played.under_way == (0, 0)
    assert dict(played.request_stats.counts.statuses) == ({408: 1} if late else {})


@pytest.mark.parametrize("where", ["before", "body", "ledger"])
@pytest.mark.parametrize("how", ["close", "throw", "class"])
async def test_ended_requests_release_their_share(played: Played, where: str, how: str) -> None:
    coming, played.ledger.verdicts = played.future(), played.future()
    call = played.ask(coming)
    if where == "ledger":
        coming.set_result(message())
    if where != "before":
        assert next(call) is (coming if where == "body" else played.ledger.verdicts)
    assert played.share.under_way == (where != "before")
    if how == "close":
        call.close()
        call.close()
    else:
        with pytest.raises(OSError, match="gone"):
            call.throw(OSError("gone")) if how == "throw" else call.throw(OSError, "gone")
        with pytest.raises(RuntimeError, match="already awaited"):
            next(call)
    assert played.under_way == (0, 0)
    assert dict(played.request_stats.counts.statuses) == (
        {} if where == "before" or how == "close" else {500: 1}
    )


async def test_errors_of_awaited_steps(played: Played) -> None:
    coming, played.ledger.verdicts = played.future(), played.future()
    coming.set_result(message())
    asked = asyncio.create_task(played.ask(coming))
    await asyncio.sleep(0)
    played.ledger.verdicts.set_exception(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await asked
    assert played.under_way == (0, 0)
    assert dict(played.request_stats.counts.statuses) == {500: 1}
    failed = played.metrics.counter("snapbid_bid_requests_total", ssp="acme", outcome="internal")
    assert failed.value == 1, "the SSP guard counts them"


async def test_requests_beyond_the_limit_get_no_bid(played: Played) -> None:
    admission, now = played.bidding.admission, 0.0
    for _ in range(admission.limit):
        admission.enter(played.share, now)
    full = played.under_way
    coming = played.sent()
    assert (await played.ask(coming)).start["status"] == 204
    assert played.under_way[0] in (full[0], full[0] - full[1], 0), "it was never in the share"
    assert not played.ledger.asked


async def test_requests_leave_no_references(played: Played) -> None:
    class Receiving:
        def __init__(self, coming: Any) -> None:
            self.coming = coming

        def __call__(self) -> Any:
            return self.coming

    played.ledger.verdicts = played.future()
    played.ledger.verdicts.set_result("k")
    kept = []
    for _ in range(3):
        coming = played.sent()
        receive = Receiving(coming)
        kept.append(weakref.ref(receive))
        assert (await played.endpoint(head(), receive)).start["status"] == 200
    del receive, coming
    gc.collect()
    assert [each() for each in kept] == [None] * 3


LIMITED = {
    "id": "a",
    "imp": [
        {
            "id": "1",
            "banner": {"w": 300, "h": 250, "battr": ["expandable"], "btype": "script"},
            "pmp": {"deals": [{"id": "d", "wadomain": ["no domain"]}]},
        },
        {
            "id": "2",
            "bcat": ["IAB99"],
            "badv": ["shoes[.]example"],
            "video": {"mimes": [";"], "protocols": ["VAST 2"], "delivery": "fast", "battr": "x"},
        },
    ],
    "bcat": ["IAB99", "OX-1", "IAB3-63"],
    "acat": ["503"],
    "bapp": ["id1", "com.shoes.app;id2", "com.shoes.app/"],
    "bseat": ["s1", "*"],
    "badv": ["no domain", "https://"],
    "wlang": ["English (US)"],
}


async def test_lists_with_meaningless_entries_are_counted(played: Played) -> None:
    """Once a request and list, in the first of its currencies or not; never with their values."""
    deal = {"targeting": {"deal": {"include": ["d"]}}}
    played.endpoint.use(
        snapshot_of([campaign_of({"campaign": deal})], {"acme": "acme"}, RATES, Geo())
    )
    for request in (LIMITED, LIMITED | {"cur": ["EUR"]}, {"id": "b", "imp": [{"id": "1"}]}):
        body = json.dumps(request).encode()
        coming = played.future()
        call = played.ask(coming, head(body))
        next(call)
        coming.set_result(message(body))
        with pytest.raises(StopIteration):
            next(call)
    totals = played.request_stats.take(0)
    broken = {name.removeprefix("broken:"): by for name, by in totals.counts.items() if by == 2}
    lists = {name.partition(": ")[0] for name in broken if name.endswith(MEANINGLESS)}
    banner, video = "imp[].banner", "imp[].video"
    assert lists == {
        *("bcat", "acat", "badv", "bapp", "bseat", "wlang", "imp[].bcat", "imp[].badv"),
        *(f"{banner}.battr", f"{banner}.btype"),
        *(f"{video}.protocols", f"{video}.delivery", f"{video}.battr", f"{video}.mimes"),
        "imp[].pmp.deals[].wadomain",
    }
    assert totals.examples.keys() == {f"{name}: {MEANINGLESS}" for name in lists}


MISSPELT = {
    "id": "a",
    "imp": [{"id": "1", "banner": {"w": 301, "h": 250, "battr": ["x"]}}],
    "bcat": ["junk"],
}
SPOTLESS = json.loads(BODY)


class Two:
    """Two SSPs of one worker, whose ledger never keeps a bid, and its answers' statuses."""

    def __init__(self, played: Played, *campaigns: dict[str, Any]) -> None:
        made = [campaign_of({"campaign": {"id": str(n), **own}}) for n, own in enumerate(campaigns)]
        self.snapshot = snapshot_of(made, {"one": "one", "two": "two"}, RATES, Geo())
        self.ledger = played.ledger
        self.stats = {ssp: RequestStats() for ssp in ("one", "two")}
        self.endpoints = {
            ssp: BidEndpoint(ssp, self.snapshot, played.bidding, stats)
            for ssp, stats in self.stats.items()
        }

    async def ask(self, ssp: str, request: Any, verdicts: str = "k") -> int:
        body = json.dumps(request).encode()
        loop = asyncio.get_running_loop()
        coming, self.ledger.verdicts = loop.create_future(), loop.create_future()
        coming.set_result(message(body))
        self.ledger.verdicts.set_result(verdicts)
        answer = await self.endpoints[ssp](head(body), lambda: coming)
        status: int = answer.start["status"]
        return status

    def examine(self, ssp: str) -> list[str]:
        samples = self.stats[ssp].take_samples(SAMPLED)
        return [name for sample in samples for name in examine(Sample(*sample))]

    def broken(self, ssp: str) -> list[str]:
        counts = self.stats[ssp].take(0).counts
        return sorted(
            name.removeprefix("broken:").partition(":")[0]
            for name in counts.elements()
            if name.startswith("broken:")
        )


async def test_faults_are_shown_only_to_the_ssp_that_sent_them(played: Played) -> None:
    """Also once a sample of it has been examined, which reads the request again."""
    two = Two(played, {})
    for currency in ("USD", "EUR"):
        assert await two.ask("one", MISSPELT | {"cur": [currency]}) == 204
        assert "rule:size" in two.examine("one")
        assert await two.ask("two", SPOTLESS | {"cur": [currency]}) == 200
        assert two.broken("one") == ["bcat", "imp[].banner.battr"]
        assert two.broken("two") == []


async def test_a_fault_counts_once_when_its_impression_is_reread(played: Played) -> None:
    """To find the next best campaigns for two impressions, after the ledger refuses the first."""
    budget = {"budget": {"daily": 1}}
    two = Two(played, budget, budget)
    banner = {"w": 300, "h": 250, "battr": ["x"], "mimes": [";"]}
    imps = [{"id": id, "banner": banner} for id in ("1", "2")]
    assert await two.ask("one", {"id": "a", "imp": imps}, "bb") == 204
    assert await two.ask("two", SPOTLESS) == 200
    assert two.broken("two") == []
    assert two.broken("one") == ["imp[].banner.battr", "imp[].banner.mimes"]


async def test_faults_of_a_failed_request_count_for_no_other(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Two(played, {})

    def fail(self: Lookups, native: Any) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(Lookups, "native_request", fail)
    failing = {"id": "2", "native": {"request": "{}"}}
    with pytest.raises(RuntimeError, match="on purpose"):
        await two.ask("one", MISSPELT | {"imp": [*MISSPELT["imp"], failing]})
    assert await two.ask("two", SPOTLESS) == 200
    assert two.broken("two") == []


async def test_a_request_of_an_excluded_person_counts_once(played: Played) -> None:
    """However often it is read: also examined, and replaced."""
    two = Two(played, {"product": "casino", "budget": {"daily": 1}}, {"budget": {"daily": 1}})
    restricted = played.metrics.counter("snapbid_restricted_requests_total")
    excluded = {"user": {"eids": [{"source": "a.example", "uids": [{"id": "x"}]}]}}
    small = {"imp": [{"id": "1", "banner": {"w": 1, "h": 1}}]}
    for number, request in enumerate((SPOTLESS | excluded, SPOTLESS | excluded | small), 1):
        assert await two.ask("one", request, "b") == 204
        two.examine("one")
        assert await two.ask("two", SPOTLESS, "b") == 204
        two.examine("two")
        assert restricted.value == number
