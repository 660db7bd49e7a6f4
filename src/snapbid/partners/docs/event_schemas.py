"""Schemas of the event catalog: an envelope for each event, discriminated by `event`.

A null counts as absent, so an optional field may be null. The schemas cannot express that
a timestamp lies at most an hour ahead, and they list codes in upper case though any case is
accepted.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from snapbid.events.catalog import EVENTS
from snapbid.events.fields import IGAMING, MAX_MS, MAX_TEXT, MIN_MS, Event, Field, Kind, Level
from snapbid.events.personal import PLAINTEXT_KEYS
from snapbid.events.values import EMPTY_HASH, HASH_SUFFIX
from snapbid.partners.docs.openapi import NULL, Schema, optional, ref
from snapbid.reference import calling_codes, countries, currencies

Notes: TypeAlias = Mapping[str, str]

LEVELS: Final = {
    Level.REQUIRED: "Required", Level.SUGGESTED: "Suggested", Level.OPTIONAL: "Optional",
}  # fmt: skip
UNITS: Final = {"ms": "UTC epoch milliseconds", "minutes": "minutes", "days": "days"}
GROUPS: Final = {
    "privacy": "Personal data, only as SHA-256 hashes, and consent.",
    "attribution": "Where the user came from.",
}
_ALPHA2: Final = sorted({code for code in map(countries.alpha2, countries.ALPHA3) if code})


def _any_case(word: str) -> str:
    return "".join(
        f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else letter for letter in word
    )


_PLAINTEXT: Final = "|".join(_any_case(key) for key in sorted(PLAINTEXT_KEYS))

KINDS: Final[dict[Kind, str]] = {
    Kind.TIME: "Timestamp",
    Kind.HASH: "Sha256",
    Kind.IP: "IpAddress",
    Kind.CURRENCY: "Currency",
    Kind.COUNTRY: "Country",
    Kind.CALLING_CODE: "CallingCode",
}

VALUES: Final[dict[str, Schema]] = {
    "Timestamp": {
        "type": "integer",
        "minimum": MIN_MS,
        "maximum": MAX_MS,
        "description": "UTC epoch milliseconds, 13 digits.",
    },
    "Sha256": {
        "type": "string",
        "pattern": "^[0-9a-fA-F]{64}$",
        "maxLength": 64,
        "not": {"enum": [EMPTY_HASH, EMPTY_HASH.upper()]},
        "description": "A SHA-256 as 64 hexadecimal digits, stored in lower case; not the hash "
        "of an empty string. Emails are hashed in lower case and trimmed, phone numbers in E.164.",
    },
    "IpAddress": {
        "type": "string",
        "minLength": 1,
        "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}],
        "description": "IPv4 in four decimals, or IPv6 without a zone.",
    },
    "Currency": {
        "anyOf": [ref("IsoCurrency"), ref("CryptoSymbol")],
        "description": "ISO 4217, in any case; a crypto symbol with `is_crypto: true`.",
    },
    "IsoCurrency": {"enum": sorted(currencies.CODES), "description": "An ISO 4217 code."},
    "CryptoSymbol": {
        "type": "string",
        "pattern": "^[A-Za-z0-9]{2,10}$",
        "description": "A crypto symbol, 2 to 10 letters or digits, stored in upper case.",
    },
    "Country": {
        "enum": [*_ALPHA2, *sorted(countries.ALPHA3)],
        "description": "ISO 3166-1 alpha-2 or alpha-3, in any case, stored as alpha-2; no `UK`.",
    },
    "CallingCode": {
        "enum": [f"{sign}{code}" for sign in ("+", "") for code in sorted(calling_codes.CODES)],
        "description": "E.164 country calling code, `44` or `+44`, stored as `+44`.",
    },
}


def component(event: str) -> str:
    """Return the name of an event's schema, such as `LoginEvent`."""
    return "".join(part.capitalize() for part in event.split("_")) + "Event"


def event_schemas(notes: Notes) -> dict[str, Schema]:
    """Return the schemas of the events, of their union and of the values they contain, by name.

    `notes` describes the fields that have no description in the event catalog.
    """
    mapping = {name: ref(component(name))["$ref"] for name in EVENTS}
    union = {
        "title": "Event",
        "description": "One event of the catalog; `event` says which.",
        "oneOf": [{"$ref": target} for target in mapping.values()],
        "discriminator": {"propertyName": "event", "mapping": mapping},
    }
    own = {component(name): _event(event, notes) for name, event in EVENTS.items()}
    return {"Event": union, **own, **VALUES}


