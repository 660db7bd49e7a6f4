"""Kept mutants: single defects, each of which what it names must notice.

    PYTHONPATH=tests python -m support.mutants [--draw 10 --date 2026-11-27] [--soak] [ROOM ...]
    PYTHONPATH=tests python -m support.mutants --in "own TTL" -m support.simulator --steps 120

`tests/mutants/ROOM.toml` has a table for each mutant of a room, by the defect in a few plain words:
in the file `path` below `src/snapbid`, the text `old`, which occurs once, becomes `new`; so do the
tables in `also`, where a defect takes several edits. It is killed if one of `tests` (files or ids
of pytest) fails, survives if all pass, and is broken if they end otherwise (a crash, too). They are
first run on the code as it is, where they must pass. With --soak, what must fail instead is a fleet
in the soak with the options `soak`. Without either, a mutant is no defect, for a run by hand.
"""

import argparse
import datetime
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NoReturn

import msgspec

TOP: Final = Path(__file__).parents[2]
PACKAGE: Final = TOP / "src" / "snapbid"
MUTANTS: Final = TOP / "tests" / "mutants"
OUTCOMES: Final = ("killed", "survived", "broken")
TRIES: Final = 3  # in which order Redis names counters is its own, and the simulator follows it
LONGEST_S: Final = 1_000  # of a mutant's tests: one may never end, or wait for midnight to pass
PYTEST: Final = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
PROCESSES: Final = len(os.sched_getaffinity(0))


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In the file `path`, the text `old` becomes `new`."""

    path: str
    old: str
    new: str


class Mutant(Edit, frozen=True, kw_only=True):
    """A defect: its name, and the keys of its table."""

    name: str
    also: tuple[Edit, ...] = ()
    tests: tuple[str, ...] = ()
    soak: str = ""

    @property
    def room(self) -> str:
        return Path(self.path).parts[0]

    def sources(self) -> dict[str, str]:
        """The mutated files; ValueError unless each `old` occurs exactly once in the right one."""
        sources = dict[str, str]()
        for edit in (self, *self.also):
            source = sources.get(edit.path) or (PACKAGE / edit.path).read_text()
            if (occurrences := source.count(edit.old)) != 1:
                times = f"its `old` occurs {occurrences} times in {edit.path}, not once"
                raise ValueError(f"{self.name}: {times}")
            sources[edit.path] = source.replace(edit.old, edit.new)
        return sources


def kept(rooms: Iterable[str] = ()) -> list[Mutant]:
    """The mutants of these rooms, or of all."""
    paths = [MUTANTS / f"{room}.toml" for room in rooms] or sorted(MUTANTS.glob("*.toml"))
    return [
        msgspec.convert({"name": name, **table}, Mutant)
        for path in paths
        for name, table in tomllib.loads(path.read_text()).items()
    ]


def drawn(mutants: Sequence[Mutant], count: int, date: datetime.date) -> list[Mutant]:
    """`count` of the mutants, the same all day and others the next."""
    chosen = random.Random(date.isoformat()).sample(mutants, min(count, len(mutants)))
    return sorted(chosen, key=mutants.index)


def copy_package(mutant: Mutant, folder: Path) -> None:
    """Put the mutated package into the folder: links, but for its files and the folders above."""
    for path, source in mutant.sources().items():
        right, copy = PACKAGE, folder / PACKAGE.name
        for part in Path(path).parts:
            if copy.is_symlink() or not copy.exists():
                copy.unlink(missing_ok=True)
                copy.mkdir()
                for each in right.iterdir():
                    if each.name != "__pycache__":
                        (copy / each.name).symlink_to(each)
            right, copy = right / part, copy / part
        copy.unlink()
        copy.write_text(source)


def environment(folder: Path | None) -> dict[str, str]:
    """That of a Python with the package in the folder first on its path."""
    path = os.pathsep.join([*([str(folder)] if folder else []), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path}


def run_python(
    arguments: Iterable[str], folder: Path | None = None, longest_s: float | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run Python, with the package in the folder first. Raises TimeoutExpired after `longest_s`."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=TOP,
        env=environment(folder),
        timeout=longest_s,
        capture_output=True,
        text=True,
    )


def enter(mutant: Mutant, arguments: Sequence[str]) -> NoReturn:
    """Become a Python process with the mutated package, which stays to be looked at."""
    folder = TOP / "build" / "mutants" / mutant.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copy_package(mutant, folder)
    os.execve(sys.executable, [sys.executable, *arguments], environment(folder))


def outcome(mutant: Mutant, *, in_soak: bool = False) -> str:
    """Run a mutant's tests, or its soak; one of OUTCOMES."""
    arguments = (*PYTEST, "-n0", *mutant.tests)
    if in_soak:
        arguments = ("-m", "support.soak", "--fleet", *shlex.split(mutant.soak))
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy_package(mutant, Path(folder))
        try:
            done = run_python(arguments, Path(folder), None if in_soak else LONGEST_S)
        except subprocess.TimeoutExpired:
            return "broken"
    is_broken = done.returncode not in (0, 1)
    if is_broken or in_soak:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    return "broken" if is_broken else "killed" if done.returncode else "survived"


