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

OUTPUT: Final = ROOT / "build" / "bench"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="make these the results to commit")
    keep = parser.parse_args().keep
    OUTPUT.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    micro, *others = (OUTPUT / f"{kind}.json" for kind in render.KINDS)
    core = str(cores()[0])
    _run("taskset", "-c", core, sys.executable, "-m", "pytest", "bench", *_micro_options(micro))
    for output in others:
        _run(sys.executable, "-m", f"bench.{output.stem}_run", "--output", str(output))
    results = render.read(OUTPUT)
    for kind, result in results.items():
        before = compare.committed(kind)
        if before is None:
            print(f"{kind}: no committed results to compare with")
        else:
            print("\n".join(compare.compare(before, result)))
    print(render.added_table(results["socket"]["added_us"]))
    if keep:
        for path in (micro, *others):
            shutil.copy(path, render.RESULTS)
        render.main()


def _micro_options(output: Path) -> list[str]:
    columns = "--benchmark-columns=median,iqr,rounds"
    return ["-q", columns, f"--benchmark-json={output}"]


def _run(*command: str) -> None:
    status = subprocess.run(command).returncode
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