def _event(event: Event, notes: Notes) -> Schema:
    properties = {
        "event": {"const": event.name, "description": "The event's name."},
        "timestamp": ref("Timestamp"),
        "identity": _identity(event, notes),
        "context": _context(event, notes),
    }
    gaming = event.preset == IGAMING
    preset = "needs the preset `igaming`" if gaming else "in the preset `general.core`"
    description = f"{event.summary[0].upper()}{event.summary[1:]}; {preset}."
    if event.key is not None:
        description += f" Identified by `{event.key}`: repeats are stored once."
    return {
        "type": "object",
        "required": [*properties],
        "properties": properties,
        "title": event.name,
        "description": description,
        "x-preset": event.preset,
    }


def _identity(event: Event, notes: Notes) -> Schema:
    schema = _object(event.identity_fields(), notes)
    schema["description"] = "The user."
    if event.lifecycle:
        users = ("client_user_id", "anonymous_id")
        schema["anyOf"] = [_present(name) for name in users]
        schema["description"] = "The user: at least one of `client_user_id` and `anonymous_id`."
    return schema


def _present(name: str) -> Schema:
    return {"required": [name], "properties": {name: {"not": NULL}}}


def _context(event: Event, notes: Notes) -> Schema:
    fields = event.context_fields()
    groups = dict.fromkeys(field.parent for field in fields if field.parent != "context")
    schema = _object([field for field in fields if field.parent == "context"], notes)
    schema["description"] = "Where the event happened, and its details."
    for group in groups:
        inner = _object([field for field in fields if field.parent == group], notes)
        leaf = group.removeprefix("context.")
        inner["description"] = GROUPS[leaf]
        schema["properties"][leaf] = optional(_private(inner) if leaf == "privacy" else inner)
    rules = [_required_with(name, totals) for name, totals in event.required_with.items()]
    if "currency" in schema["properties"]:
        rules.append(_either_currency())
    return _private(schema) | ({"allOf": rules} if rules else {})


def _private(schema: Schema) -> Schema:
    """Restrict an object's schema, so that it admits personal data only as hashes."""
    return schema | {
        "patternProperties": {f"{HASH_SUFFIX}$": optional(ref("Sha256"))},
        "propertyNames": {"not": {"pattern": f"^({_PLAINTEXT})$"}},
    }


def _required_with(name: str, totals: tuple[str, ...]) -> Schema:
    return {"if": {"anyOf": [_present(total) for total in totals]}, "then": _present(name)}


def _either_currency() -> Schema:
    def of(schema: Schema) -> Schema:
        return {"properties": {"currency": {"anyOf": [schema, NULL]}}}

    return {
        "if": {"properties": {"is_crypto": {"const": True}}, "required": ["is_crypto"]},
        "then": of(ref("CryptoSymbol")),
        "else": of(ref("IsoCurrency")),
    }


def _object(fields: Any, notes: Notes) -> Schema:
    properties = {field.leaf: _field(field, notes) for field in fields}
    required = [field.leaf for field in fields if field.level is Level.REQUIRED]
    return {"type": "object", "required": required, "properties": properties}


def _field(field: Field, notes: Notes) -> Schema:
    schema = _value(field)
    if field.level is not Level.REQUIRED:
        schema = optional(schema)
    note = field.note or notes.get(field.leaf)
    phrases = [note] if note else []
    if field.unit is not None:
        phrases.append(UNITS[field.unit])
    if field.monetary:
        phrases.append("an amount in `currency`")
    if field.deprecated:
        phrases.append(f"deprecated: {_list(field.deprecated)}")
    if field.stored:
        pairs = (f"`{spelling}` as `{kept}`" for spelling, kept in field.stored.items())
        phrases.append(f"stored: {', '.join(pairs)}")
    if field.level is Level.SUGGESTED:
        phrases.append("suggested")
    described = {"description": "; ".join(phrases)} if phrases else {}
    return schema | described | {"x-level": LEVELS[field.level]}


def _list(values: tuple[str, ...]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _value(field: Field) -> Schema:
    if field.kind in KINDS:
        return ref(KINDS[field.kind])
    match field.kind:
        case Kind.CHOICE:
            return {"type": "string", "enum": [*field.values]}
        case Kind.FLAG:
            return {"type": "boolean"}
        case Kind.NUMBER:
            return {"type": "number"} | ({} if field.signed else {"minimum": 0})
    return {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}
