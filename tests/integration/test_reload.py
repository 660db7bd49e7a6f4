"""SIGHUP: `serve` replaces its workers while it serves, `drain` ends in order."""

import http.client
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from support.processes import eventually, workers_of
from support.stack import Stack


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Below nohup what is started would ignore the signal, as it should."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class Asker(threading.Thread):
    """Asks on a connection of its own each time, until it is told to stop; counts what comes."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._stopping = threading.Event()
        self.found: Counter[str] = Counter()
        self.start()

    def run(self) -> None:
        while not self._stopping.wait(0.002):
            client = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            try:
                client.request("GET", "/readyz")
                self.found[str(client.getresponse().status)] += 1
            except (OSError, http.client.HTTPException) as error:
                self.found[type(error).__name__] += 1
            finally:
                client.close()

    def finish(self) -> None:
        self._stopping.set()
        self.join()


@pytest.mark.parametrize("workers", [1, 2])
def test_somebody_listens_all_the_while(start_stack: Callable[..., Stack], workers: int) -> None:
    """Seen with Granian's own way: for the second that a worker takes to start nobody did."""
    stack = start_stack(SNAPBID_WORKERS=str(workers))
    assert stack.process
    server = stack.process.pid
    before = workers_of(server)
    asker = Asker(stack.port)
    eventually(lambda: asker.found["200"] > 10, "answers")
    stack.process.send_signal(signal.SIGHUP)
    eventually(lambda: len(workers_of(server) - before) == workers, "other workers")
    eventually(lambda: not workers_of(server) & before, "an end of those before")
    asker.finish()
    # A connection that a worker had not accepted when it closed its socket is reset.
    assert set(asker.found) <= {"200", "ConnectionResetError", "BrokenPipeError"}, asker.found
    assert asker.found["200"] > 0.98 * asker.found.total()
    assert "SIGHUP: replacing the workers" in stack.output
    assert stack.stop() == 0


def test_an_end_of_the_terminal_ends_nothing(start_stack: Callable[..., Stack]) -> None:
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
