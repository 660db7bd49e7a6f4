"""Compares results with the last committed ones, and says what moved.

A figure has moved when it differs by more than `NOISE` and the spreads, where both have one, do not
touch.
"""

import json
from typing import Any, Final

from bench.about import git
from bench.sections.parts import Figure, Section

NOISE: Final = 0.1  # moves below this share are not called moves


def committed(kind: str) -> dict[str, Any] | None:
    """The results of a kind in the last commit, None where there are none."""
    text = git("show", f"HEAD:bench/results/{kind}.json")
    return json.loads(text) if text else None


def compare(section: Section, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line a figure."""
    lines = [f"{after['kind']}: {before['about']['commit']} -> {after['about']['commit']}"]
    if before["about"]["cpu"] != after["about"]["cpu"]:
        lines.append("  another processor: times cannot be compared")
    old = {one.name: one for one in section.figures(before)}
    for new in section.figures(after):
        was = old.pop(new.name, None)
        if was is None:
            lines.append(f"  {new.name:58} {'':>10}    {new.value:10.2f}  new")
        else:
            lines.append(_line(was, new))
    return lines + [f"  {name:58} is gone" for name in old]


def _line(old: Figure, new: Figure) -> str:
    share = new.value / old.value - 1 if old.value else 0.0
    word = ""
    if abs(share) > NOISE and not _touch(old, new):
        word = "better" if (share < 0) == new.less_is_better else "WORSE"
    line = f"  {new.name:58} {old.value:10.2f} -> {new.value:10.2f}  {share:+6.0%}  {word}"
    return line.rstrip()


def _touch(old: Figure, new: Figure) -> bool:
    """Whether the spreads have values in common."""
    if old.low is None or old.high is None or new.low is None or new.high is None:
        return False
    return old.low <= new.high and new.low <= old.high
