"""Privacy requests: what is stored of a person is removed, and no more of it is taken."""

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis
from support.commands import invoke, succeed
from support.ops import ask
from support.processes import eventually
from support.stack import Stack, draining, fetch

USER, DEVICE, HASH = "user-81", "38400000-8cf0-11bd-b23e-10b96e40000d", "ab" * 32
NOBODY = (
    "00000000-0000-0000-0000-000000000000", "null", "unknown", " Undefined ", "none", "0", "${IFA}",
)  # fmt: skip
CAMPAIGN = {
    "id": "capped",
    "advertiser": "brand.example",
    "cpm": 2,
    "frequency_caps": [{"impressions": 50, "seconds": 3600}],
    "creatives": [{"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "<p></p>"}],
}


class System:
    """A server with a drain, an SSP and a product."""

    def __init__(self, stack: Stack, dsn: str) -> None:
        self.stack, self.dsn = stack, dsn
        self.key = succeed(stack.environ, "key", "issue", "shop", "--preset", "igaming").strip()
        self.redis = Redis.from_url(stack.environ["SNAPBID_REDIS_URL"])

    def bid(self, auction: str, **more: Any) -> int:
        imp = {"id": "1", "banner": {"w": 300, "h": 250}}
        body = json.dumps({"id": auction, "imp": [imp], "tmax": 60_000, **more}).encode()
        path = "/api/v1/openrtb2/acme/bid"
        return ask(self.stack, "POST", path, body, content_type="application/json")[0]

    def send(self, name: str, at: int, identity: dict[str, str], **context: Any) -> int:
        own = {"ip_address": "8.8.8.8", **context}
        event = {"event": name, "timestamp": at, "identity": identity, "context": own}
        body, media = json.dumps(event).encode(), "application/json"
        path = "/v3/s2s/event"
        return ask(self.stack, "POST", path, body, content_type=media, x_api_key=self.key)[0]

    def rows(self, sql: str) -> list[Any]:
        return asyncio.run(fetch(self.dsn, sql))

    def caps(self) -> int:
        return sum(1 for _ in self.redis.scan_iter("{sb0}:f[ce]:*"))

    def named_bids(self) -> int:
        """Open bids that name a capped user."""
        records: list[Any] = []
        for key in self.redis.scan_iter("{sb0}:r:*"):
            records += self.redis.hvals(key)
        return sum(record[18] & 16 > 0 for record in records)


@pytest.fixture(scope="module")
def system(module_database: str, module_stack: Callable[..., Stack]) -> Iterator[System]:
    environ = {"SNAPBID_DATABASE_URL": module_database}
    succeed(environ, "ssp", "add", "acme")
    succeed(environ, "campaign", "import", "-", input=json.dumps(CAMPAIGN))
    served = module_stack()
    served.environ["SNAPBID_HOME"] = served.environ["SNAPBID_HOME"]
    with draining(served):
        made = System(served, module_database)
        made.redis.flushall()
        yield made


def test_a_person_is_forgotten(system: System) -> None:
    at = 1_717_200_000_000
    eventually(lambda: system.bid("a0", user={"id": "other"}) == 200, "it bids")
    assert system.bid("a1", user={"id": USER}) == 200
    assert system.bid("a2", device={"ifa": DEVICE.upper()}) == 200
    assert (system.caps(), system.named_bids()) == (3, 3)

    def logged_in() -> int:
        return system.send("login", at, {"client_user_id": USER}, method="password")

    eventually(lambda: logged_in() == 202, "the key is known")
    assert system.send("login", at + 1, {"client_user_id": "x", "click_id": USER}) == 202
    assert (
        system.send("login", at + 2, {"client_user_id": "y"}, privacy={"email_hash": HASH}) == 202
    )
    assert system.send("login", at + 3, {"client_user_id": "other"}, note=USER + "1") == 202
    eventually(lambda: len(system.rows("select from events")) == 4, "all are stored")

    def forget(*more: str) -> Any:
        ids = ("--id", USER, "--id", DEVICE, "--id", HASH.upper())
        where = ("--product", "shop", "--ssp", "acme", "--yes")
        return json.loads(succeed(system.stack.environ, "forget", *ids, *where, *more))

    removed = {
        "events": 3, "event_conflicts": 0, "event_dead_letters": 0, "click_links": 0, "persons": 0,
        "caps": 2, "open_bids": 2,
    }  # fmt: skip
    dry = forget("--dry-run")
    assert (dry["ids"], dry["hashed"]) == (3, 0)
    assert (dry["removed"], dry["dryRun"], dry["suppressed"]) == (removed, True, False)
    assert system.named_bids() == 3
    assert len(system.rows("select from events where context = '{}'")) == 0
    assert system.rows("select count(*) from suppressed") == [(0,)]

    receipt = forget()
    assert (receipt["removed"], receipt["ids"], receipt["suppressed"]) == (removed, 3, True)
    assert (system.caps(), system.named_bids()) == (1, 1)
    kept = system.rows(
        "select client_user_id, click_id, context <> '{}', event from events order by occurred_at"
    )
    assert kept == [(None, None, False, "login")] * 3 + [("other", None, True, "login")]
    assert_no_trace(system, receipt)

    # No more of it is taken.
    assert system.bid("a3", user={"id": USER}) == 204
    assert system.bid("a4", device={"ifa": DEVICE}) == 204
    assert system.bid("a5", user={"id": "other"}) == 200
    assert logged_in() == 202
    assert system.send("login", at + 9, {"client_user_id": "z", "anonymous_id": USER}) == 202
    eventually(lambda: len(system.rows("select from events")) == 5, "the new one is stored")
    emptied = "select from events where client_user_id is null and context = '{}'"
    assert len(system.rows(emptied)) == 4
    assert system.rows("select from event_conflicts") == []
    assert set(forget("--dry-run")["removed"].values()) == {0}


def assert_no_trace(system: System, receipt: Any) -> None:
    trail = json.loads(succeed(system.stack.environ, "audit", "--kind", "person", "--json"))
    assert [entry["object"] for entry in trail] == [receipt["receipt"]]
    assert trail[0]["detail"]["events"] == [3, 0]
    for table in ("audit", "suppressed", "events", "event_conflicts"):
        told = json.dumps(system.rows(f"select to_jsonb(t)::text from {table} t"))
        assert not any(f'"{id}\\"' in told for id in (USER, DEVICE, HASH)), table


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("", "1 to 1024 characters"),
        ("x" * 1025, "1 to 1024 characters"),
        *((id, "nobody's") for id in NOBODY),
        *((f"id.example {id}", "nobody's") for id in NOBODY),
        ("192.0.2.1", "IP address"),
        ("2001:db8::1", "IP address"),
    ],
)
def test_malformed_persons_are_refused(system: System, wrong: str, why: str) -> None:
    refused = invoke(system.stack.environ, "forget", "--id", "fine", "--id", wrong, "--yes")
    assert (refused.returncode, why in refused.stderr, refused.stdout) == (2, True, "")


