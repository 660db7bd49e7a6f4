"""Start and stop the processes of embedded servers, and stop those that outlived their owner."""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from snapbid.base.settings import without_settings

STOP_S = 30.0
POLL_S = 0.02
STILL_WAITING_S = 15.0  # between messages about something awaited
LOG_KEPT_BYTES = 16 * 1024 * 1024


class EmbeddedError(RuntimeError):
    """An embedded server or its home cannot be used; the message has the reason and a remedy."""


class StartWait:
    """Limits the wait for a server to start to `limit_s`, restarted while the server is recovering.

    `say` receives a message every 15 s during recovery; `stopping` returns whether to give up.
    """

    def __init__(
        self,
        name: str,
        limit_s: float,
        say: Callable[[str], None],
        stopping: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._limit_s = limit_s
        self._say = say
        self._stopping = stopping
        self._clock = clock
        self._deadline = clock() + limit_s
        self._report_at = clock() + STILL_WAITING_S

    def goes_on(self, is_recovering: bool) -> bool:
        """Whether to keep waiting for a server that has not started yet."""
        now = self._clock()
        if is_recovering:
            self._deadline = now + self._limit_s
            if now >= self._report_at:
                self._report_at = now + STILL_WAITING_S
                self._say(f"{self._name} is still reading its data")
        return not self._stopping() and now < self._deadline


def spawn(
    command: Sequence[str],
    *,
    death_signal: signal.Signals = signal.SIGTERM,
    log: Path | None = None,
    privileges: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command` in a new session, out of reach of Ctrl-C in a terminal.

    The process gets `death_signal` when the calling thread ends, if setpriv supports that. `log`:
    file to append its output to; without a log, it writes to our output. `privileges`: additional
    setpriv flags. `env`: its environment; by default ours, without our settings.
    """
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(open(log, "ab")) if log else None
        return subprocess.Popen(
            wrapped(command, death_signal, privileges),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=without_settings(os.environ) if env is None else env,
        )


def wrapped(
    command: Sequence[str], death_signal: signal.Signals, privileges: Sequence[str]
) -> list[str]:
    """Wrap `command` in setpriv with the flags `privileges`, and set the death signal if possible.

    Returns `command` itself if no flags are needed or supported.
    """
    flags = [*privileges, *_death_flags(death_signal)]
    return ["setpriv", *flags, "--", *command] if flags else list(command)


@functools.cache
def _setpriv_help() -> str:
    if shutil.which("setpriv") is None:
        return ""
    return subprocess.run(["setpriv", "--help"], capture_output=True, text=True).stdout


def _death_flags(death_signal: signal.Signals) -> list[str]:
    """Return setpriv flags that set the death signal; none if setpriv does not support it.

    Without these flags, a server that outlives its parent runs until the next start, when `evict`
    stops it.
    """
    if "--pdeathsig" not in _setpriv_help():
        return []
    return ["--pdeathsig", death_signal.name.removeprefix("SIG")]


def stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Send the signal `how` and wait; after STOP_S, kill the process and its process group."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def evict(pid: int, owned: Path, gentle: signal.Signals, hard: signal.Signals) -> None:
    """Stop the server with this pid if it still uses `owned`.

    The process that started the server was killed without stopping it. Sends `gentle`, then `hard`,
    then SIGKILL, waiting after each. Raises EmbeddedError if the server cannot be stopped.
    """
    for how in (gentle, hard, signal.SIGKILL):
        if not serves(pid, owned):
            return
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise EmbeddedError(
                f"process {pid} still uses {owned} and belongs to another user: stop it first"
            ) from error
        deadline = time.monotonic() + STOP_S
        while serves(pid, owned) and time.monotonic() < deadline:
            time.sleep(POLL_S)  # it is not our child, so we cannot wait on it
    if serves(pid, owned):
        raise EmbeddedError(f"process {pid} still uses {owned} and has not exited after SIGKILL")


def serves(pid: int, owned: Path) -> bool:
    """Whether `pid` is a live process with `owned` as its working directory or an argument.

    Checks both, since some servers hide their working directory, and others overwrite their
    arguments.
    """
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    if not command:  # a zombie or a kernel thread
        return False
    if os.fsencode(owned) in command.split(b"\0"):
        return True
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", owned)
    except OSError:
        return False


def read_pid(path: Path) -> int | None:
    """Read the pid in the first line of a pid file; None if there is none."""
    try:
        return int(path.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def rotate(log: Path) -> None:
    """Rename a log that has grown large to `.1`, replacing the previous one."""
    if log.exists() and log.stat().st_size > LOG_KEPT_BYTES:
        log.replace(log.with_name(log.name + ".1"))


def tail(log: Path, since: int) -> str:
    """Return the last lines of `log` after byte `since`, indented."""
    try:
        with open(log, "rb") as file:
            file.seek(max(since, log.stat().st_size - 8192))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "".join(f"\n    {line}" for line in text.splitlines()[-6:])


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
