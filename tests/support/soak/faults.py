"""Faults of processes, stores and the clock (registry.py)."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import asyncpg
import redis
from redis.exceptions import RedisError

from snapbid.embedded import Postgres
from snapbid.warehouse.unavailable import UNAVAILABLE
from support.machine import WORKERS
from support.processes import children_of, log_writers_of
from support.soak.registry import OF_MACHINE, StageT
from support.soak.stage import MachineStage
from support.stack import clean_environ

fault = OF_MACHINE.fault
REPLACED_S: Final = 60.0
STEP_S: Final = 300  # of the clock, at most

MIGRATION: Final = """
import asyncio, sys
from snapbid.warehouse import migrate
dsn, name, sql = sys.argv[1:]
known = migrate.files()
migrate.files = lambda: known | {name: sql}
assert asyncio.run(migrate.migrate(dsn)) == [name]
"""


# -- processes ------------------------------------------------------------------------------------


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def pids_of(stage: MachineStage, name: str) -> list[int]:
    """The process of a part of the machine, if it runs; for PostgreSQL with its children."""
    part = getattr(stage.machine, name)
    process = part.process
    if process is None or process.poll() is not None:
        return []
    more = children_of(process.pid) if isinstance(part, Postgres) else []
    return [process.pid, *more]


def some(rng: random.Random, pids: list[int]) -> list[int]:
    """A random one of them, if there is any."""
    return rng.sample(pids, k=min(1, len(pids)))


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Suspend these processes with SIGSTOP."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


Victims = Callable[[StageT, random.Random], list[int]]
Breaking = Callable[[StageT, random.Random], Iterator[str]]


def process(name: str) -> Victims[MachineStage]:
    return lambda stage, _: pids_of(stage, name)


def a_worker(stage: MachineStage, rng: random.Random) -> list[int]:
    return some(rng, stage.machine.workers)


def log_writer(stage: MachineStage, rng: random.Random) -> list[int]:
    return [pid for served in pids_of(stage, "served") for pid in log_writers_of(served)]


KILLED: Final[dict[str, tuple[str, Victims[MachineStage]]]] = {
    "worker killed": ("server", a_worker),
    "all workers killed": ("server", lambda stage, _: stage.machine.workers),
    "server killed": ("server", process("served")),
    "log writer killed": ("server", log_writer),
    "drain killed": ("drain", process("drain")),
    "redis killed": ("redis", process("redis")),
    "postgres killed": ("postgres", lambda stage, _: pids_of(stage, "postgres")[:1]),
    "postgres backend killed": (
        "postgres",
        lambda stage, rng: some(rng, pids_of(stage, "postgres")[1:]),
    ),
}
STOPPED: Final[dict[str, tuple[str, Victims[MachineStage]]]] = {
    "worker stopped": ("server", a_worker),
    "server stopped": ("server", process("served")),
    "drain stopped": ("drain", process("drain")),
    "redis stopped": ("redis", process("redis")),
    "postgres stopped": ("postgres", process("postgres")),
}


def killing(victims: Victims[StageT]) -> Breaking[StageT]:
    def killed(stage: StageT, rng: random.Random) -> Iterator[str]:
        kill(*victims(stage, rng))
        yield ""

    return killed


def stopping(victims: Victims[StageT]) -> Breaking[StageT]:
    def suspended(stage: StageT, rng: random.Random) -> Iterator[str]:
        with stopped(victims(stage, rng)):
            yield ""

    return suspended


def terminating(victims: Victims[StageT]) -> Breaking[StageT]:
    def terminated(stage: StageT, rng: random.Random) -> Iterator[str]:
        for pid in victims(stage, rng):
            os.kill(pid, signal.SIGTERM)
        yield ""

    return terminated


for name, (part, victims) in KILLED.items():
    fault(part, name, sudden=True)(killing(victims))
for name, (part, victims) in STOPPED.items():
    fault(part, name)(stopping(victims))


# -- restarts and a migration ---------------------------------------------------------------------


@fault("server", sudden=True)
def workers_restarted(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    """Restart the workers in turn, each when the previous one has been replaced."""
    for worker in stage.machine.workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGTERM)
        deadline = time.monotonic() + REPLACED_S
        while len(stage.machine.workers) < WORKERS or worker in stage.machine.workers:
            assert time.monotonic() < deadline, "a worker that has ended is not replaced"
            time.sleep(0.02)
    yield ""


@fault("server", sudden=True)
def workers_replaced(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    """Let the server replace its workers after a SIGHUP."""
    before = set(stage.machine.workers)
    for pid in pids_of(stage, "served"):
        os.kill(pid, signal.SIGHUP)
    deadline = time.monotonic() + REPLACED_S
    while len(stage.machine.workers) < WORKERS or before & set(stage.machine.workers):
        assert time.monotonic() < deadline, "workers are not replaced"
        time.sleep(0.02)
    yield ""


fault("server", "server restarted", sudden=True)(terminating(process("served")))
fault("drain", "drain restarted", sudden=True)(terminating(process("drain")))


@fault("postgres", sudden=True)
def schema_migrated(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    """Lock every counted table for a while, as a newer release's migration does."""
    name = f"soak{rng.randrange(10**9)}"
    tables = ("bid_daily", "impression_daily", "loss_daily", "campaign_daily", "events", "campaign")
    changes = [f"alter table {table} add column {name} int default 7" for table in tables]
    sql = ";".join([*changes, "select pg_sleep(0.5)"])
    command = [sys.executable, "-c", MIGRATION, stage.dsn, f"9999_{name}", sql]
    done = subprocess.run(command, env=clean_environ({}), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    yield ""


# -- stores that refuse ---------------------------------------------------------------------------


@contextlib.contextmanager
def configured(stage: MachineStage, name: str, value: str, usual: str) -> Iterator[None]:
    client = redis.Redis.from_url(stage.machine.redis.url)
    try:
        with contextlib.suppress(RedisError):  # it is being restarted
            client.config_set(name, value)
        yield
        with contextlib.suppress(RedisError):  # it was restarted, with the usual value
            client.config_set(name, usual)
    finally:
        client.close()


@fault("redis")
def redis_out_of_memory(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    with configured(stage, "maxmemory", "1", "0"):
        yield ""


@fault("redis")
def redis_out_of_connections(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    with configured(stage, "maxclients", "1", "10000"):
        for name in ("workers to Redis", "drain to Redis"):
            stage.wire.do(stage.links[name].cut)
        yield ""


@fault("redis", sudden=True)
def redis_without_scripts(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    with redis.Redis.from_url(stage.machine.redis.url) as client:
        with contextlib.suppress(RedisError):
            client.script_flush()
        yield ""


@fault("postgres")
def postgres_out_of_connections(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    """Take every connection there is, and every one that becomes free."""
    held: list[asyncpg.Connection] = []

    async def hoard() -> None:
        while True:
            try:
                held.append(await asyncpg.connect(stage.dsn))
            except UNAVAILABLE:
                await asyncio.sleep(0.01)

    async def hoarding() -> "asyncio.Task[None]":
        return asyncio.create_task(hoard())

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for connection in held:
            connection.terminate()

    task = stage.wire.call(hoarding())
    try:
        time.sleep(0.3)
        for name in ("workers to PostgreSQL", "drain to PostgreSQL"):
            stage.wire.do(stage.links[name].cut)
        yield ""
    finally:
        stage.wire.call(end())


def disk_full(stage: MachineStage, store: str) -> Iterator[str]:
    disk = stage.disks.get(store)
    if disk is None:
        yield "skipped: no tmpfs can be mounted here"
        return
    disk.fill()
    try:
        yield ""
    finally:
        disk.free()


@fault("redis")
def redis_disk_full(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    yield from disk_full(stage, "redis")


@fault("redis")
def redis_killed_on_a_full_disk(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    """Kill Redis; it is restarted while there is still no space."""
    for said in disk_full(stage, "redis"):
        time.sleep(rng.uniform(0, 0.5))
        kill(*pids_of(stage, "redis"))
        yield said


@fault("postgres")
def postgres_disk_full(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    yield from disk_full(stage, "postgres")


# -- the clock ------------------------------------------------------------------------------------


@fault("clock")
def clock_set(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    """Set the clock of all programs forward or back, and right again afterwards."""
    if not stage.clock.can_be_set:
        yield "skipped: no C compiler"
        return
    step_s = rng.choice((-1, 1)) * rng.uniform(1, STEP_S)
    stage.clock.set(step_s)
    try:
        yield f"by {step_s:+.0f} s"
    finally:
        stage.clock.set(0)
