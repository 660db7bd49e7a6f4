"""Runs all benchmarks and compares them with the last committed results.

    python -m bench [--keep]

Results are written to build/bench; with --keep they become bench/results and bench/README.md.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench import compare, render
from bench.about import ROOT
from bench.processes import cores
from bench.runs import MICRO, RUNS

OUTPUT: Final = ROOT / "build" / "bench"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="make these the results to commit")
    keep = parser.parse_args().keep
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    os.chdir(ROOT)
    for kind in RUNS:
        _run(*_command(kind, OUTPUT / f"{kind}.json"))
    for kind, result in render.read(OUTPUT).items():
        before = compare.committed(kind)
        if before is None:
            print(f"{kind}: no committed results to compare with")
        else:
            print("\n".join(compare.compare(RUNS[kind].section, before, result)))
    if keep:
        for path in OUTPUT.iterdir():
            shutil.copy(path, render.RESULTS)
        render.main()


def _command(kind: str, output: Path) -> list[str]:
    if kind == MICRO:
        columns = "--benchmark-columns=median,iqr,rounds"
        core = str(cores()[0])
        pytest = ["taskset", "-c", core, sys.executable, "-m", "pytest", "bench", "-q", columns]
        return [*pytest, f"--benchmark-json={output}"]
    module = [sys.executable, "-m", f"bench.{kind}_run"]
    return [*module, *RUNS[kind].options, "--output", str(output)]


def _run(*command: str) -> None:
    status = subprocess.run(command).returncode
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
