"""`snapbid golive` against servers that have really been sent what it judges."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import books
from support.commands import invoke, succeed
from support.processes import eventually
from support.stack import Stack, draining
from support.wire import Wire

from snapbid.embedded import Redis

BID_HEADERS = {"content-type": "application/json"}
PASS, FAIL, UNSEEN = "pass", "fail", "not seen yet"


@pytest.fixture(scope="module")
def stack(
    module_database: str, module_stack: Callable[..., Stack], module_own_redis: Redis
) -> Iterator[Stack]:
    """Two workers and a drain. Each test sends as an SSP of its own."""
    asyncio.run(books.set_up(module_database))
    for ssp in ("silent", "unsent", "mistaken", "abroad", "addressed"):
        succeed({"SNAPBID_DATABASE_URL": module_database}, "ssp", "add", ssp)
    served = module_stack(SNAPBID_WORKERS="2", SNAPBID_REDIS_URL=module_own_redis.url)
    with draining(served):
        yield served


def request_of(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"golive-{number}",
        "imp": [{"id": "1", "banner": {"w": 300, "h": 250}, "bidfloor": 0}],
        "site": {"domain": "example.com", "page": "https://example.com/"},
        "device": {"ua": "Mozilla/5.0", "ip": "192.0.2.1", "geo": {"country": "USA"}},
        "at": 1,
        **more,
    }


def bid(
    stack: Stack, ssp: str, document: dict[str, Any], headers: dict[str, str] | None = None
) -> Any:
    """The status, or the bid of a 200; on a connection of its own, so that any worker answers."""
    body = json.dumps({**document, "id": f"{ssp}-{document['id']}"}).encode()
    with Wire(stack.port) as wire:
        own = BID_HEADERS if headers is None else headers
        reply = wire.ask("POST", f"/api/v1/openrtb2/{ssp}/bid", own, body)
    return reply.json()["seatbid"][0]["bid"][0] if reply.status == 200 else reply.status


def fire(stack: Stack, url: str) -> None:
    with Wire(stack.port) as wire:
        assert wire.ask("GET", url.removeprefix(stack.base_url)).status == 200


def golive(stack: Stack, *arguments: str) -> "subprocess.CompletedProcess[str]":
    own = {name: text for name, text in stack.environ.items() if name.startswith("SNAPBID_")}
    return invoke(own, "golive", *arguments)


def judged(stack: Stack, ssp: str) -> dict[str, Any]:
    result = golive(stack, ssp, "--json", "--last", "10m")
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.returncode == (0 if document["passed"] else 1)
    assert document["passed"] == (states(document) == [PASS] * 6)
    return document


def states(document: dict[str, Any]) -> list[str]:
    assert [item["number"] for item in document["items"]] == [1, 2, 3, 4, 5, 6]
    return [item["state"] for item in document["items"]]


def await_states(stack: Stack, ssp: str, *wanted: str, evidence: str = "") -> dict[str, Any]:
    """The judgement, once the items are in these states, and all requests in the evidence."""
    judgements: list[dict[str, Any]] = []

    def reached() -> bool:
        judgements[:] = [judged(stack, ssp)]
        lines = "\n".join(line for item in judgements[0]["items"] for line in item["evidence"])
        return states(judgements[0]) == list(wanted) and evidence in lines

    eventually(reached, f"{wanted} of {ssp}")
    return judgements[0]


def test_an_ssp_that_goes_live(stack: Stack) -> None:
    """From nothing to six items that pass, and another SSP's stay as they were."""
    result = golive(stack, "nova")
    assert (result.returncode, result.stderr) == (1, "")
    title, *lines = result.stdout.splitlines()
    assert title.startswith("Go-live check of nova, from 20")
    url = f"{stack.base_url}/api/v1/openrtb2/nova/bid"
    assert lines[1:4] == [
        "1. The assigned SSP id is placed in the endpoint path.  NOT SEEN YET",
        f"     no request to {url}",
        f"     To do: send bid requests with POST to {url}",
    ]
    assert lines[-1] == "0 of 6 items pass"

    assert bid(stack, "nova", request_of(0, imp=[{"id": "1"}])) == 204
    bids = [bid(stack, "nova", request_of(number)) for number in range(1, 4)]
    await_states(stack, "nova", PASS, PASS, PASS, UNSEEN, UNSEEN, PASS)
    fire(stack, bids[0]["nurl"])
    fire(stack, bids[1]["nurl"])
    fire(stack, bids[2]["lurl"])  # with its macro
    await_states(stack, "nova", PASS, PASS, PASS, PASS, UNSEEN, PASS)
    fire(stack, bids[0]["burl"])
    await_states(stack, "nova", *[PASS] * 6, evidence="100.0% (4 of 4)")
    eventually(
        lambda: judged(stack, "nova")["seen"]["noticed_at"].get("i", 0) > 0, "the drain's round"
    )
    document = judged(stack, "nova")
    evidence = ["\n".join(item["evidence"]) for item in document["items"]]
    assert f"4 requests to {url}, the latest at 20" in evidence[0]
    assert evidence[1] == "set on all of 4 requests"
    assert "answers: 3 with 200, 1 with 204" in evidence[2]
    assert sorted(evidence[2].splitlines()[1].split()[-4:]) == ["200", "200", "200", "204"]
    assert evidence[3].startswith(
        "2 for 3 answers with a bid in the last 3 days (UTC), the latest at 20"
    )
    assert "1 loss notice (optional), 1 of them without a reason: replace ${" in evidence[3]
    assert evidence[4].startswith("1 for 3 answers with a bid in the last 3 days (UTC), the")
    assert "device.geo.country: 100.0% (4 of 4)" in evidence[5]
    assert golive(stack, "nova").stdout.endswith("\n6 of 6 items pass\n")
    assert states(judged(stack, "silent")) == [UNSEEN] * 6


