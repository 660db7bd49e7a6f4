"""The endpoints of document 3 over HTTP: order of checks, all codes, both modes, what is kept."""

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest
import redis
from support import sending
from support.http import Reply
from support.sending import BATCH, NOW, SINGLE, event, money
from support.stack import Stack, connected

from snapbid.base.redis_keys import ShardKeys
from snapbid.campaigns.click_id import Click, creative_digest
from snapbid.queues import queue
from snapbid.warehouse import campaigns, conversions

MAX_BYTES = 4 << 20
SECRET = "b8c1-partner-value-that-must-not-show"


class Served:
    """A server with two workers, and keys of a shop and a casino."""

    def __init__(self, stack: Stack, dsn: str, redis_url: str) -> None:
        self.stack = stack
        self.dsn = dsn
        self.redis_url = redis_url
        self.shop = sending.issue(dsn, "shop", rate=1_000_000)
        self.casino = sending.issue(dsn, "casino", "igaming", rate=1_000_000)
        sending.await_key(stack.port, self.casino)

    def send(self, document: Any, path: str = SINGLE, **more: Any) -> Reply:
        key = more.pop("key", self.casino)
        return sending.send(self.stack.port, path, document, key, **more)

    def queued(self) -> list[tuple[str, str, dict[str, Any]]]:
        """What is in the stream: (product, event id, envelope)."""
        with redis.Redis.from_url(self.redis_url) as client:
            entries: Any = client.xrange(ShardKeys(0).events)
        requests = [queue.decode(packed) for _, fields in entries for packed in fields.values()]
        return [
            (request.product, event_id, json.loads(envelope))
            for request in requests
            for event_id, envelope in request.events
        ]


@pytest.fixture(scope="module")
def served(
    module_database: str, redis_url: str, module_stack: Callable[..., Stack]
) -> Iterator[Served]:
    stack = module_stack(SNAPBID_WORKERS="2")
    yield Served(stack, module_database, redis_url)
    assert SECRET not in stack.output


