"""Runs some or all benchmarks, and compares the results with earlier ones.

    python -m bench [KIND ...] [--against DIR] [--keep] [--long | --quick] [--all]

Results and the page are written to build/bench; with --keep they become bench/results and
bench/README.md.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from bench import compare, ready, render
from bench.about import LOAD_BEFORE, ROOT, load
from bench.processes import BenchError
from bench.runs import MICRO, RUNS
from bench.sections import socket

# Processor time excludes other programs and waiting for a store.
MICRO_OPTIONS: Final = (
    "-q",
    "--benchmark-timer=time.process_time",
    "--benchmark-columns=median,iqr,rounds",
    "-Wignore::pytest_benchmark.logger.PytestBenchmarkWarning",  # of none, once interrupted
)
OUTPUT: Final = ROOT / "build" / "bench"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", nargs="*", metavar="KIND", help=", ".join(RUNS))
    parser.add_argument("--against", type=Path, metavar="DIR", help="results to compare with")
    parser.add_argument("--keep", action="store_true", help="make these the results to commit")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument("--long", action="store_true", help="more rounds, for steadier figures")
    pace.add_argument("--quick", action="store_true", help="what a change moves, in three minutes")
    parser.add_argument("--all", action="store_true", help="also show what has not moved")
    chosen = parser.parse_args()
    against: Path | None = chosen.against and chosen.against.resolve()
    if against is not None and (against == OUTPUT or not against.is_dir()):
        parser.error(f"--against: name a copy of build/bench, found {chosen.against}")
    if unknown := set(chosen.kind) - set(RUNS):
        parser.error(f"no such run: {', '.join(unknown)} (there are {', '.join(RUNS)})")
    if chosen.keep and (reason := ready.why_not_keep()):
        parser.error(reason)
    kinds = chosen.kind or [
        kind for kind, run in RUNS.items() if run.quick is not None or not chosen.quick
    ]
    try:
        before = {kind: compare.earlier(kind, against) for kind in kinds}
    except BenchError as error:
        parser.error(str(error))
    if against is not None and not any(before.values()):
        parser.error(f"--against: {against} has no results of {', '.join(kinds)}")
    ready.check()
    with ready.orderly_end():
        _run_all(kinds, before, chosen)


def _run_all(
    kinds: list[str], before: dict[str, dict[str, Any] | None], chosen: argparse.Namespace
) -> None:
    """Run benchmarks and report on them; keep the results if that is chosen and none has failed."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    os.chdir(ROOT)
    os.environ[LOAD_BEFORE] = str(load())
    started = time.monotonic()
    failed = [kind for kind in kinds if not _run(kind, _paced(kind, chosen))]
    print(f"all runs: {time.monotonic() - started:.0f} s")
    _report(before, all=chosen.all)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if chosen.keep:
        for path in OUTPUT.iterdir():
            if path.is_file() and path.name != render.PAGE:
                shutil.copy(path, render.RESULTS)
        render.main()


def _paced(kind: str, chosen: argparse.Namespace) -> tuple[str, ...]:
    """Return the options that set how long a run takes."""
    run = RUNS[kind]
    if chosen.quick and run.quick is not None:
        return run.quick
    return () if chosen.long else run.options


def _run(kind: str, options: tuple[str, ...]) -> bool:
    """Run a benchmark and write its result to `OUTPUT`; return whether it succeeded."""
    started = time.monotonic()
    output = OUTPUT / f"{kind}.json"
    if kind == MICRO:
        command = ["pytest", "bench/micro", *MICRO_OPTIONS, *options, f"--benchmark-json={output}"]
    else:
        command = [f"bench.{kind}_run", *options, "--output", str(output)]
    status = _wait([sys.executable, "-m", *command])
    print(f"{kind}: {time.monotonic() - started:.0f} s\n", flush=True)
    return status == 0


def _wait(command: list[str]) -> int:
    """Run a command and return its exit status; exit if it was interrupted, and has said so."""
    with subprocess.Popen(command) as process:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            status = process.wait()
            if status != ready.INTERRUPTED:
                raise
    if status == ready.INTERRUPTED:
        sys.exit(status)
    return status


def _report(before: dict[str, dict[str, Any] | None], *, all: bool) -> None:
    results = render.read(OUTPUT)
    (OUTPUT / render.PAGE).write_text(render.render(results))
    for kind, result in results.items():
        earlier = before[kind]
        if earlier is None:
            print(f"{kind}: no earlier results to compare with")
        else:
            print("\n".join(compare.compare(RUNS[kind], earlier, result, all=all)))
    if "socket" in results:
        print(f"\n{socket.ratios_table(results['socket']['ratios'])}")


if __name__ == "__main__":
    main()
