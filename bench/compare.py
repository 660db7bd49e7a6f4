"""Compares results with earlier ones, and reports the figures that moved.

A figure has moved if it differs by more than `NOISE` plus the drift of the machine itself, and if
the spreads, where both results have one, do not overlap.
"""

import json
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Any, Final

from bench.about import git
from bench.runs import Run
from bench.sections.parts import Figure

NOISE: Final = 0.1  # as a share

Pair = tuple[Figure, Figure]  # before, after


def earlier(kind: str, directory: Path | None) -> dict[str, Any] | None:
    """Return the results of a kind in a directory, or the last committed ones; None without any."""
    if directory is None:
        text = git("show", f"HEAD:bench/results/{kind}.json")
    else:
        path = directory / f"{kind}.json"
        text = path.read_text() if path.exists() else ""
    return json.loads(text) if text else None


def compare(run: Run, before: dict[str, Any], after: dict[str, Any], *, all: bool) -> list[str]:
    """Return a heading, a line for each figure that moved (or all), and a summary of the rest."""
    lines = [f"{after['kind']}: {before['about']['commit']} -> {after['about']['commit']}"]
    try:
        old = {figure.name: figure for figure in run.section.figures(before)}
    except (AttributeError, LookupError, TypeError, ValueError):
        return [*lines, "  the earlier results have a different form: not compared"]
    new = {figure.name: figure for figure in run.section.figures(after)}
    if before["about"]["cpu"] != after["about"]["cpu"]:
        lines.append("  a different processor: times cannot be compared")
    pairs = [(old[name], figure) for name, figure in new.items() if name in old]
    noise = NOISE
    if run.reference in old and run.reference in new:
        drift = _share((old[run.reference], new[run.reference]))
        noise += abs(drift)
        lines.append(f"  the machine: {drift:+.0%} ({run.reference})")
    moved = [pair for pair in pairs if _has_moved(pair, noise)]
    lines += _lines(pairs if all else moved, moved)
    rest = [
        f"{len(pairs) - len(moved)} have not moved",
        *_named("new", [name for name in new if name not in old]),
        *_named("gone", [name for name in old if name not in new]),
    ]
    return [*lines, f"  {'; '.join(rest)} (noise: {noise:.0%})"]


def _named(word: str, names: list[str]) -> list[str]:
    return [f"{word}: {'; '.join(names)}"] if names else []


def _lines(shown: Iterable[Pair], moved: list[Pair]) -> list[str]:
    lines = []
    for old, new in shown:
        word = ""
        if (old, new) in moved:
            word = "better" if (new.value < old.value) == new.less_is_better else "WORSE"
        values = f"{old.value:11,.2f} -> {new.value:11,.2f} {_share((old, new)):+7.0%}"
        lines.append(f"  {new.name:50} {values}  {word}".rstrip())
    return lines


def _share(pair: Pair) -> float:
    old, new = pair
    if old.value == new.value:
        return 0.0
    return new.value / old.value - 1 if old.value else inf


def _has_moved(pair: Pair, noise: float) -> bool:
    return abs(_share(pair)) > noise and not _touch(*pair)


def _touch(old: Figure, new: Figure) -> bool:
    """Return whether the spreads overlap."""
    if old.low is None or old.high is None or new.low is None or new.high is None:
        return False
    return old.low <= new.high and new.low <= old.high
