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

from snapbid.base.redis_keys import ShardKeys
from snapbid.embedded import Home, Postgres
from snapbid.warehouse.migrate import migrate
from support import books, sending
from support.cluster import Cluster, Server
from support.preload import joined
from support.program_clock import ProgramClock
from support.proxy import FaultProxy
from support.soak.network import Network
from support.soak.stage import (
    HOLD_S,
    PG_SOCKET,
    Capped,
    Kept,
    Stage,
    Supervisor,
    Wire,
    capped_in,
    dsn_by,
    linked,
)
from support.stack import Stack

MACHINES: Final = ("a", "b")
NODE_HOSTS: Final = tuple(f"127.0.1.{number}" for number in range(1, 7))
MACHINE_HOSTS: Final = ("127.0.2.1", "127.0.2.2")  # of the connections of servers
DRAIN_HOSTS: Final = ("127.0.3.1", "127.0.3.2")
SHARDS: Final = 6
SLOTS: Final = tuple(key_slot(ShardKeys(shard).epoch.encode()) for shard in range(SHARDS))


class Fleet(Stage):
    """Each machine has a home and a clock; `clocks` are that of the stores, and those.

    Its nodes, servers and drains have addresses that a network may keep apart; each server and
    drain has a link to the warehouse, too.
    """

    def __init__(self, wire: Wire, cluster: Cluster, postgres: Postgres, network: Network) -> None:
        super().__init__(wire)
        self.cluster = cluster
        self.postgres = postgres
        self._served: list[Stack] = []
        self._drains: list[Stack] = []
        self._ports = random.Random(0)
        self.clocks: list[ProgramClock] = []
        self.network = network
        self.server_links: list[FaultProxy] = []
        self.drain_links: list[FaultProxy] = []

    @property
    def port(self) -> int:
        return self._ports.choice(self._served).port

    @property
    def dsn(self) -> str:
        return self.postgres.dsn

    @property
    def redis_url(self) -> str:
        return self.cluster.url

    @property
    def served(self) -> list[Stack]:
        return self._served

    @property
    def drains(self) -> list[Stack]:
        return self._drains

    @property
    def auctions(self) -> list[Path]:
        return [Path(served.environ["SNAPBID_AUCTION_LOG"]) for served in self._served]

    def capped(self) -> Capped:
        return capped_in(*(node.client_of() for node in self.primaries()))

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
        stores = folder / "stores"
        stores.mkdir()
        subprocess.run(["cp", "-a", f"{made}/.", stores / "postgres"], check=True)
        clocks = [ProgramClock(folder / f"clock-{name}") for name in ("stores", *MACHINES)]
        for clock in clocks:
            stack.callback(clock.close)
        stack.enter_context(patch.dict(os.environ, clocks[0].environ))
        postgres = Postgres(stack.enter_context(Home(stores)))
        postgres.start()
        stack.callback(postgres.stop)
        asyncio.run(migrate(postgres.dsn))
        asyncio.run(books.set_up(postgres.dsn, *campaigns))
        nodes = folder / "nodes"
        nodes.mkdir()
        network = Network()
        placed = [(host, joined(clocks[0].environ, network.environ(host))) for host in NODE_HOSTS]
        cluster = stack.enter_context(Cluster(nodes, hosts=placed))
        wire = Wire()
        stack.callback(wire.close)
        fleet = Fleet(wire, cluster, postgres, network)
        fleet.clocks = clocks
        warehouse = postgres.sockets / PG_SOCKET
        for name, clock, *hosts in zip(
            MACHINES, clocks[1:], MACHINE_HOSTS, DRAIN_HOSTS, strict=True
        ):
            environ = {
                "SNAPBID_HOME": str(folder / name),
                "SNAPBID_REDIS_URL": cluster.url,
                "SNAPBID_WORKERS": "1",
                "SNAPBID_BASE_URL": books.BASE_URL,
                "SNAPBID_TMAX_MS": "1000",
                "SNAPBID_HOLD_S": str(HOLD_S),
                "SNAPBID_AUCTION_LOG": str(folder / name / "auctions"),
                "SNAPBID_AUCTION_LOG_S": "2",
            }
            for host, programs, links, command in zip(
                hosts,
                (fleet.served, fleet.drains),
                (fleet.server_links, fleet.drain_links),
                ("serve", "drain"),
                strict=True,
            ):
                links.append(linked(wire, stack, warehouse))
                own = {"SNAPBID_DATABASE_URL": dsn_by(links[-1], postgres)}
                preloaded = joined(clock.environ, network.environ(host))
                programs.append(Stack({**environ, **own, **preloaded}, command))
        fleet.key = sending.issue(postgres.dsn, "casino", "igaming", rate=1_000_000)
        for program in (*fleet.drains, *fleet.served):
            stack.callback(program.close)
            program.launch()
        for each in fleet.served:
            each.await_ready()
            sending.await_key(each.port, fleet.key)
        kept = [Kept(each.command[0], each) for each in (*fleet.drains, *fleet.served)]
        fleet.supervisor = Supervisor((postgres, *kept))
        stack.callback(fleet.supervisor.close)
        stack.callback(_close, [*fleet.served, *fleet.drains])
        stack.callback(fleet.supervisor.retire)
        yield fleet


def _close(programs: list[Stack]) -> None:
    """Stop what the supervisor may have started anew."""
    for program in programs:
        if program.process is not None and program.process.poll() is None:
            program.stop()
