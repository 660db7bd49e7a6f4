"""Bid requests that are as dear as their sender can make them, beside one that behaves.

Nothing here depends on how busy a machine is: what a request takes of the worker's processor is
what another request has to wait for it, and that is counted.
"""

import asyncio
import base64
import gc
import itertools
import json
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.client import JSON_HEADERS, LocalApp, call
from support.fuzz import cost
from support.large import large_snapshot, repeated
from support.matching_cases import campaign_of
from support.remembered import counts, looking
from support.snapshot import RATES, Geo, snapshot_of

from snapbid.base.http import BodyDeadline, Message
from snapbid.bidding import endpoint
from snapbid.bidding._bid_path import AdmissionControl
from snapbid.bidding.routes import bid_path
from snapbid.operations.explain.overview import MatchableRequest, explain, read
from workload import requests

WITHIN_S = 0.05
HALF_SENT = 5_000
AT_ONCE = 25  # that come before the bystander has a turn
HEADERS = {**JSON_HEADERS, "accept-encoding": "gzip"}  # compressing is a part of the cost
REGISTRY = {"acme": "acme", "nova": "nova"}
DEAREST = json.loads(Path(__file__).with_name("dearest.json").read_text())
BANNER: dict[str, Any] = {"banner": {"w": 300, "h": 250}}
PLAIN: dict[str, Any] = {"id": "a", "device": {"geo": {"country": "USA"}}}
GOOD = json.dumps({**requests.make(1)[0], "tmax": 60_000}).encode()


