"""A script drawn from a seed: who is there, what is asked when, and what breaks meanwhile.

Most of the traffic comes at any time. Some comes where defects show: bids shortly before something
breaks whose notices, and second bids, come while it is broken; and a burst that uses up a budget or
a cap, with more bids for it about when the holds end.
"""

import random
from typing import Any, Final, NamedTuple

from support.simulator import clicks, events
from support.simulator.entries import BILLING, LOSS, WIN
from support.simulator.script import MIDNIGHT_S, START_S, Script, Step
from support.simulator.snapshot import FIRST, KINDS, LIMITED

PLANS: Final = (
    (WIN, BILLING), (WIN, BILLING), (WIN,), (WIN,), (BILLING,), (LOSS,), (LOSS,), (), (),
    (LOSS, WIN), (BILLING, WIN),
)  # fmt: skip
TICKS_S: Final = (0.005, 0.02, 0.02, 0.02)  # of the workers' ledgers; a busy process is late
ENOUGH: Final = (1, 2, 3, 32)  # requests of a batch that waits for no more
BATCHES: Final = (0, 1, 2, 5)  # of counters that the drain reads at once; 0: all
HOLDS_S: Final = (3, 3, 5)
TTLS_S: Final = (6, 12, 60, 7200, 86_400)
WITHIN_S: Final = (0.1, 0.1, 0.1, 0.1, 1.0, 0.0003, 0.0008, 0.005)


class Period(NamedTuple):
    """For how long something is broken; `machine` is the one that feels it, "" all."""

    begin: float
    end: float
    machine: str = ""


