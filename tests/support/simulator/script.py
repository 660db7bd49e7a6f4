"""What happens in a run: its settings and a list of steps in virtual time, drawn from a seed.

A script is plain data, one line a step, so that it can be printed, cut short and played again:

    1.250 bid worker=a0 auction=17 ssp=1 user=u3 within=0.1 imps=1:4
    1.300 notice worker=b0 auction=17 imp=1 kind=1 reason=0
    2.000 stall machine=a store=redis requests=1 replies=0 seconds=3.1
"""

import random
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from support.simulator.entries import BILLING, LOSS, WIN

START_S: Final = 1_907_755_200  # 2030-06-15 12:00, which no key outlives by the real clock
MIDNIGHT_S: Final = START_S + 12 * 3600
PLANS: Final = (
    (WIN, BILLING), (WIN, BILLING), (WIN,), (WIN,), (BILLING,), (LOSS,), (LOSS,), (), (),
    (LOSS, WIN), (BILLING, WIN),
)  # fmt: skip
LIKELY: Final = 0.3  # that a fault is among those of a run
HOLDS_S: Final = (3, 5, 10)
TTLS_S: Final = (30, 60, 600, 7200)


class Step(NamedTuple):
    """`at`: virtual seconds since the start."""

    at: float
    do: str
    args: dict[str, Any]

    def __str__(self) -> str:
        args = " ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.at:.6f} {self.do} {args}".rstrip()

    @classmethod
    def parse(cls, line: str) -> "Step":
        at, do, *args = line.split()
        named = dict(arg.split("=", 1) for arg in args)
        return cls(float(at), do, {name: _value(text) for name, text in named.items()})


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


class Script(NamedTuple):
    """`first` is the line with the settings of the run, and `seed` that of all delays."""

    seed: str
    first: Step
    steps: list[Step]

    def __str__(self) -> str:
        return "\n".join([f"# {self.seed}", str(self.first), *map(str, self.steps)])

    @classmethod
    def parse(cls, text: str) -> "Script":
        seed, *lines = [line for line in text.splitlines() if line.strip()]
        first, *steps = map(Step.parse, lines)
        return cls(seed.removeprefix("#").strip(), first, steps)


