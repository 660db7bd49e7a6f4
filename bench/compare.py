"""Compares results with earlier ones, and reports the figures that moved.

A figure has moved if it differs by more than `NOISE` without the drift of the machine, and if the
spreads, where both results have one, do not overlap. The drift is that of the run's reference.
"""

import json
from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.about import git
from bench.processes import BenchError
from bench.ready import MOST_LOAD
from bench.runs import Run
from bench.sections.parts import Figure

NOISE: Final = 0.1  # as a share
MOST_DRIFT: Final = 4 / 3  # or its inverse, beyond which not all times drift alike

Pair = tuple[Figure, Figure]  # before, after


class _About(msgspec.Struct):
    commit: str
    cpu: str
    load_before: float
    python: str
    versions: dict[str, str]


class _Result(msgspec.Struct):
    kind: str
    about: _About


def earlier(kind: str, directory: Path | None) -> dict[str, Any] | None:
    """Return the results of a kind in a directory, or the last committed ones; None without any.

    Raises BenchError if they cannot be compared with; it names the file.
    """
    file = f"{directory or 'HEAD:bench/results'}/{kind}.json"
    if directory is None:
        text = git("show", file) or None
    else:
        text = Path(file).read_text(errors="replace") if Path(file).exists() else None
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=_Result).kind
    except msgspec.DecodeError as error:
        raise BenchError(f"{file} has no results: {error}") from error
    if found != kind:
        raise BenchError(f"{file} has results of {found}")
    result: dict[str, Any] = json.loads(text)
    return result


def compare(run: Run, before: dict[str, Any], after: dict[str, Any], *, all: bool) -> list[str]:
    """Return a heading, a line for each figure that moved (or all), and a summary of the rest."""
    lines = list(_heading(before, after))
    try:
        old = {figure.name: figure for figure in run.section.figures(before)}
    except (AttributeError, LookupError, TypeError, ValueError):
        return [*lines, "  the earlier results have a different form: not compared"]
    new = {figure.name: figure for figure in run.section.figures(after)}
    drift = 1.0
    if run.reference in old and run.reference in new:
        drift = 1 + _share((old[run.reference], new[run.reference]))
        lines.append(f"  the machine drifted by {drift - 1:+.0%} ({run.reference})")
        if not 1 / MOST_DRIFT <= drift <= MOST_DRIFT:
            return [*lines, "  too much to compare anything: repeat the run, and the earlier one"]
        lines.append("  the shares of change leave this out")
    else:
        lines.append("  how much the machine drifted was not measured")
    pairs = [(old[name], _without(drift, figure)) for name, figure in new.items() if name in old]
    moved = [pair for pair in pairs if _has_moved(pair)]
    lines += _lines(pairs if all else moved, moved, new)
    rest = [
        f"{len(pairs) - len(moved)} have not moved",
        *_named("new", [name for name in new if name not in old]),
        *_named("gone", [name for name in old if name not in new]),
    ]
    return [*lines, f"  {'; '.join(rest)} (noise: {NOISE:.0%})"]


def _heading(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yield both commits and loads, and what else differs but the product."""
    old, new = before["about"], after["about"]
    yield f"{after['kind']}: {old['commit']} -> {new['commit']}"
    yield f"  load before the run: {old['load_before']} -> {new['load_before']}"
    if max(old["load_before"], new["load_before"]) > MOST_LOAD:
        yield "  a busy machine: figures measured beside other programs cannot be compared"
    if old["cpu"] != new["cpu"]:
        yield "  a different processor: times cannot be compared"
    yield from _differences({"Python": old["python"]}, {"Python": new["python"]})
    yield from _differences(old["versions"], new["versions"])
    yield from _differences(before.get("method", {}), after.get("method", {}))


def _differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, "none"), new.get(name, "none")
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after)
        elif before != after:
            yield f"  {name}: {before} -> {after}"


def _without(drift: float, figure: Figure) -> Figure:
    """Return a figure as it would be without the drift, with which times grow and rates shrink."""
    if not figure.drifts:
        return figure
    by = 1 / drift if figure.less_is_better else drift
    low, high = (bound and bound * by for bound in (figure.low, figure.high))
    return figure._replace(value=figure.value * by, low=low, high=high)


def _named(word: str, names: list[str]) -> list[str]:
    return [f"{word}: {'; '.join(names)}"] if names else []


def _lines(shown: Iterable[Pair], moved: list[Pair], measured: dict[str, Figure]) -> list[str]:
    lines = []
    for old, new in shown:
        word = ""
        if (old, new) in moved:
            word = "better" if (new.value < old.value) == new.less_is_better else "WORSE"
        after = measured[new.name].value
        values = f"{old.value:11,.2f} -> {after:11,.2f} {_share((old, new)):+7.0%}"
        lines.append(f"  {new.name:50} {values}  {word}".rstrip())
    return lines


def _share(pair: Pair) -> float:
    old, new = pair
    if old.value == new.value:
        return 0.0
    return new.value / old.value - 1 if old.value else inf


def _has_moved(pair: Pair) -> bool:
    return abs(_share(pair)) > NOISE and not _touch(*pair)


def _touch(old: Figure, new: Figure) -> bool:
    """Return whether the spreads overlap."""
    if old.low is None or old.high is None or new.low is None or new.high is None:
        return False
    return old.low <= new.high and new.low <= old.high