def imps(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": str(number), **BANNER, **more} for number in range(count)]


CATEGORIES = [f"IAB{number}" for number in range(1, 27)]
ATTACKS: dict[str, dict[str, Any]] = {
    "a domain of 131,000 labels": {"imp": imps(1), "site": {"domain": "a." * 130_900}},
    "a page of as many": {"imp": imps(1), "site": {"page": "a." * 130_900}},
    "a category of 262,000 bytes": {"imp": imps(1), "site": {"cat": ["a" * 261_000 + "-1"]}},
    "4,000 impressions": {"imp": imps(4_000)},
    "4,000 impressions of a size that is rare": {
        "imp": [{"id": str(n), "banner": {"w": 970, "h": 250}} for n in range(4_000)]
    },
    "5,000 impressions that no campaign may answer": {"imp": imps(5_000), "bcat": CATEGORIES},
    "5,000 impressions without advertisers": {
        "imp": imps(5_000),
        "badv": ["com", "example", "net", "org", "io", "test"],
    },
    "4,000 impressions for one seat": {"imp": imps(4_000), "wseat": ["seat-1"]},
    "20,000 blocked domains": {"imp": imps(100), "badv": ["brand.com"] * 20_000},
    "40,000 blocked categories as numbers": {"imp": imps(100), "bcat": [*range(40_000)]},
    "40,000 of another taxonomy": {"imp": imps(1), "bcat": [*range(40_000)], "cattax": 7},
    "20,000 impressions that hold nothing": {"imp": [{"id": "1"}] * 20_000},
    "20,000 objects for a native request": {
        "imp": [{"id": "1", "native": {"request": {"assets": [{}] * 20_000}}}]
    },
    "80,000 objects": {"imp": [{}] * 80_000},
    "4,800 deals in a foreign currency": {
        "imp": imps(
            6, pmp={"deals": [{"id": "deal-1", "bidfloor": 0.1, "bidfloorcur": "EUR"}] * 800}
        )
    },
    "11,000 segments": {
        "imp": imps(1),
        "user": {"data": [{"segment": [{"id": f"segment-{n}"} for n in range(11_000)]}]},
    },
    "35,000 currencies": {"imp": imps(1), "cur": [*range(35_000)]},
    "4,000 impressions that need tolerance": {"imp": imps(4_000, bidfloor=True)},
    "an id of 262,000 bytes": {"imp": imps(1), "id": "a" * 261_900},
    "a blocked domain with 42,000 marks": {
        "imp": imps(1),
        "badv": ["a" + "\u0301" * 21_000 + "\u0316" * 21_000],
    },
    "a blocked domain with marks of two widths": {
        "imp": imps(1),
        "badv": ["a" + "\u0301\uff9e" * 21_000],
    },
    "65,000 blocked domains in one entry": {"imp": imps(1), "badv": ["a.b " * 65_000]},
    "130,000 bars in one entry": {"imp": imps(1), "badv": ["a.b" + "|" * 130_000]},
    "60,000 domains in what is none": {"imp": imps(1), "badv": ["a.b=" * 60_000]},
    "60,000 bundles in what is none": {"imp": imps(1), "bapp": ["a.b=" * 60_000]},
    "20,000 bundles that are percent-encoded": {"imp": imps(1), "bapp": ["b%2Eo/"] * 20_000},
    "23,000 that are so beyond ASCII": {"imp": imps(1), "bapp": ["%C3%A9"] * 23_000},
    "80,000 percent signs": {"imp": imps(1), "badv": ["%25" * 80_000 + "2F"]},
    "20,000 blocked domains that are percent-encoded": {"imp": imps(1), "badv": ["b%2Eo"] * 20_000},
    "80,000 percent signs of a page": {"imp": imps(1), "site": {"page": "%25" * 80_000 + "2F"}},
    "130 pasted domains of a site": {
        "imp": imps(1),
        "site": {"domain": "\xe9.b;" * 128, "page": "%C3%A8.b%3B" * 128},
    },
    "40,000 quotes and dashes of a seat": {"imp": imps(1), "bseat": ["\u2018\u2010" * 20_000]},
    "a category of 40,000 ligatures": {"imp": imps(1), "site": {"cat": ["\ufdfa" * 40_000]}},
    "a blocked domain of 40,000 ligatures": {"imp": imps(1), "badv": ["\ufdfa" * 40_000]},
    # In UTF-8 and gzipped, each is of some 600 bytes.
    "47,000 blocked domains beyond ASCII": {"imp": imps(1), "badv": ["\xe9"] * 47_000},
    "20,000 different ones": {"imp": imps(1), "badv": [f"\xfc{n}.e" for n in range(20_000)]},
    "800 of 100 labels": {"imp": imps(1), "badv": ["\u0130." * 100 + str(n) for n in range(800)]},
    "23,000 that are percent-encoded": {"imp": imps(1), "badv": ["%C3%A9"] * 23_000},
    "47,000 blocked categories beyond ASCII": {"imp": imps(1), "bcat": ["\xe9"] * 47_000},
    "47,000 admitted ones": {"imp": imps(1), "acat": ["\xe9"] * 47_000},
    "47,000 languages beyond ASCII": {"imp": imps(1), "wlang": ["\xe9"] * 47_000},
    "47,000 blocked apps beyond ASCII": {"imp": imps(1), "bapp": ["\xe9"] * 47_000},
    "47,000 seats beyond ASCII": {"imp": imps(1), "wseat": ["\xe9"] * 47_000},
    "47,000 media types beyond ASCII": {
        "imp": [{"id": "1", "banner": {"w": 300, "h": 250, "mimes": ["\xe9"] * 47_000}}]
    },
    "44,000 advertisers of deals beyond ASCII": {
        "imp": imps(1, pmp={"deals": [{"id": "d", "wadomain": ["\xe9"] * 440}] * 100})
    },
}


@pytest.fixture(scope="module")
def app(module_redis: str) -> Iterator[LocalApp]:
    with LocalApp(large_snapshot(), module_redis) as local:
        yield local


def written(request: dict[str, Any]) -> bytes:
    text = json.dumps({**PLAIN, **request}, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


async def bid(app: LocalApp, body: bytes, ssp: str) -> int:
    return (await call(app.app, "POST", bid_path(ssp), HEADERS, body)).status


def waited_s(app: LocalApp, attack: bytes | None) -> float:
    """The processor time that a bystander's request waits behind an attack."""

    async def both() -> float:
        began = time.process_time()
        tasks = [asyncio.create_task(bid(app, attack, "nova"))] if attack else []
        await asyncio.sleep(0)  # the attack's turn
        assert await bid(app, GOOD, "acme") in (200, 204)
        waited = time.process_time() - began
        for status in await asyncio.gather(*tasks):
            assert status in (200, 204, 400), status
        return waited

    return app.run(both())


@pytest.mark.parametrize("name", ATTACKS)
def test_no_request_delays_another(app: LocalApp, name: str) -> None:
    attack = written(ATTACKS[name])
    quiet = min(waited_s(app, None) for _ in range(10))
    attacked = min(waited_s(app, attack) for _ in range(5))  # a busy machine only adds to it
    print(f"{name}: quiet {quiet * 1000:.2f} ms, attacked {attacked * 1000:.2f} ms")
    assert attacked < quiet + WITHIN_S


def test_half_sent_requests_delay_no_other(
    module_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While thousands of bodies do not come, and while their requests are all ended at once."""
    deadline = BodyDeadline()
    all_in = partial(AdmissionControl, **dict.fromkeys(("first", "least", "most"), 2 * HALF_SENT))
    monkeypatch.setattr(endpoint, "AdmissionControl", all_in)
    with LocalApp(large_snapshot(), module_redis, body_deadline=deadline) as app:
        gc.collect()
        quiet = max(waited_s(app, None) for _ in range(10))
        rounds = [app.run(slowest_s(app, deadline)) for _ in range(3)]
    slowest = {what: min(each[what] for each in rounds) for what in rounds[0]}
    print(
        f"{HALF_SENT:,} half-sent requests: quiet {quiet * 1000:.2f} ms, "
        + ", ".join(f"while they {what} {took * 1000:.2f} ms" for what, took in slowest.items())
    )
    assert max(slowest.values()) < quiet + WITHIN_S


async def slowest_s(app: LocalApp, deadline: BodyDeadline) -> dict[str, float]:
    """The most processor time that a bystander waits while half-sent requests come and go."""
    slowest = dict.fromkeys(("come", "wait", "end"), 0.0)

    async def waits(when: str, began: float) -> None:
        assert await bid(app, GOOD, "acme") in (200, 204)
        slowest[when] = max(slowest[when], time.process_time() - began)

    clients = []
    for _ in range(HALF_SENT // AT_ONCE):
        clients += [asyncio.create_task(half_sent(app)) for _ in range(AT_ONCE)]
        began = time.process_time()
        await asyncio.sleep(0)  # their turn
        await waits("come", began)
    for _ in range(20):
        await waits("wait", time.process_time())
    for _ in range(deadline.ticks + 1):
        ending = asyncio.create_task(deadline.tick())
        await asyncio.sleep(0)
        await waits("end", time.process_time())
        await ending
    assert set(await asyncio.gather(*clients)) == {408}
    return slowest


async def half_sent(app: LocalApp) -> int:
    """Send a head and one byte of the body; return the answer's status."""
    loop = asyncio.get_running_loop()
    answers: list[int] = []
    coming = [loop.create_future(), loop.create_future()]
    coming[0].set_result({"type": "http.request", "body": b"{", "more_body": True})

    async def send(message: Message) -> None:
        answers.append(message.get("status", 0))

    headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
    scope = {"type": "http", "method": "POST", "path": bid_path("nova"), "headers": headers}
    await app.app(scope, lambda: coming.pop(0), send)
    return answers[0]


@pytest.mark.parametrize("number", range(len(DEAREST)))
def test_known_most_expensive_requests(app: LocalApp, number: int) -> None:
    """What `make fuzz TARGET=cost` has come up with, some of it before it was bounded."""
    body = cost.body_of(DEAREST[number])
    assert body
    attacked = min(waited_s(app, body) for _ in range(5))
    print(f"{json.dumps(DEAREST[number])[:60]}: {attacked * 1000:.2f} ms")
    assert attacked < WITHIN_S


def test_formats_delay_no_request(module_redis: str) -> None:
    """Each campaign's creative was looked for in all formats."""
    blocked = campaign_of({"creative": {"attributes": [1]}})
    formats = [*({"w": 9, "h": number} for number in range(9_000)), {"w": 300, "h": 250}]
    imp = {"id": "1", "banner": {"format": formats, "battr": [1]}}
    with LocalApp(repeated([blocked], 100_000), module_redis) as app:
        attack = written({"imp": [imp]})
        attacked = min(waited_s(app, attack) for _ in range(3))
    print(f"9,000 formats: {attacked * 1000:.2f} ms")
    assert attacked < WITHIN_S


def test_longest_possible_answer(fresh_redis: str) -> None:
    """A hundred bids of 64 KiB were 6 MB; compressing them took 300 ms."""
    noise = base64.b64encode(random.Random(1).randbytes(48 << 10)).decode()
    snapshot = snapshot_of([campaign_of({"creative": {"adm": noise}})], REGISTRY, RATES, Geo())
    with LocalApp(snapshot, fresh_redis, processor_ms=1000) as app:
        times = [time.process_time()]
        for _ in range(5):
            reply = app.bid(written({"imp": imps(100)}), headers=HEADERS)
            times.append(time.process_time())
        cut_short = app.counted("snapbid_bid_cut_short_total", ssp="acme")
    took = min(after - before for before, after in itertools.pairwise(times))
    print(f"{len(reply.body):,} bytes took {took * 1000:.2f} ms")
    assert took < WITHIN_S
    assert "content-encoding" not in reply.headers
    assert [len(seat["bid"]) for seat in reply.json()["seatbid"]] == [3]
    assert cut_short == 5 * 97
    assert len(reply.body) < 262_144 + 1_000


def test_an_integer_of_400_digits_is_no_tmax(app: LocalApp) -> None:
    body = written({"imp": imps(1), "tmax": int("9" * 400)})
    assert app.run(bid(app, body, "acme")) in (200, 204)


def test_explain_takes_any_domain() -> None:
    campaign = campaign_of({"campaign": {"targeting": {"domain": {"exclude": ["b.example"]}}}})
    snapshot = snapshot_of([campaign], {"acme": "acme"}, RATES, Geo())
    body = written({"imp": imps(1), "site": {"domain": "a" * 70_000 + ".b.example"}})
    asked = read(body, "acme", snapshot, 0, 1 << 20)
    assert isinstance(asked, MatchableRequest)

    async def look(*_: object) -> str:
        return "k"

    async def documents(_: object) -> dict[str, Any]:
        return {}

    assert asyncio.run(explain(asked, snapshot, look, documents)).status == 200


def test_few_requests_hold_no_budget(fresh_redis: str) -> None:
    """Three requests of thousands of impressions once held all of 100 USD, for a minute."""
    document = campaign_of({"campaign": {"cpm": 10, "budget": {"daily": 100}}})
    snapshot = snapshot_of([document], REGISTRY, RATES, Geo())
    with LocalApp(snapshot, fresh_redis, processor_ms=1000) as app:
        for number in range(3):
            attack = written({"id": f"attack {number}", "imp": imps(4_000)})
            assert app.run(bid(app, attack, "nova")) == 200
        others = [written({"id": str(number), "imp": imps(1)}) for number in range(50)]
        assert {app.run(bid(app, body, "acme")) for body in others} == {200}
        with looking(fresh_redis) as store:
            (of_day,) = counts(store).values()
    assert of_day["B:1"] == 3 * 100 + 50


def test_forty_requests_make_few_bids(fresh_redis: str) -> None:
    """Half a megabyte of requests once made 80 MB of answers, and 188,000 bids in Redis."""
    snapshot = snapshot_of([campaign_of({})], {"acme": "acme"}, RATES, Geo())
    answered = sent = 0
    with LocalApp(snapshot, fresh_redis, processor_ms=1000) as app:
        for number in range(40):
            body = written({"id": f"attack {number}", "imp": imps(4_700)})
            sent += len(body)
            answered += len(app.bid(body).body)
        with looking(fresh_redis) as store:
            (of_day,) = counts(store).values()
    print(f"{sent:,} bytes of requests, {answered:,} of answers")
    assert of_day["B:1"] == 40 * 100
    assert answered < 40 * 100 * 1_000
