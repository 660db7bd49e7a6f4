"""Kept mutants: single defects, each of which the tests that it names must notice.

    PYTHONPATH=tests python -m support.mutants [--draw 10 --date 2026-11-27] [ROOM ...]

`tests/mutants/ROOM.toml` has a table for each mutant of a room, by the defect in plain words: in
the file `path` below `src/snapbid`, the text `old`, which occurs once, becomes `new`. It is killed
if one of `tests` (files or ids of pytest) fails, survives if all pass, and is broken if they end
otherwise (a crash, too). They are first run on the code as it is, where they must pass.
"""

import argparse
import datetime
import os
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

TOP: Final = Path(__file__).parents[2]
PACKAGE: Final = TOP / "src" / "snapbid"
MUTANTS: Final = TOP / "tests" / "mutants"
OUTCOMES: Final = ("killed", "survived", "broken")
LONGEST_S: Final = 300  # of a mutant's tests: one may never end


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A defect: its name, and the keys of its table."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def room(self) -> str:
        return Path(self.path).parts[0]

    def source(self) -> str:
        """The mutated file; ValueError unless `old` occurs exactly once in the right one."""
        right = (PACKAGE / self.path).read_text()
        if (occurrences := right.count(self.old)) != 1:
            message = f"{self.name}: its `old` occurs {occurrences} times in {self.path}, not once"
            raise ValueError(message)
        return right.replace(self.old, self.new)


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
    """Put the mutated package into the folder: links, but for the file and the folders above it."""
    source = mutant.source()
    right, copy = PACKAGE, folder / PACKAGE.name
    for part in Path(mutant.path).parts:
        copy.mkdir()
        for path in right.iterdir():
            if path.name not in (part, "__pycache__"):
                (copy / path.name).symlink_to(path)
        right, copy = right / part, copy / part
    copy.write_text(source)


def run_tests(
    tests: Iterable[str], folder: Path | None = None, longest_s: float | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run pytest, with the package in the folder first. Raises TimeoutExpired after `longest_s`."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(folder or "")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *tests],
        cwd=TOP,
        env=environment,
        timeout=longest_s,
        capture_output=True,
        text=True,
    )


def outcome(mutant: Mutant) -> str:
    """Run a mutant's tests; one of OUTCOMES."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy_package(mutant, Path(folder))
        try:
            done = run_tests(mutant.tests, Path(folder), LONGEST_S)
        except subprocess.TimeoutExpired:
            return "broken"
    if done.returncode not in (0, 1):
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        return "broken"
    return "killed" if done.returncode else "survived"


def run(mutants: Sequence[Mutant]) -> Counter[tuple[str, str]]:
    """Counts by room and outcome, with a line for each mutant meanwhile."""
    counts: Counter[tuple[str, str]] = Counter()
    for mutant in mutants:
        began = time.monotonic()
        result = outcome(mutant)
        counts[mutant.room, result] += 1
        print(
            f"{result:8} {time.monotonic() - began:5.1f} s  {mutant.room}: {mutant.name}",
            flush=True,
        )
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
    options = parser.parse_args()
    if unknown := sorted(set(options.rooms) - set(rooms)):
        parser.error(f"no mutants of {', '.join(unknown)}: there are some of {', '.join(rooms)}")
    mutants = kept(options.rooms)
    if options.draw is not None:
        mutants = drawn(mutants, options.draw, options.date)
    unchanged = run_tests(sorted({test for mutant in mutants for test in mutant.tests}))
    if unchanged.returncode:
        print(unchanged.stdout, "these tests fail without a mutant", sep="\n", file=sys.stderr)
        return 1
    counts = run(mutants)
    print("\n" + table(counts))
    return int(any(result != "killed" for _, result in counts))


if __name__ == "__main__":
    sys.exit(main())
