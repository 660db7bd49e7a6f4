"""Demand signals (contract 11)."""

from typing import Final

import msgspec

from snapbid.demand.endpoint import MAX_AGE_S
from snapbid.demand.routes import demand_path
from snapbid.demand.rules import DemandRules
from snapbid.describe.bidding import SSP
from snapbid.describe.openapi import (  # fmt: skip
    REF,
    Example,
    Fragment,
    Schema,
    body,
    failures,
    headers,
    parameter,
    ref,
)
from snapbid.describe.reporting import token_failures
from snapbid.errors import Unavailable
from snapbid.http import problem_answer

DEMAND: Final = demand_path("{sspId}")


def schemas() -> dict[str, Schema]:
    """The schemas of an answer, from its structs."""
    _, components = msgspec.json.schema_components([DemandRules], ref_template=REF)
    # Lists, too, are JSON: the defaults of tuples are none.
    plain: dict[str, Schema] = msgspec.json.decode(msgspec.json.encode(components))
    return plain


def examples() -> list[Example]:
    """Errors alone: what is answered depends on when the drain has made it."""
    return [
        Example(
            name="no_token",
            summary="Without a token",
            method="GET",
            target=demand_path("acme"),
            status=401,
            code="missing_token",
        )
    ]


def demand() -> Fragment:
    """The operation of the demand signals."""
    answered = {
        "description": "The rules.",
        "headers": headers("cache-control", "etag", "ratelimit", "ratelimit-policy"),
        "content": body(ref("DemandRules")),
    }
    unmade = Unavailable("the rules are not made yet; send everything", ((b"retry-after", b"5"),))
    given = [*token_failures(), ("The rules are not made yet", problem_answer(unmade))]
    return {
        "operationId": "demand",
        "tags": ["Bidding"],
        "summary": "Get what could be bid on",
        "description": (
            "Rules by which an SSP can leave out requests that no campaign could answer, whatever "
            "the budgets. A request may be dropped if each of its impressions may; an impression "
            "may be dropped if no entry of `accept` takes it. What a request states in another "
            "form than OpenRTB's own counts as whatever an entry asks for.\n\n"
            "Renewed within a minute of a change of campaigns: ask once a minute, with "
            "`If-None-Match`. Token, errors and rate limit are those of the report, with a quota "
            f"of its own; answers may be kept for {MAX_AGE_S} seconds."
        ),
        "security": [{"reportToken": []}],
        "parameters": [
            parameter("sspId", "path", SSP, "The canonical SSP id; must equal the token's `sub`.",
                      example="acme"),
            parameter("If-None-Match", "header", {"type": "string"}, "The `ETag` of the rules that "
                      "are held already."),
        ],
        "responses": {
            "200": answered,
            "304": {"description": "The rules are the same.", "headers": answered["headers"]},
            **failures(ref("Error"), "error", given),
        },
    }  # fmt: skip
