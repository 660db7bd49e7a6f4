"""Measures bids and notices on one plain Redis, and on clusters of 1, 3 and 8 primaries.

    python -m bench.primaries_run [--rounds 7] [--output FILE]

The ledger has a shard on each primary. The total number of bids, or of wins of them, that wait at
once is constant, so the batches of a shard shrink as the number of shards grows. All stores and
kinds take turns in a round. Processor time is measured for this process, which does the ledger's
part of a worker, and for all nodes together. Nodes have no replicas, and share one core.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import redis
import uvloop

from bench import redis_time
from bench.command import command, scratch
from bench.ledger_run import AUCTION
from bench.processes import BenchError, cores, pinned
from bench.spread import spread
from snapbid.base.redis_keys import ShardKeys
from snapbid.embedded import Home, Redis
from snapbid.embedded.process import spawn, stop
from snapbid.embedded.redis_server import installed
from snapbid.ledger.bids.ledger import Ledger
from snapbid.ledger.bids.records import WIN
from snapbid.ledger.budgets.limits import DAY_S, Limits
from snapbid.ledger.scripts import script
from workload.serving import LOOPBACK, free_ports

PLAIN: Final = "a plain Redis"
PRIMARIES: Final = (1, 3, 8)
SLOTS: Final = 16_384
BUS: Final = 10_000  # from a node's port to that of the cluster's bus
LANES: Final = 64
TURN: Final = 4_000  # bids
PATIENCE_S: Final = 60.0
ALLOWED: Final = 10**15  # nano-USD, more than the run spends
PRICE: Final = 1_230_000

Work = Callable[[int], Awaitable[None]]


class Store(NamedTuple):
    """A plain Redis or a cluster, with a client for each of its nodes."""

    url: str
    shards: int
    nodes: Sequence[redis.Redis]

    def processor_s(self) -> float:
        """Return the processor time (s) used by all nodes so far."""
        return sum(redis_time.processor_s(node.info("cpu")) for node in self.nodes)


@contextmanager
def plain(home: Home) -> Iterator[Store]:
    server = Redis(home)
    server.start()
    try:
        with closing(redis.Redis.from_url(server.url)) as client:
            yield Store(server.url, 1, [client])
    finally:
        server.stop()


@contextmanager
def cluster(folder: Path, primaries: int) -> Iterator[Store]:
    """Start a Redis Cluster of primaries without replicas."""
    ports = free_ports(primaries, BUS)
    bounds = [SLOTS * number // primaries for number in range(primaries + 1)]
    with ExitStack() as stack:
        nodes = [stack.enter_context(_node(folder / str(port), port)) for port in ports]
        for number, (node, (first, end)) in enumerate(zip(nodes, pairwise(bounds), strict=True), 1):
            _call(node, "CLUSTER ADDSLOTS", *range(first, end))
            _call(node, "CLUSTER SET-CONFIG-EPOCH", number)
            _call(node, "CLUSTER MEET", LOOPBACK, ports[0])
        _await(lambda: all(map(_is_whole, nodes)), "the Redis Cluster does not become whole")
        addresses = ",".join(f"{LOOPBACK}:{port}" for port in ports)
        yield Store(f"redis+cluster://{addresses}", primaries, nodes)


@contextmanager
def _node(folder: Path, port: int) -> Iterator[redis.Redis]:
    """Start a node, and yield a client; it never syncs its file, like the Redis of `snapbid up`."""
    folder.mkdir(parents=True)
    options = {
        "port": str(port),
        "bind": LOOPBACK,
        "dir": str(folder),
        "save": "",
        "appendonly": "yes",
        "appendfsync": "no",
        "cluster-enabled": "yes",
    }
    named = [part for name, value in options.items() for part in (f"--{name}", value)]
    process = spawn([installed()[0].path, *named], log=folder / "log")
    try:
        with closing(redis.Redis(host=LOOPBACK, port=port)) as client:
            _await(lambda: bool(client.ping()), f"the node at {port} does not answer")
            yield client
    finally:
        stop(process, signal.SIGTERM)


def _is_whole(node: redis.Redis) -> bool:
    return bool(_call(node, "CLUSTER INFO")["cluster_state"] == "ok")


def _call(node: redis.Redis, *command: Any) -> Any:
    return node.execute_command(*command)  # type: ignore[no-untyped-call]


def _await(condition: Callable[[], bool], failure: str) -> None:
    """Wait until a condition holds; it does not hold while Redis does not answer."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with suppress(redis.ConnectionError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise BenchError(failure)
        time.sleep(0.05)


