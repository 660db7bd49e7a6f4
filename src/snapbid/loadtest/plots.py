"""Renders plots as self-contained inline SVG: no scripts, no fonts."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final, NamedTuple

WIDTH: Final = 600
HEIGHT: Final = 250
LEFT: Final = 52
RIGHT: Final = 20
TOP: Final = 14
BOTTOM: Final = 38
MAX_SPOTS: Final = 240  # columns of a plot that show their values


class Line(NamedTuple):
    """A line of a plot; `style` is a CSS class (`s1` … `s8`, `bad`, `quiet`)."""

    label: str
    style: str
    points: Sequence[tuple[float, float]]


class Tick(NamedTuple):
    """A value on an axis, and its label."""

    at: float
    text: str


class Axis(NamedTuple):
    """An axis; `share` maps a value to its position, 0 to 1."""

    share: Callable[[float], float]
    ticks: Sequence[Tick]
    title: str


class Band(NamedTuple):
    """A labelled span of the x axis."""

    least: float
    most: float
    label: str
    measured: bool


def linear(most: float, title: str, *, exact: bool = False) -> Axis:
    """Return a linear axis from 0 to `most`, rounded up unless `exact`."""
    step = _step(most / 4)
    top = most if exact else step * max(1, ceil(most / step - 1e-9))
    ticks = [Tick(n * step, _short(n * step)) for n in range(floor(top / step + 1e-9) + 1)]
    return Axis(lambda value: value / top, ticks, title)


def logarithmic(least: float, most: float, title: str) -> Axis:
    """Return a log axis with ticks at 1, 10, 100, …; a short axis also has 2, 5, 20, 50, …"""
    low = _step(max(least, 1e-3), up=False)
    high = max(_step(max(most, 1e-3)), 10 * low)
    width = log10(high / low)
    marks = (1, 2, 5) if width < 3.5 else (1,)
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    values = [mark * 10.0**decade for decade in decades for mark in marks]
    inside = [value for value in values if low * 0.999 <= value <= high * 1.001]
    ticks = [Tick(value, _short(value)) for value in inside]
    return Axis(lambda value: log10(max(value, low) / low) / width, ticks, title)


def tail(title: str) -> Axis:
    """Return an axis of percentiles up to 100, on which 90, 99, 99.9 … are evenly spaced."""
    decades = 5.0

    def share(percent: float) -> float:
        beyond = max(10**-decades, 1 - percent / 100)
        return -log10(beyond) / decades

    shown = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0)
    return Axis(share, [Tick(percent, f"{percent:g}%") for percent in shown], title)


def plot(title: str, x: Axis, y: Axis, lines: Sequence[Line], bands: Sequence[Band] = ()) -> str:
    """Render a figure with a plot and its legend."""
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        *(_band(band, x) for band in bands),
        *(_across(tick, y) for tick in y.ticks),
        *(_along(tick, x) for tick in x.ticks),
        *(_line(line, x, y) for line in lines),
        *_spots(lines, x),
        f'<text class="axis" x="{LEFT}" y="{HEIGHT - 4}">{escape(x.title)}</text>',
        "</svg>",
    ]
    legend = "".join(f'<li><i class="{line.style}"></i>{escape(line.label)}</li>' for line in lines)
    heading = f"<figcaption>{escape(title)} <small>{escape(y.title)}</small></figcaption>"
    return f'<figure>{heading}{"".join(parts)}<ul class="legend">{legend}</ul></figure>'


def _x(share: float) -> float:
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _y(share: float) -> float:
    return round(HEIGHT - BOTTOM - min(1.0, max(0.0, share)) * (HEIGHT - TOP - BOTTOM), 1)


def _across(tick: Tick, y: Axis) -> str:
    at = _y(y.share(tick.at))
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{at + 4}" text-anchor="end">{tick.text}</text>'
    )


def _along(tick: Tick, x: Axis) -> str:
    at = _x(x.share(tick.at))
    return (
        f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        f'<text class="tick" x="{at}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">'
        f"{tick.text}</text>"
    )


def _band(band: Band, x: Axis) -> str:
    least, most = _x(x.share(band.least)), _x(x.share(band.most))
    style = "measured" if band.measured else "unmeasured"
    name = escape(band.label) if most - least > 6 * len(band.label) else ""
    return (
        f'<rect class="{style}" x="{least}" y="{TOP}" width="{max(0.0, most - least):.1f}" '
        f'height="{HEIGHT - TOP - BOTTOM}"/>'
        f'<line class="edge" x1="{least}" x2="{least}" y1="{TOP - 10}" y2="{HEIGHT - BOTTOM}"/>'
        f'<text class="band" x="{least + 3}" y="{TOP - 3}">{name}</text>'
    )


def _line(line: Line, x: Axis, y: Axis) -> str:
    points = " ".join(f"{_x(x.share(a))},{_y(y.share(b))}" for a, b in line.points)
    if len(line.points) == 1:
        a, b = points.split(",")
        return f'<circle class="{line.style}" cx="{a}" cy="{b}" r="3"/>'
    return f'<polyline class="{line.style}" points="{points}"/>'


def _spots(lines: Sequence[Line], x: Axis) -> Iterator[str]:
    """Yield SVG columns that show the lines' values on hover, without a script."""
    places = sorted({at for line in lines for at, _ in line.points})
    places = places[:: ceil(len(places) / MAX_SPOTS) or 1]
    values = [(line.label, dict(line.points)) for line in lines]
    edges = [_x(x.share(at)) for at in places]
    for number, at in enumerate(places):
        here = edges[number]
        least = (edges[number - 1] + here) / 2 if number else here
        most = (edges[number + 1] + here) / 2 if number + 1 < len(edges) else here
        anchor, aside = ("start", 6) if here < WIDTH / 2 else ("end", -6)
        shown = [f"{at:g}", *(f"{label}: {own[at]:,.4g}" for label, own in values if at in own)]
        texts = "".join(
            f'<tspan x="{here + aside}" dy="1.25em">{escape(text)}</tspan>' for text in shown
        )
        yield (
            f'<g class="spot"><rect x="{least:.1f}" y="{TOP}" width="{most - least:.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}"/>'
            f'<line x1="{here}" x2="{here}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            f'<text y="{TOP}" text-anchor="{anchor}">{texts}</text></g>'
        )


def _step(rough: float, *, up: bool = True) -> float:
    """Round up, or down if not `up`, to 1, 2 or 5 times a power of ten."""
    if rough <= 0:
        return 1.0
    power: float = 10.0 ** floor(log10(rough) + 1e-9)
    marks = [mark * power for mark in (1, 2, 5, 10)]
    if up:
        return next(mark for mark in marks if mark >= rough * (1 - 1e-9))
    return next(mark for mark in reversed(marks) if mark <= rough * (1 + 1e-9))


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"
