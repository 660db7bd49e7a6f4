"""The published API description, and validators from its schemas."""

import json
from typing import Any

import jsonschema
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from snapbid.base.settings import load
from snapbid.partners.docs.document import document

BASE_URL = "https://bid.example"
DOCUMENT = document(load({"SNAPBID_BASE_URL": BASE_URL}))
SCHEMAS = DOCUMENT["components"]["schemas"]

_URN = "urn:snapbid:api"
_REGISTRY: Any = Registry().with_resource(
    _URN, Resource.from_contents(DOCUMENT, default_specification=DRAFT202012)
)


def validator(schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    """A validator for a schema, whose references are resolved in the document."""
    absolute = json.loads(json.dumps(schema).replace('"#/', f'"{_URN}#/'))
    return jsonschema.Draft202012Validator(
        absolute, registry=_REGISTRY, format_checker=jsonschema.FormatChecker(["ipv4", "ipv6"])
    )
