"""Reads the bodies of both endpoints (contract 7): returns accepted events, or every violation.

An event is read field by field (`examine`), unless the fast path takes it (`fast`). Results do not
depend on HTTP: each is a `RefusedRequest` or has a type defined in `outcomes`.
"""

from collections.abc import Generator
from typing import TypeAlias

from msgspec import Raw

from snapbid.events import fast
from snapbid.events.examine import TOO_LARGE, Examination
from snapbid.events.fields import CORE
from snapbid.events.outcomes import AcceptedEvent, BatchResult, Product, SingleResult
from snapbid.events.rulebook import (
    AHEAD_MS,
    BATCH_TOO_LARGE,
    MAX_EVENTS,
    VALIDATION_ERROR,
    RefusedRequest,
    RejectedEvent,
    code_of,
    findings_of,
    refuse,
    refuse_body,
)
from snapbid.events.strict_json import (
    ESCAPE,
    MARK,
    SUSPECT,
    Malformed,
    NotArray,
    TooMany,
    check_utf8,
    decode_strictly,
    elements,
    is_large,
    is_long,
    locate,
)

Steps: TypeAlias = Generator[None, None, BatchResult | RefusedRequest]


class _EventReader:
    """Reads the events of one request; `body`: the body without its byte order mark."""

    _skipped = 0  # bytes before it

    def __init__(self, body: bytes, product: Product, now_ms: int, *, test: bool) -> None:
        """Prepare to read the events of a body. Raises Malformed."""
        presets = product.presets
        self._presets = presets if CORE in presets else presets | {CORE}
        self.product = product.name.encode()
        self._latest_ms = now_ms + AHEAD_MS
        self._decode = fast.decoder_for(self._presets)
        # Test mode reports warnings, which only the examination finds.
        self._examine_all = test
        check_utf8(body)
        if body.startswith(MARK):
            body, self._skipped = body[len(MARK) :], len(MARK)
        self.body = body
        self._has_escapes = ESCAPE in body

    def read(self, raw: bytes | Raw) -> AcceptedEvent | Examination:
        """Read one event, examining it only if the fast path does not take it.

        Raises Malformed.
        """
        text = bytes(raw)
        if not self._examine_all and not (self._has_escapes and SUSPECT.search(text)):
            event = fast.read(text, self._decode, self.product, self._latest_ms)
            if event is not None:
                return event
        document = TOO_LARGE if is_large(text) else decode_strictly(text, self._skipped)
        return Examination(document, self._presets, self._latest_ms)


def read_single(
    body: bytes, product: Product, now_ms: int, *, test: bool = False
) -> SingleResult | RefusedRequest:
    """Read a single envelope; `test` only adds warnings to the result."""
    if is_long(body):
        return refuse(findings_of(None, [("", "max_size")]))
    try:
        reader = _EventReader(body, product, now_ms, test=test)
        event = reader.read(reader.body)
    except Malformed as reason:
        return _malformed(reason)
    if isinstance(event, AcceptedEvent):
        return SingleResult(event, [])
    if event.violations:
        return refuse(findings_of(event.name, event.violations))
    warnings = findings_of(event.name, event.warnings) if test else []
    return SingleResult(event.accept(reader.product), warnings)


def batch_steps(
    body: bytes, product: Product, now_ms: int, *, lenient: bool = False, test: bool = False
) -> Steps:
    """Read an array of 1 to 600 envelopes; a violation in any of them refuses them all.

    With `lenient` or `test`, only the events with violations are rejected; `test` adds warnings. A
    body that is not such an array is always refused. Yields before each event so that other tasks
    can run. Raises Malformed for a malformed body or event; pass it to `refuse_malformed`.
    """
    try:
        batch = yield from _read_all(body, product, now_ms, test=test)
    except NotArray:
        return refuse_body(VALIDATION_ERROR, "not_array")
    except TooMany:
        return refuse_body(BATCH_TOO_LARGE, "max_items")
    if not batch.accepted and not batch.rejected:
        return refuse_body(VALIDATION_ERROR, "min_items")
    if batch.rejected and not lenient and not test:
        return refuse([violation for event in batch.rejected for violation in event.violations])
    return batch


def _read_all(
    body: bytes, product: Product, now_ms: int, *, test: bool
) -> Generator[None, None, BatchResult]:
    reader = _EventReader(body, product, now_ms, test=test)
    yield
    batch = BatchResult([], [], [], [])
    for index, raw in enumerate(elements(reader.body, MAX_EVENTS)):
        yield
        event = reader.read(raw)
        if not isinstance(event, AcceptedEvent):
            if test:
                batch.warnings.extend(findings_of(event.name, event.warnings, index))
            if event.violations:
                violations = findings_of(event.name, event.violations, index)
                batch.rejected.append(
                    RejectedEvent(index, code_of(violations), event.name, violations)
                )
                continue
            event = event.accept(reader.product)
        batch.accepted.append(event)
        batch.positions.append(index)
    return batch


def refuse_malformed(body: bytes, reason: Malformed) -> RefusedRequest:
    """Build the refusal of a malformed batch, with the position of the error where known."""
    text = body.removeprefix(MARK)
    return _malformed(locate(text, len(body) - len(text)) or reason)


def _malformed(reason: Malformed) -> RefusedRequest:
    return refuse_body(VALIDATION_ERROR, "malformed_json", str(reason), reason.index)
