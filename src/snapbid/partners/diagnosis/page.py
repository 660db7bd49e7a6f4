"""Renders the diagnosis as a page, from its JSON alone: no scripts, plots as SVG."""

import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

STYLE: Final = (
    files("snapbid.partners.diagnosis").joinpath("diagnosis.css").read_text(encoding="utf-8")
)

_PLOT_HEIGHT: Final = 120
_BAR: Final = 44
_MOST_DAYS: Final = 7  # days of a full window, which sets the width of a bar
_STATES: Final = {"pass": "good", "fail": "bad", "not seen yet": "open"}


def page(body: bytes) -> str:
    seen = json.loads(body)
    title = f"Diagnosis of {seen['ssp']}"
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>",
            f"<h1>{escape(title)}</h1>",
            f"<p>From {_time(seen['from'])} to {_time(seen['to'])}. ",
            'Other windows: <a href="?last=10m">the last 10 minutes</a>, or ',
            "<code>?from=2026-01-01&amp;to=2026-01-07</code>.</p>",
            *_figures(seen),
            *_days(seen["days"]),
            *_outcomes(seen),
            *_rules(seen),
            *_faults(seen),
            *_notices(seen),
            *_checklist(seen["checklist"]),
            "</main></body></html>\n",
        ]
    )


def _figures(seen: dict[str, Any]) -> Iterator[str]:
    wins = seen["notices"]["win"]["counted"]
    yield "<dl class=figures>"
    for name, value in (
        ("requests", f"{seen['requests']:,}"),
        ("answered with a bid", f"{seen['bids']:,}"),
        ("answered too late", f"{seen['lateShare']:.2%}"),
        ("wins", f"{wins:,}"),
        ("wins without billing", f"{seen['winsWithoutBilling']:,}"),
        ("losses without a reason", f"{seen['lossesWithoutReason']:,}"),
        ("both lost and won", f"{seen['lostAndWon']:,}"),
        ("auction ids used again", f"{seen['reusedAuctions']:,}"),
    ):
        yield f"<div><dt>{name}<dd>{value}</div>"
    yield "</dl>"


def _days(days: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not days:
        return
    most = max(1, *(day["requests"] for day in days))
    width = _BAR * _MOST_DAYS
    yield "<h2>Days</h2>"
    yield f'<svg viewBox="0 0 {width} {_PLOT_HEIGHT + 18}" role="img" '
    yield 'aria-label="Requests of each day, and those that were answered with a bid">'
    for index, day in enumerate(days):
        for name in ("requests", "bids"):
            height = round(day[name] * _PLOT_HEIGHT / most, 1)
            yield f'<rect class="{name}" x="{index * _BAR + 6}" y="{_PLOT_HEIGHT - height}" '
            yield f'width="{_BAR - 12}" height="{height}"><title>{day["date"]}: '
            yield f"{day[name]:,} {name}</title></rect>"
        yield f'<text x="{index * _BAR + _BAR / 2}" y="{_PLOT_HEIGHT + 13}">'
        yield f"{day['date'][5:]}</text>"
    yield "</svg>"
    names = ("date", "requests", "bids", "late", "wins", "billed")
    yield from _table(
        ("day (UTC)", *names[1:]),
        ([day["date"], *(f"{day[name]:,}" for name in names[1:])] for day in days),
    )


def _outcomes(seen: dict[str, Any]) -> Iterator[str]:
    for title, shares in (("Answers without a bid", "noBids"), ("Errors", "errors")):
        if seen[shares]:
            yield f"<h2>{title}</h2>"
            yield from _shares(("why", "code"), seen[shares], "requests", seen["requests"])


def _rules(seen: dict[str, Any]) -> Iterator[str]:
    rules = seen["noCampaign"]
    if rules:
        total = sum(share["sampled"] for share in rules)
        yield "<h2>No campaign: the last rule that refused</h2>"
        yield from _shares(("rule", "rule"), rules, "sampled", total)
        yield f"<p class=note>From a sample of {total:,} requests.</p>"


def _shares(
    name: tuple[str, str], shares: Sequence[dict[str, Any]], part: str, whole: int
) -> Iterator[str]:
    """Yield a table of shares with their meanings; `name`: the first column's heading and field."""
    head, field = name
    yield from _table(
        (head, "requests", "share", "what it means"),
        (
            [
                f"<code>{escape(share[field])}</code>",
                f"{share['requests']:,}",
                _bar(share[part], whole),
                escape(share["meaning"]),
            ]
            for share in shares
        ),
    )


def _faults(seen: dict[str, Any]) -> Iterator[str]:
    for title, faults in (
        ("What requests lack", "lacking"),
        ("What cannot be used", "unused"),
        ("What requests break", "broken"),
    ):
        if seen[faults]:
            yield f"<h2>{title}</h2>"
            yield from _table(
                ("field", "requests", "rule", "for example"),
                (
                    [
                        f"<code>{escape(fault['field'] or 'the body')}</code>",
                        f"{fault['requests']:,}",
                        escape(fault["rule"]),
                        f"<code>{escape(fault['example'])}</code>",
                    ]
                    for fault in seen[faults]
                ),
            )


def _notices(seen: dict[str, Any]) -> Iterator[str]:
    yield "<h2>Notices</h2>"
    columns = ("counted", "late", "duplicate", "unknown", "altered")
    yield from _table(
        ("kind", *columns),
        (
            [kind, *(f"{counts[name]:,}" for name in columns)]
            for kind, counts in seen["notices"].items()
        ),
    )
    yield (
        "<p class=note>Late notices are among the counted, on the day they arrived. Unknown "
        "notices are for bids that are no longer remembered; a notice that names no bid names no "
        "SSP either. Altered notices had a URL that differed from the bid's: encoded twice, for "
        "example, or with &amp;amp;.</p>"
    )


def _checklist(items: Sequence[dict[str, Any]] | None) -> Iterator[str]:
    yield "<h2>Go-live checklist</h2>"
    if items is None:
        yield "<p>It cannot be judged at the moment.</p>"
        return
    yield "<ol>"
    for item in items:
        state = item["state"]
        yield f'<li><b class="{_STATES[state]}">{state}</b> {escape(item["title"])}<ul>'
        yield from (f"<li>{escape(line)}" for line in item["evidence"])
        if item["fix"]:
            yield f"<li>To do: {escape(item['fix'])}"
        yield "</ul>"
    yield "</ol>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table; on a phone, each row is a list labelled with the columns' names."""
    yield "<table><thead><tr>"
    yield from (f"<th scope=col>{head}" for head in heads)
    yield "<tbody>"
    for row in rows:
        yield "<tr>"
        yield from (
            f'<td data-label="{escape(head)}">{cell}' for head, cell in zip(heads, row, strict=True)
        )
    yield "</table>"


def _bar(part: int, whole: int) -> str:
    share = part / whole if whole else 0
    return (
        f'<svg class=bar viewBox="0 0 100 8" aria-hidden="true"><rect width="{share * 100:.1f}" '
        f'height="8"/></svg> {share:.1%}'
    )


def _time(text: str) -> str:
    return f"{text[:10]} {text[11:16]} UTC"
