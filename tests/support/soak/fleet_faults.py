"""Faults of a fleet: of nodes, slots, machines, drains, the warehouse and clocks (registry.py)."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Final

from support.cluster import Cluster, Server, until
from support.processes import children_of, workers_of
from support.soak.faults import STEP_S, kill, some, stopped
from support.soak.fleet import SLOTS, Fleet
from support.soak.registry import OF_FLEET
from support.stack import Stack

fault = OF_FLEET.fault
HALTS: Final = 20
STORES_STEP_S: Final = 30.0  # back by so much, nodes may miss for so long that one is unavailable
FAILING_S: Final = 0.5  # for which a replica is cut off before its primary is killed


def some_primary(fleet: Fleet, rng: random.Random) -> Server:
    fleet.cluster.await_health()
    return rng.choice(fleet.primaries())


def pids(programs: list[Stack]) -> list[int]:
    """The processes of programs that run."""
    return [
        each.process.pid
        for each in programs
        if each.process is not None and each.process.poll() is None
    ]


def whole(machine: Stack) -> list[int]:
    """All processes of a server."""
    return [pid for parent in pids([machine]) for pid in (parent, *children_of(parent))]


# -- nodes ----------------------------------------------------------------------------------------


def moved(cluster: Cluster, slot: int, unavailable: Server) -> bool:
    """Whether a node that is not unavailable sees another one as a slot's owner."""
    other = next(node for node in cluster.running() if node is not unavailable)
    return cluster.seen_owner(slot, other) not in (unavailable, None)


def slot_of(fleet: Fleet, node: Server) -> int:
    return next(slot for slot in SLOTS if fleet.cluster.owner(slot) is node)


@contextlib.contextmanager
def revived(fleet: Fleet) -> Iterator[None]:
    """Start and continue all nodes afterwards; that they become healthy is part of the recovery."""
    try:
        yield
    finally:
        fleet.cluster.revive()


