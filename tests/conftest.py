"""Fixtures with real servers, started once a session on private sockets in a temporary home.

With pytest-xdist each worker is a session.

postgres_dsn     the server's template database, from which others are copied: do not change it
database         DSN of a fresh, migrated database, dropped afterwards
module_database  the same, shared by a module
redis_url        the session's Redis, not emptied
fresh_redis      the same, emptied first
initialise       initialise(HOME) copies initialised and migrated PostgreSQL data into a home
signals_heard    automatic: what is started hears SIGINT and SIGHUP, however the tests were started
cluster          the module's Redis Cluster, 3 primaries with a replica each: healthy, emptied
own_postgres     a PostgreSQL for a single test, which may stop it
own_redis        a Redis for a single test, which may stop it
module_own_redis a Redis for a module: no test empties it below what the module shares
start_stack      starts `snapbid serve` processes: start_stack(SNAPBID_WORKERS="2")
module_stack     starts one that the tests of a module share, on `module_database`
"""

import asyncio
import contextlib
import functools
import gc
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import redis
from support.cluster import Cluster, folder
from support.processes import workers_of
from support.stack import Databases, Stack
from support.tiers import LONG

from snapbid.embedded import Home, Postgres, Redis
from snapbid.warehouse.migrate import migrate

HERE = Path(__file__).parent
DAY_S = 86_400
LONGEST_S = 180
LONGEST_LONG_S = 660  # of tests that are marked `long`
MIDNIGHT_S = 11  # after it: the audit of the auction log leaves out the day's first 10 s
IN_MEMORY = "/dev/shm"
ROOM_BYTES = 8 << 30  # for the stores of four workers
HEARD = (signal.SIGINT, signal.SIGHUP)
SLOWEST_FIRST = ("faults", "property", "integration", "hostile", "exchange", "conformance")

# A failure prints the line that reproduces it. Deadlines, and the health check of slow generation,
# would make tests depend on the speed of the machine.
hypothesis.settings.register_profile(
    "snapbid",
    print_blob=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("snapbid")


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Put temporary files into memory, if there is room: on disk, syncs take a quarter of the time.

    A TMPDIR that is set is kept.
    """
    with contextlib.suppress(FileNotFoundError):
        found = os.statvfs(IN_MEMORY)
        has_room = found.f_bavail * found.f_frsize >= ROOM_BYTES and os.access(IN_MEMORY, os.W_OK)
        if has_room and not found.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("TMPDIR", IN_MEMORY)
            tempfile.tempdir = None  # found anew


@functools.cache
def is_long(path: Path) -> bool:
    return path.is_relative_to(HERE) and str(path.relative_to(HERE)) in LONG


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files only to leave all of their tests out (tests/test_source.py compares)."""
    expression = config.option.markexpr
    if expression == "long":
        ignored = collection_path.suffix == ".py" and not has_long(collection_path)
    else:
        leaves_out = "not long" in expression and "or" not in expression.split()
        ignored = leaves_out and is_long(collection_path)
    return ignored or None


def has_long(path: Path) -> bool:
    """Whether a file is long, or marks a test of its own."""
    return is_long(path) or "mark.long" in path.read_text(encoding="utf-8")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the files that are long, and what starts PostgreSQL, which `make check` leaves out."""
    if is_long(item.path):
        item.add_marker("long")
    if "initialise" in getattr(item, "fixturenames", ()):
        item.add_marker("postgres")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers that share the suite get its short files last: none is alone with a long one then."""
    if not hasattr(config, "workerinput"):
        return
    ranks = {folder: rank for rank, folder in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.parent.name, len(ranks)))


def pytest_collection_finish() -> None:
    """Spare the garbage collector the suite itself, which is a seventh of what `check` takes."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # extensions look for leaks at exit


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keep tests, and what they share, from crossing midnight UTC: much is counted per day."""
    left = DAY_S - time.time() % DAY_S
    if left < (LONGEST_LONG_S if item.get_closest_marker("long") else LONGEST_S):
        time.sleep(left + MIDNIGHT_S)


