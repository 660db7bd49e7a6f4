"""What can break, or change, in a run: each adds its steps to a draft at a moment."""

import random
from collections.abc import Callable, Collection
from typing import Final

from snapbid.redisclient.replicas import GRACE_S
from support.simulator.draft import HOLDS_S, TTLS_S, Draft
from support.simulator.script import Script

Fault = Callable[[Draft, float], None]
LIKELY: Final = 0.2  # that one is among those of a run
CLUSTERS: Final = 0.2  # of the runs are on one
COPY: Final = 8  # the first number that is no cluster's
DIRECTIONS: Final = ((1, 1), (1, 0), (0, 1), (0, 1))  # of a stall: requests, replies


def draft(seed: str, length: int, faults: Collection[str] | None = None, shards: int = 0) -> Script:
    """The script of a seed, of about so many requests; of these faults alone, if any are named.

    `shards`: of the ledger, 0: what is drawn.
    """
    made = Draft(seed, length, shards)
    rng = made.rng
    allowed = [name for name in FAULTS if faults is None or name in faults]
    chosen = [name for name in allowed if rng.random() < LIKELY]
    if not chosen and allowed:
        chosen = [rng.choice(allowed)]
    for _ in range(rng.choice((1, 1, 2, 3, 5)) if chosen else 0):
        FAULTS[rng.choice(chosen)](made, rng.uniform(0.6, max(made.seconds, 1.0)))
    _cluster(made, faults)
    return made.script()


def _cluster(made: Draft, faults: Collection[str] | None) -> None:
    """Draw a cluster for some runs, and for all in which a cluster's fault is named."""
    allowed = [name for name in OF_CLUSTERS if faults is None or name in faults]
    rng = random.Random(f"{made.seed} cluster")
    if not allowed or (faults is None and rng.random() >= CLUSTERS):
        return
    made.primaries = rng.choice((1, 2, 3))
    for _ in range(rng.choice((1, 2, 2, 3, 5))):
        OF_CLUSTERS[rng.choice(allowed)](made, rng.uniform(0.6, max(made.seconds, 1.0)))


def _seconds(made: Draft) -> float:
    longest = made.rng.choice((0.05, 0.5, 2.0, 5.0, made.hold_s * 2.0))
    return round(longest * made.rng.random(), 6)


# -- connections -----------------------------------------------------------------------------


def _wire(made: Draft, at: float, seconds: float) -> dict[str, str]:
    if made.rng.random() < 0.15:
        made.broken(at, seconds)
        return {"machine": "d", "store": made.rng.choice(("redis", "postgres"))}
    machine = made.rng.choice(made.machines)
    made.broken(at, seconds, machine)
    return {"machine": machine, "store": "redis"}


def _stall(made: Draft, at: float) -> None:
    requests, replies = made.rng.choice(DIRECTIONS)
    seconds = _seconds(made)
    wire = _wire(made, at, seconds)
    made.add(at, "stall", **wire, requests=requests, replies=replies, seconds=seconds)


def _slow(made: Draft, at: float) -> None:
    by, seconds = made.rng.choice((0.002, 0.05, 0.4)), _seconds(made)
    made.add(at, "slow", **_wire(made, at, seconds), by=by, seconds=seconds)


def _cut(made: Draft, at: float) -> None:
    seconds = _seconds(made)
    made.add(at, "cut", **_wire(made, at, seconds), seconds=seconds)


def _cut_for_long(made: Draft, at: float) -> None:
    """Cut for longer than bids are remembered, if that is short, or until the day has closed."""
    machine = made.rng.choice(made.machines)
    seconds = round(min(made.ttl_s, 12) * (0.5 + made.rng.random()), 6)
    made.broken(at, seconds, machine)
    made.add(at, "cut", machine=machine, store="redis", seconds=seconds)
    if made.rng.random() < 0.5:
        made.add(at + seconds * made.rng.random(), "clock", whose="all", by=50_400.0)


