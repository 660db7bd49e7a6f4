"""The base class of the private Redis and PostgreSQL."""

import signal
import subprocess
from collections.abc import Callable
from typing import ClassVar

from snapbid.embedded.home import Home
from snapbid.embedded.process import POLL_S, StartWait, stop


class Server:
    """A private server: its data, its log and its process.

    Subclasses have a `start`, which blocks until the server answers, and raises EmbeddedError with
    the cause and a remedy. `say` receives messages for the operator. `stopping`: whether to stop
    waiting for an answer.
    """

    name: ClassVar[str]
    folder: ClassVar[str]  # in the home
    stop_signal: ClassVar[signal.Signals]

    def __init__(
        self,
        home: Home,
        say: Callable[[str], None] = lambda _: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._home = home
        self.data = home.path / self.folder
        self.log = home.log / f"{self.folder}.log"
        self._say = say
        self._is_stopping = stopping
        self.process: subprocess.Popen[bytes] | None = None

    def _state(self, process: subprocess.Popen[bytes]) -> str:
        """Return `ready`, or `starting` while the server reads its data; "" for anything else."""
        raise NotImplementedError

    def _await(self, process: subprocess.Popen[bytes], limit_s: float) -> bool:
        """Wait until the server is ready, and return True.

        Returns False if the server exits first. If the server is neither ready nor reading its data
        for `limit_s`, stops it and returns False.
        """
        wait = StartWait(self.name, limit_s, self._say, self._is_stopping)
        while (state := self._state(process)) != "ready":
            try:
                process.wait(POLL_S)
                return False
            except subprocess.TimeoutExpired:
                pass
            if not wait.goes_on(state == "starting"):
                stop(process, self.stop_signal)
                return False
        return True

    def poll(self) -> int | None:
        """Return the exit status; None if the server is running, or has not been started."""
        return self.process.poll() if self.process else None

    def stop(self) -> None:
        if self.process:
            stop(self.process, self.stop_signal)
            self.process = None