class Contender:
    """A ledger on a store; it remembers bids with and without a budget, and counts wins."""

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self._ledger = ledger
        self._store = store
        several = store.shards > 1
        self._limits = Limits(7, ALLOWED, ALLOWED, None, in_escrow=several)
        self._numbers = range(0)

    async def prepare(self) -> None:
        """Wait for the connections, and grant each shard an allowance for the budget."""
        while not self._ledger.connected:
            await asyncio.sleep(0.01)
        day = int(time.time()) // DAY_S
        granted: dict[Any, Any] = {"lt": ALLOWED, "wt": 0} | {
            f"l{day + n}": ALLOWED for n in range(2)
        }
        for number in range(self._store.shards):
            keys, node = ShardKeys(number), self._node(number)
            reply: Any = node.eval(script("begin"), 1, keys.epoch)
            node.hset(keys.state, mapping={"confirmed": reply[1], "carried": 1})
            node.hset(keys.grants(7), mapping=granted)

    def _node(self, shard: int) -> redis.Redis:
        for node in self._store.nodes:
            try:
                node.get(ShardKeys(shard).epoch)
            except redis.ResponseError:  # MOVED
                continue
            return node
        raise BenchError(f"no node has shard {shard}")

    async def turn(self, work: Work, numbers: range) -> dict[str, float]:
        """Do the work for all numbers; return the processor time (µs) of one here and in Redis."""
        left = iter(numbers)

        async def lane() -> None:
            for number in left:
                await work(number)

        stores, own = self._store.processor_s(), time.process_time()
        await asyncio.gather(*(lane() for _ in range(LANES)))
        own, stores = time.process_time() - own, self._store.processor_s() - stores
        return {"worker_us": own / len(numbers) * 1e6, "redis_us": stores / len(numbers) * 1e6}

    async def bid(self, number: int, limits: Limits | None = None) -> None:
        auction = (AUCTION % number).encode()
        campaign = limits.campaign if limits else number % 1000 + 10
        bids = [(b"1", campaign, PRICE, limits)]
        done = self._ledger.remember(auction, number % 8 + 1, bids, None, 10.0)
        if done is None or await done != "k":
            raise BenchError(f"bid {number} is not kept")

    async def limited(self, number: int) -> None:
        await self.bid(number, self._limits)

    async def win(self, number: int) -> None:
        if await self._ledger.settle(WIN, (AUCTION % number).encode(), b"1") not in "cs":
            raise BenchError(f"win {number} does not count")


async def _measure(stores: dict[str, Store], spool: Path, rounds: int) -> dict[str, Any]:
    turns: dict[str, dict[str, list[dict[str, float]]]] = {}
    async with AsyncExitStack() as stack:
        contenders: dict[str, Contender] = {}
        for place, (name, store) in enumerate(stores.items()):
            ledger = Ledger(
                store.url,
                spool / str(place),
                shards=store.shards,
                ttl_s=7200,
                spool_max_bytes=1 << 20,
            )
            await ledger.open()
            stack.push_async_callback(ledger.close)
            contenders[name] = Contender(ledger, store)
            await contenders[name].prepare()
        for number in range(rounds):
            first = 2 * TURN * number
            plain, limited = range(first, first + TURN), range(first + TURN, first + 2 * TURN)
            for name, contender in contenders.items():
                for kind, work, numbers in (
                    ("a bid", contender.bid, plain),
                    ("a bid with a budget", contender.limited, limited),
                    ("a win notice", contender.win, plain),
                ):
                    own = turns.setdefault(kind, {}).setdefault(name, [])
                    own.append(await contender.turn(work, numbers))
    return {
        kind: {
            name: {figure: spread([turn[figure] for turn in own], 2) for figure in own[0]}
            for name, own in by_store.items()
        }
        for kind, by_store in turns.items()
    }


@command("primaries")
@click.option("--rounds", type=click.IntRange(1, 50), default=7)
def main(rounds: int) -> dict[str, Any]:
    """Measure bids and notices on a plain Redis, and on clusters."""
    worker_core, redis_core = cores()
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        stores: dict[str, Store] = {}
        with pinned(redis_core):
            home = stack.enter_context(Home(folder / "plain"))
            stores[PLAIN] = stack.enter_context(plain(home))
            for primaries in PRIMARIES:
                name = f"a cluster of {primaries}"
                stores[name] = stack.enter_context(cluster(folder / name, primaries))
        os.sched_setaffinity(0, {worker_core})
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures = runner.run(_measure(stores, folder / "spool", rounds))
    return {"method": {"rounds": rounds, "lanes": LANES, "turn": TURN}, "figures": figures}


if __name__ == "__main__":
    main()