def run(mutants: Sequence[Mutant], *, in_soak: bool = False) -> Counter[tuple[str, str]]:
    """Counts by room and outcome, with a line for each mutant meanwhile."""
    counts: Counter[tuple[str, str]] = Counter()

    def judge(mutant: Mutant) -> tuple[str, float]:
        began = time.monotonic()
        tries = (outcome(mutant, in_soak=in_soak) for _ in range(TRIES))
        result = next((result for result in tries if result != "survived"), "survived")
        return result, time.monotonic() - began

    with ThreadPoolExecutor(1 if in_soak else PROCESSES) as pool:
        for mutant, (result, took_s) in zip(mutants, pool.map(judge, mutants), strict=True):
            counts[mutant.room, result] += 1
            print(f"{result:8} {took_s:5.1f} s  {mutant.room}: {mutant.name}", flush=True)
    return counts


def table(counts: Counter[tuple[str, str]]) -> str:
    """The counts, a line for each room and one for all."""
    rooms = sorted({room for room, _ in counts})
    rows = [(room, [counts[room, result] for result in OUTCOMES]) for room in rooms]
    rows.append(("all", [sum(column) for column in zip(*(row for _, row in rows), strict=True)]))
    head = f"{'room':12}" + "".join(f"{result:>10}" for result in OUTCOMES)
    return "\n".join(
        [head, *(f"{room:12}" + "".join(f"{n:>10}" for n in row) for room, row in rows)]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="support.mutants")
    rooms = sorted(path.stem for path in MUTANTS.glob("*.toml"))
    parser.add_argument(
        "rooms", nargs="*", metavar="ROOM", help="all, or some of: " + ", ".join(rooms)
    )
    parser.add_argument("--draw", type=int, metavar="N", help="N mutants, drawn by the date")
    parser.add_argument("--date", type=datetime.date.fromisoformat, default=datetime.date.today())
    parser.add_argument("--soak", action="store_true", help="those that have a soak, in it")
    parser.add_argument(
        "--in",
        nargs=argparse.REMAINDER,
        dest="entered",
        metavar="NAME ARGUMENTS",
        help="run Python with these arguments and this mutant of the package",
    )
    options = parser.parse_args()
    if unknown := sorted(set(options.rooms) - set(rooms)):
        parser.error(f"no mutants of {', '.join(unknown)}: there are some of {', '.join(rooms)}")
    mutants = kept(options.rooms)
    if options.entered:
        name, *arguments = options.entered
        for mutant in mutants:
            if mutant.name == name:
                enter(mutant, arguments)
        parser.error(f"no mutant is named {name!r}")
    mutants = [mutant for mutant in mutants if (mutant.soak if options.soak else mutant.tests)]
    if options.draw is not None:
        mutants = drawn(mutants, options.draw, options.date)
    if not options.soak:
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        unchanged = run_python((*PYTEST, "-n", str(PROCESSES), "--dist", "loadfile", *tests))
        if unchanged.returncode:
            print(unchanged.stdout, "these tests fail without a mutant", sep="\n", file=sys.stderr)
            return 1
    counts = run(mutants, in_soak=options.soak)
    print("\n" + table(counts))
    return int(any(result != "killed" for _, result in counts))


if __name__ == "__main__":
    sys.exit(main())