def _disk(made: Draft, at: float) -> None:
    seconds, machine = _seconds(made), made.rng.choice(made.machines)
    made.broken(at, seconds, machine)
    made.add(at, "disk", machine=machine, seconds=seconds)
    made.add(at, "cut", machine=machine, store="redis", seconds=seconds)


# -- processes and machines ------------------------------------------------------------------


def _who(made: Draft) -> str:
    return made.rng.choice([*made.workers, "drain"])


def _kill(made: Draft, at: float) -> None:
    who, seconds = _who(made), _seconds(made)
    made.broken(at, seconds)
    made.add(at, "kill", process=who)
    made.add(at + seconds, "launch", process=who)


def _stop(made: Draft, at: float) -> None:
    who, seconds = _who(made), _seconds(made)
    made.broken(at, seconds)
    made.add(at, "stop", process=who)
    made.add(at + seconds, "launch", process=who)


def _stall_and_stop(made: Draft, at: float) -> None:
    """Stop a worker while Redis stalls."""
    who, seconds = made.rng.choice(made.workers), _seconds(made)
    if made.rng.random() < 0.7:  # so that the connection is given up meanwhile
        seconds += 1.5
    requests, replies = made.rng.choice(DIRECTIONS)
    made.broken(at, seconds, who[0])
    for number in range(3):
        made.sell(at + 0.001 * number, made.rng.choice(made.campaigns), who)
    wire = {"machine": who[0], "store": "redis"}
    made.add(at, "stall", **wire, requests=requests, replies=replies, seconds=seconds)
    made.add(at + 0.3 * made.rng.random(), "stop", process=who)
    made.add(at + seconds + 1.0, "launch", process=who)


def _settings(made: Draft, at: float) -> None:
    """Restart workers of some machines with other settings."""
    ttl, hold = made.rng.choice(TTLS_S), made.rng.choice(HOLDS_S)
    for machine in made.rng.choice((made.machines, made.machines[:1], made.machines[-1:])):
        made.add(at, "settings", machine=machine, ttl=ttl, hold=hold)
        for worker in made.workers:
            if worker.startswith(machine):
                made.add(at, "stop", process=worker)
                made.add(at + 0.2, "launch", process=worker)
    made.broken(at, 0.5)


def _join(made: Draft, at: float) -> None:
    """Add a machine with its own settings."""
    name = "cefgh"[len([worker for worker in made.workers if worker[0] in "cefgh"])]
    ttl, hold = made.rng.choice(TTLS_S), made.rng.choice(HOLDS_S)
    made.add(at, "join", machine=name, ttl=ttl, hold=hold, ahead=made.rng.choice((0, 0, -5, 5)))
    made.workers.append(f"{name}0")
    made.machines.append(name)
    made.broken(at, 0.5, name)


def _leave(made: Draft, at: float) -> None:
    """Remove a machine for good, with its disk."""
    if len(made.machines) > 1:
        made.add(at, "leave", machine=made.rng.choice(made.machines))
        made.broken(at, 0.5)


# -- clocks ----------------------------------------------------------------------------------


def _clock(made: Draft, at: float) -> None:
    whose = made.rng.choice([*made.machines, "redis", "d", "all"])
    by = made.rng.choice((-1, 1)) * made.rng.choice((0.3, 2.0, made.hold_s * 1.5, 300.0))
    made.add(at, "clock", whose=whose, by=by)
    made.broken(at, 0.1)


def _midnight(made: Draft, at: float) -> None:
    """Set all clocks past midnight."""
    made.add(at, "clock", whose="all", by=made.rng.choice((3600.0, 7200.0, 43_200.0)))
    made.broken(at, 0.1)


# -- stores ----------------------------------------------------------------------------------


def _restart_redis(made: Draft, at: float) -> None:
    seconds = _seconds(made)
    made.broken(at, seconds)
    made.add(at, "restart", store="redis", seconds=seconds)


