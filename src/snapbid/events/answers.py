"""What is sent back (document 3, Responses and Error body; contract 7, test mode and batch)."""

from typing import Any

from snapbid.events.outcomes import Accepted, Batch, Failed, Finding, Refusal


def refused(refusal: Refusal) -> dict[str, Any]:
    """The error body."""
    return {
        "code": refusal.code,
        "message": refusal.message,
        "violations": refusal.violations,
    }


def accepted(event: Accepted) -> dict[str, Any]:
    """202 of a single event."""
    return {"status": "accepted", "eventId": event.event_id}


def accepted_batch(batch: Batch, request_id: str, *, lenient: bool) -> dict[str, Any]:
    """202 of a batch; where it was asked for leniently, with what was not accepted."""
    answer: dict[str, Any] = {
        "status": "accepted",
        "requestId": request_id,
        "count": len(batch.accepted),
    }
    if lenient:
        answer |= {"rejected": len(batch.failed), "errors": _errors(batch.failed)}
    return answer


def tested(
    event: Accepted, enrichment: dict[str, Any], warnings: list[Finding]
) -> dict[str, Any]:  # fmt: skip
    """200 of a single event in test mode."""
    echoed = event.document | {"enrichment": enrichment}
    return {"status": "valid", "event": echoed, "warnings": warnings}


def tested_batch(batch: Batch, warnings: list[Finding]) -> dict[str, Any]:
    """200 of a batch in test mode, also when every event fails."""
    return {
        "status": "invalid" if batch.failed else "valid",
        "successCount": len(batch.accepted),
        "failureCount": len(batch.failed),
        "errors": _errors(batch.failed),
        "warnings": warnings,
    }


def _errors(failed: list[Failed]) -> list[dict[str, Any]]:
    return [
        {
            "index": one.index,
            "code": one.code,
            "event": one.event,
            "violations": one.violations,
        }
        for one in failed
    ]
