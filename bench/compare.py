"""Compares results with the last committed ones, and says what moved."""

import json
from collections.abc import Iterator
from typing import Any, Final

from bench.about import git

NOISE: Final = 0.1  # moves below this share are not called moves

Figures = dict[str, tuple[float, bool]]  # value, and whether less is better


def committed(kind: str) -> dict[str, Any] | None:
    """The results of a kind in the last commit, None where there are none."""
    text = git("show", f"HEAD:bench/results/{kind}.json")
    return json.loads(text) if text else None


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line a figure."""
    lines = [f"{after['kind']}: {before['about']['commit']} -> {after['about']['commit']}"]
    if before["about"]["cpu"] != after["about"]["cpu"]:
        lines.append("  another processor: times cannot be compared")
    old, new = dict(_figures(before)), dict(_figures(after))
    for name in new:
        value, less_is_better = new[name]
        if name in old:
            lines.append(_line(name, old[name][0], value, less_is_better))
        else:
            lines.append(f"  {name:58} {'':>10}    {value:10.2f}  new")
    lines += [f"  {name:58} is gone" for name in old if name not in new]
    return lines


def _line(name: str, old: float, new: float, less_is_better: bool) -> str:
    share = new / old - 1 if old else 0.0
    word = ""
    if abs(share) > NOISE:
        word = "better" if (share < 0) == less_is_better else "WORSE"
    return f"  {name:58} {old:10.2f} -> {new:10.2f}  {share:+6.0%}  {word}".rstrip()


def _figures(result: dict[str, Any]) -> Iterator[tuple[str, tuple[float, bool]]]:
    if result["kind"] == "micro":
        for name, own in result["figures"].items():
            yield f"{name}, µs", (own["median_us"], True)
        return
    if result["kind"] == "limits":
        return  # its page shows them; they are differences of single microseconds
    if result["kind"] == "together":
        for name, own in result["figures"].items():
            yield f"{name}, bid p99 ms", (own["bid_p99_ms"], True)
        return
    if result["kind"] == "ledger":
        for name, own in result["figures"].items():
            if isinstance(own, dict):
                yield f"{name}, µs", (own["processor_us"], True)
            else:
                yield name, (own, True)
        return
    for name, own in result["figures"].items():
        yield f"{name}, requests/s", (own["requests_per_s"], False)
        yield f"{name}, processor µs", (own["processor_us"], True)
    for name, own in result["added_us"].items():
        yield f"added by {name}, µs", (own["median"], True)
