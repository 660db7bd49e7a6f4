"""Keep processes running: restart them after increasing pauses, until a signal says to stop."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import FrameType
from typing import Protocol, Self

from snapbid.embedded import EmbeddedError
from snapbid.embedded.process import spawn, stop

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0  # a service that ran for this long is restarted after the shortest pause again


class Service(Protocol):
    """A store or a program to keep running."""

    @property
    def name(self) -> str: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def poll(self) -> int | None: ...


class Program:
    """A `snapbid` command as a child process that shares our output."""

    def __init__(self, command: str, environ: Mapping[str, str]) -> None:
        self.name = f"snapbid {command}"
        self._command = [sys.executable, "-m", "snapbid", command]
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = spawn(self._command, env=self._environ)

    def poll(self) -> int | None:
        return self._process.poll() if self._process else None

    def stop(self) -> None:
        if self._process:
            stop(self._process, signal.SIGTERM)
            with contextlib.suppress(ProcessLookupError):  # workers whose parent was killed
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process = None


class Signals:
    """A context in which the signals INT, TERM and HUP set `stopping` and interrupt `wait`.

    CHLD only interrupts `wait`. HUP has no effect if it was ignored before, as under nohup.
    """

    def __init__(self) -> None:
        self.stopping = False

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        handled = [signal.SIGINT, signal.SIGTERM, signal.SIGCHLD]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            handled.append(signal.SIGHUP)
        self._handlers_before = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self.stopping = True

    def wait(self, seconds: float) -> None:
        """Sleep until a signal arrives, for at most `seconds`."""
        if select.select([self._read], [], [], seconds)[0]:
            os.read(self._read, 4096)


class Restarter:
    """Restarts a service whenever it ends."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since = time.monotonic()
        self._pause = FIRST_PAUSE_S
        self._due: float | None = None

    def tend(self, now: float) -> float:
        """Restart the service if a restart is due; return the seconds until the next check."""
        if self._due is None:
            status = self._service.poll()
            if status is not None:
                self._plan(now, f"ended unexpectedly ({describe_status(status)})")
        elif now >= self._due:
            self._due, self._since = None, now
            self._service.stop()  # cleans up after the process that ended
            try:
                self._service.start()
            except (EmbeddedError, OSError) as error:
                self._plan(now, f"did not start: {error}")
            else:
                say(f"restarted {self._service.name}")
        return 1.0 if self._due is None else max(0.0, self._due - now)

    def _plan(self, now: float, what: str) -> None:
        if now - self._since > STEADY_S:
            self._pause = FIRST_PAUSE_S
        say(f"{self._service.name} {what}; restarting it in {self._pause:g} s")
        self._due = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S)


def describe_status(status: int) -> str:
    """Describe an exit status, for example as `exit status 1` or `SIGKILL`."""
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name


def say(text: str) -> None:
    """Print a message for the operator."""
    print(f"snapbid up: {text}", flush=True)
