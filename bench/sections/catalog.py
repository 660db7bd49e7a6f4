"""The section on large catalogs (`bench/catalog_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, table

TEXT: Final = """
## Large catalogs

Load: one process reads all campaigns from PostgreSQL and writes the base that the workers map, on
the same cores as PostgreSQL. Start: `snapbid serve` without a base, and again with the base of
the previous start, brought up to date with the warehouse. Change: from the commit of a campaign's
addition, pause, resumption or deletion to the first answer that differs, {changes} changes, one
worker. Swap: the longest time for which the event loop is blocked while a worker adopts a catalog
with {overlaid:,} changed campaigns, over {swaps} swaps, and over as many intervals of the same
length without a swap (quiet). Memory is the proportional set size of all workers together after
{touches:,} requests; the index is the base without the payloads of answers.
"""
OVERLAY: Final = """
The cost of an overlay for a call that finds the best campaign for a decoded request: processor
nanoseconds, medians, taken in turn.

"""
OVERLAY_HEADING: Final = (
    "campaigns",
    "ns, no overlay",
    "empty overlay",
    "1,000 changed",
)
FEW: Final = 100_000  # campaigns; larger runs are not compared


def render(result: dict[str, Any]) -> str:
    rows = [_row(f"{int(count):,}", own) for count, own in result["figures"].items()]
    heading = (
        "campaigns",
        "load s",
        "processor s",
        "peak MiB",
        "file MiB",
        "index bytes each",
        "change ms median / most",
        "swap ms median / most",
        "quiet ms",
        "start s / again",
        "1 worker MiB",
        "2 workers MiB",
    )
    page = TEXT.format(**result["method"]) + about(result) + table(heading, rows)
    overlaid = [
        _overlay_row(f"{int(count):,}", own)
        for count, own in result["figures"].items()
        if "overlay" in own
    ]
    return page + (OVERLAY + table(OVERLAY_HEADING, overlaid) if overlaid else "")


def _overlay_row(count: str, own: dict[str, Any]) -> tuple[str, ...]:
    calls = [f"{times['call_ns']['median']:,.0f}" for times in own["overlay"].values()]
    return count, *calls


def _row(count: str, own: dict[str, Any]) -> tuple[str, ...]:
    swap, quiet = (
        f"{own[kind]['median_ms']:.2f} / {own[kind]['most_ms']:.2f}" for kind in ("swap", "quiet")
    )
    return (
        count,
        f"{own['load_s']:.1f}",
        f"{own['processor_s']:.1f}",
        f"{own['peak_mib']:,}",
        f"{own['file_mib']:,}",
        f"{own['index_bytes_a_campaign']:.0f}",
        f"{own['change_ms']['median']:.0f} / {own['change_ms']['most']:.0f}",
        swap,
        quiet,
        f"{own['start_s_1']:.1f} / {own['start_s_2']:.1f}",
        f"{own['pss_mib_1']:.0f}",
        f"{own['pss_mib_2']:.0f}",
    )


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for count, own in result["figures"].items():
        if int(count) <= FEW:
            yield Figure(f"{count} campaigns, load processor s", own["processor_s"])
            yield Figure(f"{count} campaigns, index bytes each", own["index_bytes_a_campaign"])
            yield Figure(f"{count} campaigns, change ms", own["change_ms"]["median"])