@pytest.fixture(autouse=True)
def _empty_queue(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.delete(ShardKeys(0).events)


def violations(reply: Reply) -> list[tuple[str, str, str | None]]:
    violations = reply.json()["violations"]
    return [(violation["field"], violation["rule"], violation["event"]) for violation in violations]


# -- accepted -------------------------------------------------------------------------------------


def test_a_single_event_is_accepted_and_queued(served: Served) -> None:
    reply = served.send(event("login", user_agent="Mozilla/5.0"))
    assert reply.status == 202
    assert reply.headers["content-type"] == "application/json"
    answer = reply.json()
    assert set(answer) == {"status", "eventId"}
    assert answer["status"] == "accepted"
    ((product, event_id, envelope),) = served.queued()
    assert (product, event_id) == ("casino", answer["eventId"])
    assert (envelope["event"], envelope["timestamp"]) == ("login", NOW)


def test_a_retry_has_the_same_id_and_another_event_another(served: Served) -> None:
    first = event("deposit", transaction_id="t", **money(5))
    same = {key: first[key] for key in ("context", "identity", "timestamp", "event")}
    ids = [served.send(each).json()["eventId"] for each in (first, same)]
    assert ids[0] == ids[1]
    withdraw = event("withdraw", transaction_id="t", **money(5))
    assert served.send(withdraw).json()["eventId"] != ids[0]
    other = served.send(event("login"), key=served.shop).json()["eventId"]
    assert other != served.send(event("login")).json()["eventId"]


def test_a_batch_is_accepted_whole(served: Served) -> None:
    events = [event("login", user=f"u{number}") for number in range(600)]
    reply = served.send(events, BATCH)
    assert reply.status == 202
    answer = reply.json()
    assert set(answer) == {"status", "requestId", "count"}
    assert (answer["status"], answer["count"]) == ("accepted", 600)
    assert served.send(events, BATCH).json()["requestId"] != answer["requestId"]
    users = [envelope["identity"]["client_user_id"] for _, _, envelope in served.queued()]
    assert users == [f"u{number}" for number in range(600)] * 2


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP"])
def test_gzip_bodies(served: Served, coding: str) -> None:
    body = gzip.compress(json.dumps([event("login")]).encode())
    reply = served.send(body, BATCH, content_encoding=coding)
    assert (reply.status, reply.json()["count"]) == (202, 1)


@pytest.mark.parametrize("type_", ["application/json", "Application/JSON; charset=utf-8"])
def test_media_types(served: Served, type_: str) -> None:
    assert served.send(event("login"), content_type=type_).status == 202


# -- refused before the events are read -----------------------------------------------------------


def error(reply: Reply) -> tuple[int, str]:
    answer = reply.json()
    assert set(answer) == {"code", "message", "violations"}
    assert isinstance(answer["message"], str)
    return reply.status, answer["code"]


@pytest.mark.parametrize("key", [None, "", "sbk_", "sbk_" + "A" * 43, "\xc3\xa9"])
@pytest.mark.parametrize("path", [SINGLE, BATCH])
def test_invalid_keys(served: Served, key: str | None, path: str) -> None:
    reply = served.send(b"no matter what", path, key=key, content_type="text/plain")
    assert error(reply) == (401, "UNAUTHORIZED")
    assert reply.json()["violations"] == []


def test_a_key_that_is_given_twice(served: Served) -> None:
    """It names nobody: a proxy may have added one of another product."""
    reply = served.send(event("login"), X_API_KEY=served.shop)
    assert error(reply) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_methods(served: Served, method: str) -> None:
    reply = served.send(b"", method=method, key=None)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    if method != "HEAD":
        assert error(reply) == (405, "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize("path", ["/v3/s2s/events", "/v3/s2s/", "/v3/", "/v3/s2s/event/"])
def test_unknown_paths_below_v3(served: Served, path: str) -> None:
    assert error(served.send(event("login"), path)) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "headers",
    [{"content_type": "text/plain"}, {"content_type": ""}, {"content_encoding": "br"}],
    ids=str,
)
def test_types(served: Served, headers: dict[str, str]) -> None:
    reply = served.send(b"{" * (MAX_BYTES + 1), **headers)
    assert error(reply) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize("path", [SINGLE, BATCH])
@pytest.mark.parametrize("zipped", [False, True])
def test_sizes(served: Served, path: str, zipped: bool) -> None:
    wide = json.dumps(event("login", note="x" * 100)).encode()
    fits, over = (b" " * (size - len(wide)) + wide for size in (MAX_BYTES, MAX_BYTES + 1))
    headers = {"content_encoding": "gzip"} if zipped else {}
    code = gzip.compress if zipped else bytes
    reply = served.send(code(over), path, **headers)
    assert error(reply) == (413, "PAYLOAD_TOO_LARGE")
    assert violations(reply) == [("body", "max_size", None)]
    assert served.send(code(fits), path, **headers).status == (202 if path == SINGLE else 400)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", {}),
        (b"{", {}),
        (b'{"event": NaN}', {}),
        (b'[{"event": 1]', {}),
        (b"\xff\xfe", {}),
        (b'{"event": "a\\u0000"}', {}),
        (b"not gzip", {"content_encoding": "gzip"}),
        (gzip.compress(b"{}", mtime=0)[:-5], {"content_encoding": "gzip"}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("path", [SINGLE, BATCH])
@pytest.mark.parametrize("mode", ["true", "false", SECRET])
def test_malformed_bodies_come_before_headers(
    served: Served, path: str, body: bytes, headers: dict[str, str], mode: str
) -> None:
    reply = served.send(body, path, x_test_mode=mode, **headers)
    assert error(reply) == (400, "VALIDATION_ERROR")
    assert violations(reply) == [("body", "malformed_json", None)]


@pytest.mark.parametrize("path", [SINGLE, BATCH])
@pytest.mark.parametrize(
    "body",
    [[], {}, 5, [{}], event("login"), [event("login")]],
    ids=["nothing", "object", "number", "objects", "event", "events"],
)
@pytest.mark.parametrize("mode", ["1", "yes", SECRET, "true, true"])
def test_a_wrong_test_mode_comes_before_the_events(
    served: Served, path: str, body: Any, mode: str
) -> None:
    reply = served.send(body, path, x_test_mode=mode)
    assert error(reply) == (400, "VALIDATION_ERROR")
    assert violations(reply) == [("X-Test-Mode", "enum", None)]
    assert not served.queued()


# -- refused for the events -----------------------------------------------------------------------


def test_every_violation_is_named_and_no_value(served: Served) -> None:
    wrong = event("deposit", at=5, amount=SECRET, currency="XXXX", email=SECRET)
    reply = served.send(wrong)
    assert error(reply) == (400, "VALIDATION_ERROR")
    assert set(violations(reply)) == {
        ("timestamp", "not_milliseconds", "deposit"),
        ("context.transaction_id", "required", "deposit"),
        ("context.amount", "type", "deposit"),
        ("context.currency", "currency", "deposit"),
        ("context.email", "plaintext_pii", "deposit"),
    }
    assert SECRET.encode() not in reply.body
    assert not served.queued()


def test_codes_of_events(served: Served) -> None:
    unknown = served.send(event(SECRET))
    assert error(unknown) == (422, "UNKNOWN_EVENT_TYPE")
    assert violations(unknown) == [("event", "unknown_event", None)]
    assert SECRET.encode() not in unknown.body
    disabled = served.send(event("bet"), key=served.shop)
    assert error(disabled) == (400, "VALIDATION_ERROR")
    withdraw = event("withdraw", transaction_id="t", **money(5))
    disabled = served.send(withdraw, key=served.shop)
    assert error(disabled) == (422, "EVENT_DISABLED")
    assert served.send(withdraw).status == 202


def test_a_batch_is_all_or_nothing(served: Served) -> None:
    batch = [event("login"), event("login", ip_address=SECRET), event("no_such")]
    reply = served.send(batch, BATCH)
    assert error(reply) == (400, "VALIDATION_ERROR")
    assert reply.json()["violations"] == [
        {"field": "[1].context.ip_address", "rule": "ip_address", "event": "login", "index": 1},
        {"field": "[2].event", "rule": "unknown_event", "event": None, "index": 2},
    ]
    assert not served.queued()


def test_batch_sizes(served: Served) -> None:
    assert violations(served.send([], BATCH)) == [("body", "min_items", None)]
    assert violations(served.send({}, BATCH)) == [("body", "not_array", None)]
    many = served.send([SECRET] * 601, BATCH)
    assert error(many) == (400, "BATCH_TOO_LARGE")
    assert violations(many) == [("body", "max_items", None)]
    assert violations(served.send([event("login")])) == [("body", "not_object", None)]


@pytest.mark.parametrize(
    "prefer", ["handling=lenient", "respond-async, Handling=Lenient; x=1", 'handling="lenient"']
)
def test_lenient_batches(served: Served, prefer: str) -> None:
    batch = [event("login"), event("no_such"), 5, event("login", user="u-2")]
    reply = served.send(batch, BATCH, prefer=prefer)
    assert reply.status == 202
    assert reply.headers["preference-applied"] == "handling=lenient"
    answer = reply.json()
    assert set(answer) == {"status", "requestId", "count", "rejected", "errors"}
    assert (answer["count"], answer["rejected"]) == (2, 2)
    assert [(each["index"], each["code"], each["event"]) for each in answer["errors"]] == [
        (1, "UNKNOWN_EVENT_TYPE", None),
        (2, "VALIDATION_ERROR", None),
    ]
    assert len(served.queued()) == 2


def test_a_lenient_batch_of_wrong_events_alone(served: Served) -> None:
    answer = served.send([5, {}], BATCH, prefer="handling=lenient")
    assert answer.status == 202
    assert (answer.json()["count"], answer.json()["rejected"]) == (0, 2)
    assert not served.queued()


@pytest.mark.parametrize(
    "prefer", ["handling=strict", "lenient", "handling=strict, handling=lenient"]
)
def test_other_preferences(served: Served, prefer: str) -> None:
    reply = served.send([event("no_such")], BATCH, prefer=prefer)
    assert error(reply) == (422, "UNKNOWN_EVENT_TYPE")
    assert "preference-applied" not in reply.headers


# -- test mode ------------------------------------------------------------------------------------

CHROME = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120.0.0.0"


@pytest.mark.parametrize("mode", ["true", "TRUE", " True "])
def test_test_mode_echoes_the_enriched_event(served: Served, mode: str) -> None:
    sent = event(
        "deposit", at=1_717_200_000_000, ip_address="8.8.8.8", user_agent=CHROME,
        transaction_id="t", amount=10.0, currency="eur",
    )  # fmt: skip
    reply = served.send(sent, x_test_mode=mode)
    assert reply.status == 200
    answer = reply.json()
    assert set(answer) == {"status", "event", "warnings"}
    assert answer["status"] == "valid"
    echoed = answer["event"]
    assert echoed["context"]["currency"] == "EUR"
    enrichment = echoed.pop("enrichment")
    assert set(echoed) == {"event", "timestamp", "identity", "context"}
    assert enrichment["geo"]["country"] == "US"
    agent = enrichment["user_agent"]
    assert (agent["browser"], agent["os"], agent["is_bot"]) == ("chrome", "windows", False)
    amount = enrichment["amounts"]["amount"]
    assert (amount["value"], amount["currency"]) == (10, "EUR")
    assert amount["rate_date"] == "2024-05-31"
    assert amount["usd"] == pytest.approx(10 * amount["rate"])
    warned = {(each["field"], each["rule"]) for each in answer["warnings"]}
    assert ("context.is_crypto", "suggested_missing") in warned
    assert not served.queued()


def test_test_mode_refuses_like_live(served: Served) -> None:
    reply = served.send(event("no_such"), x_test_mode="true")
    assert error(reply) == (422, "UNKNOWN_EVENT_TYPE")


def test_test_mode_of_a_batch(served: Served) -> None:
    paid = event("withdraw", transaction_id="t", amount=1, currency="RUB")
    batch = [paid, event("no_such"), event("login")]
    reply = served.send(batch, BATCH, x_test_mode="true", prefer="handling=lenient")
    assert reply.status == 200
    answer = reply.json()
    assert set(answer) == {"status", "successCount", "failureCount", "errors", "warnings"}
    assert (answer["status"], answer["successCount"], answer["failureCount"]) == ("invalid", 2, 1)
    assert answer["errors"] == [
        {
            "index": 1,
            "code": "UNKNOWN_EVENT_TYPE",
            "event": None,
            "violations": [
                {"field": "[1].event", "rule": "unknown_event", "event": None, "index": 1}
            ],
        }
    ]
    indices = [each["index"] for each in answer["warnings"]]
    assert indices == sorted(indices)
    missing = [each for each in answer["warnings"] if each["rule"] == "rate_missing"]
    assert [(each["field"], each["event"]) for each in missing] == [
        ("[0].context.amount", "withdraw")
    ]
    assert served.send([event("login")], BATCH, x_test_mode="true").json()["status"] == "valid"
    assert not served.queued()


async def clicks(dsn: str) -> tuple[str, str]:
    """Click ids of a campaign: one that counts, and one of a click too long ago."""
    creative = {"id": "k", "media": "banner", "w": 1, "h": 1, "adm": "{{click_id}}"}
    own = {"id": "spring", "advertiser": "a.example", "cpm": 1, "creatives": [creative]}
    async with connected(dsn) as connection:
        await campaigns.replace_many(connection, [("spring", json.dumps(own))])
        campaign = await connection.fetchval("select number from campaign_number")
        (key,) = (await conversions.fetch_keys(connection)).values()
        now_s = int(time.time())
        return tuple(
            key.make(Click(campaign, creative_digest("k"), 7, now_s - days * 86_400))
            for days in (1, 31)
        )  # type: ignore[return-value]


def test_test_mode_shows_what_an_event_would_count_for(served: Served) -> None:
    fresh, old = asyncio.run(clicks(served.dsn))
    paid = event("deposit", "u", click=fresh, transaction_id="t", amount=2.5, currency="USD")
    later = event("login", "u")

    def of_click(answer: Any) -> list[tuple[str, str]]:
        found = [(each["field"], each["rule"]) for each in answer["warnings"]]
        return [each for each in found if each[1].startswith("click")]

    answer = served.send(paid, x_test_mode="true").json()
    conversion = answer["conversion"]
    assert date.fromisoformat(conversion.pop("day"))
    shown = {"campaign": "spring", "creative": "k", "descriptor": "#7"}
    assert conversion == {**shown, "value_usd": 2.5, "first_deposit": True}
    assert not of_click(answer)
    assert "conversion" not in served.send(later, x_test_mode="true").json()  # no click was stored

    for click, rule in ((old, "click_expired"), (fresh[::-1], "click_invalid")):
        answer = served.send(event("login", "u", click=click), x_test_mode="true").json()
        assert "conversion" not in answer
        assert of_click(answer) == [("identity.click_id", rule)]

    batch = [event("login", "v"), paid, event("login", "w", click="x"), later]
    answer = served.send(batch, BATCH, x_test_mode="true").json()
    assert [(each["index"], each["value_usd"]) for each in answer["conversions"]] == [
        (1, 2.5),
        (3, 0),
    ]
    assert of_click(answer) == [("[2].identity.click_id", "click_invalid")]
    for table in ("click_link", "conversion_daily"):
        assert not sending.rows(served.dsn, f"select from {table}")


def test_test_mode_without_the_warehouse(served: Served) -> None:
    sending.run_sql(served.dsn, "alter table click_key rename to hidden")
    try:
        answer = served.send(event("login", "u", click="x"), x_test_mode="true").json()
    finally:
        sending.run_sql(served.dsn, "alter table hidden rename to click_key")
    assert answer["status"] == "valid"
    assert set(answer) == {"status", "event", "warnings"}


@pytest.mark.parametrize("mode", ["false", "False", ""])
def test_live_by_any_spelling(served: Served, mode: str) -> None:
    assert served.send(event("login"), x_test_mode=mode).status == 202


def test_metrics_count_requests(served: Served) -> None:
    served.send(event("login"))
    page = served.stack.get("/metrics", ops=True)[1].decode()
    assert 'snapbid_event_requests_total{code="accepted",endpoint="single"}' in page
    assert SECRET not in page
