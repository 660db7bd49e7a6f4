"""Granian's workers, replaced one by one on SIGHUP without a moment in which nobody listens.

Granian itself stops a worker as soon as it has begun to start the next one, which takes a second or
more until it listens. Its respawning is overridden here, and the release is pinned for that
(pyproject.toml); `integration/test_reload.py` tells when it changes.
"""

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from granian.server.mp import MPServer

POLL_S: Final = 0.02
TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS: Final = "0A"

logger = logging.getLogger("snapbid")


class Server(MPServer):
    """`respawn_interval` is how long the next worker may take until it listens (s), on SIGHUP."""

    def _respawn_workers(
        self, workers: Iterable[int], spawn_target: Any, target_loader: Any, delay: float = 0
    ) -> None:
        """A `delay` of 0 is for workers that have ended."""
        if delay:
            logger.info("SIGHUP: replacing the workers")
        new: Any
        for place in workers:
            if self.interrupt_signal:
                return
            self.respawned_wrks[place] = time.monotonic()
            before = listening(self.bind_port)
            old, new = self.wrks[place], self._spawn_worker(place, spawn_target, target_loader)
            new.start()
            self.wrks[place] = new
            until = time.monotonic() + delay
            while time.monotonic() < until and new.is_alive() and not self.interrupt_signal:
                if listening(self.bind_port) > before:
                    break
                time.sleep(POLL_S)
            self._stop(old)

    def _stop(self, worker: Any) -> None:
        worker.terminate()
        worker.join(self.workers_kill_timeout)
        if worker.is_alive():
            time.sleep(POLL_S)  # Granian's own thread, which waits for it too, was faster
        if worker.is_alive():
            logger.warning("a worker does not stop, and is killed")
            worker.kill()
            worker.join()


def listening(port: int) -> int:
    """How many sockets of this machine listen on a TCP port; each worker has its own."""
    found = 0
    for table in TABLES:
        if table.exists():
            for line in table.read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                found += state == LISTENS and int(local.rpartition(":")[2], 16) == port
    return found