def _restart_postgres(made: Draft, at: float) -> None:
    made.add(at, "restart", store="postgres", seconds=_seconds(made))


def _older_redis(made: Draft, at: float) -> None:
    made.add(at * made.rng.random(), "save", store="redis")
    _restore_redis(made, at)


def _restore_redis(made: Draft, at: float) -> None:
    """Restore Redis to a saved copy, or to nothing."""
    seconds = _seconds(made)
    made.broken(at, seconds)
    made.add(at, "restore", store="redis", seconds=seconds)


def _replaced_data(made: Draft, at: float) -> None:
    """As a replica has it that lacked the tail; nobody's connection ends."""
    made.add(at - made.rng.choice((0.05, 0.5, 3.0, at)) * made.rng.random(), "save", store="redis")
    made.add(at, "replace_data", number=1)
    made.broken(at, 0.5)


def _moments(made: Draft, at: float) -> None:
    """Both stores are copied now and then, and either goes back to any copy, and on to another one;
    amid the traffic, or after it. Now and then both go back together.
    """
    rng = made.rng
    copies = list(range(COPY, COPY + rng.choice((2, 4))))
    is_quiet = rng.random() < 0.4
    at = made.seconds + 1.0 if is_quiet else at
    for number in copies:
        saved = at * rng.random()
        made.add(saved, "save", store="redis", number=number)
        made.add(
            saved + rng.choice((0.0, 0.3, at - saved)), "save", store="postgres", number=number
        )
    for _ in range(rng.choice((2, 3, 4))):
        what = rng.choice(("redis", "redis", "postgres", "replaced", "both"))
        number = rng.choice(copies)
        if what == "redis" and rng.random() < 0.3:  # to nothing: another ledger
            number = copies[-1] + 1
        seconds = round(min(_seconds(made), 1.0) * rng.choice((0.01, 1.0)), 6)
        if what == "replaced":
            made.add(at, "replace_data", number=number)
        for store in ("redis", "postgres"):
            if what in (store, "both"):
                made.add(at, "restore", store=store, seconds=seconds, number=number)
        if not is_quiet:
            made.broken(at, seconds + 0.1)
        at += seconds + rng.choice((0.05, 0.6, 2.0)) * rng.random() + 0.01
    for number in range(4):
        made.sell(at + 0.5 * number, rng.choice(made.campaigns))


def _standby(made: Draft, at: float) -> None:
    """PostgreSQL fails amid a round of the drain, and a standby was some batches behind."""
    made.batch = made.rng.choice((1, 1, 2))
    made.add(at, "standby", behind=made.rng.choice((1, 2, 3)), seconds=min(_seconds(made), 2.0))
    for number in range(6):
        made.sell(at + 0.1 * number, made.rng.choice(made.campaigns))


def _older_postgres(made: Draft, at: float) -> None:
    rng = made.rng
    seconds, saved = min(_seconds(made), 3.0), at * rng.random()
    made.add(saved, "save", store="postgres")
    if rng.random() < 0.7:  # one that the backup does not have
        number = made.campaign(saved + 0.1)
        for _ in range(8):
            made.sell(saved + 0.3 + max(at - saved, 0.5) * rng.random(), number)
        at = max(at, saved + 1.0)
    made.add(at, "restore", store="postgres", seconds=seconds)
    if rng.random() < 0.7:
        made.campaign(at + seconds + rng.choice((0.1, 3.0)) * rng.random())


def _new_postgres(made: Draft, at: float) -> None:
    """Another warehouse, for which the operator gives the ledger up a while later."""
    seconds = 0.5 + made.rng.random()
    made.broken(at, seconds + 3.0)
    made.add(at, "replace", seconds=seconds, adopt=round(1.0 + 2.0 * made.rng.random(), 6))


def _campaign(made: Draft, at: float) -> None:
    made.campaign(at)