def test_mistakes_of_an_ssp(stack: Stack) -> None:
    device = {"ipv6": "2001:db8::1", "geo": {"country": ""}}
    text = {"content-type": "text/plain"}
    assert bid(stack, "mistaken", request_of(1), text) == 415
    assert bid(stack, "mistaken", request_of(2, device=device), {})["impid"] == "1"
    assert bid(stack, "mistaken", request_of(3, imp=[])) == 400
    won = bid(stack, "mistaken", request_of(4))
    fire(stack, won["burl"])
    wanted = (PASS, FAIL, FAIL, FAIL, PASS, FAIL)
    document = await_states(stack, "mistaken", *wanted, evidence="on 1 of 4 requests")
    _, content_type, answers, win, _, fields = document["items"]
    untyped, other = content_type["evidence"]
    assert untyped.startswith("missing (the body was still read as JSON) on 1 of 4 requests, the l")
    assert other.startswith(
        "a different one, which is refused, on 1 of 4 requests, the latest at 20"
    )
    assert "Content-Type: application/json" in content_type["fix"]
    problems = [line.split(": ", 1)[1] for line in answers["evidence"][2:]]
    assert sorted(problems) == [
        "Content-Type: must be application/json",
        "imp: is required and may not be empty",
    ]
    assert win["evidence"][-1] == "but 1 billing notice"
    assert win["fix"].startswith("fire the nurl of the bid with GET")
    assert fields["evidence"] == [
        "device.geo.country: 50.0% (1 of 2)",
        "device.ua: 50.0% (1 of 2)",
        "device.ip: 50.0% (1 of 2)",
        "device.ipv6 in place of device.ip: 1",
    ]
    assert fields["fix"] == (
        "include device.geo.country and device.ua and device.ip in every bid request"
    )


def test_test_bids_and_their_notices_count(stack: Stack) -> None:
    """And nothing but evidence: the ledger counts none of it."""
    for number in range(3):
        tested = bid(stack, "acme-eu", request_of(number, test=1))
        fire(stack, tested["nurl"])
        fire(stack, tested["burl"])
    wanted = "3 requests with test: 1"
    document = await_states(stack, "acme-eu", *[PASS] * 6, evidence=wanted)
    assert wanted in document["items"][2]["evidence"]
    for item in document["items"][3:5]:
        assert item["evidence"][0] == "0 for 0 answers with a bid in the last 3 days (UTC)"
        assert " for test bids, the latest at 20" in item["evidence"][1]
    assert document["seen"]["notices"] == {"b": 0, "w": 0, "i": 0, "l": 0, "l:-1": 0}


