"""Generates schemas from the structs that decode requests and encode responses."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from snapbid.bidding.request import BidRequest
from snapbid.events.rulebook import BATCH_TOO_LARGE, RULES, STATUSES, WARNINGS, RejectedEvent
from snapbid.partners.demand.rules import DemandRules
from snapbid.partners.diagnosis.document import Diagnosis
from snapbid.partners.docs.openapi import REF, Schema, ref

REQUIRED: Final = {"BidRequest": ["id", "imp"], "Imp": ["id"]}
_IMPRESSIONS: Final = {"type": "array", "minItems": 1, "items": ref("Imp")}
_ID: Final[Schema] = {"type": ["string", "integer"], "minLength": 1}


def struct_schemas(notes: Mapping[str, Mapping[str, str]]) -> dict[str, Schema]:
    """Return the structs' JSON schemas, by name; `notes` has the descriptions of their fields."""
    made = _requests() | _components(Diagnosis) | _components(DemandRules) | _findings()
    for name, fields in notes.items():
        for field, note in fields.items():
            properties = made[name]["properties"]
            properties[field] = properties[field] | {"description": note}
    return made


def _components(struct: type[msgspec.Struct]) -> dict[str, Schema]:
    _, schemas = msgspec.json.schema_components([struct], ref_template=REF)
    # The round trip turns defaults that are tuples into lists.
    plain: dict[str, Schema] = msgspec.json.decode(msgspec.json.encode(schemas))
    return plain


def _requests() -> dict[str, Schema]:
    """Return the schemas of a bid request and all objects in it."""
    schemas = _components(BidRequest)
    for name, schema in schemas.items():
        _refine(name, schema)
    schemas["BidRequest"]["description"] = (
        "OpenRTB 2.5 or 2.6 (3.2.1): the fields that are read; all others are ignored."
    )
    return schemas


def _refine(name: str, schema: Schema) -> None:
    """Adapt a schema to what `bidding.request.decode` accepts and requires."""
    properties = schema["properties"]
    for field, own in properties.items():
        properties[field] = _plain(own)
    if name == "BidRequest":
        properties["imp"] = _IMPRESSIONS
    del schema["required"]
    if required := REQUIRED.get(name):
        schema["required"] = required
        properties["id"] = _ID


def _plain(schema: Schema) -> Schema:
    """Drop a schema's default, and merge alternatives of simple types into a list of types."""
    kept = {key: value for key, value in schema.items() if key != "default"}
    if "items" in kept:
        kept["items"] = _plain(kept["items"])
    choices = [_plain(choice) for choice in kept.get("anyOf", ())]
    if not choices:
        return kept
    if all(choice.keys() <= {"type", "items"} for choice in choices):
        merged: dict[str, Any] = {"type": [choice["type"] for choice in choices]}
        for choice in choices:
            merged |= {"items": choice["items"]} if "items" in choice else {}
        return merged
    return {"anyOf": choices}


def _findings() -> dict[str, Schema]:
    """Return the schemas of errors and warnings about events."""
    made = _components(RejectedEvent)
    failed = made["RejectedEvent"] | {"title": "Failed"}
    failed["properties"]["violations"]["items"] = ref("Finding")
    failed["properties"]["code"] = {"enum": sorted(STATUSES.keys() - {BATCH_TOO_LARGE})}
    broken = _finding(made["FieldFinding"], "Finding", RULES, "A broken rule.")
    warning = _finding(made["FieldFinding"], "Warning", WARNINGS,
                       "Accepted, but worth a look. Only in test mode.")  # fmt: skip
    return {"Finding": broken, "Warning": warning, "Failed": failed}


def _finding(schema: Schema, title: str, rules: Mapping[str, str], what: str) -> Schema:
    listed = "; ".join(f"`{rule}`: {text}" for rule, text in rules.items())
    rule = {"enum": [*rules], "description": listed}
    position = (
        "In a batch `index` is the event's position, and `field` starts with it: "
        "`[3].context.amount`."
    )
    return schema | {
        "title": title,
        "description": f"{what} {position}",
        "properties": schema["properties"] | {"rule": rule},
    }
