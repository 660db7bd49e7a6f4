"""Child processes, and waiting for conditions."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 60.0
SHORTEST_S, LONGEST_S = 0.01, 0.25


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds; after PATIENCE_S, fail and say what was awaited.

    The longer it takes, the seldomer it is looked at: asking a server costs both of us.
    """
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < PATIENCE_S, f"not within {PATIENCE_S} s: {what}"
        time.sleep(min(SHORTEST_S + waited / 20, LONGEST_S))


def workers_of(pid: int) -> set[int]:
    """The pids of the worker processes that a process has spawned."""
    return {child for child, command in children_of(pid).items() if "spawn_main" in command}


def log_writers_of(pid: int) -> set[int]:
    """The pids of the processes that make the auction log's files, spawned by a process."""
    children = children_of(pid).items()
    return {child for child, command in children if "snapbid.auctionlog" in command}


def children_of(pid: int) -> dict[int, str]:
    """The live children of a process: pid to command line."""
    children = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        state, parent = stat.rpartition(")")[2].split()[:2]
        if int(parent) == pid and state != "Z":
            children[int(folder.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return children


def descendants(pid: int) -> dict[int, str]:
    """A process and all its live descendants: pid to command line."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    processes, parents = {pid: command.decode(errors="replace")}, [pid]
    while parents:
        children = children_of(parents.pop())
        processes |= children
        parents += children
    return processes


def accepts(port: int) -> bool:
    """Whether anybody is let in there."""
    try:
        socket.create_connection(("127.0.0.1", port), 60).close()
    except OSError:
        return False
    return True


def listening(port: int) -> int:
    """How many sockets of this machine listen on a TCP port; each worker has its own."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[3] == "0A" and f":{port:04X} " in line[:20] for line in lines)
