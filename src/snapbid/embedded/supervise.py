"""Keeping processes running: what to run, which signals end it, starting again what has ended."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import Protocol, Self

from snapbid.embedded import EmbeddedError
from snapbid.embedded.process import spawn, stop

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0  # who has run for so long starts with the first pause again


class Member(Protocol):
    """Something to keep running: a store or a program."""

    @property
    def name(self) -> str: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def poll(self) -> int | None: ...


class Program:
    """A `snapbid` command as a child process; its output goes where ours goes."""

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
            with contextlib.suppress(ProcessLookupError):  # workers that outlive a killed parent
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process = None


class Signals:
    """While entered: INT, TERM and HUP set `stopping`; they and CHLD end a `wait`."""

    def __init__(self) -> None:
        self.stopping = False

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._woke = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        heard = [signal.SIGINT, signal.SIGTERM, signal.SIGCHLD]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup asks for
            heard.append(signal.SIGHUP)
        self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woke)
        os.close(self._read)
        os.close(self._write)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self.stopping = True

    def wait(self, seconds: float) -> None:
        """Sleep until a signal comes, at most `seconds`."""
        if select.select([self._read], [], [], seconds)[0]:
            os.read(self._read, 4096)


class Keeper:
    """Starts one member again whenever it has ended."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._since = time.monotonic()
        self._pause = FIRST_PAUSE_S
        self._due: float | None = None

    def tend(self, now: float) -> float:
        """Do what is due; the seconds after which there may be more to do."""
        if self._due is None:
            status = self._member.poll()
            if status is not None:
                self._plan(now, f"ended unexpectedly ({ended(status)})")
        elif now >= self._due:
            self._due, self._since = None, now
            self._member.stop()  # forgets the one that ended
            try:
                self._member.start()
            except (EmbeddedError, OSError) as error:
                self._plan(now, f"does not start: {error}")
            else:
                say(f"{self._member.name} is started again")
        return 1.0 if self._due is None else max(0.0, self._due - now)

    def _plan(self, now: float, what: str) -> None:
        if now - self._since > STEADY_S:
            self._pause = FIRST_PAUSE_S
        say(f"{self._member.name} {what}; starting it again in {self._pause:g} s")
        self._due = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S)


def ended(status: int) -> str:
    """An exit status in words: `exit status 1`, `SIGKILL`."""
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name


def say(text: str) -> None:
    """Tell the operator, on stdout."""
    print(f"snapbid up: {text}", flush=True)
