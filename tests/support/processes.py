"""Processes of this machine, and conditions that come true in time."""

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 15.0


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds. Fails, saying what was awaited, after a while."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.01)


def workers_of(pid: int) -> set[int]:
    """The pids of the Python processes that a process has spawned to work for it."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        state, parent = stat.rpartition(")")[2].split()[:2]
        if int(parent) == pid and state != "Z" and b"spawn_main" in command:
            found.add(int(folder.name))
    return found
