"""The fleet to break: two machines and two drains on a Redis Cluster of three and three nodes."""

import asyncio
import contextlib
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from unittest.mock import patch

from redis.crc import key_slot

from snapbid.embedded import Home, Postgres
from snapbid.ledger.keys import ShardKeys
from snapbid.warehouse.migrate import migrate
from support import books, sending
from support.cluster import Cluster, Server
from support.soak.clock import Clock
from support.soak.stage import HOLD_S, Kept, Stage, Supervisor, Wire
from support.stack import Stack

MACHINES: Final = ("a", "b")
SHARDS: Final = 6
SLOTS: Final = tuple(key_slot(ShardKeys(shard).epoch.encode()) for shard in range(SHARDS))


class Fleet(Stage):
    """Each machine has a home and a clock (`clocks`); the stores have their own (`clock`)."""

    def __init__(
        self,
        wire: Wire,
        cluster: Cluster,
        postgres: Postgres,
        served: list[Stack],
        drains: list[Stack],
    ) -> None:
        super().__init__(wire)
        self.cluster = cluster
        self.postgres = postgres
        self._served = served
        self._drains = drains
        self._ports = random.Random(0)
        self.clocks: list[Clock] = []

    @property
    def port(self) -> int:
        return self._ports.choice(self._served).port

    @property
    def dsn(self) -> str:
        return self.postgres.dsn

    @property
    def served(self) -> list[Stack]:
        return self._served

    @property
    def drains(self) -> list[Stack]:
        return self._drains

    @property
    def auctions(self) -> list[Path]:
        return [Path(served.environ["SNAPBID_AUCTION_LOG"]) for served in self._served]

    def primaries(self) -> list[Server]:
        """The nodes that have shards."""
        return sorted({self.cluster.owner(slot) for slot in SLOTS}, key=lambda node: node.port)


@contextlib.contextmanager
def opened(made: Path, *campaigns: tuple[str, str]) -> Iterator[Fleet]:
    """A serving fleet on a copy of the template's PostgreSQL, with additional campaigns."""
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="snapbid-fleet-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)  # the database runs as another user where this one is root
        subprocess.run(["cp", "-a", f"{made}/.", folder / "postgres"], check=True)
        clocks = [Clock(folder / f"clock-{name}") for name in ("stores", *MACHINES)]
        for clock in clocks:
            stack.callback(clock.close)
        stack.enter_context(patch.dict(os.environ, clocks[0].environ))
        postgres = Postgres(stack.enter_context(Home(folder)))
        postgres.start()
        stack.callback(postgres.stop)
        asyncio.run(migrate(postgres.dsn))
        asyncio.run(books.set_up(postgres.dsn, *campaigns))
        nodes = folder / "nodes"
        nodes.mkdir()
        cluster = stack.enter_context(Cluster(nodes))
        wire = Wire()
        stack.callback(wire.close)
        served, drains = [], []
        for name, clock in zip(MACHINES, clocks[1:], strict=True):
            environ = {
                "SNAPBID_HOME": str(folder / name),
                "SNAPBID_DATABASE_URL": postgres.dsn,
                "SNAPBID_REDIS_URL": cluster.url,
                "SNAPBID_LEDGER_SHARDS": str(SHARDS),
                "SNAPBID_WORKERS": "1",
                "SNAPBID_BASE_URL": books.BASE_URL,
                "SNAPBID_TMAX_MS": "1000",
                "SNAPBID_HOLD_S": str(HOLD_S),
                "SNAPBID_AUCTION_LOG": str(folder / name / "auctions"),
                "SNAPBID_AUCTION_LOG_S": "2",
                **clock.environ,
            }
            drains.append(Stack(environ, "drain"))
            served.append(Stack(environ))
        fleet = Fleet(wire, cluster, postgres, served, drains)
        fleet.clocks = clocks
        fleet.key = sending.issue(postgres.dsn, "casino", "igaming", rate=1_000_000)
        for program in (*drains, *served):
            stack.callback(program.close)
            program.launch()
        for each in served:
            each.await_ready()
            sending.await_key(each.port, fleet.key)
        programs = [*(Kept("drain", each) for each in drains), *(Kept("serve", s) for s in served)]
        fleet.supervisor = Supervisor((postgres, *programs))
        stack.callback(fleet.supervisor.close)
        stack.callback(_close, [*served, *drains])
        stack.callback(fleet.supervisor.retire)
        yield fleet


def _close(programs: list[Stack]) -> None:
    """Stop what the supervisor may have started anew."""
    for program in programs:
        if program.process is not None and program.process.poll() is None:
            program.stop()
