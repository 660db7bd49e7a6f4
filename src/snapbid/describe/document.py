"""The OpenAPI 3.1 document of the whole API."""

from copy import deepcopy
from typing import Any, Final

import msgspec

from snapbid.describe import bidding, demanding, diagnosing, ingesting, reporting
from snapbid.describe.attributes import ATTRIBUTES
from snapbid.describe.event_schemas import event_schemas
from snapbid.describe.notes import described
from snapbid.describe.openapi import Example, Fragment
from snapbid.describe.openrtb import request_schemas, response_schemas
from snapbid.events.routes import BATCH_PATH, SINGLE_PATH
from snapbid.settings import Settings
from snapbid.version import RELEASE

EXAMPLES: Final = "x-examples"  # of an operation: `openapi.Example`s

ATTRIBUTE_TABLE: Final = "x-attributes"  # of the document: `attributes.ATTRIBUTES`

INFO: Final = (
    "The buying side of real-time advertising, for SSPs and partners: bids, their notifications, "
    "the daily report, and server events.\n\n"
    "Bodies are JSON in UTF-8. Requests may be compressed (`Content-Encoding: gzip` or `zstd`). "
    "Times are UTC, money is USD unless a field says otherwise. Errors have a code for programs, "
    "and a text for people that names the field and the rule.\n\n"
    "The version is part of the path: `v1` for bid and report, `v3` for events."
)

TAGS: Final = {
    "Bidding": "OpenRTB 2.5 and 2.6, one endpoint for each SSP.",
    "Notifications": "The URLs of a bid response, fired by the SSP with GET, once each.",
    "Report": "Daily figures for reconciliation.",
    "Server events": "What users do, sent from partners' servers. Personal data is sent only as "
    "SHA-256 hashes.",
}

SECURITY: Final = {
    "reportToken": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "Issued by the operator for one canonical SSP. Valid until the operator "
        "changes the secret; treat it like a password.",
    },
    "apiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-KEY",
        "description": "Issued by the operator for one product; the rate limit applies per key.",
    },
}


def document(settings: Settings) -> dict[str, Any]:
    """The document for a server with these settings."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Snapbid", "version": RELEASE, "description": INFO},
        "servers": [{"url": settings.base_url}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": _paths(settings),
        ATTRIBUTE_TABLE: [entry._asdict() for entry in ATTRIBUTES],
        "components": {"schemas": _schemas(), "securitySchemes": SECURITY},
    }


def _schemas() -> dict[str, Any]:
    return described(
        {
            **request_schemas(),
            **response_schemas(),
            "Error": bidding.ERROR,
            **deepcopy(reporting.SCHEMAS),
            **diagnosing.schemas(),
            **demanding.schemas(),
            **ingesting.schemas(),
            **event_schemas(),
        }
    )


def _paths(settings: Settings) -> dict[str, Any]:
    bids = bidding.bid_examples(settings.base_url)
    notices = {kind: bidding.notice(kind, settings) for kind in bidding.NOTICES}
    fired = bidding.notice_examples()
    reports, diagnoses = reporting.examples(), diagnosing.examples()
    singles, batches = ingesting.single_examples(), ingesting.batch_examples()
    return {
        bidding.BID: {"post": _with(bidding.bid(settings, bids), bids)},
        **{
            f"/rtb/{kind}": {
                "get": _with(operation, [sent for sent in fired if f"/{kind}?" in sent.target])
            }
            for kind, operation in notices.items()
        },
        reporting.REPORT: {"get": _with(reporting.report(reports), reports)},
        diagnosing.DIAGNOSIS: {"get": _with(diagnosing.diagnosis(), diagnoses)},
        demanding.DEMAND: {"get": _with(demanding.demand(), demanding.examples())},
        SINGLE_PATH: {"post": _with(ingesting.single(singles), singles)},
        BATCH_PATH: {"post": _with(ingesting.batch(batches), batches)},
    }  # fmt: skip


def _with(operation: Fragment, examples: list[Example]) -> Fragment:
    shown = [example for example in examples if example.name != "too_many"]  # 601 events
    return operation | {EXAMPLES: [msgspec.to_builtins(example) for example in shown]}
