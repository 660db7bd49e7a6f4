"""The load test's result as JUnit XML and as Prometheus text."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.load_results import phase, result

from snapbid.cli import console, load
from snapbid.loadtest.exports import junit, prometheus
from snapbid.loadtest.options import OptionError
from snapbid.loadtest.result import LoadResult
from snapbid.loadtest.run import judge

MISSED = {"objective": "p99=5ms", "found": 9.5, "met": False, "phase": "load"}
MET = {"objective": "errors=0.1%", "found": 0.0, "met": True, "phase": "load"}
NOTICES = {
    "fired": {"win": 5, "loss": 2}, "failed": {"win": 1}, "latency_ms": {"p99": 1.0},
    "example": "status 500", "elsewhere": "",
}  # fmt: skip
EVENTS = {
    "batches": 3, "events_accepted": 20, "failed": 1, "latency_ms": {"p99": 1.0},
    "example": "status 429: \x00",
}  # fmt: skip
ROW = {
    "ssp": "acme", "what": "bids", "sent": 160, "reported": 150, "unanswered": 0, "agrees": False,
}  # fmt: skip
DIFFERENT = {"status": "different", "rows": [ROW], "detail": "acme bids: 160 sent, 150 reported"}
EXACT = {"status": "exact", "rows": [ROW | {"reported": 160, "agrees": True}], "detail": "equal"}
FAILED = {"ok": False, "reason": "objective missed"}


def loaded(**more: Any) -> LoadResult:
    warm = phase("warm-up", 99.0, measured=False)
    return msgspec.convert(result(warm, phase("load", 9.5), **more), LoadResult)


def suite(**more: Any) -> ElementTree.Element:
    return ElementTree.fromstring(junit(loaded(**more)))


def outcomes(element: ElementTree.Element) -> dict[str, tuple[str, str]]:
    """The outcome and message by case: `passed`, `failure` or `skipped`."""
    found = {}
    for case in element.iter("testcase"):
        children = list(case)
        tag, message = (
            (children[0].tag, children[0].get("message", "")) if children else ("passed", "")
        )
        found[f"{case.get('classname')}: {case.get('name')}"] = tag, message
    return found


def test_no_name_makes_a_suite_malformed() -> None:
    named = {**MISSED, "phase": "a\x01b", "objective": "bid-rate=9% (90% of a\x01b's)"}
    element = suite(objectives=[named], settings={"traffic": "replay of \udc80.jsonl"})
    assert "a\ufffdb: bid-rate=9% (90% of a\ufffdb's)" in outcomes(element)
    (traffic,) = element.findall("properties/property[@name='traffic']")
    assert traffic.get("value") == "replay of \ufffd.jsonl"


def test_suite_of_a_failed_run() -> None:
    element = suite(
        objectives=[MISSED, MET], notices=NOTICES, events=EVENTS, reconciliation=DIFFERENT,
        verdict=FAILED,
    )  # fmt: skip
    assert outcomes(element) == {
        "load: p99=5ms": ("failure", "found 9.5"),
        "load: errors=0.1%": ("passed", ""),
        "run: notices": ("failure", "1 failed: status 500"),
        "run: events": ("failure", "1 batches failed: status 429: \ufffd"),
        "run: reconciliation": ("failure", DIFFERENT["detail"]),
        "run: verdict": ("failure", "objective missed"),
    }
    assert {name: element.get(name) for name in ("tests", "failures", "skipped", "errors")} == {
        "tests": "6", "failures": "5", "skipped": "0", "errors": "0",
    }  # fmt: skip
    assert element.get("time") == "4"
    assert element.get("timestamp") == "2026-01-01T00:00:00"
    (connections,) = element.findall("properties/property[@name='connections']")
    assert connections.get("value") == "64"


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"objectives": [MISSED], "capacity": 800.0},
        {"notices": NOTICES, "capacity": 800.0, "verdict": FAILED},
        {"events": EVENTS, "capacity": 800.0, "verdict": FAILED},
        {"objectives": [MISSED], "verdict": FAILED},
        {"reconciliation": EXACT},
        {"reconciliation": DIFFERENT, "verdict": FAILED},
        {"verdict": {"ok": False, "reason": "interrupted"}},
    ],
)
def test_a_suite_fails_if_the_run_did(more: dict[str, Any]) -> None:
    element = suite(**more)
    failed = "failure" in {tag for tag, _ in outcomes(element).values()}
    assert failed == (not loaded(**more).verdict.ok)
    assert failed == (element.get("failures") != "0")


def test_objectives_a_capacity_search_may_miss_are_skipped() -> None:
    element = suite(objectives=[MISSED], capacity=800.0)
    assert outcomes(element)["load: p99=5ms"] == ("skipped", "found 9.5")
    assert outcomes(element)["run: verdict"] == ("passed", "")


@pytest.mark.parametrize("failed", [{"notices": NOTICES}, {"events": EVENTS}])
@pytest.mark.parametrize("capacity", [None, 800.0])
def test_notices_and_events_that_failed_fail_the_run(
    failed: dict[str, Any], capacity: float | None
) -> None:
    run = loaded(**failed, capacity=capacity, reconciliation=EXACT)
    verdict = judge(
        run.phases, capacity, run.notices, run.events, run.reconciliation, ended_early=""
    )
    (name,) = failed
    assert not verdict.ok
    assert "1 " in verdict.reason
    assert failed[name]["example"] in verdict.reason
    assert outcomes(suite(**failed, capacity=capacity))[f"run: {name}"][0] == "failure"


def test_every_file_is_tried_and_each_failure_named(tmp_path: Path) -> None:
    """An earlier file of metrics is whole until it is replaced."""
    lost, metrics = tmp_path / "lost", tmp_path / "load.prom"
    metrics.write_text("earlier")
    before = metrics.open()
    files = {"json_file": lost / "a", "html_file": None, "junit_file": lost / "b"}
    with pytest.raises(console.Refused) as refused:
        load._write(loaded(), {**files, "metrics_file": metrics})
    assert refused.value.message.splitlines() == [
        f"snapbid load: {lost / name}: No such file or directory" for name in ("a", "b")
    ]
    assert "snapbid_load_passed 1.0" in metrics.read_text()
    assert before.read() == "earlier"
    before.close()
    assert list(tmp_path.iterdir()) == [metrics]


def test_directories_that_refuse_new_files_are_named_before_the_run(tmp_path: Path) -> None:
    load._check_files(None, tmp_path / "a", Path("/dev/null"))
    with pytest.raises(OptionError, match="/proc/a cannot be written: its directory refuses"):
        load._check_files(tmp_path / "a", Path("/proc/a"))
    assert not list(tmp_path.iterdir())


def samples(**more: Any) -> dict[tuple[str, ...], float]:
    """The values by name, without its prefix, and labels in the order of their names."""
    text = prometheus(loaded(**more)).decode()
    return {
        (
            each.name.removeprefix("snapbid_load_"),
            *(each.labels[label] for label in sorted(each.labels)),
        ): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_metrics_of_a_run() -> None:
    found = samples(
        notices=NOTICES, events=EVENTS, reconciliation=DIFFERENT, verdict=FAILED, capacity=800.0
    )
    assert found[("passed",)] == 0
    assert found[("capacity",)] == 800
    assert found["rate", "load"] == found["completed_rate", "load"] == 100
    assert found["requests", "bid", "load"] == 160
    assert found["requests", "no bid", "load"] == 40
    assert found["bids_share", "load"] == 0.8
    assert found["errors_share", "load"] == 0
    assert found["latency_seconds", "p99", "load"] == 0.0095
    assert found["notices", "win"] == 5
    assert found["notices_failed", "win"] == 1
    assert found["notices_failed", "loss"] == 0
    assert found[("event_batches",)] == 3
    assert found[("event_batches_failed",)] == 1
    assert found[("events_accepted",)] == 20
    assert found["reconciled", "bids", "sent", "acme"] == 160
    assert found["reconciled", "bids", "reported", "acme"] == 150
    assert not any("warm-up" in labels for labels in found)


def test_metrics_of_a_run_that_passed() -> None:
    found = samples()
    assert found[("passed",)] == 1
    assert ("capacity",) not in found
