"""Fuzzes the targets in turn, each in a separate process; inputs that fail go to build/fuzz.

python -m support.fuzz [--minutes 2] [TARGET ...]
python -m support.fuzz --inputs 1000000 [TARGET ...]   by their number, see flood.py
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.fuzz.targets import Target

OUTPUT = Path("build/fuzz")
COST = "cost"  # looks for the dearest request, with a search of its own
SHARES = {"bid": 10, "campaign": 3, "event": 3, "batch": 3}  # of the inputs; others have one


def main() -> int:
    parser = argparse.ArgumentParser(prog="support.fuzz")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--inputs", type=int, help="in all, without asking for coverage")
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*")
    options = parser.parse_args()
    if options.in_this_process:
        fuzz(options.targets[0], int(options.minutes * 60))
    from support.fuzz.targets import TARGETS

    names = [*TARGETS, COST]
    unknown = set(options.targets).difference(names)
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = options.targets or (list(TARGETS) if options.inputs else names)
    failed = []
    for name in chosen:
        print(f"fuzzing {name}", flush=True)
        if options.inputs:
            shares = [SHARES.get(each, 1) for each in chosen]
            inputs = options.inputs * SHARES.get(name, 1) // sum(shares)
            command = ["support.fuzz.flood", "--inputs", str(inputs), name]
        else:
            share = ("--minutes", str(options.minutes / len(chosen)))
            command = ["support.fuzz", "--in-this-process", *share, name]
            if name == COST:
                command = ["support.fuzz.cost", *share]
        if subprocess.run([sys.executable, "-m", *command]).returncode:
            failed.append(name)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{(used.ru_utime + used.ru_stime) / 3600:.2f} hours of processor time")
    print(f"failures, in {OUTPUT}: {', '.join(failed)}" if failed else "no failures")
    return bool(failed)


def fuzz(name: str, seconds: int) -> None:
    """Fuzz in this process, which ends by itself; the status is above 0 after a failure."""
    import atheris

    with atheris.instrument_imports(include=["snapbid"]):
        from support.fuzz.memory import told
        from support.fuzz.targets import TARGETS

    target = TARGETS[name]
    corpus = OUTPUT / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    flags = (f"-max_total_time={max(seconds, 1)}", f"-artifact_prefix={OUTPUT}/{name}-")
    quiet = ("-verbosity=0", "-print_final_stats=1", "-max_len=65536", "-timeout=20")
    atheris.Setup([sys.argv[0], *flags, *quiet, str(corpus)], telling(target, told, seconds))
    atheris.Fuzz()


def telling(target: "Target", told: Callable[[str], str], seconds: int) -> Callable[[bytes], None]:
    """Wrap the target to print the memory in use at the start, with warm caches, and at the end.

    The inputs that have reached something new are in the resident memory, too.
    """
    began = time.monotonic()
    moments = [(0.0, "at the start"), (seconds / 4, "after a quarter"), (seconds - 1, "at the end")]

    def read(data: bytes) -> None:
        target(data)
        if moments and time.monotonic() - began >= moments[0][0]:
            print(told(moments.pop(0)[1]), flush=True)

    return read


if __name__ == "__main__":
    sys.exit(main())
