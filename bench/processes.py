"""Runs servers as separate processes on chosen cores, and reads their processor times."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from workload.serving import LOOPBACK

READY_S: Final = 60.0
STOP_S: Final = 30.0
CPUCLOCK_SCHED: Final = 2  # linux/posix-timers.h


class BenchError(RuntimeError):
    """The benchmark cannot run, or would not measure what it is meant to."""


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Pin this process, and all processes that it starts meanwhile, to a core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores() -> tuple[int, int]:
    """Return the server's core and the client's. Raises BenchError if there is only one."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise BenchError("two cores are needed, one for the server, one for the client")
    return available[0], available[1]


class ServerProcess:
    """A server that runs a command, or `python -m MODULE ARGUMENTS`, and listens on `port`.

    Granian runs its workers, one or SNAPBID_WORKERS, as child processes; other servers serve from
    the process itself (`forks` is False). GET `ready` answers 200 once the server is ready.
    """

    def __init__(
        self,
        log: Path,
        environ: Mapping[str, str],
        port: int,
        *command: str | Path,
        forks: bool = True,
        ready: str = "/readyz",
    ) -> None:
        self._forks = forks
        self._ready = ready
        self.environ = {
            name: value for name, value in os.environ.items() if not name.startswith("SNAPBID_")
        } | dict(environ)
        self.port = port
        self._log = log
        is_program = isinstance(command[0], Path)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command if is_program else [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environ,
                start_new_session=True,
            )

    def await_ready(self, within_s: float = READY_S) -> None:
        """Wait until the server is ready and has all its workers; `worker` is the first of them."""
        count = int(self.environ.get("SNAPBID_WORKERS", "1"))
        deadline = time.monotonic() + within_s
        while not (_is_ready(self.port, self._ready) and len(self._workers()) == count):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
                raise BenchError(f"a server ended:\n{self._last_words()}")
            if time.monotonic() > deadline:
                raise BenchError(f"a server is not ready:\n{self._last_words()}")
        self.workers = self._workers()
        self.worker = self.workers[0]

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def _workers(self) -> list[int]:
        """Return the workers' pids; Granian starts workers with multiprocessing's `spawn`."""
        if not self._forks:
            return [self._process.pid]
        return [
            pid
            for pid in _children(self._process.pid)
            if b"multiprocessing-fork" in _read(pid, "cmdline")
        ]

    def processor_s(self) -> float:
        """Return the processor time (s) of all workers."""
        return sum(map(processor_s, self.workers))

    def system_s(self) -> float:
        """Return the workers' processor time (s) in the kernel, to a hundredth of a second."""
        stats = [_read(pid, "stat").rpartition(b")")[2].split() for pid in self.workers]
        return sum(int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """Return the first worker's resident memory."""
        return int(_read(self.worker, "statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def processor_s(pid: int) -> float:
    """Return the processor time (s) of all threads of a process, user and system."""
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def _children(parent: int) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = _read(int(entry.name), "stat").rpartition(b")")[2].split()
            if stat and int(stat[1]) == parent:
                pids.append(int(entry.name))
    return pids


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _is_ready(port: int, path: str) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=5) as client:
            head = f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"
            client.sendall(head.encode())
            return client.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
