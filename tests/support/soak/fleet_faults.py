"""Faults of a fleet: of nodes, slots, machines, drains, the warehouse and clocks (registry.py)."""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from support.cluster import Cluster, Server, until
from support.processes import children_of, workers_of
from support.soak.faults import (
    STEP_S,
    Breaking,
    Victims,
    killing,
    some,
    stopped,
    stopping,
    terminating,
)
from support.soak.fleet import SLOTS, Fleet
from support.soak.registry import OF_FLEET
from support.stack import Stack

FleetFault = Breaking[Fleet]
Way = Callable[[Victims[Fleet]], FleetFault]

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


def moved(cluster: Cluster, slot: int, lost: Server) -> bool:
    """Whether a node other than the lost one sees another one as a slot's owner."""
    other = next(node for node in cluster.running() if node is not lost)
    return cluster.seen_owner(slot, other) not in (lost, None)


def slot_of(fleet: Fleet, node: Server) -> int:
    return next(slot for slot in SLOTS if fleet.cluster.owner(slot) is node)


@contextlib.contextmanager
def revived(fleet: Fleet) -> Iterator[None]:
    """Start and continue all nodes afterwards; that they become healthy is part of the recovery."""
    try:
        yield
    finally:
        fleet.cluster.revive()


Then = Callable[[Fleet, random.Random, Server, int], None]


def await_failover(fleet: Fleet, _: random.Random, primary: Server, slot: int) -> None:
    until(lambda: moved(fleet.cluster, slot, primary), "another primary")


def await_unreplicated(fleet: Fleet, *_: object) -> None:
    """Wait until a server names a shard that goes on without a replica; one may be stopped."""
    until(
        lambda: any(
            b"unreplicated" in each.get("/readyz", within_s=1.0)[1] for each in fleet.served
        ),
        "a shard without a replica",
    )


def moment(least_s: float, most_s: float) -> Then:
    return lambda fleet, rng, primary, slot: time.sleep(rng.uniform(least_s, most_s))


def primary_lost(by: Callable[[Server], None], then: Then) -> FleetFault:
    def lost(fleet: Fleet, rng: random.Random) -> Iterator[str]:
        primary = some_primary(fleet, rng)
        slot = slot_of(fleet, primary)
        with revived(fleet):
            by(primary)
            then(fleet, rng, primary, slot)
            yield ""

    return lost


def replica_lost(by: Callable[[Server], None]) -> FleetFault:
    def lost(fleet: Fleet, rng: random.Random) -> Iterator[str]:
        with revived(fleet):
            by(fleet.cluster.replica_of(some_primary(fleet, rng)))
            yield ""

    return lost


NODES: Final = {
    "primary killed": primary_lost(Server.kill, await_failover),
    # For so long that its shard goes on with the replica that took over, which has none itself.
    "primary gone": primary_lost(Server.kill, await_unreplicated),
    # It is back before its replica may take over, or while it does.
    "primary killed for a moment": primary_lost(Server.kill, moment(0, 2)),
    # It does not know that there is another one when it goes on.
    "primary stopped": primary_lost(Server.pause, await_failover),
    "primary stopped for a moment": primary_lost(Server.pause, moment(0.1, 1.5)),
    "replica killed": replica_lost(Server.kill),
    "replica stopped": replica_lost(Server.pause),
}
for name, lost in NODES.items():
    fault("nodes", name)(lost)


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


# -- machines, drains and the warehouse -----------------------------------------------------------


def halting(victims: Victims[Fleet]) -> FleetFault:
    """For moments, again and again: what they have begun they end after others did the same."""

    def halted(fleet: Fleet, rng: random.Random) -> Iterator[str]:
        processes = victims(fleet, rng)
        for _ in range(HALTS):
            with stopped(processes):
                time.sleep(rng.uniform(0.05, 0.3))
            time.sleep(rng.uniform(0.01, 0.1))
        yield ""

    return halted


def a_worker(fleet: Fleet, rng: random.Random) -> list[int]:
    parents = pids(fleet.served)
    return some(rng, [pid for parent in parents for pid in workers_of(parent)])


def a_machine(fleet: Fleet, rng: random.Random) -> list[int]:
    """Its allocator and all its workers, too."""
    return whole(rng.choice(fleet.served))


def all_machines(fleet: Fleet, _: random.Random) -> list[int]:
    return [pid for served in fleet.served for pid in whole(served)]


def a_drain(fleet: Fleet, rng: random.Random) -> list[int]:
    return some(rng, pids(fleet.drains))


def warehouse(fleet: Fleet, _: random.Random) -> list[int]:
    process = fleet.postgres.process
    return [] if process is None else [process.pid, *children_of(process.pid)]


PROCESSES: Final[dict[str, tuple[str, Way, Victims[Fleet]]]] = {
    "worker killed": ("machines", killing, a_worker),
    "machine killed": ("machines", killing, a_machine),
    "all machines killed": ("machines", killing, all_machines),
    "machine stopped": ("machines", stopping, a_machine),
    "machine halting": ("machines", halting, a_machine),
    "machine restarted": (
        "machines",
        terminating,
        lambda fleet, rng: pids([rng.choice(fleet.served)]),
    ),
    "drain killed": ("drains", killing, a_drain),
    # The other one may take its shards; this one goes on as if it had them.
    "drain stopped": ("drains", stopping, a_drain),
    "all drains killed": ("drains", killing, lambda fleet, _: pids(fleet.drains)),
    "warehouse killed": ("postgres", killing, lambda fleet, rng: warehouse(fleet, rng)[:1]),
    "warehouse stopped": ("postgres", stopping, warehouse),
}
for name, (part, way, victims) in PROCESSES.items():
    fault(part, name, sudden=way is not stopping)(way(victims))


# -- clocks ---------------------------------------------------------------------------------------


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
