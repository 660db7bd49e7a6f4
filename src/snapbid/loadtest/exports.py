"""Exports a result for other tools: JUnit XML for pipelines, Prometheus text for dashboards."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from snapbid.loadtest.reports import DIFFERENT, NOT_DONE
from snapbid.loadtest.result import LoadResult, PhaseResult

if TYPE_CHECKING:
    from prometheus_client import Metric

NO_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
RUN: Final = "run"  # the class of cases that belong to no phase
PHASE_GAUGES: Final[tuple[tuple[str, str, Callable[[PhaseResult], float]], ...]] = (
    ("rate", "Requests offered per second.", lambda phase: phase.rate),
    ("completed_rate", "Answers within the phase per second.", lambda phase: phase.completed_per_s),
    ("errors_share", "Share without a valid answer in time.", lambda p: p.error_percent / 100),
    ("bids_share", "Share of bids among valid answers.", lambda p: p.bid_percent / 100),
)


def junit(result: LoadResult) -> bytes:
    """Render a test suite that fails if the run failed.

    It has a case for each objective in each measured phase, one each for the reconciliation and the
    verdict, and one each for notices and events if any were sent. If the run passed, missed
    objectives count as skipped, since a capacity search may miss them.
    """
    suite = Element("testsuite", name="snapbid load", hostname=result.target, errors="0")
    suite.set("timestamp", result.started.removesuffix(" UTC").replace(" ", "T"))
    suite.set("time", f"{sum(phase.seconds for phase in result.phases):g}")
    properties = SubElement(suite, "properties")
    settings = {"version": result.version, "seed": f"{result.seed}", **result.settings}
    for name, value in settings.items():
        SubElement(properties, "property", name=name, value=value)
    for phase, name, why, tag in _cases(result):
        case = SubElement(suite, "testcase", classname=phase, name=name)
        if why:
            SubElement(case, tag, message=why)
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
        suite.set(name, f"{len(list(suite.iter(tag)))}")
    for element in suite.iter():
        for name, value in element.items():
            element.set(name, NO_XML.sub("\N{REPLACEMENT CHARACTER}", value))
    ElementTree.indent(suite)
    text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _cases(result: LoadResult) -> Iterator[tuple[str, str, str, str]]:
    """Yield test cases: phase, name, problem ("" if none), and the XML tag for a problem."""
    tag = "skipped" if result.verdict.ok else "failure"
    for each in result.objectives:
        yield each.phase, each.objective, "" if each.met else f"found {each.value:g}", tag
    notices, events, outcome = result.notices, result.events, result.reconciliation
    if notices.fired:
        failed = sum(notices.failed.values())
        yield RUN, "notices", f"{failed} failed: {notices.example}" if failed else "", "failure"
    if events is not None:
        why = f"{events.failed} batches failed: {events.example}" if events.failed else ""
        yield RUN, "events", why, "failure"
    if outcome.status == NOT_DONE:
        yield RUN, "reconciliation", outcome.detail, "skipped"
    else:
        yield RUN, "reconciliation", outcome.detail if outcome.status == DIFFERENT else "", tag
    yield RUN, "verdict", result.verdict.reason, tag


def prometheus(result: LoadResult) -> bytes:
    """Render a result as gauges in Prometheus' format, for a textfile collector or push gateway."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Once(Collector):
        def collect(self) -> "Iterator[Metric]":
            return _metrics(result)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    return generate_latest(registry)


def _metrics(result: LoadResult) -> "Iterator[Metric]":
    yield _gauge("passed", "Whether the run passed.", (), [((), result.verdict.ok)])
    if result.capacity is not None:
        text = "Requests per second that met the objectives."
        yield _gauge("capacity", text, (), [((), result.capacity)])
    phases = [phase for phase in result.phases if phase.measured]
    for name, text, value in PHASE_GAUGES:
        rows = [((phase.name,), value(phase)) for phase in phases]
        yield _gauge(name, text, ("phase",), rows)
    kinds = [((p.name, kind), count) for p in phases for kind, count in p.kinds.items()]
    yield _gauge("requests", "Offered requests, by how they ended.", ("phase", "kind"), kinds)
    text = "Latency from the scheduled time, by percentile."
    times = [((p.name, q), ms / 1e3) for p in phases for q, ms in p.latency_ms.items()]
    yield _gauge("latency_seconds", text, ("phase", "percentile"), times)
    fired, failed = result.notices.fired, result.notices.failed
    yield _gauge("notices", "Notices.", ("kind",), [((kind,), n) for kind, n in fired.items()])
    rows = [((kind,), failed.get(kind, 0)) for kind in fired]
    yield _gauge("notices_failed", "Notices that failed.", ("kind",), rows)
    if (events := result.events) is not None:
        yield _gauge("event_batches", "Event batches.", (), [((), events.batches)])
        yield _gauge("event_batches_failed", "Batches that failed.", (), [((), events.failed)])
        yield _gauge("events_accepted", "Accepted events.", (), [((), events.events_accepted)])
    text = "Figures of the reconciliation: the client's account and the report's growth."
    sides = [
        ((row.ssp, row.what, side), count)
        for row in result.reconciliation.rows
        for side, count in (("sent", row.sent), ("reported", row.reported))
    ]
    yield _gauge("reconciled", text, ("ssp", "figure", "side"), sides)


def _gauge(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]
) -> "Metric":
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"snapbid_load_{name}", text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family
