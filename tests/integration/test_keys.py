"""Products, API keys and their rates: the commands, and what reaches running workers."""

import asyncio
import functools
import json
import random
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import BlockingConnectionPool, Redis
from support import sending
from support.clock import SettableClock
from support.commands import invoke
from support.http import Reply
from support.processes import eventually
from support.sending import BATCH, SINGLE, event, money
from support.stack import Stack, execute

from snapbid import embedded
from snapbid.events.keys import rate_key
from snapbid.queues.rate import RateLimiter, RateLimiterUnavailable, Refusal

Cli = Callable[..., subprocess.CompletedProcess[str]]
MICROS = 1_000_000
START = 1_789_000_000 * MICROS


@pytest.fixture
def cli(database: str, fresh_redis: str) -> Cli:
    def call(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        stores = {"SNAPBID_DATABASE_URL": database, "SNAPBID_REDIS_URL": fresh_redis}
        return invoke(stores, *arguments, **more)

    return call


@pytest.fixture(scope="module")
def served(module_stack: Callable[..., Stack], module_own_redis: embedded.Redis) -> Stack:
    """Two workers that tests share, each with a product of its own."""
    return module_stack(SNAPBID_WORKERS="2", SNAPBID_REDIS_URL=module_own_redis.url)


@pytest.fixture
def served_cli(module_database: str, module_own_redis: embedded.Redis) -> Cli:
    stores = {"SNAPBID_DATABASE_URL": module_database, "SNAPBID_REDIS_URL": module_own_redis.url}
    return functools.partial(invoke, stores)


def issued(result: subprocess.CompletedProcess[str]) -> str:
    """The key, which is all that was printed, but for the product if it is new."""
    assert result.returncode == 0
    assert result.stderr == "" or re.fullmatch(r"created the product \S+\n", result.stderr)
    (line,) = result.stdout.splitlines()
    assert line.isascii()
    assert line.isprintable()
    assert len(line) >= 43
    return line


def test_keys_are_issued_and_stored_as_hashes(cli: Cli, database: str) -> None:
    keys = {issued(cli("key", "issue", "shop")), issued(cli("key", "issue", "shop"))}
    assert len(keys) == 2
    keys.add(issued(cli("key", "issue", "casino", "--preset", "igaming", "--rate", "7")))
    stored = sending.rows(database, "select product, rate from api_key order by product")
    assert [tuple(each.values()) for each in stored] == [
        ("casino", 7), ("shop", 6000), ("shop", 6000),
    ]  # fmt: skip
    issued(cli("key", "issue", "shop", "--preset", "igaming"))
    issued(cli("key", "issue", "shop"))
    presets = sending.rows(database, "select name, presets from product order by name")
    assert [tuple(each.values()) for each in presets] == [
        ("casino", ["igaming"]), ("shop", ["igaming"]),
    ]  # fmt: skip
    dump = str(sending.rows(database, "select * from api_key, product"))
    assert not any(key in dump for key in keys)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["a b"], 1, "PRODUCT must be"),
        ([""], 1, "PRODUCT must be"),
        (["p" * 129], 1, "PRODUCT must be"),
        (["shop", "--rate", "0"], 1, "--rate must be from 1 to 1000000"),
        (["shop", "--rate", "x"], 2, "--rate"),
        (["shop", "--preset", "no-such"], 2, "igaming"),
    ],
    ids=str,
)
def test_refused_issues(
    cli: Cli, database: str, arguments: list[str], status: int, said: str
) -> None:
    result = cli("key", "issue", *arguments)
    assert (result.returncode, result.stdout) == (status, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not sending.rows(database, "select * from product")


def statuses(stack: Stack, key: str, document: Any) -> set[int]:
    return {sending.send(stack.port, SINGLE, document, key).status for _ in range(12)}


def test_changes_reach_every_worker(served: Stack, served_cli: Cli, module_database: str) -> None:
    paid = event("withdraw", transaction_id="t", **money(1))
    assert statuses(served, "sbk_none", paid) == {401}
    key = issued(served_cli("key", "issue", "shop"))
    eventually(lambda: statuses(served, key, paid) == {422}, "that the key is known")
    issued(served_cli("key", "issue", "shop", "--preset", "igaming"))
    eventually(lambda: statuses(served, key, paid) == {202}, "that the product is subscribed")
    sending.run_sql(module_database, "update product set presets = '{}' where name = 'shop'")
    eventually(lambda: statuses(served, key, paid) == {422}, "that it no longer is")
    assert served_cli("key", "revoke", key).returncode == 0
    eventually(lambda: statuses(served, key, paid) == {401}, "that the key is gone")
    revoked, unknown = (sending.send(served.port, SINGLE, paid, each) for each in (key, "sbk_none"))
    assert revoked.body == unknown.body, "nobody learns which keys there were"


def test_keys_are_listed_and_revoked(cli: Cli) -> None:
    keys = {product: issued(cli("key", "issue", product)) for product in ("a", "b", "c")}
    kept = issued(cli("key", "issue", "a", "--preset", "igaming", "--rate", "7"))
    listed = json.loads(cli("key", "list", "--json").stdout)
    assert [(key["product"], key["rate"]) for key in listed] == [
        ("a", 6000), ("a", 7), ("b", 6000), ("c", 6000)
    ]  # fmt: skip
    assert listed[1]["presets"] == ["igaming"]
    ids = {key["product"]: key["id"] for key in listed if key["rate"] != 7}
    plain = cli("key", "list").stdout
    assert [line.split("\t")[0] for line in plain.splitlines()] == [
        "id", *(key["id"] for key in listed)
    ]  # fmt: skip
    assert not any(key in plain + str(listed) for key in (*keys.values(), kept))
    for given, product in ((keys["a"], "a"), (ids["b"], "b")):
        done = cli("key", "revoke", given)
        assert done.stdout == f"{ids[product]}: revoked (product {product})\n"
        assert done.stderr == ""
    for given in (keys["a"], ids["b"], "sbk_none", "", ids["c"][:6], "%", "a" * 5000):
        done = cli("key", "revoke", "--", given)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "KEY_OR_ID matches no valid key: see snapbid key list\n"
    left = {
        (key["product"], key["rate"]) for key in json.loads(cli("key", "list", "--json").stdout)
    }
    assert left == {("a", 7), ("c", 6000)}


# -- the rate -------------------------------------------------------------------------------------


def test_the_rate_holds_over_all_workers_and_both_endpoints(
    served: Stack, module_database: str
) -> None:
    key, other = (sending.issue(module_database, "rated", rate=rate) for rate in (20, 20))
    eventually(
        lambda: sending.send(served.port, SINGLE, {}, key, x_test_mode="true").status != 401,
        "the key",
    )

    def send(key: str, path: str, document: Any, **headers: str) -> Reply:
        reply = sending.send(served.port, path, document, key, **headers)
        while reply.status == 401:  # by a worker that has yet to hear of the key
            reply = sending.send(served.port, path, document, key, **headers)
        return reply

    statuses = [send(key, SINGLE, event("login")).status for _ in range(8)]
    statuses += [send(key, BATCH, [event("login")]).status for _ in range(8)]
    statuses += [send(key, SINGLE, b"{").status]
    statuses += [send(key, SINGLE, event("login"), x_test_mode="true").status for _ in range(8)]
    assert set(statuses[:16]) == {202}
    assert statuses[16] == 400
    assert sorted(set(statuses[17:])) == [200, 429]
    assert sum(status != 429 for status in statuses) == 19  # the look for the key counts, too
    for path, type_ in ((SINGLE, "application/json"), (BATCH, "text/plain")):
        reply = send(key, path, b"{", content_type=type_)
        assert reply.status == 429
        assert set(reply.json()) == {"error"}
        assert isinstance(reply.json()["error"], str)
        assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert send(other, SINGLE, event("login")).status == 202


class Limited:
    """The limit of one key, on a Redis, with a clock to turn; of events it may have any number."""

    def __init__(self, redis: Redis, has_events: bool) -> None:
        self.redis = redis
        self.clock = SettableClock(START)
        self.limiter = RateLimiter(redis, clock=self.clock)
        self.has_events = has_events

    async def at(self, seconds: float, rate: int = 3) -> int:
        self.clock.now = START + round(seconds * MICROS)
        if self.has_events:
            refusal = await self.limiter.admit_events(rate_key(b"d" * 32), rate, 1_000_000)
            assert refusal is None or refusal.wait_s > 0
            return 0 if refusal is None else refusal.wait_s
        admission = await self.limiter.admit(rate_key(b"d" * 32), rate)
        assert admission.admitted or admission.wait_s > 0
        return 0 if admission.admitted else admission.wait_s


@pytest.fixture(params=[False, True], ids=["requests", "requests with events"])
async def limited(fresh_redis: str, request: pytest.FixtureRequest) -> AsyncIterator[Limited]:
    redis = Redis.from_pool(BlockingConnectionPool.from_url(fresh_redis, max_connections=4))
    yield Limited(redis, request.param)
    await redis.aclose()


async def test_the_minute_rolls_exactly(limited: Limited) -> None:
    assert [await limited.at(second) for second in (0, 10, 59.999999)] == [0, 0, 0]
    assert await limited.at(59.999999) == 1
    assert await limited.at(60) == 0  # the first has left
    assert await limited.at(60) == 10
    assert await limited.at(69.999999) == 1
    assert await limited.at(70) == 0
    assert await limited.at(119.999998) == 1
    assert await limited.at(119.999999) == 0


async def test_refused_requests_are_not_counted(limited: Limited) -> None:
    for second in range(60):
        assert (await limited.at(second) == 0) == (second < 3)
    assert [await limited.at(60), await limited.at(61), await limited.at(62)] == [0, 0, 0]


async def test_a_rate_that_is_lowered(limited: Limited) -> None:
    for second in range(10):
        assert await limited.at(second, 10) == 0
    assert await limited.at(20, 3) == 47  # until the eighth of ten has left, two remain
    assert await limited.at(66.999999, 3) == 1
    assert await limited.at(67, 3) == 0


async def test_a_clock_that_is_set_back(limited: Limited) -> None:
    for _ in range(3):
        assert await limited.at(0) == 0
    assert await limited.at(-30) == 90
    assert await limited.at(-3600) == 0


async def test_no_more_than_the_rate_at_once(limited: Limited) -> None:
    taken = await asyncio.gather(*(limited.at(0, 50) for _ in range(120)))
    assert sum(wait == 0 for wait in taken) == 50


async def test_it_leaves_no_more_than_the_rate_and_not_for_long(limited: Limited) -> None:
    for second in range(200):
        await limited.at(second / 10, 100)
    key = rate_key(b"d" * 32)
    assert await limited.redis.llen(key) == 100
    assert 0 < await limited.redis.pttl(key) <= 60_000


async def test_without_redis_nobody_is_admitted(tmp_path: Path) -> None:
    redis = Redis.from_url(f"unix://{tmp_path}/none.sock")
    with pytest.raises(RateLimiterUnavailable):
        await RateLimiter(redis).admit("events:rate:none", 1)
    await redis.aclose()


# -- the other commands ---------------------------------------------------------------------------


def test_rates_are_imported_whole_and_used_in_test_mode(
    cli: Cli, database: str, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack = start_stack()
    key = sending.issue(database, "casino", "igaming")
    sending.await_key(stack.port, key)
    paid = event(
        "withdraw", at=1_717_200_000_000, transaction_id="t", amount=2, currency="XYZ",
        is_crypto=True,
    )  # fmt: skip

    def amount() -> Any:
        answer = sending.send(stack.port, SINGLE, paid, key, x_test_mode="true").json()
        return answer["event"]["enrichment"]["amounts"]["amount"]

    assert (amount()["usd"], amount()["rate_date"]) == (None, None)
    file = tmp_path / "rates.jsonl"
    file.write_text(
        '{"currency": "xyz", "date": "2024-05-01", "usd": 0.1}\n\n'
        '{"currency": "XYZ", "date": "2024-07-01", "usd": "7"}\n'
    )
    done = cli("rates", "import", str(file))
    assert (done.returncode, done.stdout) == (0, "2 rates imported\n")
    eventually(lambda: amount()["usd"] == 0.2, "the rate")
    assert amount()["rate_date"] == "2024-05-01"
    whole = tmp_path / "rates.json"
    whole.write_text('[{"currency": "XYZ", "date": "2024-05-01", "usd": 123456789.123456789012}]')
    assert cli("rates", "import", str(whole)).returncode == 0
    ((usd,),) = (
        each.values()
        for each in sending.rows(
            database, "select usd::text from operator_rate where day = '2024-05-01'"
        )
    )
    assert usd == "123456789.123456789012"


def test_every_mistake_of_a_file_of_rates_is_named(cli: Cli, database: str, tmp_path: Path) -> None:
    good = {"currency": "XYZ", "date": "2024-05-01", "usd": 1}
    lines = [
        good,
        {**good, "usd": 0},
        {**good, "usd": True, "date": "2024-02-30"},
        {**good, "currency": "USD"},
        {**good, "currency": "€"},
        {**good, "more": 1},
        {**good, "date": 20240501},
        [],
        good,
        {},
    ]
    file = tmp_path / "rates.jsonl"
    file.write_text("\n".join([*map(json.dumps, lines), "{"]))
    done = cli("rates", "import", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert [line.split(" ", 3)[:3] for line in done.stderr.splitlines()] == [
        ["line", "2:", "usd:"],
        ["line", "3:", "date:"],
        ["line", "3:", "usd:"],
        ["line", "4:", "currency:"],
        ["line", "5:", "currency:"],
        ["line", "6:", "more:"],
        ["line", "7:", "date:"],
        ["line", "8:", "must"],
        ["line", "9:", "date:"],
        ["line", "10:", "currency:"],
        ["line", "10:", "date:"],
        ["line", "10:", "usd:"],
        ["line", "11:", "is"],
    ]
    assert not sending.rows(database, "select * from operator_rate")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    assert "no rate" in cli("rates", "import", str(empty)).stderr


def test_replaying_no_dead_letters(cli: Cli) -> None:
    done = cli("events", "replay")
    assert (done.returncode, done.stdout) == (0, "0 events replayed\n")


def test_a_schema_that_is_too_old_is_told(cli: Cli, database: str) -> None:
    asyncio.run(execute(database, "drop table api_key, product cascade"))
    done = cli("key", "issue", "shop")
    assert done.returncode == 1
    assert "run snapbid migrate" in done.stderr


# -- as many events -------------------------------------------------------------------------------


class Volume:
    """The limits of one key's requests and events, with a clock to turn."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.clock = SettableClock(START)
        self.limiter = RateLimiter(redis, clock=self.clock)
        self.key = rate_key(b"e" * 32)

    def _set(self, seconds: float) -> None:
        self.clock.now = START + round(seconds * MICROS)

    async def request(self, at: float, requests: int = 6000) -> str:
        self._set(at)
        return _shown(await self.limiter.admit_events(self.key, requests, 1000))

    async def more(self, at: float, count: int) -> str:
        self._set(at)
        return _shown(await self.limiter.admit_more(self.key, 1000, count))

    async def batch(self, at: float, count: int, requests: int = 6000) -> str:
        return await self.request(at, requests) or await self.more(at, count - 1)


def _shown(refusal: Refusal | None) -> str:
    return "" if refusal is None else f"{refusal.what} {refusal.limit} {refusal.wait_s}"


@pytest.fixture
async def volume(fresh_redis: str) -> AsyncIterator[Volume]:
    redis = Redis.from_pool(BlockingConnectionPool.from_url(fresh_redis, max_connections=4))
    yield Volume(redis)
    await redis.aclose()


async def test_events_are_counted_over_a_rolling_minute(volume: Volume) -> None:
    assert await volume.more(0, 400) == ""
    assert await volume.more(20, 400) == ""
    assert await volume.more(30, 201) == "events 1000 30"  # until 400 of 800 have left
    assert await volume.more(30, 200) == ""
    assert await volume.request(30) == "events 1000 30"
    assert await volume.more(30, 401) == "events 1000 50"
    assert await volume.more(30, 1000) == "events 1000 60"
    assert await volume.more(59.999999, 1) == "events 1000 1"
    assert await volume.more(60, 400) == ""
    assert await volume.request(79) == "events 1000 1"
    assert await volume.request(80) == ""


async def test_a_request_counts_as_an_event_and_not_where_it_is_refused(volume: Volume) -> None:
    assert await volume.request(0, requests=2) == ""
    assert await volume.more(0, 998) == ""
    assert await volume.request(1, requests=2) == ""
    assert await volume.request(2, requests=3) == "events 1000 58"
    assert await volume.request(2, requests=2) == "requests 2 58"
    assert await volume.request(60.5, requests=2) == ""


async def test_a_batch_that_is_refused_counts_neither_as_a_request_nor_as_an_event(
    volume: Volume,
) -> None:
    """So a client that tries again is admitted when it was told, however often it tried before."""
    assert await volume.batch(0, 600) == ""
    for second in range(1, 10):
        assert await volume.batch(second, 600) == f"events 1000 {60 - second}"
    assert await volume.batch(10, 400) == ""
    assert await volume.batch(60, 600) == ""
    assert await volume.batch(61, 1, requests=2) == "requests 2 9"


async def test_more_than_the_limit_of_events_at_once(volume: Volume) -> None:
    taken = await asyncio.gather(*(volume.more(0, 7) for _ in range(300)))
    assert sum(not refusal for refusal in taken) == 1000 // 7


async def test_a_clock_that_is_set_back_leaves_no_events_behind(volume: Volume) -> None:
    assert await volume.more(0, 1000) == ""
    assert await volume.more(-30, 1) == "events 1000 90"
    assert await volume.more(-3600, 1000) == ""


async def test_volumes_agree_with_a_plain_list(volume: Volume) -> None:
    choose = random.Random(4)
    admitted: list[tuple[float, int]] = []
    at = 0.0
    for _ in range(800):
        at += choose.choice([0.0, 0.001, 0.4, 3.0])
        count = choose.choice([1, 1, 1, 2, 6, 61, 301])
        used = sum(own for when, own in admitted if when > at - 60)
        refused = await volume.request(at)
        asked = 1 if refused else count  # how many events it has is known later
        refused = refused or await volume.more(at, count - 1)
        assert (refused == "") == (used + count <= 1000)
        if not refused:
            admitted.append((at, count))
            continue
        after = at + int(refused.split()[-1])  # it is admitted then for certain
        assert sum(own for when, own in admitted if when > after - 60) + asked <= 1000


def test_a_key_has_as_many_events_as_it_was_issued_with(served: Stack, served_cli: Cli) -> None:
    key = issued(served_cli("key", "issue", "loud", "--events", "1200"))
    sending.await_key(served.port, key)
    batch = [event("login", f"u{number}") for number in range(600)]
    large = [event("login", f"u{number}", vendor="x" * 60_000) for number in range(15)]
    counts = [sending.send(served.port, BATCH, batch, key).status for _ in range(3)]
    assert counts == [202, 429, 429]  # looking for the key took some
    refused = sending.send(served.port, BATCH, batch, key)
    assert refused.json()["error"].startswith("more than 1200 events with this key in a minute")
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert sending.send(served.port, SINGLE, batch[0], key).status == 202
    sizes = [sending.send(served.port, BATCH, large, key).status for _ in range(3)]
    assert sizes.count(202) == 2  # each counts as 219 events
    few = served_cli("key", "issue", "loud", "--events", "1023")
    assert few.returncode != 0
    assert "--events must be from 1024 to" in few.stderr