def test_wrong_usage(system: System) -> None:
    environ = system.stack.environ
    assert invoke(environ, "forget").returncode == 2
    both = invoke(environ, "forget", "--id", "x", "--everywhere", "--ssp", "acme")
    assert (both.returncode, "cannot be combined" in both.stderr) == (2, True)
    unknown = invoke(environ, "forget", "--id", "x", "--product", "shpo", "--ssp", "acmee")
    assert unknown.returncode == 1
    assert unknown.stderr == "there is no product shpo\nthere is no ssp acmee\n"


def test_several_users_need_confirmation(system: System) -> None:
    """Nothing is removed, and nothing suppressed, before the operator has said so."""
    shared = str(uuid.uuid4())
    for number, user in enumerate(("p", "q")):
        sent = system.send("login", 1_717_300_000_000 + number, {"client_user_id": user},
                           device_id=shared)  # fmt: skip
        assert sent == 202
    stored = "select from events where client_user_id in ('p', 'q')"
    eventually(lambda: len(system.rows(stored)) == 2, "both are stored")
    before = system.rows("select count(*) from suppressed")
    ids = ("--id", "p", "--id", shared)
    refused = invoke(system.stack.environ, "forget", *ids)
    assert refused.returncode == 1
    assert "events of 2 users (client_user_id), 1 of whom are not named: 'q' of shop" in (
        refused.stderr
    )
    assert len(system.rows(stored)) == 2
    assert system.rows("select count(*) from suppressed") == before
    dry = json.loads(succeed(system.stack.environ, "forget", *ids, "--dry-run"))
    assert (dry["users"], dry["removed"]["events"]) == (2, 2)
    succeed(system.stack.environ, "forget", *ids, "--yes")
    assert system.rows(stored) == []
