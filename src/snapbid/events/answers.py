"""Answers of the event endpoints (document 3, Responses and Error body; contract 7).

Each answer comes with the code under which the metric counts the request: `accepted` (202), `valid`
(200, test mode) or the error's code. A 429 has only `{"error": …}`; every other error is
`{code, message, violations}`.
"""

from collections.abc import Generator, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from snapbid.base.errors import Problem
from snapbid.base.http import Answer, answer, body_message, json_answer
from snapbid.events.attribution import Conversion, Counting
from snapbid.events.enrich import MICROS, Enriched, Enricher
from snapbid.events.outcomes import ID_LENGTH, AcceptedEvent, BatchResult, SingleResult
from snapbid.events.rulebook import (
    BODY,
    VALIDATION_ERROR,
    FieldFinding,
    RefusedRequest,
    findings_of,
)

CodedAnswer: TypeAlias = tuple[Answer, str]
"""An answer and the code under which it is counted."""

RETRY_S: Final = 1  # by then an unavailable store is likely to be back

RATE_EXCEEDED: Final = "RATE_EXCEEDED"  # only counted: the body of a 429 has no code
INTERNAL_ERROR: Final = "INTERNAL_ERROR"
PROBLEM_CODES: Final = {
    401: "UNAUTHORIZED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "REQUEST_TIMEOUT",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    503: "UNAVAILABLE",
}
"""Error code for each HTTP status of a problem; any other is `INTERNAL_ERROR`."""

_ACCEPTED: Final = "accepted"
_VALID: Final = "valid"
_EVENT_BODY: Final = b'{"status":"accepted","eventId":"%b"}'
_EVENT_START: Final = answer(202, _EVENT_BODY % bytes(ID_LENGTH)).start
_LENIENT: Final = (b"preference-applied", b"handling=lenient")


class EnrichedEvent(NamedTuple):
    """An event sent in test mode, decoded and enriched."""

    event: AcceptedEvent
    document: dict[str, Any]
    enriched: Enriched


class UnknownApiKey(Problem):
    """401: the key is missing, or was not issued."""

    status: ClassVar[int] = 401

    def __init__(self) -> None:
        detail = "X-API-KEY must be a valid key"
        super().__init__(detail, ((b"www-authenticate", b"ApiKey"),))


class RateExceeded(Problem):
    """429: the key's limit is reached; `Retry-After` says when to retry."""

    status: ClassVar[int] = 429

    def __init__(self, limit: int, what: str, wait_s: int) -> None:
        detail = f"more than {limit} {what} with this key in a minute; retry after {wait_s} seconds"
        super().__init__(detail, ((b"retry-after", b"%d" % wait_s),))


class EventsUnavailable(Problem):
    """503: events cannot be accepted now."""

    status: ClassVar[int] = 503

    def __init__(self) -> None:
        detail = "events cannot be accepted now; send them again after a short delay"
        super().__init__(detail, ((b"retry-after", b"%d" % RETRY_S),))


def accepted(event: AcceptedEvent) -> CodedAnswer:
    """Answer 202 to an accepted event."""
    return Answer(_EVENT_START, body_message(_EVENT_BODY % event.event_id.encode())), _ACCEPTED


def accepted_batch(batch: BatchResult, request_id: str, *, lenient: bool) -> CodedAnswer:
    """Answer 202 to a batch; with lenient handling, list the rejected events."""
    document: dict[str, Any] = {
        "status": "accepted",
        "requestId": request_id,
        "count": len(batch.accepted),
    }
    if not lenient:
        return json_answer(202, document), _ACCEPTED
    document |= {"rejected": len(batch.rejected), "errors": batch.rejected}
    return json_answer(202, document, _LENIENT), _ACCEPTED


def enrich(event: AcceptedEvent, enricher: Enricher) -> EnrichedEvent:
    """Enrich an event for test mode."""
    document = event.document
    return EnrichedEvent(event, document, enricher.enrich(document))


def enrich_batch(
    batch: BatchResult, enricher: Enricher
) -> Generator[None, None, list[EnrichedEvent]]:
    """Compute the amounts and warnings of a batch's accepted events; yields after each event."""
    found = []
    for event in batch.accepted:
        document = event.document
        for source in ("ip_address", "user_agent"):  # not needed for either
            document["context"].pop(source, None)
        found.append(EnrichedEvent(event, document, enricher.enrich(document)))
        yield
    return found


def tested(result: SingleResult, found: EnrichedEvent, counting: Counting) -> CodedAnswer:
    """Answer 200 to a valid event in test mode, with its stored form and its conversion, if any."""
    answer = {
        "status": "valid",
        "event": found.document | {"enrichment": found.enriched.document},
        **({} if counting.conversion is None else {"conversion": _shown(counting.conversion)}),
        "warnings": result.warnings + _warnings(found, counting),
    }
    return json_answer(200, answer), _VALID


def tested_batch(
    batch: BatchResult, events: Sequence[EnrichedEvent], countings: Sequence[Counting]
) -> CodedAnswer:
    """Answer 200 to a batch in test mode, even if every event is rejected."""
    warnings, conversions = list(batch.warnings), []
    for index, found, counting in zip(batch.positions, events, countings, strict=True):
        warnings.extend(_warnings(found, counting, index))
        if counting.conversion is not None:
            conversions.append({"index": index, **_shown(counting.conversion)})
    warnings.sort(key=_position)
    answer = {
        "status": "invalid" if batch.rejected else "valid",
        "successCount": len(batch.accepted),
        "failureCount": len(batch.rejected),
        "errors": batch.rejected,
        **({"conversions": conversions} if conversions else {}),
        "warnings": warnings,
    }
    return json_answer(200, answer), _VALID


def refused(refusal: RefusedRequest, *headers: tuple[bytes, bytes]) -> CodedAnswer:
    """Answer a request whose body or headers break a rule."""
    return json_answer(refusal.status, refusal, *headers), refusal.code


def failed(problem: Problem) -> CodedAnswer:
    """Build the error answer for a problem, in the format of document 3."""
    headers = tuple(problem.headers)
    if problem.status == 429:
        return json_answer(429, {"error": problem.detail}, *headers), RATE_EXCEEDED
    if problem.status == 400:  # the body could not be read at all: truncated, or wrongly encoded
        violations = [FieldFinding(BODY, "malformed_json", None)]
        message = f"the body cannot be read: {problem.detail}"
        return refused(RefusedRequest(VALIDATION_ERROR, message, violations), *headers)
    code = PROBLEM_CODES.get(problem.status, INTERNAL_ERROR)
    document = {
        "code": code,
        "message": problem.detail,
        "violations": [FieldFinding(BODY, "max_size", None)] if problem.status == 413 else [],
    }
    return json_answer(problem.status, document, *headers), code


def _warnings(
    found: EnrichedEvent, counting: Counting, index: int | None = None
) -> list[FieldFinding]:
    """Return the warnings about an event's amounts and click id."""
    flagged = [("identity.click_id", counting.flag)] if counting.flag else []
    return findings_of(found.event.event, [*found.enriched.warnings, *flagged], index)


def _shown(conversion: Conversion) -> dict[str, Any]:
    key, added = conversion
    return {
        "day": key.day,
        "campaign": key.campaign,
        "creative": key.creative,
        "descriptor": key.descriptor,
        "value_usd": None if added.unvalued else added.value_micros / MICROS,
        "first_deposit": bool(added.first_deposits),
    }


def _position(warning: FieldFinding) -> int:
    return warning.index if isinstance(warning.index, int) else -1
