"""What is wrong with a machine is named by `snapbid status`, and gone once it is put right."""

import asyncio
import contextlib
import re
from collections.abc import Iterator

import pytest
import redis
from support.commands import invoke
from support.machine import Machine, temporary_home
from support.ops import CAMPAIGN, bid, prepare
from support.processes import eventually
from support.program_clock import ProgramClock
from support.soak.disk import Disk, mounted
from support.stack import execute

from snapbid.base.version import RELEASE

# Each test bids until the status says so: no number of tries may use up the budget.
AMPLE = {**CAMPAIGN, "budget": {"daily": 10_000, "total": 100_000}}


class Stand:
    """A machine with an SSP and a campaign; a clock for its programs, a disk for its server."""

    def __init__(self, machine: Machine, clock: ProgramClock, disk: Disk | None) -> None:
        self.machine = machine
        self.clock = clock
        self.disk = disk
        self._auctions = 0

    def status(self) -> str:
        environ = self.machine.served.environ
        own = {name: text for name, text in environ.items() if name.startswith("SNAPBID_")}
        return invoke(own, "status").stdout

    def await_status(self, *texts: str, bids: int = 1) -> None:
        """Bid so often, until the status has all of these texts."""

        def is_named() -> bool:
            for _ in range(bids):
                self._auctions += 1
                bid(self.machine.served, f"auction-{self._auctions}")
            told = self.status()
            return all(text in told for text in texts)

        eventually(is_named, f"the status to say {texts}, and not {self.status()}")

    def await_drained(self, *texts: str) -> None:
        """Bid no more until the drain has carried all there is and the status has these texts."""

        def is_drained() -> bool:
            told = self.status()
            return all(text in told for text in ("0 counters waiting", *texts))

        eventually(is_drained, f"the drain to catch up, and not {self.status()}")

    def sql(self, *statements: str) -> None:
        for statement in statements:
            asyncio.run(execute(self.machine.postgres.dsn, statement))


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(temporary_home())
        disk = stack.enter_context(mounted(home.path / "served", 256))
        clock = stack.enter_context(contextlib.closing(ProgramClock(home.path / "clock")))
        machine = stack.enter_context(contextlib.closing(Machine(home)))
        prepare(machine.postgres.dsn, AMPLE)
        machine.start(clock.environ, clock.environ)
        stand = Stand(machine, clock, disk)
        stand.await_status("bidding since", f"version {RELEASE}")
        yield stand


def test_a_redis_that_is_full(stand: Stand) -> None:
    with contextlib.closing(redis.Redis.from_url(stand.machine.redis.url)) as client:
        try:
            client.config_set("maxmemory", 1)
            stand.await_status(
                "not bidding since",
                "refuses writes because its disk is full",
                "Redis refuses writes, PostgreSQL up",
            )
        finally:
            client.config_set("maxmemory", 0)
    # Those without a bid are named for a minute, unless they are few among others.
    stand.await_status("bidding since", "Redis up", bids=20)


def test_a_warehouse_that_is_read_only(stand: Stand) -> None:
    try:
        stand.sql("alter system set default_transaction_read_only = on", "select pg_reload_conf()")
        stand.await_status(
            "degraded since",
            "PostgreSQL (SNAPBID_DATABASE_URL) is read-only: counts and events wait in Redis",
            "alter system reset default_transaction_read_only; select pg_reload_conf();`",
            "PostgreSQL refuses writes",
            "cannot execute",  # as the drain has heard
        )
    finally:
        stand.sql("alter system reset default_transaction_read_only", "select pg_reload_conf()")
    stand.await_drained("PostgreSQL up")


def test_a_warehouse_that_refuses_counters(stand: Stand) -> None:
    try:
        stand.sql("alter table bid_daily add constraint none check (bids < 0) not valid")
        stand.await_status("degraded since", "the drain on ", 'violates check constraint "none"')
    finally:
        stand.sql("alter table bid_daily drop constraint if exists none")
    stand.await_drained()


def test_a_schema_that_only_a_newer_program_can_use(stand: Stand) -> None:
    later = (
        "insert into schema_migration (name, version, breaks) values ('9999_later', '7.0', true)"
    )
    try:
        stand.sql(later)
        stand.await_status("degraded since", "cannot use", "to do: install 7.0")
    finally:
        stand.sql("delete from schema_migration where name = '9999_later'")
    stand.await_status("bidding since")


def test_a_clock_that_is_off(stand: Stand) -> None:
    if not stand.clock.can_be_set:
        pytest.skip("there is no C compiler")
    try:
        stand.clock.set(1200)
        stand.await_status(
            "degraded since", "the clocks of ", "are 1,200 s ahead of Redis and PostgreSQL"
        )
        assert len(re.findall(r"are [\d,]+ s ahead of", stand.machine.served.output)) == 1
    finally:
        stand.clock.set(0)
    stand.await_status("bidding since", "bids/s")


def test_a_disk_that_is_full(stand: Stand) -> None:
    if stand.disk is None:
        pytest.skip("no tmpfs can be mounted here")
    try:
        stand.disk.fill()
        stand.await_status("degraded since", "the disk of SNAPBID_HOME", "0 MiB are free")
    finally:
        stand.disk.free()
    stand.await_status("bidding since")
