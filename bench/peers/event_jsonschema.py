"""Checks events with `jsonschema`: a schema for each event, picked by name, all errors at once.

Rules that a schema cannot express (the hash of an empty text, one of two user ids for unknown
events, duplicate keys) are left out, and nothing is normalised, so it does less than the product.
"""

import json
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator

from snapbid.events.catalog import EVENTS
from snapbid.events.fields import JSON_TYPES, MAX_MS, MAX_TEXT, MIN_MS, Event, Field, Kind, Level
from snapbid.reference import calling_codes, countries, currencies

Schema = dict[str, Any]

_CODES: Final = {
    Kind.COUNTRY: sorted(countries.ALPHA3 | {countries.alpha2(code) for code in countries.ALPHA3}),
    Kind.CALLING_CODE: sorted(calling_codes.CODES | {f"+{code}" for code in calling_codes.CODES}),
}
_CURRENCIES: Final = sorted(currencies.CODES | {code.lower() for code in currencies.CODES})


def _of_field(field: Field) -> Schema:
    schema: Schema = {"type": JSON_TYPES[field.kind]}
    match field.kind:
        case Kind.CHOICE:
            schema["enum"] = list(field.values)
        case Kind.NUMBER if not field.signed:
            schema["minimum"] = 0
        case Kind.TIME:
            schema = {"type": "integer", "minimum": MIN_MS, "maximum": MAX_MS}
        case Kind.HASH:
            schema["pattern"] = "^[0-9a-fA-F]{64}$"
        case Kind.IP:
            schema["anyOf"] = [{"format": "ipv4"}, {"format": "ipv6"}]
        case Kind.COUNTRY | Kind.CALLING_CODE:
            schema["enum"] = _CODES[field.kind]
        case Kind.TEXT:
            schema |= {"minLength": 1, "maxLength": MAX_TEXT}
    return schema


def _object(fields: list[Field]) -> Schema:
    return {
        "type": "object",
        "properties": {field.leaf: _of_field(field) for field in fields},
        "required": [field.leaf for field in fields if field.level is Level.REQUIRED],
    }


def _context(event: Event) -> Schema:
    groups: dict[str, list[Field]] = {}
    for field in event.context_fields():
        groups.setdefault(field.parent, []).append(field)
    schema = _object(groups.pop("context"))
    for parent, fields in groups.items():
        schema["properties"][parent.removeprefix("context.")] = _object(fields)
    if "currency" in schema["properties"]:
        crypto = {"properties": {"is_crypto": {"const": True}}, "required": ["is_crypto"]}
        schema["if"] = crypto
        schema["then"] = {"properties": {"currency": {"pattern": "^[A-Za-z0-9]{2,10}$"}}}
        schema["else"] = {"properties": {"currency": {"enum": _CURRENCIES}}}
    if event.required_with:
        schema["dependentRequired"] = {
            total: [needed] for needed, totals in event.required_with.items() for total in totals
        }
    return schema


def _validator(event: Event) -> Validator:
    identity = _object(list(event.identity_fields()))
    if event.lifecycle:
        identity["anyOf"] = [{"required": [name]} for name in ("client_user_id", "anonymous_id")]
    schema = {
        "type": "object",
        "properties": {
            "timestamp": {"type": "integer", "minimum": MIN_MS, "maximum": MAX_MS},
            "identity": identity,
            "context": _context(event),
        },
        "required": ["timestamp", "identity", "context"],
    }
    checker = Draft202012Validator.FORMAT_CHECKER
    return Draft202012Validator(schema, format_checker=checker)


_VALIDATORS: Final = {name: _validator(event) for name, event in EVENTS.items()}


def violations(body: bytes) -> list[tuple[int, str, str]]:
    """Return (index, path, rule) of all errors in a batch."""
    return [
        (index, error.json_path, str(error.validator))
        for index, event in enumerate(json.loads(body))
        for error in _VALIDATORS[event["event"]].iter_errors(event)
    ]
