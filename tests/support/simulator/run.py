"""One run of a script, and what came of it."""

import tempfile
import time
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from support.simulator.loop import SimulationError
from support.simulator.player import Player
from support.simulator.script import Script
from support.simulator.servers import Servers
from support.simulator.system import collect, uncollected


class Result(NamedTuple):
    """What came of a run. `digest` stands for every step of it."""

    seed: str
    differences: list[str]
    digest: str
    counts: dict[str, int]
    virtual_s: float
    real_s: float
    trace: list[tuple[object, ...]]


def play(servers: Servers, script: Script, wanted: frozenset[str] = frozenset()) -> Result:
    """One run, with a difference for each way in which it went wrong."""
    began = time.perf_counter()
    players: list[Player] = []
    with tempfile.TemporaryDirectory(prefix="snapbid-simulated-") as folder, uncollected():
        try:
            players.append(Player(script, servers, Path(folder), wanted))
            return _result(players[0], began)
        finally:
            collect(partial(_leave, players))


def _leave(players: list[Player]) -> None:
    for player in players:
        player.world.loop.forget()
    players.clear()


def _result(player: Player, began: float) -> Result:
    try:
        player.play()
    except SimulationError as error:
        player.books.wrong.append(f"the simulation cannot go on: {error}")
    world = player.world
    digest = blake2b(repr(world.trace).encode(), digest_size=8).hexdigest()
    counts = {
        **player.books.counts,
        "events": player.events.accepted,
        "requests": player.requests,
        "messages": world.network.messages,
        "turns": world.loop.turns,
    }
    wrong = list(dict.fromkeys(player.books.wrong))
    real_s, virtual_s = time.perf_counter() - began, world.loop.time()
    return Result(player.script.seed, wrong, digest, counts, virtual_s, real_s, world.trace)
