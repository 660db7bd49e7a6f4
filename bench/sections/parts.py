"""Parts that sections share: tables, the origin of a result, figures to compare."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

ENOUGH: Final = 1_000  # requests for a p99.9
TICK_US: Final = 10_000  # in which the kernel counts its time
TICKS: Final = 20  # for a figure of it


class Figure(NamedTuple):
    """A figure to compare with an earlier one, and its spread.

    Two figures whose spreads overlap have not moved. A figure measured once has no spread. If it
    `drifts` it is a time or a rate, which changes with the speed of the machine.
    """

    name: str  # with its unit
    value: float
    low: float | None = None
    high: float | None = None
    less_is_better: bool = True
    drifts: bool = True


def spread_figure(
    name: str, own: dict[str, float], *, less_is_better: bool = True, drifts: bool = True
) -> Figure:
    """Build a figure from several measurements (`bench.spread`)."""
    return Figure(name, own["median"], own["q1"], own["q3"], less_is_better, drifts)


class Section(Protocol):
    """The interface of the modules of this package."""

    def render(self, result: dict[str, Any]) -> str:
        """Render the section as Markdown, starting with an empty line and its heading."""
        ...

    def figures(self, result: dict[str, Any]) -> Iterator[Figure]:
        """Yield the figures to compare with committed results; none if that is meaningless."""
        ...


def about(result: dict[str, Any]) -> str:
    """Render a paragraph with date, commit, machine and versions."""
    own = result["about"]
    versions = ", ".join(f"{name} {value}" for name, value in own["versions"].items())
    return (
        f"\n{own['date']}, commit {own['commit']}; {own['cpu']}, {own['cores']} cores, load "
        f"{own['load_before']} before the run; {own['kernel']}, Python {own['python']}, "
        f"{versions}.\n\n"
    )


def p999_ms(ms: float, requests: float) -> str:
    """Format the p99.9 of a turn; empty if the turn has too few requests."""
    return f"{ms:.2f}" if requests >= ENOUGH else ""


def system_us(us: float, requests: float) -> str:
    """Format a request's time in the kernel; empty if a turn has too few ticks of its clock."""
    return f"{us:.1f}" if us * requests >= TICKS * TICK_US else ""


def table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Render a Markdown table; all columns but the first are numbers."""
    lines = [heading, tuple("---:" if column else "---" for column in range(len(heading))), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
