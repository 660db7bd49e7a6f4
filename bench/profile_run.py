"""Where a worker's processor time goes, by the library it is spent in.

    python -m bench.profile_run --perf /usr/bin/perf [--before /another/checkout/.venv/bin/python]
                                [--rounds 5] [--seconds 2]

`perf record` takes samples by the software clock while a worker is saturated; a part's share of
the samples, times the worker's processor time a request, is what the part takes. Another checkout
of the product is profiled in turns, with stores of its own.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench import served
from bench.about import about, write
from bench.client import MAX_SECONDS, notice
from bench.contenders import CAMPAIGNS, REQUESTS, Contender, answered
from bench.processes import BenchError, ServerProcess, cores, pinned
from bench.socket_run import CONNECTIONS, MAX_ROUNDS, rounds, saturate
from bench.spread import spread
from workload import requests

FREQUENCY: Final = 1999  # samples a second; a prime, so that nothing periodic keeps step
NOW, BEFORE = "now", "before"
# The first whose expression occurs in an object's name or path.
PARTS: Final = {
    "kernel": r"\[kernel|\[vdso|\[guest",
    "Granian": r"granian",
    "uvloop": r"uvloop",
    "msgspec": r"msgspec",
    "matcher": r"snapbid/campaigns/",
    "our other extensions": r"snapbid/",
    "interpreter": r"libpython|/python3[\d.]*$|lib-dynload",
    "libc": r"/libc[.-]|/ld-|libm\.|libpthread|libstdc",
}
OTHER: Final = "other"
_LINE: Final = re.compile(r"\s*(\d+)\s+(\S.*?)\s*")


def part_of(shared_object: str) -> str:
    """The part that a shared object belongs to."""
    matches = (name for name, pattern in PARTS.items() if re.search(pattern, shared_object))
    return next(matches, OTHER)


class Profiler:
    """Profiles turns of contenders with `perf`."""

    def __init__(self, perf: Path, scratch: Path) -> None:
        self._perf = perf
        self._scratch = scratch

    def turn(self, contender: Contender, seconds: float) -> dict[str, float]:
        """Microseconds a request in each part, and in all. Raises BenchError."""
        recorded = self._scratch / "perf.data"
        pid = str(contender.server.worker)
        options = ["-e", "cpu-clock", "-F", str(FREQUENCY), "-p", pid, "-o", str(recorded)]
        recorder = subprocess.Popen(
            [str(self._perf), "record", *options, "--", "sleep", str(MAX_SECONDS)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            sample = saturate(contender, seconds)
        finally:
            recorder.terminate()
            _, said = recorder.communicate()
        counts = self._counts(recorded, said.decode(errors="replace"))
        total = counts.total()
        own = {name: count / total * sample.processor_us for name, count in counts.items()}
        return {name: own.get(name, 0.0) for name in (*PARTS, OTHER)} | {"all": sample.processor_us}

    def _counts(self, recorded: Path, said: str) -> Counter[str]:
        """Samples by part."""
        options = ["-i", str(recorded), "--stdio", "--sort", "dso", "-F", "sample,dso", "-v"]
        report = subprocess.run(
            [str(self._perf), "report", *options], capture_output=True, text=True
        )
        counts: Counter[str] = Counter()
        for line in report.stdout.splitlines():
            if match := _LINE.fullmatch(line):
                counts[part_of(match[2])] += int(match[1])
        if not counts:
            raise BenchError(f"perf has no samples: {said[-500:]} {report.stderr[-500:]}")
        return counts


def contenders(server: ServerProcess, name: str) -> list[Contender]:
    """What is profiled of a checkout."""
    made = requests.make(REQUESTS)
    bids, no_bids = answered(server, made, 200), answered(server, requests.no_bids(made), 204)
    wins = [notice("/rtb/win", each["id"], each["imp"][0]["id"]) for each in made]
    return [
        Contender(f"bid {name}", server, bids, 200),
        Contender(f"no-bid {name}", server, no_bids, 204),
        Contender(f"win {name}", server, wins, 200),
    ]


def measure(chosen: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """The result as it is written."""
    core, store_core = cores()
    pythons = {NOW: Path(sys.executable)} | ({BEFORE: chosen.before} if chosen.before else {})
    profiler = Profiler(chosen.perf, scratch)
    made: list[Contender] = []
    with ExitStack() as stack:
        stack.enter_context(pinned(store_core))
        for name, python in pythons.items():
            own = scratch / name
            own.mkdir(mode=0o711)
            server = stack.enter_context(
                served.product(own, core, store_core, CAMPAIGNS, python=python)
            )
            made += contenders(server, name)
        constant = stack.enter_context(served.constant(scratch, core, "full_read"))
        made.append(Contender("constant", constant, made[0].requests, 200))
        turns = rounds(made, chosen.rounds, lambda each: profiler.turn(each, chosen.seconds))
    return {
        "kind": "profile",
        "about": about(),
        "method": {
            "rounds": chosen.rounds,
            "seconds_a_turn": chosen.seconds,
            "campaigns": CAMPAIGNS,
            "connections": CONNECTIONS,
            "frequency": FREQUENCY,
            "before": _commit(chosen.before) if chosen.before else None,
        },
        "figures": {
            name: {part: spread([turn[part] for turn in own], 2) for part in own[0]}
            for name, own in turns.items()
        },
    }


def _commit(python: Path) -> str:
    """The commit of the checkout whose interpreter this is."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.check_output(command, cwd=python.parent, text=True).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--perf", type=Path, required=True, metavar="PATH")
    parser.add_argument("--before", type=Path, metavar="PYTHON", help="of another checkout")
    parser.add_argument("--seconds", type=float, default=2.0, help="a turn of a saturated server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=None)
    chosen = parser.parse_args()
    if not 0 < chosen.rounds <= MAX_ROUNDS:
        parser.error(f"rounds are from 1 to {MAX_ROUNDS}")
    if not 0 < chosen.seconds <= MAX_SECONDS:
        parser.error(f"a turn takes up to {MAX_SECONDS:g} s")
    with tempfile.TemporaryDirectory(prefix="snapbid-bench-") as scratch:
        os.chmod(scratch, 0o711)  # the database runs as another user where this one is root
        write(measure(chosen, Path(scratch)), chosen.output)


if __name__ == "__main__":
    main()
