"""Stores that are configured to lose what they acknowledge: refused, or named while we run."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest
import redis
from support.ops import data, prepare, samples
from support.processes import eventually
from support.stack import JWT_SECRET, PERMISSIONS, Stack, connected, execute, run

from snapbid.base.addresses import redis_cli
from snapbid.base.version import RELEASE
from snapbid.embedded import Redis
from snapbid.warehouse.risks import fetch_risks


@pytest.fixture
def client(own_redis: Redis) -> Iterator[redis.Redis]:
    with contextlib.closing(redis.Redis.from_url(own_redis.url)) as client:
        yield client


def test_volatile_stores(
    own_redis: Redis, client: redis.Redis, database: str, start_stack: Callable[..., Stack]
) -> None:
    environ = {
        "SNAPBID_REDIS_URL": own_redis.url,
        "SNAPBID_DATABASE_URL": database,
        "SNAPBID_JWT_SECRET": JWT_SECRET,
    }
    client.config_set("appendonly", "no")
    client.config_set("maxmemory-policy", "allkeys-lru")
    for command in ("serve", "drain"):
        done = run(environ, command)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        appendonly, eviction = done.stderr.splitlines()
        assert appendonly == (
            "Redis (SNAPBID_REDIS_URL) runs with appendonly no: a restart loses open bids, counts, "
            f"budgets and events: run `{redis_cli(own_redis.url)} config set appendonly yes`, and "
            "write it into redis.conf, or set SNAPBID_ALLOW_VOLATILE=1"
        )
        assert "maxmemory-policy allkeys-lru" in eviction

    prepare(database)
    stack = start_stack(SNAPBID_REDIS_URL=own_redis.url, SNAPBID_ALLOW_VOLATILE="1")
    assert "WARNING Redis (SNAPBID_REDIS_URL) runs with appendonly no" in stack.output

    def risks() -> set[str]:
        return {risk["name"] for risk in data(stack)["risks"]}

    eventually(lambda: risks() == {"appendonly", "eviction"}, "both risks on the page")
    client.config_set("appendonly", "yes")
    client.config_set("maxmemory-policy", "noeviction")
    eventually(lambda: risks() == set(), "their end")
    assert samples(stack)["snapbid_store_risk"][(("risk", "eviction"), ("store", "redis"))] == 0
    client.config_set("maxmemory-policy", "volatile-lru")  # while it runs
    eventually(lambda: risks() == {"eviction"}, "the change")
    assert samples(stack)["snapbid_store_risk"][(("risk", "eviction"), ("store", "redis"))] == 1
    assert "resolved: Redis (SNAPBID_REDIS_URL) runs with appendonly no" in stack.output
    assert "WARNING Redis (SNAPBID_REDIS_URL) runs with maxmemory-policy volatile-lru" in (
        stack.output
    )
    assert stack.get("/readyz")[0] == 200


def test_a_redis_user_who_may_not_ask_for_the_configuration(
    own_redis: Redis, client: redis.Redis, database: str, start_stack: Callable[..., Stack]
) -> None:
    permissions = PERMISSIONS[: PERMISSIONS.index("+info")]
    client.execute_command("ACL SETUSER", "app", "on", ">secret", *permissions)  # type: ignore[no-untyped-call]
    environ = {
        "SNAPBID_REDIS_URL": own_redis.url.replace("unix://", "unix://app:secret@"),
        "SNAPBID_DATABASE_URL": database,
        "SNAPBID_JWT_SECRET": JWT_SECRET,
        "SNAPBID_ALLOW_VOLATILE": "1",
    }
    for command in ("serve", "drain"):
        done = run(environ, command)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "Redis (SNAPBID_REDIS_URL) refuses a command to its user (" in done.stderr
        assert "'info'" in done.stderr
        assert " ".join(PERMISSIONS) in done.stderr

    client.execute_command("ACL SETUSER", "app", *PERMISSIONS)  # type: ignore[no-untyped-call]
    prepare(database)
    stack = start_stack(SNAPBID_REDIS_URL=environ["SNAPBID_REDIS_URL"])
    assert samples(stack)["snapbid_store_risk"][(("risk", "permission"), ("store", "redis"))] == 0
    client.execute_command("ACL SETUSER", "app", "-info")  # type: ignore[no-untyped-call]
    eventually(lambda: {it["name"] for it in data(stack)["risks"]} == {"permission"}, "the risk")


def test_a_ledger_that_only_a_newer_program_can_read(
    own_redis: Redis, client: redis.Redis, database: str, start_stack: Callable[..., Stack]
) -> None:
    environ = {
        "SNAPBID_REDIS_URL": own_redis.url,
        "SNAPBID_DATABASE_URL": database,
        "SNAPBID_JWT_SECRET": JWT_SECRET,
    }
    prepare(database)
    stack = start_stack(SNAPBID_REDIS_URL=own_redis.url)
    assert client.hget("ledger:format", "number") == b"1"
    client.hset("ledger:format", mapping={"number": 2, "version": "7.0"})
    for command in ("serve", "drain"):
        done = run(environ, command)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert done.stderr.startswith(
            f"Redis (SNAPBID_REDIS_URL) has a ledger written by 7.0, which this program ({RELEASE}"
        )
        assert done.stderr.endswith("cannot read: install 7.0\n")
    eventually(lambda: "cannot read" in str(data(stack)["verdict"]), "word of it where one runs")
    client.hset("ledger:format", mapping={"number": 0, "version": "0.0"})
    eventually(lambda: "cannot read" not in str(data(stack)["verdict"]), "its end")


def test_risks_of_a_warehouse(database: str) -> None:
    async def risks() -> dict[str, str]:
        async with connected(database) as connection:
            return {risk.name: str(risk) for risk in await fetch_risks(connection)}

    assert asyncio.run(risks()) == {}
    asyncio.run(
        execute(
            database,
            "do $$ begin execute format('alter database %I set synchronous_commit = off',"
            " current_database()); end $$",
        )
    )
    (named,) = asyncio.run(risks()).items()
    assert named[0] == "synchronous_commit"
    assert named[1].startswith("PostgreSQL (SNAPBID_DATABASE_URL) runs with synchronous_commit off")
    for statement in named[1].split("`")[1].rstrip(";").split(";"):
        asyncio.run(execute(database, statement))
