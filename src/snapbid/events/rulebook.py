"""Rules, warnings and error codes, and refusals of requests that break a rule.

Every error about an event has its code, status and wording here; none quotes a partner's value.
(Document 3, Error body; contract 7.)
"""

from collections.abc import Iterable
from functools import cache
from typing import Final

import msgspec
from msgspec import Struct

from snapbid.events.catalog import EVENTS
from snapbid.events.fields import JSON_TYPES, MAX_TEXT, Field

MAX_EVENTS: Final = 600
"""The limit of events in a batch (document 3, Limits)."""

BODY: Final = "body"
"""The `field` of a violation that concerns the whole body."""

RULES: Final[dict[str, str]] = {
    "malformed_json": "cannot be read as JSON",
    "not_object": "must be a JSON object",
    "not_array": "must be a JSON array of events",
    "min_items": "must have at least one event",
    "max_items": f"must have at most {MAX_EVENTS} events",
    "max_size": "is too large",
    "required": "is required",
    "required_one_of": "must have client_user_id or anonymous_id",
    "required_with": "is required when a total is sent",
    "type": "has the wrong type",
    "empty": "must not be empty",
    "enum": "is not one of the listed values",
    "min": "must be at least 0",
    "max": "is too large",
    "max_length": f"is longer than {MAX_TEXT} characters",
    "not_integer": "must have no fraction",
    "out_of_range": "is out of the range of a double",
    "not_milliseconds": "must be epoch milliseconds, 13 digits",
    "timestamp_in_future": "is more than an hour in the future",
    "ip_address": "must be an IPv4 or IPv6 address",
    "sha256_hex": "must be a SHA-256 of 64 hexadecimal digits",
    "empty_hash": "is the hash of an empty string",
    "plaintext_pii": "must not be sent in plain text",
    "currency": "must be an ISO 4217 code, or a symbol with is_crypto",
    "country_code": "must be an ISO 3166-1 country code",
    "calling_code": "must be an E.164 country calling code",
    "unknown_event": "is not an event of the catalog",
    "event_disabled": "is not enabled for this product",
}
"""Rule -> its wording on the partners' page, and in messages unless `_wording` says more."""

WARNINGS: Final[dict[str, str]] = {
    "suggested_missing": "should be sent",
    "deprecated_value": "is deprecated, though still accepted",
    "unknown_field": "is not a field of this event",
    "out_of_order": "arrived before the event that it follows (stored events only)",
    "reference_missing": "refers to an event that has not arrived (stored events only)",
    "currency_mismatch": "differs from the event that it refers to (stored events only)",
    "value_mismatch": "contradicts another field, or the event that it refers to",
    "exceeds_max": "is above the maximum that was offered (stored events only)",
    "rate_missing": "has no exchange rate for that day",
    "click_invalid": "is not a click id of this service",
    "click_expired": "belongs to a click too long ago to count",
    "click_later": "belongs to a click after the event",
}

AHEAD_MS: Final = 3_600_000
"""How far ahead an event may be dated, since clocks differ."""

VALIDATION_ERROR: Final = "VALIDATION_ERROR"
UNKNOWN_EVENT_TYPE: Final = "UNKNOWN_EVENT_TYPE"
EVENT_DISABLED: Final = "EVENT_DISABLED"
BATCH_TOO_LARGE: Final = "BATCH_TOO_LARGE"

STATUSES: Final = {
    VALIDATION_ERROR: 400,
    BATCH_TOO_LARGE: 400,
    UNKNOWN_EVENT_TYPE: 422,
    EVENT_DISABLED: 422,
}
"""HTTP status for each error code of a refusal."""


class FieldFinding(Struct, frozen=True, gc=False, omit_defaults=True):
    """A violation or a warning: the field's path, the rule, and the event's name if known.

    In a batch, `index` is the event's position, and `field` starts with it: `[3].context.amount`.
    """

    field: str
    rule: str
    event: str | None
    index: int | msgspec.UnsetType = msgspec.UNSET


class RejectedEvent(Struct, frozen=True):
    """A rejected event of a batch: its position, error code, name if known, and violations."""

    index: int
    code: str
    event: str | None
    violations: list[FieldFinding]


class RefusedRequest(Struct, frozen=True):
    """The error body of a refused request, sent with the HTTP status `STATUSES[code]`."""

    code: str
    message: str
    violations: list[FieldFinding]

    @property
    def status(self) -> int:
        return STATUSES[self.code]


def findings_of(
    event: str | None, broken: Iterable[tuple[str, str]], index: int | None = None
) -> list[FieldFinding]:
    """Convert pairs of field and rule to findings; `index`: the event's position in a batch."""
    if index is None:
        return [FieldFinding(field or BODY, rule, event) for field, rule in broken]
    prefix = f"[{index}]"
    return [
        FieldFinding(f"{prefix}.{field}" if field else prefix, rule, event, index)
        for field, rule in broken
    ]


def code_of(violations: list[FieldFinding]) -> str:
    """Choose the error code by precedence: invalid fields, unknown event, disabled event."""
    rules = {violation.rule for violation in violations}
    if rules - {"unknown_event", "event_disabled"}:
        return VALIDATION_ERROR
    return UNKNOWN_EVENT_TYPE if "unknown_event" in rules else EVENT_DISABLED


def refuse(violations: list[FieldFinding]) -> RefusedRequest:
    """Build the refusal for these violations; its message names the first one."""
    first, others = violations[0], len(violations) - 1
    more = "" if not others else f", and {others} more violation{'s' if others > 1 else ''}"
    message = f"{first.field} {_wording(first)}{more}"
    return RefusedRequest(code_of(violations), message, violations)


def refuse_body(code: str, rule: str, reason: str = "", index: int | None = None) -> RefusedRequest:
    """Build the refusal of a whole body; `index`: the position of the event that caused it."""
    message = f"{BODY} {RULES[rule]}" + (f": {reason}" if reason else "")
    if index is None:
        return RefusedRequest(code, message, [FieldFinding(BODY, rule, None)])
    finding = FieldFinding(BODY, rule, None, index)
    return RefusedRequest(code, f"{message}, in event [{index}]", [finding])


def _wording(violation: FieldFinding) -> str:
    """Describe a violation; for a wrong type or an unlisted value, say what the field must be."""
    path = violation.field.removeprefix(f"[{violation.index}].")
    if violation.rule == "enum":
        return f"must be one of {', '.join(_fields_of(violation.event)[path].values)}"
    if violation.rule == "type":
        return f"must be {_TYPES[_json_type(path, violation.event)]}"
    return RULES[violation.rule]


_TYPES: Final = {
    "string": "a string",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
}


def _json_type(path: str, event: str | None) -> str:
    """Return the JSON type that a field must have; a field outside the catalog is a string."""
    fields = _fields_of(event)
    if path in fields:
        return JSON_TYPES[fields[path].kind]
    if path in {"identity", "context", *(field.parent for field in fields.values())}:
        return "object"
    return "number" if path == "timestamp" else "string"


@cache
def _fields_of(event: str | None) -> dict[str, Field]:
    """Return an event's fields by path; empty for None, an event outside the catalog."""
    if event is None:
        return {}
    found = EVENTS[event]
    return {field.path: field for field in (*found.identity_fields(), *found.context_fields())}
