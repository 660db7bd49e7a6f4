"""What each rule says, for people: error messages and the page for partners (contract 7, rules)."""

from typing import Final

from snapbid.events.fields import MAX_TEXT

MAX_EVENTS: Final = 600
"""Events in a batch (document 3, Limits)."""

RULES: Final[dict[str, str]] = {
    "malformed_json": "is no JSON that can be read",
    "not_object": "must be a JSON object",
    "not_array": "must be a JSON array of events",
    "min_items": "must have at least one event",
    "max_items": f"must have at most {MAX_EVENTS} events",
    "max_size": "is too large",
    "required": "is required",
    "required_one_of": "must have client_user_id or anonymous_id",
    "required_with": "is required with the totals that are sent",
    "type": "has the wrong type",
    "empty": "must not be empty",
    "enum": "is not one of the listed values",
    "min": "is too small",
    "max": "is too large",
    "max_length": f"is longer than {MAX_TEXT} characters",
    "not_integer": "must have no fraction",
    "out_of_range": "is not a number that can be kept",
    "not_milliseconds": "must be epoch milliseconds, 13 digits",
    "timestamp_in_future": "lies more than an hour ahead",
    "ip_address": "must be an IPv4 or IPv6 address",
    "sha256_hex": "must be a SHA-256 of 64 hexadecimal digits",
    "empty_hash": "is the hash of nothing",
    "plaintext_pii": "must not be sent in plain text",
    "currency": "must be an ISO 4217 code, or a symbol with is_crypto",
    "country_code": "must be an ISO 3166-1 country code",
    "calling_code": "must be an E.164 country calling code",
    "unknown_event": "is no event of the catalog",
    "event_disabled": "is not enabled for this product",
}

WARNINGS: Final[dict[str, str]] = {
    "suggested_missing": "should be sent",
    "deprecated_value": "is accepted, but will not be for ever",
    "unknown_field": "is no field of this event",
    "out_of_order": "came before the event that it follows",
    "reference_missing": "refers to an event that has not come",
    "currency_mismatch": "differs from the event that it refers to",
    "value_mismatch": "differs from the event that it refers to",
    "exceeds_max": "is above the maximum that was offered",
    "rate_missing": "has no exchange rate on that day",
}


def sentence(field: str, rule: str, others: int) -> str:
    """What is wrong first, and how much else. Quotes no value."""
    more = "" if not others else f", and {others} more violation{'s' if others > 1 else ''}"
    return f"{field} {RULES[rule]}{more}"
