"""Renders the result as a self-contained HTML page: the verdict at a glance, then all details.

The numbers in its tables are those of the JSON file, rounded by `number`, which shows the exact
number on hover.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from itertools import accumulate

from snapbid.loadtest import plots
from snapbid.loadtest.plots import Band, Line
from snapbid.loadtest.result import LoadResult, PhaseResult

MAX_LINES = 8  # in a plot
SHOWN = ("p50", "p90", "p99", "p99.9", "p99.99", "max")


def page(result: LoadResult) -> str:
    return "\n".join(
        [
            start(f"Load test of {result.target}, {result.started}"),
            *_head(result),
            *_tiles(result),
            '<section class="plots">',
            *_plots(result),
            "</section>",
            *_phases(result),
            *_failures(result),
            '<div class="columns">',
            *_objectives(result),
            *_reconciliation(result),
            *_others(result),
            *_settings(result),
            "</div></main></body></html>",
            "",
        ]
    )


def start(title: str) -> str:
    """Return the beginning of a page, up to and including the opening tag of `main`."""
    style = files("snapbid.loadtest").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
    )


def _head(result: LoadResult) -> Iterator[str]:
    verdict = result.verdict
    word, style = ("Passed", "good") if verdict.ok else ("Failed", "bad")
    yield (
        f'<header><h1>Load test of {escape(result.target)}</h1><p class="when">'
        f"{escape(result.started)} · snapbid {escape(result.version)} · seed {result.seed}</p>"
        f'<p class="verdict {style}"><b>{word}</b> {escape(verdict.reason)}</p>'
    )
    if result.capacity is not None:
        yield (
            f'<p class="verdict"><b>Capacity</b> {number(result.capacity)} requests a second '
            f"meet the objectives. {escape(result.capacity_note)}</p>"
        )
    for phase in _measured(result):
        searching = result.capacity is not None  # its note tells if connections were short
        if phase.client.limited or (phase.client.pool_full and not searching):
            yield (
                f'<p class="verdict warn"><b>{escape(phase.name)}</b> {escape(phase.client.why)} '
                f"({number(phase.client.cpu_percent)}% of a core, waiting for it "
                f"{number(phase.client.waited_percent)}% of the time, sent late by "
                f"{number(phase.client.lag_p99_ms)} ms and waited "
                f"{number(phase.client.connection_wait_p99_ms)} ms for a connection at p99)</p>"
            )
    yield "</header>"


def _measured(result: LoadResult) -> list[PhaseResult]:
    return [phase for phase in result.phases if phase.measured]


def _tiles(result: LoadResult) -> Iterator[str]:
    """Yield tiles with key figures of the trial at capacity, or else of the last measured phase."""
    phases = _measured(result)
    if not phases:
        return
    phase = phases[-1]
    if result.capacity is not None:
        phase = next((trial for trial in phases if trial.rate == result.capacity), phase)
    tiles: list[tuple[str, str, str]] = [
        ("offered", number(phase.offered), f"{number(phase.rate)}/s"),
        ("completed", number(phase.answered), f"{number(phase.completed_per_s)}/s"),
        ("dropped", number(phase.dropped), f"errors {number(phase.error_percent)}%"),
        ("bid rate", f"{number(phase.bid_percent)}%", "of valid answers"),
        *((name, number(phase.latency_ms[name]), "ms") for name in ("p50", "p99", "p99.9")),
        ("report", result.reconciliation.status, "reconciliation"),
    ]
    if result.capacity is not None:
        tiles.insert(0, ("capacity", number(result.capacity), "requests/s"))
    yield f'<section class="tiles" aria-label="{escape(phase.name)}">'
    for name, value, unit in tiles:
        yield f"<div><span>{name}</span><b>{value}</b><small>{unit}</small></div>"
    yield "</section>"


# -- plots ---------------------------------------------------------------------------------------


def _plots(result: LoadResult) -> Iterator[str]:
    yield _percentile_plot(_measured(result)[-MAX_LINES:])
    starts = list(accumulate((phase.seconds for phase in result.phases), initial=0.0))
    bands = [
        Band(start, start + phase.seconds, phase.name, phase.measured)
        for start, phase in zip(starts, result.phases, strict=False)
    ]
    points = [
        (start + point.at_s, point)
        for start, phase in zip(starts, result.phases, strict=False)
        for point in phase.series
        if point.at_s + 1 <= phase.seconds + 1e-9  # a partial second gives no rate
    ]
    time = plots.linear(max(starts[-1], 1.0), "seconds", exact=True)
    latest = [point.p99_ms for _, point in points if point.offered]
    yield plots.plot(
        "Latency over time",
        time,
        plots.logarithmic(
            min((point.p50_ms for _, point in points if point.offered), default=1.0),
            max(latest, default=10.0),
            "ms, by the second",
        ),
        [
            Line("p99", "s2", [(at, point.p99_ms) for at, point in points if point.offered]),
            Line("p50", "s1", [(at, point.p50_ms) for at, point in points if point.offered]),
        ],
        bands,
    )
    yield plots.plot(
        "Throughput over time",
        time,
        plots.linear(max((point.offered for _, point in points), default=1), "requests a second"),
        [
            Line("offered", "s1", [(at, point.offered) for at, point in points]),
            Line("valid, in time", "s3", [(at, point.offered - point.bad) for at, point in points]),
            Line("bad", "bad", [(at, point.bad) for at, point in points]),
        ],
        bands,
    )
    yield _kinds_plot(result)


def _percentile_plot(phases: Sequence[PhaseResult]) -> str:
    lines = [
        Line(f"{phase.name}, {phase.rate:,.0f}/s", f"s{number}", phase.curve)
        for number, phase in enumerate(phases, 1)
    ]
    values = [ms for phase in phases for _, ms in phase.curve if ms > 0]
    y = plots.logarithmic(min(values, default=1.0), max(values, default=10.0), "ms")
    x = plots.tail("percentile of all offered requests")
    return plots.plot("Latency by percentile", x, y, lines)


def _kinds_plot(result: LoadResult) -> str:
    """Render a bar for each phase, divided by kind of answer."""
    phases = result.phases[-MAX_LINES:]
    kinds = list(dict.fromkeys(kind for phase in phases for kind in phase.kinds))
    styles = {kind: _style(kind, index) for index, kind in enumerate(kinds)}
    rows = []
    for phase in phases:
        parts = "".join(
            f'<span class="{styles[kind]}" style="flex:{count}" '
            f'title="{escape(kind)} {count:,}"></span>'
            for kind, count in phase.kinds.items()
        )
        rows.append(f'<dt>{escape(phase.name)}</dt><dd class="bar">{parts}</dd>')
    legend = "".join(f'<li><i class="{styles[kind]}"></i>{escape(kind)}</li>' for kind in kinds)
    return (
        "<figure><figcaption>Answers by kind <small>share of all offered</small></figcaption>"
        f'<dl class="bars">{"".join(rows)}</dl><ul class="legend">{legend}</ul>'
        f"{_kinds(result)}</figure>"
    )


def _style(kind: str, index: int) -> str:
    return {"bid": "s3", "no bid": "quiet", "refused": "s8"}.get(kind, f"bad b{index % 5}")


# -- tables --------------------------------------------------------------------------------------


def _phases(result: LoadResult) -> Iterator[str]:
    heads = ["phase", "rate/s", "seconds", "offered", "completed", "dropped", "errors %",
             "bid rate %", *(f"{name} ms" for name in SHOWN), "client %", "objectives"]  # fmt: skip
    yield table(
        "phases",
        "Phases",
        heads,
        ((escape(phase.name), *_figures(phase), _held(phase)) for phase in result.phases),
        "Latency counts from the scheduled point, over all offered requests: those that were "
        "dropped or lost count with the time until they were given up on.",
    )


def _figures(phase: PhaseResult) -> Iterator[str]:
    yield from map(number, (phase.rate, phase.seconds, phase.offered, phase.answered))
    yield from map(number, (phase.dropped, phase.error_percent, phase.bid_percent))
    yield from (number(phase.latency_ms[name]) for name in SHOWN)
    yield number(phase.client.cpu_percent)


def _held(phase: PhaseResult) -> str:
    if not phase.measured:
        return '<span class="muted">not measured</span>'
    return "held" if phase.held else f'<em class="bad">{escape(phase.missed)}</em>'


def _kinds(result: LoadResult) -> str:
    """Render a table of the answers in each phase, by kind."""
    kinds = list(dict.fromkeys(kind for phase in result.phases for kind in phase.kinds))
    rows = (
        (escape(phase.name), *(number(phase.kinds.get(kind, 0)) for kind in kinds))
        for phase in result.phases
    )
    return table("kinds", "", ["phase", *kinds], rows)


def _failures(result: LoadResult) -> Iterator[str]:
    rows = [
        (escape(f"{phase.name}: {failure.rule}"), number(failure.count),
         f"<code>{escape(failure.example)}</code>")
        for phase in result.phases
        for failure in phase.failures
    ]  # fmt: skip
    if rows:
        yield table("failures", "Failures", ["what", "count", "first"], rows)


def _objectives(result: LoadResult) -> Iterator[str]:
    yield table(
        "objectives",
        "Objectives",
        ["objective", "phase", "found", ""],
        (
            (
                escape(outcome.objective),
                escape(outcome.phase),
                number(outcome.value),
                "met" if outcome.met else '<em class="bad">missed</em>',
            )
            for outcome in result.objectives
        ),
    )


def _reconciliation(result: LoadResult) -> Iterator[str]:
    outcome = result.reconciliation
    yield table(
        "reconciliation",
        f"Report: {outcome.status}",
        ["SSP", "", "sent", "unanswered", "reported", ""],
        (
            (
                escape(row.ssp),
                row.what,
                number(row.sent),
                number(row.unanswered),
                number(row.reported),
                "agrees" if row.agrees else '<em class="bad">differs</em>',
            )
            for row in outcome.rows
        ),
        outcome.detail,
    )


def _others(result: LoadResult) -> Iterator[str]:
    notices = result.notices
    rows = [
        (kind, number(count), number(notices.failed.get(kind, 0)))
        for kind, count in notices.fired.items()
    ]
    events = result.events
    if events is not None:
        rows.append(("event batches", number(events.batches), number(events.failed)))
    if rows:
        yield table("notices", "Notices and events", ["", "sent", "failed"], rows)


def _settings(result: LoadResult) -> Iterator[str]:
    rows = ((escape(name), escape(value)) for name, value in result.settings.items())
    yield table("settings", "Settings", ["", ""], rows)


# -- cells ---------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Format a number as HTML; if rounding changed the number, hovering shows it in full."""
    text = rounded(value)
    if float(text.replace(",", "")) == value:
        return text
    return f'<data value="{value:.10g}" title="{value:.10g}">{text}</data>'


def rounded(value: float) -> str:
    """Format a number with thousands separators; below 100, round it to two or three digits."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return (
        f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.2f}"
        if abs(value) >= 1
        else f"{value:.2g}"
    )


def table(
    name: str, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], note: str = ""
) -> str:
    """Render a section with a table. Cells must be HTML; the first cell of a row is its heading.

    On a phone each row becomes a list, labelled with the columns' names.
    """
    head = "".join(
        f'<th scope="col">{escape(text)}</th>' if text else "<td></td>" for text in heads
    )
    head = f"<thead><tr>{head}</tr></thead>" if any(heads) else ""
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(map(_cell, heads[1:], rest))}</tr>'
        for first, *rest in rows
    )
    note = f'<p class="note">{escape(note)}</p>' if note else ""
    return (
        f'<section id="{name}">{f"<h2>{escape(title)}</h2>" if title else ""}'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title or name)}">'
        f"<table>{head}<tbody>{body}</tbody></table></div>{note}</section>"
    )


def _cell(head: str, content: str) -> str:
    label = f' data-label="{escape(head)}"' if head else ""
    return f"<td{label}>{content}</td>"