class Draft:
    """A script in the making."""

    def __init__(self, seed: str, length: int, faults: Collection[str]) -> None:
        self._rng = rng = random.Random(seed)
        self._faults = faults
        self._length = length
        self._steps: list[Step] = []
        self._auctions = 0
        self.shards = rng.choice((1, 1, 1, 2))
        self.machines = rng.choice((["a"], ["a", "b"], ["a", "b"]))
        self.workers = [
            f"{machine}{number}"
            for machine in self.machines
            for number in range(rng.choice((1, 1, 2)))
        ]
        self.hold_s = rng.choice(HOLDS_S)
        self.ttl_s = rng.choice(TTLS_S)
        self._rate = rng.choice((2, 5, 20, 100))
        self._is_patient = rng.random() < 0.15
        self._seconds = max(length / self._rate, 2.0)
        start = START_S
        if rng.random() < 0.2:
            start = MIDNIGHT_S - int(self._seconds * rng.random())
        self.first = Step(
            0.0,
            "start",
            {
                "shards": self.shards,
                "workers": ",".join(self.workers),
                "ttl": self.ttl_s,
                "hold": self.hold_s,
                "wall": start,
                "drain": int(rng.random() < 0.9),
                "budget": rng.choice((3, 6, 12)),
            },
        )

    def write(self) -> list[Step]:
        at = 0.5
        while len(self._steps) < self._length:
            at += self._rng.expovariate(self._rate)
            self._auction(at)
        faults = [
            fault for fault in FAULTS if self._rng.random() < LIKELY and fault in self._faults
        ]
        if not faults and self._faults:
            faults = [self._rng.choice(sorted(self._faults))]
        number = self._rng.choice((1, 1, 2, 3, 5)) if faults else 0
        for _ in range(number):
            moment = self._rng.uniform(0.2, at)
            FAULTS[self._rng.choice(faults)](self, self._rng, moment)
        self._steps.sort(key=lambda step: step.at)
        return self._steps

    def add(self, at: float, do: str, **args: Any) -> None:
        self._steps.append(Step(round(at, 6), do, args))

    # -- traffic -----------------------------------------------------------------------------

    def _auction(self, at: float) -> None:
        rng = self._rng
        self._auctions += 1
        auction = f"n{self._auctions}"
        ssp = rng.randint(1, 4)
        last = self._bid(at, auction, ssp)
        for _ in range(rng.choice((0, 0, 0, 0, 0, 1, 1, 2))):
            last += rng.choice((0.0001, 0.002, 0.1, 1.0, self.hold_s)) * rng.random()
            last = self._bid(last, auction, ssp)
        if rng.random() < 0.03:
            self.add(at, "notice", worker=rng.choice(self.workers), auction=f"?{auction}", imp=1,
                     kind=rng.choice((WIN, BILLING, LOSS)), reason=0)  # fmt: skip

    def _bid(self, at: float, auction: str, ssp: int) -> float:
        rng = self._rng
        imps = {number: rng.randint(1, 6) for number in range(1, rng.choice((2, 2, 2, 3)))}
        within = rng.choice((0.1, 0.1, 0.1, 0.1, 1.0, 0.0003, 0.0008, 0.005))
        self.add(
            at,
            "bid",
            worker=rng.choice(self.workers),
            auction=auction,
            ssp=ssp,
            user=f"u{rng.randint(1, 3)}",
            within=within,
            imps=",".join(f"{imp}:{campaign}" for imp, campaign in imps.items()),
        )
        for imp in imps:
            for kind in rng.choice(PLANS):
                for _ in range(rng.choice((1, 1, 1, 2, 3))):
                    self._notice(at, auction, imp, kind)
        return at

    def _notice(self, at: float, auction: str, imp: int, kind: int) -> None:
        rng = self._rng
        longest = rng.choice((0.01, 0.3, 0.3, self.hold_s * 0.9, self.hold_s * 1.5))
        if self._is_patient and rng.random() < 0.02:
            longest = min(self.ttl_s * 1.2, 100.0)
        when = at + 0.0015 + longest * rng.random()
        reason = 2 if kind == LOSS else 0
        self.add(when, "notice", worker=rng.choice(self.workers), auction=auction, imp=imp,
                 kind=kind, reason=reason)  # fmt: skip


# -- faults ----------------------------------------------------------------------------------

Fault = Callable[[Draft, random.Random, float], None]


def _wire(draft: Draft, rng: random.Random) -> dict[str, str]:
    if rng.random() < 0.15:
        return {"machine": "d", "store": rng.choice(("redis", "postgres"))}
    return {"machine": rng.choice(draft.machines), "store": "redis"}


def _seconds(draft: Draft, rng: random.Random) -> float:
    longest = rng.choice((0.05, 0.3, 2.0, 5.0, draft.hold_s * 2.0))
    return round(longest * rng.random(), 6)


def _stall(draft: Draft, rng: random.Random, at: float) -> None:
    requests, replies = rng.choice(((1, 1), (1, 0), (0, 1)))
    seconds = _seconds(draft, rng)
    draft.add(at, "stall", **_wire(draft, rng), requests=requests, replies=replies, seconds=seconds)


def _slow(draft: Draft, rng: random.Random, at: float) -> None:
    by = rng.choice((0.002, 0.05, 0.4))
    draft.add(at, "slow", **_wire(draft, rng), by=by, seconds=_seconds(draft, rng))


def _cut(draft: Draft, rng: random.Random, at: float) -> None:
    draft.add(at, "cut", **_wire(draft, rng), seconds=_seconds(draft, rng))


def _kill(draft: Draft, rng: random.Random, at: float) -> None:
    who = rng.choice([*draft.workers, "drain"])
    draft.add(at, "kill", process=who)
    draft.add(at + _seconds(draft, rng), "launch", process=who)


