"""A machine without a fault warns of nothing, also where its stores end idle connections.

PostgreSQL's `idle_session_timeout` and Redis' `timeout` do so within minutes, here within seconds.
The soak looks for warnings at rest and at work, too.
"""

import asyncio
import contextlib

import asyncpg
import pytest
import redis
from support.machine import Machine, temporary_home
from support.processes import eventually
from support.soak.scenario import alarms
from support.stack import execute, fetch

from snapbid.drain import run
from snapbid.drain.run import REQUEST_STATS, Process
from snapbid.warehouse.bases import MEMBERS, PUBLISHER

ENDED = 30  # connections, of which some are a worker's, some the operator's page's


class Idle:
    """A drain with nothing to do; it counts its rounds, and how often it had to begin."""

    def __init__(self) -> None:
        self.rounds = self.begun = 0

    async def begin(self) -> None:
        self.begun += 1

    async def round(self, connection: asyncpg.Connection) -> int:
        self.rounds += 1
        assert not connection.is_closed()
        return 0


async def test_a_drain_with_nothing_to_do_keeps_its_session(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "SILENT_S", 1.0)
    monkeypatch.setattr(run, "PAUSE_S", 0.1)
    stopping, idle = asyncio.Event(), Idle()
    process = asyncio.create_task(Process(REQUEST_STATS, idle, database, stopping, {}).run())
    async with asyncio.timeout(60):
        while idle.rounds < 40:  # several times as long as an idle session lives
            await asyncio.sleep(0.05)
    stopping.set()
    await process
    assert idle.begun == 1
    assert not caplog.records


def test_connections_that_are_ended_for_being_idle_are_made_again() -> None:
    with temporary_home() as home, contextlib.closing(Machine(home)) as machine:
        for statement in (
            "alter system set idle_session_timeout = '1s'",
            "select pg_reload_conf()",
        ):
            asyncio.run(execute(machine.postgres.dsn, statement))
        with contextlib.closing(redis.Redis.from_url(machine.redis.url)) as client:
            client.config_set("timeout", 1)
            machine.start()
            eventually(lambda: len(_publisher_sessions(machine)) == 2, "two that follow")
            following = _publisher_sessions(machine)
            made = _connections(client)
            eventually(lambda: _connections(client) > made + ENDED, "made again")
        assert _publisher_sessions(machine) == following
        assert not alarms(machine.served.output)
        assert not alarms(machine.drain.output)


def _publisher_sessions(machine: Machine) -> set[int]:
    """Return the process ids of the sessions that follow campaigns and members."""
    query = "select pid from pg_stat_activity where application_name = any($1)"
    return {pid for (pid,) in asyncio.run(fetch(machine.postgres.dsn, query, [PUBLISHER, MEMBERS]))}


def _connections(client: redis.Redis) -> int:
    return int(client.info("stats")["total_connections_received"])
