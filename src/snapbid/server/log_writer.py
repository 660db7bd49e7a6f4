"""Keeps the auction log's writer running beside the workers (`python -m snapbid.auctionlog`)."""

import logging
import os
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from snapbid.base.settings import without_settings

PAUSE_S: Final = 1.0
STOP_S: Final = 60.0  # to convert the remaining rows

logger = logging.getLogger("snapbid")


def problem_of(directory: Path) -> str | None:
    """Return why the auction log cannot be kept in a directory; None if it can."""
    if find_spec("duckdb") is None:
        return "duckdb is not installed: pip install 'snapbid[parquet]'"
    try:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        return f"{directory}: {error.strerror}"
    return None if os.access(directory, os.W_OK | os.X_OK) else f"{directory}: not writable"


class LogWriterProcess:
    """The writer process of a directory; `rotate_s` is how long rows may wait."""

    def __init__(self, directory: Path, rotate_s: int) -> None:
        module = "snapbid.auctionlog"
        self._command = [sys.executable, "-m", module, str(directory), str(rotate_s)]
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="auction-log", daemon=True)

    def start(self) -> None:
        self._process = self._spawn()
        self._thread.start()

    def stop(self) -> None:
        """Let the writer convert the remaining rows, then wait for its exit."""
        self._stopping.set()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            logger.warning("auction log writer did not stop within %d s: killing it", STOP_S)
            process.kill()
        self._thread.join()

    def _spawn(self) -> "subprocess.Popen[bytes]":
        environ = without_settings(os.environ)
        return subprocess.Popen(self._command, stdin=subprocess.PIPE, env=environ)

    def _run(self) -> None:
        while True:
            process = self._process
            assert process is not None
            status = process.wait()
            if self._stopping.wait(PAUSE_S):
                return
            logger.error("auction log writer exited with status %d: restarting it", status)
            self._process = self._spawn()