def test_statistics_outlive_the_workers(database: str, start_stack: Callable[..., Stack]) -> None:
    """What was sent just before a SIGTERM is kept, and added to by the next workers."""
    asyncio.run(books.set_up(database))
    first = start_stack(SNAPBID_WORKERS="2")
    bid(first, "acme", request_of(1))
    assert first.stop() == 0
    served = start_stack(SNAPBID_WORKERS="1")
    bid(served, "acme", request_of(2))
    eventually(lambda: judged(served, "acme")["seen"]["counts"]["requests"] == 2, "two requests")


def test_unregistered_ids_are_named(stack: Stack) -> None:
    for id in ("Nova", "{sspId}"):
        assert bid(stack, id.replace("{", "%7B").replace("}", "%7D"), request_of(1)) == 404
    eventually(lambda: len(judged(stack, "unsent")["seen"]["strays"]) == 2, "two strays")
    first, *strays = judged(stack, "unsent")["items"][0]["evidence"]
    assert first.startswith("no request to ")
    assert sorted(line.split(" at ")[0] for line in strays) == [
        "a request to the unregistered id 'Nova'",
        "a request to the unregistered id '{sspId}'",
    ]


def test_wrong_input(stack: Stack, module_database: str) -> None:
    result = golive(stack, "nobody")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "'nobody' is not registered: add it with snapbid ssp add\n"
    for span in ("8d", "0m", "x", "1", "-1h"):
        result = golive(stack, "acme", "--last", span)
        assert result.returncode == 2
        assert "must be a duration of at most 7d, like 10m, 24h or 7d" in result.stderr
    unavailable = {
        "SNAPBID_DATABASE_URL": module_database,
        "SNAPBID_REDIS_URL": "redis://127.0.0.1:1",
    }
    result = invoke(unavailable, "golive", "acme")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == ("Redis (SNAPBID_REDIS_URL) failed: nothing listens at 127.0.0.1:1\n")


def test_invalid_countries_are_left_out(stack: Stack) -> None:
    """Seen: `United States` passed, and no campaign that wants the USA bid."""
    for number, country in enumerate(("United States", "XKX", "usa", "US", "")):
        device = {"ua": "Mozilla/5.0", "ip": "192.0.2.1", "geo": {"country": country}}
        bid(stack, "abroad", request_of(number, device=device))
    wanted = (PASS, PASS, PASS, UNSEEN, UNSEEN, FAIL)
    document = await_states(stack, "abroad", *wanted, evidence="device.geo.country: 40.0% (2 of 5)")
    item = document["items"][5]
    strange = "device.geo.country is no country of ISO 3166-1, and counts as absent: 2"
    assert item["evidence"][-1] == strange
    assert item["fix"].endswith("a country as its ISO 3166-1 code (USA, not United States)")


def test_values_that_are_no_address_are_left_out(stack: Stack) -> None:
    """Seen: `unknown` and `8.8.8` counted as `device.ip`."""
    for number, ip in enumerate(("unknown", "8.8.8", "8.8.8.8:443", "[2001:db8::1]", "", "::1")):
        device = {"ua": "Mozilla/5.0", "ip": ip, "ipv6": "x", "geo": {"country": "USA"}}
        bid(stack, "addressed", request_of(number, device=device))
    wanted = (PASS, PASS, PASS, UNSEEN, UNSEEN, FAIL)
    document = await_states(stack, "addressed", *wanted, evidence="device.ip: 50.0% (3 of 6)")
    item = document["items"][5]
    assert item["evidence"][-2:] == [
        "device.ip is no IP address, and counts as absent: 2",
        "device.ipv6 is no IP address, and counts as absent: 3",
    ]
    assert item["fix"].endswith("; an address as plain text (192.0.2.1)")
