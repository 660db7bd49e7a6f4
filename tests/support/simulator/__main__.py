"""`make simulate SEED=1 RUNS=100 STEPS=400`: run after run, and a table at the end.

A seed that fails is printed with what differs and a short script that does the same; a SCRIPT, such
a one in a file, is played again.
"""

import argparse
import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from support.simulator.crew import shared
from support.simulator.faults import FAULTS, OF_CLUSTERS, draft
from support.simulator.run import Result, play
from support.simulator.script import Script
from support.simulator.servers import Servers
from support.simulator.shrink import shrink

SHOWN = 8  # differences


def scripts(
    first: int, runs: int, length: int, faults: Collection[str] | None, shards: int
) -> Iterator[Script]:
    numbers = itertools.count(first) if runs == 0 else range(first, first + runs)
    return (draft(str(number), length, faults, shards) for number in numbers)


def _faults(text: str) -> list[str]:
    """Names with commas between them. Raises ArgumentTypeError for one that is not known."""
    names = text.split(",")
    known = [*FAULTS, *OF_CLUSTERS]
    if unknown := set(names).difference(known):
        raise argparse.ArgumentTypeError(f"{sorted(unknown)} are none of {sorted(known)}")
    return names


class Run(NamedTuple):
    """What came of a script; `text` says what differs."""

    counts: dict[str, int]
    virtual_s: float
    cpu_s: float
    text: str


def run(shrink_s: float, servers: Servers, script: Script) -> Run:
    """Play it, and a failure again and again, for so long, to cut it short."""
    began = time.process_time()
    result = play(servers, script)
    counts = {"steps": len(script.steps), **result.counts}
    cpu_s = time.process_time() - began
    text = "\n".join(failure(script, result, servers, shrink_s)) if result.differences else ""
    return Run(counts, result.virtual_s, cpu_s, text)


def failure(script: Script, result: Result, servers: Servers, shrink_s: float) -> Iterator[str]:
    """Lines about it, and a short script that fails in the same way."""
    yield f"seed {script.seed} fails, {len(script.steps)} steps:"
    yield from differences(result)
    yield from (f"    {step}" for step in script.steps if step.do not in ("bid", "notice"))
    if shrink_s > 0:
        script, result = shrink(script, result, partial(play, servers), shrink_s)
        yield f"  {len(script.steps)} steps do, too:"
        yield from (f"    {line}" for line in str(script).splitlines())
        yield from differences(result)


def differences(result: Result) -> Iterator[str]:
    yield from (f"    {difference}" for difference in result.differences[:SHOWN])
    if len(result.differences) > SHOWN:
        yield f"    and {len(result.differences) - SHOWN} more"


def main() -> int:
    """The exit status: 0 where nothing differed."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--runs", type=int, default=50, help="0: until it is interrupted")
    parser.add_argument("--steps", type=int, default=400, help="requests and notices of a run")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds for each failure")
    parser.add_argument("--failures", type=int, default=1, help="end after so many")
    parser.add_argument("--faults", type=_faults, help="a,b: these alone")
    parser.add_argument("--shards", type=int, default=0, help="of the ledger, 0: as drawn")
    parser.add_argument("--script", type=Path, help="play this file")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="side by side")
    args = parser.parse_args()
    began, totals, played, failed = time.monotonic(), Counter[str](), 0, 0
    cpu_s = virtual_s = 0.0
    todo = (
        iter([Script.parse(args.script.read_text())])
        if args.script
        else scripts(args.seed, args.runs, args.steps, args.faults, args.shards)
    )
    processes = 1 if args.script else min(args.processes, args.runs or args.processes)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as at an interrupt
    runs = shared(partial(run, args.shrink), todo, processes)
    with contextlib.closing(runs), contextlib.suppress(KeyboardInterrupt):
        for result in runs:
            played += 1
            totals.update(result.counts)
            cpu_s += result.cpu_s
            virtual_s += result.virtual_s
            if result.text:
                failed += 1
                print(result.text, flush=True)
                if failed >= args.failures:
                    break
    real_s = time.monotonic() - began
    print(f"runs               {played}, {failed} of which differ, in {processes} processes")
    for name, number in totals.items():
        print(f"{name:<19}{number}, {number / real_s:.0f} a second")
    print(f"real time          {real_s:.1f} s; processors', without the stores', {cpu_s:.1f} s")
    print(
        f"simulated          {virtual_s / 3600:.2f} hours: {virtual_s / real_s:.0f} hours an hour"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
