"""Faults of a fleet's network: what is on either side goes on, and does not hear of the other."""

import contextlib
import functools
import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from support.cluster import Server, until
from support.proxy import FaultProxy
from support.soak.fleet import DRAIN_HOSTS, MACHINE_HOSTS, MACHINES, NODE_HOSTS, Fleet
from support.soak.fleet_faults import (
    FAILING_S,
    await_unreplicated,
    fault,
    moved,
    revived,
    slot_of,
    some_primary,
)
from support.soak.network import Lost

HOSTS: Final = frozenset((*NODE_HOSTS, *MACHINE_HOSTS, *DRAIN_HOSTS))
MOMENTS: Final = 20
LONGER_S: Final = 6.0  # for which a drain may be cut off besides: it gives up after 5 s


def partition(part: str) -> Callable[[Callable[[Fleet, random.Random], Iterator[str]]], None]:
    """Register a fault that is left out where no addresses can be kept apart."""

    def register(function: Callable[[Fleet, random.Random], Iterator[str]]) -> None:
        @functools.wraps(function)
        def checked(fleet: Fleet, rng: random.Random) -> Iterator[str]:
            if fleet.network.lacking:
                yield f"skipped: {fleet.network.lacking}"
            else:
                yield from function(fleet, rng)

        fault(part)(checked)

    return register


def alone(
    fleet: Fleet, *hosts: str, lost: Lost = Lost.ALL
) -> contextlib.AbstractContextManager[None]:
    return fleet.network.cut(hosts, HOSTS.difference(hosts), lost)


@contextlib.contextmanager
def stalled(fleet: Fleet, link: FaultProxy) -> Iterator[None]:
    fleet.wire.do(link.stall)
    try:
        yield
    finally:
        fleet.wire.call(link.resume())


# -- nodes ----------------------------------------------------------------------------------------


def await_another(fleet: Fleet, slot: int, primary: Server) -> None:
    until(lambda: moved(fleet.cluster, slot, primary), "another primary")


@partition("nodes")
def primary_cut_off(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    primary, lost = some_primary(fleet, rng), rng.choice(list(Lost))
    slot = slot_of(fleet, primary)
    with alone(fleet, primary.host, lost=lost):
        if lost is Lost.ALL:
            await_another(fleet, slot, primary)
        yield lost.value


@partition("nodes")
def primary_cut_off_for_a_moment(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    with alone(fleet, some_primary(fleet, rng).host, lost=rng.choice(list(Lost))):
        time.sleep(rng.uniform(0, 1.5))
        yield ""


@partition("nodes")
def primary_cut_off_with_a_machine(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """It does not know of its successor, and has somebody who writes."""
    primary, number = some_primary(fleet, rng), rng.randrange(len(MACHINES))
    slot = slot_of(fleet, primary)
    with alone(fleet, primary.host, MACHINE_HOSTS[number], DRAIN_HOSTS[number]):
        await_another(fleet, slot, primary)
        yield MACHINES[number]


@partition("nodes")
def replica_cut_off(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    replica, lost = fleet.cluster.replica_of(some_primary(fleet, rng)), rng.choice(list(Lost))
    with alone(fleet, replica.host, lost=lost):
        yield lost.value


@partition("nodes")
def primary_killed_with_its_replica_cut_off(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """The others see the replica, which has nothing of what the primary was told last."""
    primary = some_primary(fleet, rng)
    slot, replica = slot_of(fleet, primary), fleet.cluster.replica_of(primary)
    with revived(fleet), fleet.network.cut([replica.host], [primary.host]):
        time.sleep(rng.uniform(0, FAILING_S))
        primary.kill()
        await_another(fleet, slot, primary)
        yield ""


@partition("nodes")
def primary_killed_long_after_its_replica_was_cut_off(
    fleet: Fleet, rng: random.Random
) -> Iterator[str]:
    """The replica lacks what was acknowledged without it, and must not take over."""
    primary = some_primary(fleet, rng)
    replica = fleet.cluster.replica_of(primary)
    with revived(fleet), fleet.network.cut([replica.host], [primary.host]):
        await_unreplicated(fleet)
        primary.kill()
        time.sleep(rng.uniform(0, LONGER_S))
        yield ""


# -- machines and drains --------------------------------------------------------------------------


@partition("machines")
def machine_cut_off(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """From the ledger and the warehouse; its SSPs reach it."""
    number, lost = rng.randrange(len(MACHINES)), rng.choice(list(Lost))
    with (
        stalled(fleet, fleet.server_links[number]),
        fleet.network.cut([MACHINE_HOSTS[number]], NODE_HOSTS, lost),
    ):
        yield f"{MACHINES[number]}, {lost.value}"


@partition("machines")
def machine_cut_off_from_a_primary(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """The other machine reaches it, and so do the nodes."""
    number, lost = rng.randrange(len(MACHINES)), rng.choice(list(Lost))
    primary = rng.choice(fleet.primaries())
    with fleet.network.cut([MACHINE_HOSTS[number]], [primary.host], lost):
        yield f"{MACHINES[number]}, {lost.value}"


@partition("machines")
def machine_with_a_bad_line(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    """What it sends to one primary or another comes late, after what the other machine sends."""
    number = rng.randrange(len(MACHINES))
    for _ in range(MOMENTS):
        primary = rng.choice(fleet.primaries())
        with fleet.network.cut([MACHINE_HOSTS[number]], [primary.host], rng.choice(list(Lost))):
            time.sleep(rng.uniform(0.1, 0.4))
        time.sleep(rng.uniform(0, 0.1))
    yield MACHINES[number]


@partition("drains")
def drain_cut_off_from_the_ledger(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    number, lost = rng.randrange(len(MACHINES)), rng.choice(list(Lost))
    with fleet.network.cut([DRAIN_HOSTS[number]], NODE_HOSTS, lost):
        time.sleep(rng.uniform(0, LONGER_S))
        yield f"{MACHINES[number]}, {lost.value}"


@partition("drains")
def drain_cut_off_from_a_primary(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    number, primary = rng.randrange(len(MACHINES)), rng.choice(fleet.primaries())
    with fleet.network.cut([DRAIN_HOSTS[number]], [primary.host]):
        time.sleep(rng.uniform(0, LONGER_S))
        yield MACHINES[number]


@fault("drains")
def drain_cut_off_from_the_warehouse(fleet: Fleet, rng: random.Random) -> Iterator[str]:
    number = rng.randrange(len(MACHINES))
    with stalled(fleet, fleet.drain_links[number]):
        time.sleep(rng.uniform(0, LONGER_S))
        yield MACHINES[number]
