"""Cases of server events, each as a single event and within a batch, live and in test mode.

`support.event_cases` makes thousands from the catalog; those of `cases/events` are written by hand.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from support.event_cases import NOW_MS, apply, generate, to_json
from support.event_reading import PRESETS, read_batch

from snapbid.events.catalog import EVENTS
from snapbid.events.fields import Event
from snapbid.events.outcomes import BatchResult, Product, SingleResult
from snapbid.events.rulebook import FieldFinding, RefusedRequest
from snapbid.events.validate import read_single

CASES = Path(__file__).parent / "cases" / "events"
TRAPS = CASES / "traps.json"
PERSONAL = CASES / "personal.json"
LOGIN = (
    '{"event":"login","timestamp":1789000000000,"identity":{"client_user_id":"u"},'
    '"context":{"ip_address":"203.0.113.7"}}'
)


def plain(findings: list[FieldFinding]) -> list[dict[str, Any]]:
    return [
        {"field": finding.field, "rule": finding.rule, "event": finding.event}
        for finding in findings
    ]


def within(path: str, envelope: Any) -> Any:
    for part in path.split("."):
        envelope = envelope[part]
    return envelope


def exact(value: Any) -> str:
    """Tells 1 from 1.0 and from true."""
    return json.dumps(value, sort_keys=True)


def test_there_are_thousands_of_cases() -> None:
    assert sum(len(generate(event)[1]) for event in EVENTS.values()) > 5000


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: event.name)
def test_generated(event: Event) -> None:
    envelope, cases = generate(event)
    failed = [
        f"{case['case']}: {problem}" for case in cases for problem in problems(envelope, case)
    ]
    assert not failed, "\n".join(failed[:20])


def problems(envelope: dict[str, Any], case: dict[str, Any]) -> list[str]:
    """How the answers differ from what the case says."""
    body = to_json(apply(envelope, case))
    product = Product("demo", frozenset(case.get("presets", PRESETS)))
    deviations = []
    for test in (False, True):
        single = read_single(body.encode(), product, NOW_MS, test=test)
        deviations += _single(single, case, test=test)
    batch = f"[{LOGIN},{body}]".encode()
    deviations += _strict(read_batch(batch, product, NOW_MS), case)
    deviations += _lenient(read_batch(batch, product, NOW_MS, lenient=True), case)
    return deviations


def _single(read: SingleResult | RefusedRequest, case: dict[str, Any], *, test: bool) -> list[str]:
    expected = case.get("violations", [])
    if isinstance(read, RefusedRequest):
        if plain(read.violations) != expected or read.code != case.get("code"):
            return [f"test={test}: {read.code} {plain(read.violations)}"]
        return []
    if expected:
        return [f"test={test}: accepted"]
    deviations = []
    stored = json.loads(read.event.envelope)
    for path, value in case.get("stored", {}).items():
        wanted = json.loads(to_json(value))
        if exact(within(path, stored)) != exact(wanted):
            deviations.append(f"test={test}: stored {within(path, stored)!r}")
    if plain(read.warnings) != (case.get("warnings", []) if test else []):
        deviations.append(f"test={test}: warnings {plain(read.warnings)}")
    return deviations


def _moved(case: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        violation | {"field": f"[1].{violation['field']}"}
        for violation in case.get("violations", [])
    ]


def _strict(read: BatchResult | RefusedRequest, case: dict[str, Any]) -> list[str]:
    if isinstance(read, BatchResult):
        return ["batch: accepted"] if "violations" in case else []
    right = plain(read.violations) == _moved(case) and read.code == case.get("code")
    indexed = all(violation.index == 1 for violation in read.violations)
    return [] if right and indexed else [f"batch: {read.code} {read.violations}"]


def _lenient(read: BatchResult | RefusedRequest, case: dict[str, Any]) -> list[str]:
    if isinstance(read, RefusedRequest):
        return [f"lenient: {read.violations}"]
    if "violations" not in case:
        return (
            [] if read.positions == [0, 1] and not read.rejected else [f"lenient: {read.rejected}"]
        )
    if not read.rejected:
        return ["lenient: accepted"]
    failed = read.rejected[0]
    right = (
        read.positions == [0]
        and (failed.index, failed.code) == (1, case["code"])
        and plain(failed.violations) == _moved(case)
        and failed.event == case["violations"][0]["event"]
    )
    return [] if right else [f"lenient: {read.rejected}"]


def trap_cases() -> list[Any]:
    document = json.loads(TRAPS.read_text())
    return [pytest.param(case, id=case["case"]) for case in document["cases"]]


def trap_body(case: dict[str, Any]) -> bytes:
    """A trap's body: `body`, or the login event with `replace`, in `hex` where it is no text."""
    text = case.get("body", LOGIN)
    for old, new in case.get("replace", ()):
        assert old in text
        text = text.replace(old, new)
    for marker, times in case.get("repeat", {}).items():
        text = text.replace(f"<{marker}>", marker * times)
    body: bytes = text.encode()
    for marker, spelled in case.get("hex", {}).items():
        body = body.replace(marker.encode(), bytes.fromhex(spelled))
    return body


@pytest.mark.parametrize("case", trap_cases())
def test_trap(case: dict[str, Any]) -> None:
    product = Product("demo", frozenset(case.get("presets", PRESETS)))
    body = trap_body(case)
    reads: list[SingleResult | BatchResult | RefusedRequest] = []
    if case.get("batch"):
        reads += [
            read_batch(body, product, NOW_MS),
            read_batch(body, product, NOW_MS, lenient=True),
        ]
    else:
        reads += [read_single(body, product, NOW_MS, test=test) for test in (False, True)]
    for read in reads:
        if "violations" not in case:
            assert not isinstance(read, RefusedRequest), read.violations
            continue
        assert isinstance(read, RefusedRequest)
        violations = [[violation.field, violation.rule] for violation in read.violations]
        assert (read.code, violations) == (case.get("code", "VALIDATION_ERROR"), case["violations"])
        assert all(said in read.message for said in case.get("says", ())), read.message
        if "says" in case:
            assert [each.index for each in read.violations] == [case.get("index", UNSET)]
        for secret in case.get("secrets", ["secret"]):
            assert secret not in repr(read)


def personal_cases() -> list[Any]:
    document = json.loads(PERSONAL.read_text())
    return [pytest.param(case, id=case["case"]) for case in document["cases"]]


@pytest.mark.parametrize("case", personal_cases())
def test_personal_data_in_plain_text(case: dict[str, Any]) -> None:
    """Wherever it is in the context, and nothing else; `pii` has the places."""
    envelope = json.loads(LOGIN)
    name = envelope["event"] = case.get("event", "login")
    envelope["identity"] |= case.get("identity", {})
    envelope["context"] |= case["context"]
    body = json.dumps(envelope)
    if case.get("escaped"):
        body = body.replace("@", "\\u0040")
    expected = [
        {"field": path, "rule": "plaintext_pii", "event": name} for path in case.get("pii", ())
    ]
    product = Product("demo", frozenset(PRESETS))
    for test in (False, True):
        read = read_single(body.encode(), product, NOW_MS, test=test)
        assert (plain(read.violations) if isinstance(read, RefusedRequest) else []) == expected
        assert "secret" not in repr(read)
        assert not expected or "x@example.com" not in repr(read)
    batch = read_batch(f"[{LOGIN},{body}]".encode(), product, NOW_MS, lenient=True)
    assert isinstance(batch, BatchResult)
    assert len(batch.accepted) == 2 - bool(expected)
