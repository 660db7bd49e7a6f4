"""A private Redis on a unix socket, with an append-only file.

Redis writes to the file before it answers, so a killed Redis loses nothing it has acknowledged.
`appendfsync everysec` does not guarantee that: while Redis syncs the file, it holds back writes to
it, but answers nevertheless. So Redis runs with `appendfsync no`, and this module syncs the file
every second. In a crash of the operating system, no more is lost than with `everysec`.

Redis accepts writes, and other commands that need memory, only while disk space is reserved for
them (space.py): until then, and whenever reserving fails, `maxmemory` is 1. Otherwise `maxmemory`
is a share of the available memory, so the system has no reason to kill Redis. Eviction is off, so
Redis keeps all it has acknowledged.
"""

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from snapbid.base.outputs import sync
from snapbid.embedded import memory, redis_server
from snapbid.embedded.home import Home
from snapbid.embedded.process import EmbeddedError, evict, read_pid, rotate, size, spawn, tail
from snapbid.embedded.server import Server
from snapbid.embedded.space import DiskReserve
from snapbid.redisclient.risks import DISK_IS_FULL, SYNCED_BY_UP

SYNC_S = 1.0
SPACE_CHECK_S = 0.25
MEMORY_SHARE = 0.5  # of the available memory
START_S = 60.0  # without an answer; while Redis says that it is loading, there is no limit


class Redis(Server):
    """A private Redis server."""

    name = "Redis"
    folder = "redis"
    stop_signal = signal.SIGTERM

    def __init__(
        self,
        home: Home,
        say: Callable[[str], None] = lambda _: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(home, say, stopping)
        self.socket = home.run / "redis.sock"
        self._max_bytes = int(memory.usable() * MEMORY_SHARE)
        self._reserve = DiskReserve()
        self._accepting = False
        self._full = False
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket))}"

    def start(self) -> None:
        self.data.mkdir(mode=0o700, exist_ok=True)
        self._evict_orphan()
        self.socket.unlink(missing_ok=True)
        server = redis_server.choose(self.data)
        rotate(self.log)
        since = size(self.log)
        self.process = spawn([server.path, *self._options()], log=self.log)
        if not self._await(self.process, START_S):
            raise EmbeddedError(
                f"Redis cannot start: see {self.log}, which ends:{tail(self.log, since)}"
            )
        redis_server.record(self.data, server)
        self._accepting, self._reserve = False, DiskReserve()
        self._check_space()
        if not self._threads:
            self._stopping.clear()
            self._threads = [
                threading.Thread(target=self._repeat, args=work, daemon=True)
                for work in ((SYNC_S, self._sync), (SPACE_CHECK_S, self._check_space))
            ]
            for thread in self._threads:
                thread.start()

    def _evict_orphan(self) -> None:
        """Stop the server that a killed owner of the home left running, if any."""
        orphan = read_pid(self._pid_file)
        if orphan is not None:
            evict(orphan, self.data, signal.SIGTERM, signal.SIGTERM)
        self._pid_file.unlink(missing_ok=True)

    def _repeat(self, seconds: float, work: Callable[[], None]) -> None:
        while not self._stopping.wait(seconds):
            with contextlib.suppress(OSError):  # Redis may replace a file at any time
                work()

    def _files(self) -> Iterator[Path]:
        """Yield the files that Redis appends to; some may not exist."""
        yield self.data / "appendonly.aof"
        yield from self.data.glob("appendonlydir/*.incr.aof")

    def _sync(self) -> None:
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):
                sync(path)

    def _check_space(self) -> None:
        """Have Redis accept writes only while there is disk space for them."""
        has_space = self._reserve.reserve(self._files())
        if has_space != self._accepting:
            limit = self._max_bytes if has_space else DISK_IS_FULL
            if self._ask(b"CONFIG SET maxmemory %d" % limit).startswith(b"+OK"):
                self._accepting = has_space
        if has_space == self._full:
            self._full = not has_space
            state = (
                "has space again: Redis accepts writes"
                if has_space
                else "is full: Redis refuses writes until space is freed"
            )
            self._say(f"the disk of {self.data} {state}")

    @property
    def _pid_file(self) -> Path:
        return self.data / "redis.pid"

    def _options(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.data),
            "pidfile": str(self._pid_file),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "no",
            "maxmemory": str(DISK_IS_FULL),
            "maxmemory-policy": "noeviction",
            "syslog-ident": SYNCED_BY_UP,
        }
        return [part for name, value in options.items() for part in (f"--{name}", value)]

    def _state(self, process: subprocess.Popen[bytes]) -> str:
        answer = self._ask(b"PING")
        if answer.startswith(b"+PONG"):
            return "ready"
        return "starting" if answer.startswith(b"-LOADING") else ""

    def _ask(self, command: bytes) -> bytes:
        """Send a command to Redis; return the beginning of the answer, or b"" if none arrives."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1.0)
            try:
                client.connect(os.fsencode(self.socket))
                client.sendall(command + b"\r\n")
                return client.recv(64)
            except OSError:
                return b""

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._threads = []
        super().stop()
