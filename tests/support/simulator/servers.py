"""The real Redis and the real PostgreSQL below the simulation, spoken to in bytes, one at a time.

A session sends what a simulated connection has written and blocks until the server has answered all
of it, so no two things ever happen in a server at once. Redis takes its time from a file that the
simulator writes before each message (program_clock.c); nothing of it is by the real clock.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Final, TypeVar
from urllib.parse import quote

import asyncpg
import hiredis
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from snapbid.embedded import Home, Postgres
from snapbid.embedded.process import spawn, stop
from snapbid.embedded.redis_server import installed
from snapbid.warehouse.migrate import migrate
from support.program_clock import STOPPED, ProgramClock
from support.simulator import copies
from support.simulator.loop import SimulationError

PATIENCE_S: Final = 30  # real time; a server that takes longer waits for another session
DEBUG_FORBIDDEN: Final = (7, 0)  # from here on, unless it is enabled
COPIES: Final = 20  # of Redis' data, each in a database of its own

_TIMEVAL: Final = Struct("@ll")  # the kernel's own timeout, which costs no system call
_COPY: Final = """
for _, key in ipairs(redis.call('KEYS', '*')) do
  redis.call('COPY', key, key, 'DB', ARGV[1])
end
"""

_COPY_SOME: Final = "for _, key in ipairs(KEYS) do redis.call('COPY', key, key, 'DB', 0) end"

# From which numbers are made.
_IDENTITY: Final = "update warehouse_identity set id = 'a5eedf00-0000-4000-8000-000000000000'"
_PERSONS: Final = "update suppression_key set key = sha256('persons')"

T = TypeVar("T")


class RedisServer:
    """`wall_ns` gives what its machine's clock shows."""

    name = "redis"

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "redis.sock")
        self.wall_ns: Callable[[], int] = lambda: 0
        self.is_up = True
        self.commands = 0
        self._clock = ProgramClock(folder / "time", STOPPED)
        if not self._clock.can_be_set:
            raise SimulationError("a C compiler is needed, for the clock of Redis")
        options = {
            "port": "0",
            "unixsocket": self.path,
            "save": "",
            "appendonly": "no",
            "databases": str(COPIES + 1),
            "dir": str(folder),
        }
        server = installed()[0]
        if server.release >= DEBUG_FORBIDDEN:
            options["enable-debug-command"] = "yes"
        parts = [part for name, value in options.items() for part in (f"--{name}", value)]
        self._log = folder / "redis.log"
        environ = os.environ | self._clock.environ
        self._process = spawn([server.path, *parts], log=self._log, env=environ)
        self.client = redis.Redis(unix_socket_path=self.path, retry=Retry(NoBackoff(), 0))
        self._await_answer()

    @property
    def url(self) -> str:
        return f"unix://{quote(self.path)}"

    def tick(self) -> None:
        self._clock.set_ns(self.wall_ns())

    def open(self) -> "RedisSession":
        if not self.is_up:
            raise ConnectionRefusedError("Redis is down")
        return RedisSession(self)

    def begin(self) -> None:
        """Another run of the simulation: no data, no scripts."""
        self.tick()
        self.client.flushall()
        self.client.script_flush()
        self.is_up = True

    def restart(self) -> None:
        """Another run of Redis with the same data and a new run id."""
        self.client.save()
        with contextlib.suppress(redis.ConnectionError):
            self.client.execute_command("DEBUG", "RESTART")  # type: ignore[no-untyped-call]
        self._await_answer()

    def _await_answer(self) -> None:
        """Raises SimulationError where Redis has ended."""
        while True:
            with contextlib.suppress(redis.ConnectionError, redis.BusyLoadingError):
                self.client.ping()
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.002)
                raise SimulationError(self._log.read_text())

    def save(self, number: int) -> None:
        """Keep a copy of the data."""
        self._in(number).flushdb()
        self.client.eval(_COPY, 0, number)

    def load(self, number: int) -> None:
        """What was saved is the data again; nothing where nothing was."""
        self.client.flushdb()
        self._in(number).eval(_COPY, 0, 0)

    def replace(self, number: int) -> None:
        """What was saved is the data again, as after a synchronisation: Redis goes on running."""
        self.load(number)
        self.client.replicaof("127.0.0.1", 1)  # where nobody is
        self.client.replicaof("NO", "ONE")

    def put_back(self, number: int, is_own: Callable[[bytes], bool]) -> None:
        """Of these keys, what was saved is the data again."""
        copy = self._in(number)
        now: Any = self.client.keys()
        saved: Any = copy.keys()
        for key in filter(is_own, now):
            self.client.delete(key)
        if own := sorted(filter(is_own, saved)):
            copy.eval(_COPY_SOME, len(own), *own)

    def _in(self, number: int) -> redis.Redis:
        return redis.Redis(unix_socket_path=self.path, db=number)

    def stop(self) -> None:
        self.client.close()
        stop(self._process, signal.SIGTERM)
        self._clock.close()


