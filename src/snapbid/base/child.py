"""Run a module in a child process: once, or for as long as the program runs.

The module exits when its standard input closes, so it never outlives the program.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Final

from snapbid.base.logs import log_to_stderr
from snapbid.base.settings import without_settings

PAUSE_S: Final = 1.0
NICE: Final = 10  # bids come first

logger = logging.getLogger(__name__)


async def run_child(module: str, line: bytes) -> tuple[int, bytes]:
    """Run `python -m module` with a line on its standard input; return its status and output.

    Ctrl-C does not reach the module, and the module gets none of our settings except the log format
    (see `without_settings`). Its input stays open: see `exit_with_parent`.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=without_settings(os.environ),
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(line + b"\n")
        output = await process.stdout.read()
        return await process.wait(), output
    finally:
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()  # or Python 3.13 warns when the loop closes


def exit_with_parent() -> None:
    """Exit as soon as the parent does.

    Modules run by `run_child` call this after reading the line on their standard input.
    """

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def begin_child() -> None:
    """Set up a module run by `ChildProcess`: log to stderr, lower the priority, ignore signals.

    The parent stops the module by closing its standard input.
    """
    log_to_stderr()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)


class ChildProcess:
    """`python -m module arguments`, restarted whenever it exits; `name` identifies it in the log.

    The process gets our environment without the settings (`without_settings`), plus `environ`.
    `after_s`: delay before the first start; `stop_s`: time to exit before it is killed.
    """

    def __init__(
        self,
        name: str,
        module: str,
        *arguments: str,
        stop_s: float,
        after_s: float = 0.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._command = [sys.executable, "-m", module, *arguments]
        self._environ = without_settings(os.environ) | dict(environ or {})
        self._stop_s = stop_s
        self._after_s = after_s
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        if not self._after_s:
            self._process = self._spawn()
        self._thread.start()

    def stop(self) -> None:
        """Close the module's input and wait until it exits; kill it after `stop_s`."""
        self._stopping.set()
        if self._process is None:
            self._thread.join()  # it may have been about to start
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(self._stop_s)
        except subprocess.TimeoutExpired:
            logger.warning(
                "%(child)s did not stop within %(limit_s)d s; killing it",
                {"child": self._name, "limit_s": self._stop_s},
            )
            process.kill()
        self._thread.join()

    def _spawn(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, stdin=subprocess.PIPE, env=self._environ)

    def _run(self) -> None:
        if self._process is None:
            if self._stopping.wait(self._after_s):
                return
            self._process = self._spawn()
        while True:
            status = self._process.wait()
            if self._stopping.wait(PAUSE_S):
                return
            logger.error(
                "%(child)s exited with status %(status)d; restarting it",
                {"child": self._name, "status": status},
            )
            self._process = self._spawn()
