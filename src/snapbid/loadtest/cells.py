"""Renders numbers and tables of the load test's pages as HTML."""

from collections.abc import Iterable, Sequence
from html import escape


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