@fault("nodes")
def primary_killed(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    primary = some_primary(fleet, rng)
    slot = slot_of(fleet, primary)
    with revived(fleet):
        primary.kill()
        until(lambda: moved(fleet.cluster, slot, primary), "another primary")
        yield ""


def await_unreplicated(fleet: Fleet) -> None:
    """Wait until a server names a shard that goes on without a replica; one may be stopped."""
    until(
        lambda: any(
            b"unreplicated" in each.get("/readyz", within_s=1.0)[1] for each in fleet.served
        ),
        "a shard without a replica",
    )


@fault("nodes")
def primary_gone(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """For so long that its shard goes on with the replica that took over, which has none itself."""
    with revived(fleet):
        some_primary(fleet, rng).kill()
        await_unreplicated(fleet)
        yield ""


@fault("nodes")
def primary_killed_for_a_moment(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """It is back before its replica may take over, or while it does."""
    with revived(fleet):
        some_primary(fleet, rng).kill()
        time.sleep(rng.uniform(0, 2))
        yield ""


@fault("nodes")
def primary_stopped(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """It does not know that there is another one when it goes on."""
    primary = some_primary(fleet, rng)
    slot = slot_of(fleet, primary)
    with revived(fleet):
        primary.pause()
        until(lambda: moved(fleet.cluster, slot, primary), "another primary")
        yield ""


@fault("nodes")
def primary_stopped_for_a_moment(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    with revived(fleet):
        some_primary(fleet, rng).pause()
        time.sleep(rng.uniform(0.1, 1.5))
        yield ""


@fault("nodes")
def replica_killed(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    with revived(fleet):
        fleet.cluster.replica_of(some_primary(fleet, rng)).kill()
        yield ""


@fault("nodes")
def replica_stopped(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    with revived(fleet):
        fleet.cluster.replica_of(some_primary(fleet, rng)).pause()
        yield ""


@fault("nodes")
def primary_killed_behind_its_replica(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """The replica lacks what the primary was told last."""
    primary = some_primary(fleet, rng)
    slot = slot_of(fleet, primary)
    replica = fleet.cluster.replica_of(primary)
    with revived(fleet):
        replica.pause()
        time.sleep(rng.uniform(0, FAILING_S))
        primary.kill()
        replica.go_on()
        until(lambda: moved(fleet.cluster, slot, primary), "another primary")
        yield ""


@fault("nodes", sudden=True)
def primary_handed_over(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """As an operator does for an upgrade."""
    primary = some_primary(fleet, rng)
    slot = slot_of(fleet, primary)
    fleet.cluster.replica_of(primary).call("CLUSTER", "FAILOVER")
    until(lambda: fleet.cluster.owner(slot) is not primary, "a failover")
    fleet.cluster.await_health()
    yield ""


@fault("nodes", sudden=True)
def slots_moved(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """Each shard of a primary to one of the others."""
    primary = some_primary(fleet, rng)
    others = [node for node in fleet.primaries() if node is not primary]
    mine = [slot for slot in SLOTS if fleet.cluster.owner(slot) is primary]
    for slot in mine[: len(mine) if others else 0]:
        fleet.cluster.move(slot, rng.choice(others))
        time.sleep(rng.uniform(0, 0.3))
    fleet.cluster.await_health()
    yield f"{len(mine)} shards"


@fault("nodes")
def slot_half_moved(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """Some keys are here and some there for a while."""
    primary = some_primary(fleet, rng)
    cluster, slot = fleet.cluster, slot_of(fleet, primary)
    to = rng.choice([node for node in fleet.primaries() if node is not primary] or [primary])
    if to is primary:
        yield "skipped: one primary has all shards"
        return
    source = cluster.begin_to_move(slot, to)
    cluster.move_keys(slot, source, to, but=tuple(rng.sample(["epoch", "w", "r", "m", "c"], 2)))
    try:
        yield ""
    finally:
        while cluster.move_keys(slot, source, to):
            pass
        cluster.end_move(slot, source, to)
        cluster.await_health()


# -- machines and drains --------------------------------------------------------------------------


@fault("machines", sudden=True)
def worker_killed(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    parents = pids(fleet.served)
    kill(*some(rng, [pid for parent in parents for pid in workers_of(parent)]))
    yield ""


@fault("machines", sudden=True)
def machine_killed(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """With its allocator and all its workers."""
    kill(*whole(rng.choice(fleet.served)))
    yield ""


@fault("machines", sudden=True)
def all_machines_killed(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    kill(*(pid for served in fleet.served for pid in whole(served)))
    yield ""


@fault("machines")
def machine_stopped(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    with stopped(whole(rng.choice(fleet.served))):
        yield ""


@fault("machines", sudden=True)
def machine_halting(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """For moments, again and again: what it has begun it ends after others have done the same."""
    processes = whole(rng.choice(fleet.served))
    for _ in range(HALTS):
        with stopped(processes):
            time.sleep(rng.uniform(0.05, 0.3))
        time.sleep(rng.uniform(0.01, 0.1))
    yield ""


@fault("machines", sudden=True)
def machine_restarted(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    for pid in pids([rng.choice(fleet.served)]):
        os.kill(pid, signal.SIGTERM)
    yield ""


@fault("drains", sudden=True)
def drain_killed(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    kill(*some(rng, pids(fleet.drains)))
    yield ""


@fault("drains")
def drain_stopped(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """The other one may take its shards; this one goes on as if it had them."""
    with stopped(some(rng, pids(fleet.drains))):
        yield ""


@fault("drains", sudden=True)
def all_drains_killed(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    kill(*pids(fleet.drains))
    yield ""


# -- the warehouse and clocks ---------------------------------------------------------------------


@fault("postgres", sudden=True)
def warehouse_killed(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    if fleet.postgres.process is not None:
        kill(fleet.postgres.process.pid)
    yield ""


@fault("postgres")
def warehouse_stopped(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    process = fleet.postgres.process
    with stopped([] if process is None else [process.pid, *children_of(process.pid)]):
        yield ""


@fault("clock")
def a_clock_set(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """That of a machine and its drain, or that of all stores; and right again afterwards."""
    clock = rng.choice(fleet.clocks)
    if not clock.can_be_set:
        yield "skipped: no C compiler"
        return
    most_s = STORES_STEP_S if clock is fleet.clocks[0] else STEP_S
    step_s = rng.choice((-1, 1)) * rng.uniform(1, most_s)
    clock.set(step_s)
    try:
        yield f"of {('the stores', 'a', 'b')[fleet.clocks.index(clock)]} by {step_s:+.0f} s"
    finally:
        clock.set(0)
