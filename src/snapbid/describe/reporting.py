"""The daily report (document 1; contract 6)."""

from typing import Any, Final

from snapbid.describe.bidding import SSP, internal
from snapbid.describe.openapi import (  # fmt: skip
    Example,
    Fragment,
    Schema,
    body,
    failures,
    headers,
    objects,
    parameter,
    ref,
)
from snapbid.errors import (
    BadDate,
    BadWindow,
    InvalidToken,
    MethodNotAllowed,
    MissingToken,
    NotFound,
    RateLimited,
    SspMismatch,
)
from snapbid.http import Answer, problem_answer
from snapbid.ledger.rate import WINDOW_S
from snapbid.report.cache import TTL_S
from snapbid.report.limit import REQUESTS, Quota
from snapbid.report.routes import PREFIX, SUFFIX
from snapbid.report.window import MAX_DAYS

REPORT: Final = f"{PREFIX}{{sspId}}{SUFFIX}"
_DATE: Final[Schema] = {"type": "string", "format": "date"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_QUOTA: Final = Quota(True, 9, 60).headers()

SCHEMAS: Final[dict[str, Schema]] = {
    "Report": objects(
        {
            "ssp": {"type": "string", "description": "The SSP id of the path."},
            "from": _DATE | {"description": "As asked for, UTC."},
            "to": _DATE | {"description": "As asked for, UTC."},
            "currency": {"const": "USD"},
            "days": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_DAYS,
                "items": ref("Day"),
                "description": "A row for each day of the window, ascending.",
            },
        },
        title="Report",
        description="The daily figures of one SSP.",
        additionalProperties=False,
    ),
    "Day": objects(
        {
            "date": _DATE | {"description": "UTC."},
            "bids": _COUNT | {"description": "Bid responses with status 200."},
            "wins": _COUNT | {"description": "Win notices."},
            "imps": _COUNT | {"description": "Impressions rendered; the figure for billing."},
            "totalCpmUsd": {
                "type": "number",
                "minimum": 0,
                "description": "Prices of the wins, each times its impression's `qty.multiplier`,"
                " divided by 1000, in USD; up to 6 decimals.",
            },
        },
        title="Day",
        description="One UTC day; all zeros where nothing happened.",
        additionalProperties=False,
    ),
}


def examples() -> list[Example]:
    """`$TOKEN` is a report token of `acme`."""
    ours = {"Authorization": "Bearer $TOKEN"}

    def get(name: str, summary: str, status: int, ssp: str = "acme", **more: Any) -> Example:
        window = more.pop("window", "from=2025-06-01&to=2025-06-02")
        own = {"headers": ours} | more
        target = f"{PREFIX}{ssp}{SUFFIX}?{window}"
        return Example(
            name=name, summary=summary, method="GET", target=target, status=status, **own
        )

    busy = {"date": "2025-06-01", "bids": 1200, "wins": 340, "imps": 331, "totalCpmUsd": 0.8123}
    idle = {"date": "2025-06-02", "bids": 0, "wins": 0, "imps": 0, "totalCpmUsd": 0.0}
    report = {"ssp": "acme", "from": "2025-06-01", "to": "2025-06-02", "currency": "USD"}
    return [
        get("report", "Two days", 200, answer=report | {"days": [busy, idle]}),
        get("no_token", "Without a token", 401, headers={}, code="missing_token"),
        get("wrong_token", "An invalid token", 401,
            headers={"Authorization": "Bearer no.to.ken"}, code="invalid_token"),
        get("other_ssp", "Another SSP's report", 401, ssp="nova", code="ssp_mismatch"),
        get("wrong_date", "An invalid date", 400, window="from=2025-6-1&to=2025-06-02",
            code="bad_date"),
        get("too_long", "Eight days", 400, window="from=2025-06-01&to=2025-06-08",
            code="bad_window"),
    ]  # fmt: skip


def report(given: list[Example]) -> Fragment:
    """The operation of the report."""
    shown = [example for example in given if example.status == 200]
    answered = {
        "description": "The report.",
        "headers": headers("age", "cache-control", "ratelimit", "ratelimit-policy"),
        "content": body(ref("Report"), shown, answers=True),
    }
    return {
        "operationId": "dailyReport",
        "tags": ["Report"],
        "summary": "Get the daily report",
        "description": (
            "One row for each UTC day: bids, wins, impressions and money. Bill by `imps`, which "
            "counts what was delivered.\n\nThe figures are those of the canonical SSP, all "
            "variants of the family together. They appear within seconds; late wins can shift a "
            "day by about 1% until 02:00 UTC of the next day, after which it never changes. "
            "If `to` is today, the last row covers part of a day.\n\n"
            f"Up to {REQUESTS} requests in any {WINDOW_S} seconds for each token, cached answers "
            f"and 400s included. Reports are cached for {TTL_S // 60} minutes; fetching one once "
            f"an hour or less is recommended. Fetch longer periods in windows of {MAX_DAYS} days. "
            "Errors are checked in this order: 404, 405, 401, 429, 400. `HEAD` is a GET without a "
            "body."
        ),
        "security": [{"reportToken": []}],
        "parameters": [
            parameter("sspId", "path", SSP, "The canonical SSP id; must equal the token's `sub`.",
                      example="acme"),
            parameter("from", "query", _DATE, "First day, UTC, as YYYY-MM-DD.", required=True,
                      example="2025-06-01"),
            parameter("to", "query", _DATE, "Last day, UTC; not before `from`, not after today, "
                      f"at most {MAX_DAYS} days in all.", required=True, example="2025-06-02"),
        ],
        "responses": {"200": answered} | failures(ref("Error"), "error", token_failures()),
    }  # fmt: skip


def token_failures() -> list[tuple[str, Answer]]:
    """Errors of what an SSP reads with its report token."""
    retry = ((b"retry-after", b"12"), *_QUOTA)
    long = f"the window is {MAX_DAYS + 1} days long, more than {MAX_DAYS}"
    limited = f"more than {REQUESTS} requests of this token in {WINDOW_S} seconds"
    given = {
        "`from` or `to` is missing, given twice or not a date as YYYY-MM-DD": BadDate(
            "from: is missing", _QUOTA
        ),
        f"The window is longer than {MAX_DAYS} days, runs backwards or ends after today": BadWindow(
            long, _QUOTA
        ),
        "No token": MissingToken("Authorization: must be Bearer and a token"),
        "The token's signature, issuer, `sub` or `jti` is invalid": InvalidToken(
            "Authorization: not a token that was issued here"
        ),
        "The token is for another SSP": SspMismatch(
            "the SSP id in the path must equal the token's sub"
        ),
        "Any other path below `/api/v1/ssp/`": NotFound("there is nothing at this path"),
        "Any other method": MethodNotAllowed("GET, HEAD"),
        "Too many requests": RateLimited(f"{limited}; retry after 12 seconds", retry),
    }
    when, broken = internal()
    broken.start["headers"] += _QUOTA
    answered = [(when, problem_answer(problem)) for when, problem in given.items()]
    return [*answered, (when, broken)]
