"""The diagnosis (contract 11)."""

from typing import Any, Final

import msgspec

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
from snapbid.diagnosis.document import Diagnosis
from snapbid.diagnosis.routes import diagnosis_path
from snapbid.diagnosis.source import LAST_TTL_S
from snapbid.diagnosis.window import LAST
from snapbid.ledger.rate import WINDOW_S
from snapbid.report.cache import TTL_S
from snapbid.report.limit import REQUESTS
from snapbid.report.window import MAX_DAYS

DIAGNOSIS: Final = diagnosis_path("{sspId}")
_DATE: Final[Schema] = {"type": "string", "format": "date"}


def schemas() -> dict[str, Schema]:
    """The schemas of an answer, from its structs."""
    _, components = msgspec.json.schema_components([Diagnosis], ref_template=REF)
    return components


def examples() -> list[Example]:
    """`$TOKEN` is a report token of `acme`."""
    ours = {"Authorization": "Bearer $TOKEN"}

    def get(name: str, summary: str, status: int, query: str, **more: Any) -> Example:
        target = f"{diagnosis_path(more.pop('ssp', 'acme'))}?{query}"
        own = {"headers": ours} | more
        return Example(
            name=name, summary=summary, method="GET", target=target, status=status, **own
        )

    return [
        get("last_minutes", "The last 10 minutes", 200, f"last={LAST}"),
        get("days", "Two days", 200, "from=2025-06-01&to=2025-06-02"),
        get("no_token", "Without a token", 401, f"last={LAST}", headers={}, code="missing_token"),
        get("other_ssp", "Another SSP's diagnosis", 401, f"last={LAST}", ssp="nova",
            code="ssp_mismatch"),
        get("other_minutes", "Another number of minutes", 400, "last=5m", code="bad_window"),
    ]  # fmt: skip


def diagnosis() -> Fragment:
    """The operation of the diagnosis."""
    answered = {
        "description": "The diagnosis. Browsers get it as a page (`Accept: text/html`).",
        "headers": headers("age", "cache-control", "ratelimit", "ratelimit-policy"),
        "content": body(ref("Diagnosis")),
    }
    return {
        "operationId": "diagnosis",
        "tags": ["Report"],
        "summary": "Get the diagnosis",
        "description": (
            "What became of the SSP's requests: bids, reasons for no bid, errors, the share that "
            "was answered too late; the fields that its requests lack or break, each with a path "
            "in one of them; its notices, and the go-live checklist. For reconciliation use the "
            "report: counts of requests are evidence, of which a kill may lose a second.\n\n"
            f"It covers up to {MAX_DAYS} UTC days, or the last 10 minutes. Token, errors and rate "
            f"limit are those of the report, with {REQUESTS} requests of its own in any "
            f"{WINDOW_S} seconds. Days are cached for {TTL_S // 60} minutes, the last minutes for "
            f"{LAST_TTL_S} seconds. A browser that asks its user gets the token as the password of "
            "any user name (`Basic`)."
        ),
        "security": [{"reportToken": []}],
        "parameters": [
            parameter("sspId", "path", SSP, "The canonical SSP id; must equal the token's `sub`.",
                      example="acme"),
            parameter("last", "query", {"const": LAST}, "In place of `from` and `to`: the last 10 "
                      "minutes.", example=LAST),
            parameter("from", "query", _DATE, "First day, UTC, as YYYY-MM-DD."),
            parameter("to", "query", _DATE, "Last day, UTC; not before `from`, not after today, "
                      f"at most {MAX_DAYS} days in all."),
        ],
        "responses": {"200": answered} | failures(ref("Error"), "error", token_failures()),
    }  # fmt: skip
