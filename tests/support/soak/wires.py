"""Faults of the connections between programs and stores (registry.py)."""

import contextlib
import random
import time
from collections.abc import Iterator

from support.proxy import FaultProxy, Way
from support.soak.registry import OF_MACHINE
from support.soak.stage import MachineStage

fault = OF_MACHINE.fault


@contextlib.contextmanager
def broken_link(stage: MachineStage, rng: random.Random) -> Iterator[tuple[str, FaultProxy]]:
    """A random connection, which is repaired afterwards."""
    name = rng.choice(sorted(stage.links))
    link = stage.links[name]
    try:
        yield name, link
    finally:
        stage.wire.do(link.spare)
        stage.wire.call(link.resume())


@fault("wire")
def wire_stalled(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    with broken_link(stage, rng) as (name, link):
        stage.wire.do(link.stall)
        yield name


@fault("wire")
def answers_stalled(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    with broken_link(stage, rng) as (name, link):
        stage.wire.do(lambda: link.stall(Way.ANSWERS))
        yield name


@fault("wire")
def requests_stalled(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    with broken_link(stage, rng) as (name, link):
        stage.wire.do(lambda: link.stall(Way.REQUESTS))
        yield name


@fault("wire", sudden=True)
def wire_cut(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    with broken_link(stage, rng) as (name, link):
        for _ in range(rng.randrange(1, 4)):
            stage.wire.do(link.cut)
            time.sleep(rng.uniform(0, 0.2))
        yield name


@fault("wire")
def wire_slow(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    with broken_link(stage, rng) as (name, link):
        link.delay_s = rng.uniform(0.02, 0.4)
        try:
            yield f"{name}, by {link.delay_s:.2f} s"
        finally:
            link.delay_s = 0.0


@fault("wire")
def connections_refused(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    with broken_link(stage, rng) as (name, link):
        stage.wire.call(link.refuse())
        stage.wire.do(link.cut)
        yield name


@fault("wire")
def length_damaged(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    with broken_link(stage, rng) as (name, link):
        way = rng.choice(list(Way))
        stage.wire.do(lambda: link.damage(way))
        yield f"{name}, {way.name.lower()}"


@fault("wire")
def answer_cut_short(stage: MachineStage, rng: random.Random) -> Iterator[str]:
    with broken_link(stage, rng) as (name, link):
        link.answer_bytes = rng.randrange(1, 12)
        yield name