def _allocator(made: Draft, at: float) -> None:
    """Those of one machine, or of all, are killed, amid a burst perhaps."""
    seconds = _seconds(made)
    for machine in made.rng.choice((made.machines, made.machines[:1], made.machines[-1:])):
        made.add(at, "allocator", machine=machine, seconds=seconds)
    made.broken(at, seconds)


FAULTS: Final[dict[str, Fault]] = {
    "stall": _stall,
    "slow": _slow,
    "cut": _cut,
    "cut for long": _cut_for_long,
    "disk": _disk,
    "kill": _kill,
    "stop": _stop,
    "stall and stop": _stall_and_stop,
    "settings": _settings,
    "join": _join,
    "leave": _leave,
    "clock": _clock,
    "midnight": _midnight,
    "restart redis": _restart_redis,
    "restart postgres": _restart_postgres,
    "older redis": _older_redis,
    "empty redis": _restore_redis,
    "older postgres": _older_postgres,
    "new postgres": _new_postgres,
    "campaign": _campaign,
    "allocator": _allocator,
    "replaced data": _replaced_data,
    "moments": _moments,
    "standby": _standby,
}


# -- clusters --------------------------------------------------------------------------------


def _sold_around(made: Draft, at: float, seconds: float) -> None:
    made.broken(at, seconds)
    for _ in range(6):
        made.sell(at + seconds * made.rng.random(), made.rng.choice(made.campaigns))


def _replica_cut_off(made: Draft, at: float) -> None:
    """Cut a replica off its primary, which may then be killed: what the replica missed is lost."""
    rng, seconds = made.rng, _seconds(made)
    group = rng.randrange(made.primaries)
    made.add(at, "replica", group=group, seconds=seconds)
    _sold_around(made, at, seconds)
    if rng.random() < 0.7:
        _lose(made, at + seconds * rng.random(), group)


def _replica_cut_off_for_long(made: Draft, at: float) -> None:
    """The shards of its primary go on without it, and it may not take over any more."""
    rng = made.rng
    group, seconds = rng.randrange(made.primaries), rng.uniform(GRACE_S + 1, 2 * GRACE_S)
    made.add(at, "replica", group=group, seconds=round(seconds, 6))
    _sold_around(made, at + GRACE_S, seconds - GRACE_S)
    if rng.random() < 0.7:
        _lose(made, at + rng.uniform(GRACE_S, seconds), group)


def _primary_killed(made: Draft, at: float) -> None:
    _lose(made, at, made.rng.randrange(made.primaries))


def _primary_gone(made: Draft, at: float) -> None:
    """Kill a primary for so long that its shards go on with the replica that took over."""
    rng = made.rng
    back = round(rng.uniform(GRACE_S + 1, 2 * GRACE_S), 6)
    _lose(made, at, rng.randrange(made.primaries), back)
    _sold_around(made, at + GRACE_S, back - GRACE_S)


def _lose(made: Draft, at: float, group: int, back: float | None = None) -> None:
    down, full = min(_seconds(made), 3.0), made.rng.choice((0, 1))
    back = _seconds(made) if back is None else back
    made.add(at, "primary", group=group, down=down, back=back, full=full)
    _sold_around(made, at, down + 0.3)


def _primary_swapped(made: Draft, at: float) -> None:
    made.add(at, "swap", group=made.rng.randrange(made.primaries))
    _sold_around(made, at, 0.1)


def _slot_moved(made: Draft, at: float) -> None:
    rng = made.rng
    seconds, made.primaries = rng.choice((0.0, _seconds(made))), max(made.primaries, 2)
    shard, to = rng.randrange(made.shards), rng.randrange(made.primaries)
    made.add(at, "move", shard=shard, to=to, seconds=seconds)
    _sold_around(made, at, seconds + 0.1)


OF_CLUSTERS: Final[dict[str, Fault]] = {
    "replica cut off": _replica_cut_off,
    "replica cut off for long": _replica_cut_off_for_long,
    "primary killed": _primary_killed,
    "primary gone": _primary_gone,
    "primary swapped": _primary_swapped,
    "slot moved": _slot_moved,
}