class RedisSession:
    """One connection; Redis answers each command once."""

    delay_s = 0.0

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._requests = hiredis.Reader()
        self._socket = _connected(server.path)

    def execute(self, data: bytes) -> bytes:
        server = self._server
        self._requests.feed(data)
        expected = 0
        while self._requests.gets() is not False:
            expected += 1
        server.commands += expected
        server.tick()
        self._socket.sendall(data)
        replies, received = hiredis.Reader(), b""
        while expected:
            more = _receive(self._socket)
            received += more
            replies.feed(more)
            while replies.gets() is not False:
                expected -= 1
        return received

    def close(self) -> None:
        self._socket.close()


class PostgresServer:
    """Migrated once; `begin` puts back what it was then."""

    name = "postgres"

    def __init__(self, home: Home) -> None:
        self._server = Postgres(home)
        self._server.start()
        self.is_up = True
        self.dsn = self._server.dsn
        self.path = str(self._server.sockets)
        self.statements = 0
        self.file = next(
            str(file) for file in sorted(self._server.sockets.iterdir()) if "lock" not in file.name
        )
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.run(migrate(self.dsn))
        for statement in (_IDENTITY, _PERSONS):
            self.run(_execute(self.dsn, statement))
        for setting in ("fsync = off", "synchronous_commit = off", "full_page_writes = off"):
            self.run(_execute(self.dsn, f"alter system set {setting}"))
        self.run(_execute(self.dsn, "select pg_reload_conf()"))
        self.admin: Any = self.run(asyncpg.connect(self.dsn))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on a real loop in a thread, while the virtual one stands still."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def open(self) -> "PostgresSession":
        if not self.is_up:
            raise ConnectionRefusedError("PostgreSQL is down")
        return PostgresSession(self)

    def save(self) -> copies.Copy:
        return self.run(copies.save(self.admin))

    def load(self, copy: copies.Copy) -> None:
        self.run(copies.load(self.admin, copy))

    def stop(self) -> None:
        self.run(self.admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._server.stop()


class PostgresSession:
    """One connection; PostgreSQL is done when it waits for a query, or for rows to copy."""

    delay_s = 0.0

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._socket = _connected(server.file)
        self._sent = bytearray()
        self._received = bytearray()
        self._started = False

    def execute(self, data: bytes) -> bytes:
        ready, done = self._expected(data)
        self._server.statements += ready
        self._socket.sendall(data)
        answer = b""
        while ready or done:
            more = _receive(self._socket)
            answer += more
            self._received += more
            for kind, _ in _messages(self._received):
                if kind in b"ZG":
                    ready -= 1
                elif kind == b"E":
                    done = 0
                elif kind in b"123TnCIs" and done:
                    done -= 1
        return answer

    def _expected(self, data: bytes) -> tuple[int, int]:
        """How often it will be ready; how many answers come before that, which were asked for."""
        self._sent += data
        ready = done = asked = 0
        if not self._started:
            size = int.from_bytes(self._sent[:4], "big")
            if len(self._sent) < size:
                return 0, 0
            del self._sent[:size]
            self._started = True
            ready = 1
        for kind, _ in _messages(self._sent):
            if kind in b"PBDEC":
                asked += 1
            elif kind == b"H":
                done, asked = done + asked, 0
            elif kind in b"SQcf":
                ready, done, asked = ready + 1, 0, 0
        return ready, done

    def close(self) -> None:
        """Return when the server process is gone, and what it held is free."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(1 << 16):
                pass
        self._socket.close()


def _messages(buffer: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Take whole messages off a buffer."""
    while len(buffer) >= 5:
        size = int.from_bytes(buffer[1:5], "big") + 1
        if len(buffer) < size:
            return
        yield bytes(buffer[:1]), bytes(buffer[5:size])
        del buffer[:size]


async def _execute(dsn: str, sql: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(sql)
    await connection.close()


def _connected(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(PATIENCE_S, 0))
    client.connect(path)
    return client


def _receive(client: socket.socket) -> bytes:
    try:
        more = client.recv(1 << 20)
    except BlockingIOError:
        raise SimulationError("a store does not answer: it waits for another session") from None
    if not more:
        raise ConnectionResetError("the server has closed the connection")
    return more


class Servers:
    """Both, and what an empty warehouse is."""

    def __init__(self, redis_server: RedisServer, postgres: PostgresServer) -> None:
        self.redis = redis_server
        self.postgres = postgres
        self.empty = postgres.save()


@contextlib.contextmanager
def started() -> Iterator[Servers]:
    """Real servers for any number of runs."""
    with contextlib.ExitStack() as stack:
        stack.callback(gc.unfreeze)  # what the runs have frozen (system.py)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="snapbid-simulator-"))
        home = stack.enter_context(Home(Path(folder) / "home"))
        postgres = PostgresServer(home)
        stack.callback(postgres.stop)
        redis_server = RedisServer(Path(folder))
        stack.callback(redis_server.stop)
        yield Servers(redis_server, postgres)