class Draft:
    """A script in the making."""

    def __init__(self, seed: str, length: int, shards: int = 0) -> None:
        """`shards`: so many, 0: what is drawn."""
        self.rng = rng = random.Random(seed)
        self.seed = seed
        several = random.Random(f"{seed} shards").choice((2, 2, 3, 4))
        self.shards = rng.choice((1, 1, 1, several))
        self.shards = shards or self.shards
        self.machines = rng.choice((["a"], ["a", "b"], ["a", "b"]))
        self.workers = [
            f"{machine}{number}"
            for machine in self.machines
            for number in range(rng.choice((1, 1, 2)))
        ]
        self._at_first = list(self.workers)
        self.hold_s = rng.choice(HOLDS_S)
        self.ttl_s = rng.choice(TTLS_S)
        self.budget = rng.choice((2, 3, 6))
        self.campaigns = list(range(1, FIRST + 1))
        self.periods: list[Period] = []
        self._limited = list(LIMITED)
        self._length = length
        self._steps: list[Step] = []
        self._auctions = 0
        self._rate = rng.choice((5, 20, 50, 100))
        self._is_patient = rng.random() < 0.3
        self._plans = rng.choice((PLANS, PLANS, ((LOSS,), ()), ((), (), (WIN,))))
        self.primaries = 0  # of a cluster
        self.batch = random.Random(f"{seed} batch").choice(BATCHES)
        self.seconds = max(length / self._rate / 3, 2.0)
        self._start_s = START_S
        if rng.random() < 0.2:
            self._start_s = MIDNIGHT_S - int(self.seconds * rng.random())

    def script(self) -> Script:
        """The script of all that was added, with traffic; add faults first."""
        rng = self.rng
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            self._burst(rng.choice([*self.periods, None]))
        for period in self.periods:
            self._around(period)
        at = 0.5
        while len(self._steps) < self._length and at < self.seconds:
            at += rng.expovariate(self._rate)
            self._auction(at)
        posted = events.draw(self.seed, self.seconds, self.workers)
        for when, worker, names in posted:
            self.add(when, "event", worker=worker, events=names)
        for when in clicks.draw_rotations(self.seed, self.seconds) if posted else ():
            self.add(when, "rotate")
        self._steps.sort(key=lambda step: step.at)
        first = {
            "shards": self.shards,
            "workers": ",".join(self._at_first),
            "ttl": self.ttl_s,
            "hold": self.hold_s,
            "wall": self._start_s,
            "drain": int(rng.random() < 0.9),
            "budget": self.budget,
            "tick": rng.choice(TICKS_S),
            "enough": rng.choice(ENOUGH),
        }
        if self.batch:
            first["batch"] = self.batch
        if posted:
            first["events"] = 1
        if self.primaries:
            first["primaries"] = self.primaries
        return Script(self.seed, Step(0.0, "start", first), self._steps)

    def add(self, at: float, do: str, **args: Any) -> None:
        self._steps.append(Step(round(max(at, 0.0), 6), do, args))

    def broken(self, begin: float, seconds: float, machine: str = "") -> None:
        """Note a fault of this length, for which traffic is drawn."""
        self.periods.append(Period(begin, begin + seconds, machine))

    def campaign(self, at: float) -> int:
        """Add a campaign; give its number."""
        number, kind = len(self.campaigns) + 1, self.rng.choice(KINDS)
        self.add(at, "campaign", number=number, kind=kind, budget=self.rng.choice((2, 3, 6)))
        self.campaigns.append(number)
        if kind != "plain":
            self._limited.append(number)
        return number

    def sell(self, at: float, campaign: int, worker: str = "") -> None:
        """A bid of that campaign, and its win."""
        rng, auction = self.rng, self._named()
        user, ssp = f"u{rng.randint(1, 3)}", rng.randint(1, 4)
        self._ask(at, worker or self._worker(), auction, ssp, user, 0.1, {1: campaign})
        self._fire(at + 0.002 + 0.05 * rng.random(), self._worker(), auction, 1, WIN)

    # -- traffic -----------------------------------------------------------------------------

    def _worker(self, machine: str = "") -> str:
        workers = [worker for worker in self.workers if worker.startswith(machine)]
        return self.rng.choice(workers or self.workers)

    def _named(self) -> str:
        self._auctions += 1
        return f"n{self._auctions}"

    def _auction(self, at: float) -> None:
        rng = self.rng
        auction, ssp = self._named(), rng.randint(1, 4)
        last = self._bid(at, auction, ssp)
        for _ in range(rng.choice((0, 0, 0, 0, 0, 1, 1, 2))):
            last += rng.choice((0.0001, 0.002, 0.1, 1.0, self.hold_s)) * rng.random()
            last = self._bid(last, auction, ssp)
        if rng.random() < 0.03:
            kind = rng.choice((WIN, BILLING, LOSS))
            self._fire(at, self._worker(), f"?{auction}", 1, kind)

    def _bid(self, at: float, auction: str, ssp: int) -> float:
        rng = self.rng
        imps = {number: rng.choice(self.campaigns) for number in range(1, rng.choice((2, 2, 2, 3)))}
        within = rng.choice(WITHIN_S)
        self._ask(at, self._worker(), auction, ssp, f"u{rng.randint(1, 3)}", within, imps)
        for imp in imps:
            for kind in rng.choice(self._plans):
                for _ in range(rng.choice((1, 1, 1, 2, 3))):
                    self._notice(at, auction, imp, kind)
        return at

    def _notice(self, at: float, auction: str, imp: int, kind: int) -> None:
        rng = self.rng
        longest = rng.choice((0.01, 0.3, 0.3, self.hold_s * 0.9, self.hold_s * 1.5))
        if self._is_patient and rng.random() < 0.1:
            longest = min(self.ttl_s * 1.2, 60.0)
        self._fire(at + 0.0015 + longest * rng.random(), self._worker(), auction, imp, kind)

    def _ask(
        self,
        at: float,
        worker: str,
        auction: str,
        ssp: int,
        user: str,
        within: float,
        imps: dict[int, int],
    ) -> None:
        wanted = ",".join(f"{imp}:{campaign}" for imp, campaign in imps.items())
        self.add(at, "bid", worker=worker, auction=auction, ssp=ssp, user=user, within=within,
                 imps=wanted)  # fmt: skip

    def _fire(self, at: float, worker: str, auction: str, imp: int, kind: int) -> None:
        reason = 2 if kind == LOSS else 0
        self.add(at, "notice", worker=worker, auction=auction, imp=imp, kind=kind, reason=reason)

    def _around(self, period: Period) -> None:
        """Bids before it, notices and second bids while it lasts, and repeats after it."""
        rng = self.rng
        length = max(period.end - period.begin, 0.05)
        for _ in range(rng.choice((0, 2, 4, 8))):
            auction, ssp, user = self._named(), rng.randint(1, 4), f"u{rng.randint(1, 3)}"
            begin = period.begin - rng.choice((0.005, 0.3)) * rng.random() - 0.003
            campaign = rng.choice(self.campaigns)
            self._ask(begin, self._worker(), auction, ssp, user, 0.1, {1: campaign})
            kind = rng.choice((WIN, WIN, BILLING, LOSS))
            at = period.begin + min(length, rng.choice((0.01, 0.5, length))) * rng.random()
            self._fire(at, self._worker(period.machine), auction, 1, kind)
            if rng.random() < 0.5:
                again = at + (period.end + 0.1 - at) * rng.random()
                campaign = rng.choice(self.campaigns)
                self._ask(again, self._worker(), auction, ssp, user, 0.1, {1: campaign})
            for _ in range(rng.choice((0, 0, 1))):
                later = period.end + self.hold_s * rng.random()
                self._fire(later, self._worker(), auction, 1, kind)

    def _burst(self, period: Period | None) -> None:
        """A budget or a cap is used up, and asked for again and again as its holds end."""
        rng = self.rng
        at = 0.5 + self.seconds * rng.random()
        soon, until = at + self.hold_s, at + self.hold_s + 2.0
        if period is not None:
            at = max(period.begin - rng.choice((0.3, 1.0, 4.0)) * rng.random(), 0.4)
            soon, until = period.end, period.end + self.hold_s + 1.0
        campaign, ssp, user = rng.choice(self._limited), rng.randint(1, 4), f"u{rng.randint(1, 3)}"
        kinds = rng.choice(((), (WIN,), (WIN, BILLING)))
        for _ in range(self.budget * 2 + 1):
            auction = self._named()
            begin = at + 0.05 * rng.random()
            self._ask(begin, self._worker(), auction, ssp, user, 0.1, {1: campaign})
            for kind in kinds:
                self._fire(begin + 0.002 + rng.choice((0.01, 1.0, self.hold_s * 0.9))
                           * rng.random(), self._worker(), auction, 1, kind)  # fmt: skip
        for _ in range(rng.choice((4, 8, 16))):
            again = at + 0.1 + (until - at) * rng.random()
            if rng.random() < 0.5:
                again = soon + 0.8 * rng.random()
            self._ask(again, self._worker(), self._named(), ssp, user, 0.1, {1: campaign})