@pytest.fixture(scope="session", autouse=True)
def signals_heard() -> Iterator[None]:
    """Below nohup, or behind a script's ampersand, signals are ignored, also by children."""
    ignored = [number for number in HEARD if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session")
def embedded_home() -> Iterator[Home]:
    path = Path(tempfile.mkdtemp(prefix="snapbid-test-"))
    with Home(path) as home:
        yield home
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def postgres(embedded_home: Home, initialise: Callable[[Path], None]) -> Iterator[Postgres]:
    initialise(embedded_home.path)
    server = Postgres(embedded_home)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres_dsn(postgres: Postgres) -> str:
    return postgres.dsn


@pytest.fixture(scope="session")
def databases(postgres: Postgres) -> Databases:
    return Databases(postgres)


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    with databases.fresh() as dsn:
        yield dsn


@pytest.fixture(scope="module")
def module_database(databases: Databases) -> Iterator[str]:
    with databases.fresh() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def redis_url(embedded_home: Home) -> Iterator[str]:
    server = Redis(embedded_home)
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def fresh_redis(redis_url: str) -> str:
    _flush(redis_url)
    return redis_url


@pytest.fixture(scope="module")
def module_redis(redis_url: str) -> str:
    """A Redis that is empty when the module begins: not a ledger of other shards, say."""
    _flush(redis_url)
    return redis_url


def _flush(redis_url: str) -> None:
    with contextlib.closing(redis.Redis.from_url(redis_url)) as client:
        client.flushall()


@pytest.fixture(scope="module")  # six idle nodes cost more than another start takes
def started_cluster() -> Iterator[Cluster]:
    with folder() as path, Cluster(path) as started:
        yield started


@pytest.fixture
def cluster(started_cluster: Cluster) -> Cluster:
    started_cluster.heal()
    started_cluster.flush()
    return started_cluster


@pytest.fixture(scope="session")
def initialise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], None]]:
    """Copies the data of an initialised and migrated PostgreSQL, preserving its owner."""
    made = tmp_path_factory.mktemp("initialised")
    with Home(made) as home:
        server = Postgres(home)
        server.start()
        asyncio.run(migrate(server.dsn))
        server.stop()

    def copy(home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", server.data, home], check=True)

    yield copy
    shutil.rmtree(made)


@pytest.fixture
def own_postgres(tmp_path: Path, initialise: Callable[[Path], None]) -> Iterator[Postgres]:
    initialise(tmp_path / "postgres")
    with Home(tmp_path / "postgres") as home:
        server = Postgres(home)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Redis]:
    with Home(tmp_path / "redis") as home:
        server = Redis(home)
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="module")
def module_own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with Home(tmp_path_factory.mktemp("redis")) as home:
        server = Redis(home)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def start_stack(database: str, fresh_redis: str, tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Start `snapbid serve` on free ports with more settings; waits until it is ready."""
    with contextlib.ExitStack() as stack:

        def start(**environ: str) -> Stack:
            served = Stack(
                {
                    "SNAPBID_HOME": str(tmp_path / "home"),
                    "SNAPBID_DATABASE_URL": database,
                    "SNAPBID_REDIS_URL": fresh_redis,
                    **environ,
                }
            )
            stack.callback(served.close)
            served.start()
            return served

        yield start


@pytest.fixture(scope="module")
def module_stack(
    module_database: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Stack]]:
    """The same for a module, once; fails at the end if a worker died or logged a traceback.

    Redis is empty, since SSPs have the same numbers in every warehouse.
    """
    _flush(redis_url)
    own = {
        "SNAPBID_HOME": str(tmp_path_factory.mktemp("home")),
        "SNAPBID_DATABASE_URL": module_database,
        "SNAPBID_REDIS_URL": redis_url,
    }
    with contextlib.ExitStack() as stack:

        def start(**environ: str) -> Stack:
            served = Stack(own | environ)
            stack.callback(served.close)
            served.start()
            stack.enter_context(_unharmed(served))
            return served

        yield start


@contextlib.contextmanager
def _unharmed(served: Stack) -> Iterator[None]:
    assert served.process
    workers = workers_of(served.process.pid)
    yield
    assert workers_of(served.process.pid) == workers, f"a worker has died:\n{served.output}"
    assert "Traceback" not in served.output


@pytest.fixture
def patient_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that take their time, on a busy machine, are not unavailable to the report."""
    for name in ("gate.ANSWER_TIMEOUT_S", "cache.ANSWER_TIMEOUT_S", "reports.ANSWER_TIMEOUT_S"):
        monkeypatch.setattr(f"snapbid.report.{name}", 60.0)
    monkeypatch.setattr("snapbid.warehouse.reports.TIMEOUT_S", 60.0)
