"""`make simulate SEED=1 RUNS=100 STEPS=400`: run after run, and a table at the end.

A seed that fails is printed with what differs and a short script that does the same; a SCRIPT, such
a one in a file, is played again. MUTATION=name puts a defect back, see mutations.py.
"""

import argparse
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

from support.simulator.faults import FAULTS, draft
from support.simulator.mutations import MUTATIONS
from support.simulator.run import Result, play
from support.simulator.script import Script
from support.simulator.servers import Servers, started
from support.simulator.shrink import shrink

SHOWN = 8  # differences


def scripts(first: int, runs: int, length: int, faults: Collection[str]) -> Iterator[Script]:
    numbers = itertools.count(first) if runs == 0 else range(first, first + runs)
    return (draft(str(number), length, faults) for number in numbers)


def _faults(text: str) -> list[str]:
    """Names with commas between them. Raises ArgumentTypeError for one that is not known."""
    names = text.split(",")
    if unknown := set(names) - FAULTS.keys():
        raise argparse.ArgumentTypeError(f"{sorted(unknown)} are none of {sorted(FAULTS)}")
    return names


def report(result: Result) -> None:
    for difference in result.differences[:SHOWN]:
        print(f"    {difference}", flush=True)
    if len(result.differences) > SHOWN:
        print(f"    and {len(result.differences) - SHOWN} more", flush=True)


def show(script: Script, result: Result, servers: Servers, seconds: float) -> None:
    """Print a failure, and a short script that fails in the same way."""
    print(f"seed {script.seed} fails, {len(script.steps)} steps:")
    report(result)
    for step in script.steps:
        if step.do not in ("bid", "notice"):
            print(f"    {step}")
    if seconds > 0:
        script, result = shrink(script, result, partial(play, servers), seconds)
        print(f"  {len(script.steps)} steps do, too:")
        print("\n".join(f"    {line}" for line in str(script).splitlines()))
        report(result)


def main() -> int:
    """The exit status: 0 where nothing differed."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--runs", type=int, default=50, help="0: until it is interrupted")
    parser.add_argument("--steps", type=int, default=400, help="requests and notices of a run")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds for each failure")
    parser.add_argument("--failures", type=int, default=1, help="end after so many")
    parser.add_argument("--faults", type=_faults, default=sorted(FAULTS), help="a,b: these alone")
    parser.add_argument("--script", type=Path, help="play this file")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS))
    args = parser.parse_args()
    began, cpu, counts, failed = time.monotonic(), time.process_time(), Counter[str](), 0
    virtual_s, played = 0.0, 0
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(started())
        if args.mutation:
            stack.enter_context(MUTATIONS[args.mutation]())
        todo = (
            iter([Script.parse(args.script.read_text())])
            if args.script
            else scripts(args.seed, args.runs, args.steps, args.faults)
        )
        with contextlib.suppress(KeyboardInterrupt):
            for script in todo:
                result = play(servers, script)
                played += 1
                counts.update(result.counts)
                counts["steps"] += len(script.steps)
                virtual_s += result.virtual_s
                if result.differences:
                    failed += 1
                    show(script, result, servers, args.shrink)
                    if failed >= args.failures:
                        break
    real_s, own_s = time.monotonic() - began, time.process_time() - cpu
    print(f"runs               {played}, {failed} of which differ")
    for name, number in counts.items():
        print(f"{name:<19}{number}, {number / real_s:.0f} a second")
    print(f"real time          {real_s:.1f} s, of this process {own_s:.1f} s")
    print(f"of this process    {counts['requests'] / own_s:.0f} requests a processor second")
    print(f"virtual time       {virtual_s:.0f} s: {virtual_s / real_s:.0f} hours an hour")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
