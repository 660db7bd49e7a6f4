"""SIGHUP: `serve` replaces its workers while it serves, `drain` ends in order."""

import http.client
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.processes import eventually, listening, workers_of
from support.stack import Stack

from snapbid.reference.geo import DEFAULT_PATH

NOT_REPLACED = "the replacement of worker 1 did not start"


class Asker(threading.Thread):
    """Asks on a connection of its own each time, until it is told to stop; counts what comes."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._stopping = threading.Event()
        self.outcomes: Counter[str] = Counter()
        self.start()

    def run(self) -> None:
        while not self._stopping.wait(0.002):
            client = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            try:
                client.request("GET", "/healthz")
                self.outcomes[str(client.getresponse().status)] += 1
            except (OSError, http.client.HTTPException) as error:
                self.outcomes[type(error).__name__] += 1
            finally:
                client.close()

    def finish(self) -> None:
        self._stopping.set()
        self.join()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_port_listens_throughout(start_stack: Callable[..., Stack], workers: int) -> None:
    """Seen with Granian's own way: for the second that a worker takes to start nobody did."""
    stack = start_stack(SNAPBID_WORKERS=str(workers))
    assert stack.process
    server = stack.process.pid
    before = workers_of(server)
    asker = Asker(stack.port)
    eventually(lambda: asker.outcomes["200"] > 10, "answers")
    stack.process.send_signal(signal.SIGHUP)
    eventually(lambda: len(workers_of(server) - before) == workers, "other workers")
    eventually(lambda: not workers_of(server) & before, "an end of those before")
    asker.finish()
    # A connection that a worker had not accepted when it closed its socket is reset; one whose
    # request it had not read is closed.
    unread = {"ConnectionResetError", "BrokenPipeError", "RemoteDisconnected"}
    assert set(asker.outcomes) <= {"200", *unread}, asker.outcomes
    total = asker.outcomes.total()
    assert total - asker.outcomes["200"] <= max(4, 0.02 * total), asker.outcomes
    assert "SIGHUP: replacing the workers" in stack.output
    eventually(lambda: "SIGHUP: replaced the workers" in stack.output, "that it says so")
    assert stack.stop() == 0


@pytest.fixture
def geo_copy(tmp_path: Path) -> Path:
    """A geo database of the test's own; `spoil` and `restore` replace the file."""
    return Path(shutil.copy(DEFAULT_PATH, tmp_path / "geo.mmdb"))


def spoil(geo: Path) -> None:
    """Replace the geo database by a file with which no worker starts."""
    spoiled = geo.with_suffix(".spoiled")
    spoiled.write_bytes(b"nonsense")
    spoiled.replace(geo)


def restore(geo: Path) -> None:
    Path(shutil.copy(DEFAULT_PATH, geo.with_suffix(".good"))).replace(geo)


def started(stack: Stack) -> set[int]:
    """The workers once both listen: `/readyz` is 200 as soon as one does."""
    assert stack.process
    eventually(lambda: listening(stack.port) == 2, "that both listen")
    return workers_of(stack.process.pid)


def has_told(stack: Stack, times: int) -> bool:
    return stack.output.count(NOT_REPLACED) == times


def test_a_worker_whose_replacement_cannot_start_goes_on(
    start_stack: Callable[..., Stack], geo_copy: Path
) -> None:
    stack = start_stack(SNAPBID_WORKERS="2", SNAPBID_GEO_DB=str(geo_copy))
    assert stack.process
    server = stack.process.pid
    before = started(stack)
    spoil(geo_copy)
    asker = Asker(stack.port)
    for attempt in (1, 2):
        stack.process.send_signal(signal.SIGHUP)
        eventually(partial(has_told, stack, attempt), "a word about it")
        assert workers_of(server) == before
    asker.finish()
    assert set(asker.outcomes) == {"200"}
    restore(geo_copy)
    stack.process.send_signal(signal.SIGHUP)
    eventually(lambda: len(workers_of(server) - before) == 2, "other workers")
    eventually(lambda: not workers_of(server) & before, "an end of those before")
    eventually(lambda: stack.get("/readyz")[0] == 200, "that they are ready")
    assert stack.stop() == 0


def test_a_worker_that_cannot_be_restarted_stops_no_other(
    start_stack: Callable[..., Stack], geo_copy: Path
) -> None:
    """Granian's own gives up on all workers when one crashes twice in a row."""
    stack = start_stack(SNAPBID_WORKERS="2", SNAPBID_GEO_DB=str(geo_copy))
    assert stack.process
    server = stack.process.pid
    kept, killed = started(stack)
    spoil(geo_copy)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: stack.output.count("worker failed to start") > 1, "two attempts")
    assert stack.get("/readyz")[0] == 200
    assert kept in workers_of(server)
    restore(geo_copy)
    eventually(lambda: len(workers_of(server) - {killed}) == 2, "two workers again")
    eventually(lambda: listening(stack.port) == 2, "that both listen")
    assert kept in workers_of(server)
    assert stack.stop() == 0


def test_closing_the_terminal_ends_nothing(start_stack: Callable[..., Stack]) -> None:
    """All processes of a session get the signal then."""
    stack = start_stack()
    assert stack.process
    server = stack.process.pid
    before = workers_of(server)
    os.killpg(server, signal.SIGHUP)
    eventually(lambda: bool(workers_of(server) - before), "another worker")
    eventually(lambda: stack.get("/readyz")[0] == 200, "that it is ready")
    assert stack.stop() == 0, "amid the replacement, maybe"
    assert "killed" not in stack.output


def test_a_drain_ends_in_order(database: str, fresh_redis: str) -> None:
    drain = Stack({"SNAPBID_DATABASE_URL": database, "SNAPBID_REDIS_URL": fresh_redis}, "drain")
    process = drain.launch()
    try:
        eventually(lambda: _hears(process.pid, signal.SIGHUP), "that it listens")
        assert drain.stop(signal.SIGHUP) == 0
    finally:
        drain.close()


def _hears(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    with open(f"/proc/{pid}/status") as file:
        caught = next(line for line in file if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
