"""A well-behaved client that must be served while others attack."""

import json
import threading

from support.processes import eventually
from support.wire import Wire, head

PATH = "/api/v1/openrtb2/acme/bid"
JSON = {"content-type": "application/json"}
GOOD = {
    "id": "auction 1",
    "tmax": 60_000,
    "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}],
    "device": {"geo": {"country": "USA"}},
}
BODY = json.dumps(GOOD).encode()
REQUEST = head("POST", PATH, {"host": "x", "content-length": len(BODY), **JSON}) + BODY


class Bystander(threading.Thread):
    """Sends bid requests over one connection until told to stop."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.may_be_shed = False
        self._port = port
        self._stopping = threading.Event()
        self.answers = self.shed = 0
        self.failure = ""

    def run(self) -> None:
        with Wire(self._port) as wire:
            while not self._stopping.wait(0.005):
                try:
                    wire.write(REQUEST)
                    status = wire.read().status
                except (OSError, EOFError) as error:
                    self.failure = f"after {self.answers} answers: {error!r}"
                    return
                if status == 204:
                    self.shed += 1
                elif status != 200:
                    self.failure = f"after {self.answers} answers: {status}"
                    return
                self.answers += 1

    def is_served(self) -> None:
        """Wait for answers to requests sent from now on."""
        wanted = self.answers + 3
        eventually(lambda: self.answers >= wanted or bool(self.failure), "the bystander's answers")
        assert not self.failure

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        assert not self.failure
        assert self.may_be_shed or not self.shed