def _stop(draft: Draft, rng: random.Random, at: float) -> None:
    who = rng.choice([*draft.workers, "drain"])
    draft.add(at, "stop", process=who)
    draft.add(at + _seconds(draft, rng), "launch", process=who)


def _stall_and_stop(draft: Draft, rng: random.Random, at: float) -> None:
    """A stop while Redis does not answer."""
    who = rng.choice(draft.workers)
    requests, replies = rng.choice(((1, 1), (1, 0), (0, 1)))
    seconds = _seconds(draft, rng)
    wire = {"machine": who[0], "store": "redis"}
    draft.add(at, "stall", **wire, requests=requests, replies=replies, seconds=seconds)
    draft.add(at + 0.3 * rng.random(), "stop", process=who)
    draft.add(at + seconds + 1.0, "launch", process=who)


def _restart_redis(draft: Draft, rng: random.Random, at: float) -> None:
    draft.add(at, "restart", store="redis", seconds=_seconds(draft, rng))


def _restart_postgres(draft: Draft, rng: random.Random, at: float) -> None:
    draft.add(at, "restart", store="postgres", seconds=_seconds(draft, rng))


def _settings(draft: Draft, rng: random.Random, at: float) -> None:
    """Other settings for some machines, by a restart of their workers."""
    ttl, hold = rng.choice(TTLS_S), rng.choice(HOLDS_S)
    for machine in draft.machines[: rng.choice((1, 2))]:
        draft.add(at, "settings", machine=machine, ttl=ttl, hold=hold)
        for worker in draft.workers:
            if worker.startswith(machine):
                draft.add(at, "stop", process=worker)
                draft.add(at + 0.2, "launch", process=worker)


def _clock(draft: Draft, rng: random.Random, at: float) -> None:
    whose = rng.choice([*draft.machines, "redis", "d", "all"])
    by = rng.choice((-1, 1)) * rng.choice((0.3, 2.0, draft.hold_s * 1.5, 300.0))
    draft.add(at, "clock", whose=whose, by=by)


def _midnight(draft: Draft, rng: random.Random, at: float) -> None:
    """The night passes, as far as the clocks know."""
    draft.add(at, "clock", whose="all", by=rng.choice((3600.0, 7200.0, 43_200.0)))


def _disk(draft: Draft, rng: random.Random, at: float) -> None:
    seconds = _seconds(draft, rng)
    machine = rng.choice(draft.machines)
    draft.add(at, "disk", machine=machine, seconds=seconds)
    draft.add(at, "cut", machine=machine, store="redis", seconds=seconds)


def _older_redis(draft: Draft, rng: random.Random, at: float) -> None:
    saved = at * rng.random()
    draft.add(saved, "save", store="redis")
    draft.add(at, "restore", store="redis", seconds=_seconds(draft, rng))


def _empty_redis(draft: Draft, rng: random.Random, at: float) -> None:
    draft.add(at, "restore", store="redis", seconds=_seconds(draft, rng))


def _older_postgres(draft: Draft, rng: random.Random, at: float) -> None:
    draft.add(at * rng.random(), "save", store="postgres")
    draft.add(at, "restore", store="postgres", seconds=_seconds(draft, rng))


FAULTS: Final[dict[str, Fault]] = {
    "stall": _stall,
    "slow": _slow,
    "cut": _cut,
    "kill": _kill,
    "stop": _stop,
    "stall and stop": _stall_and_stop,
    "restart redis": _restart_redis,
    "restart postgres": _restart_postgres,
    "settings": _settings,
    "clock": _clock,
    "midnight": _midnight,
    "disk": _disk,
    "older redis": _older_redis,
    "empty redis": _empty_redis,
    "older postgres": _older_postgres,
}


def draft(seed: str, length: int, faults: Collection[str] = FAULTS.keys()) -> Script:
    """The script of a seed, of about so many requests, with none but these faults."""
    made = Draft(seed, length, faults)
    return Script(seed, made.first, made.write())
