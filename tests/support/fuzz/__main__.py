"""Fuzzes the targets in turn, each in a separate process; inputs that fail go to build/fuzz.

python -m support.fuzz [--minutes 2] [TARGET ...]
"""

import argparse
import subprocess
import sys
from pathlib import Path

OUTPUT = Path("build/fuzz")
COST = "cost"  # looks for the dearest request, with a search of its own


def main() -> int:
    parser = argparse.ArgumentParser(prog="support.fuzz")
    parser.add_argument("--minutes", type=float, default=2)
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
    chosen = options.targets or names
    failed = []
    for name in chosen:
        share = ("--minutes", str(options.minutes / len(chosen)))
        command = ["support.fuzz", "--in-this-process", *share, name]
        if name == COST:
            command = ["support.fuzz.cost", *share]
        print(f"fuzzing {name}", flush=True)
        if subprocess.run([sys.executable, "-m", *command]).returncode:
            failed.append(name)
    print(f"failures, in {OUTPUT}: {', '.join(failed)}" if failed else "no failures")
    return bool(failed)


def fuzz(name: str, seconds: int) -> None:
    """Fuzz in this process, which ends by itself; the status is above 0 after a failure."""
    import atheris

    with atheris.instrument_imports(include=["snapbid"]):
        from support.fuzz.targets import TARGETS

    target = TARGETS[name]
    corpus = OUTPUT / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    flags = (f"-max_total_time={max(seconds, 1)}", f"-artifact_prefix={OUTPUT}/{name}-")
    quiet = ("-verbosity=0", "-print_final_stats=1", "-max_len=65536", "-timeout=20")
    atheris.Setup([sys.argv[0], *flags, *quiet, str(corpus)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
