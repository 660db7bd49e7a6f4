"""The bid endpoint and the notification URLs (document 2; contract 4 and 5)."""

from typing import Any, Final

from snapbid.describe.openapi import (
    TRY,
    Example,
    Fragment,
    body,
    failures,
    headers,
    objects,
    parameter,
    ref,
)
from snapbid.errors import (
    BadRequest,
    BodyTimeout,
    Forbidden,
    MethodNotAllowed,
    Problem,
    TooLarge,
    Unavailable,
    UnknownSsp,
    UnsupportedMediaType,
)
from snapbid.exchange.notice import MAX_ID
from snapbid.exchange.routes import BID_PREFIX, BID_SUFFIX
from snapbid.http import Answer, problem_answer
from snapbid.settings import Settings

BID: Final = f"{BID_PREFIX}{{sspId}}{BID_SUFFIX}"
SSP: Final = {"type": "string", "pattern": "^[A-Za-z0-9._~-]{1,128}$"}
ACME: Final = f"{BID_PREFIX}acme{BID_SUFFIX}"
JSON_HEADERS: Final = {"Content-Type": "application/json"}
AS_TEST: Final = {
    "example": "test",
    "sets": {"test": 1},
    "note": "Sent with `test: 1`: answered like live traffic, but never counted, held or billed.",
}
UNCOUNTED: Final = {
    "method": "HEAD",
    "note": "Sent with `HEAD`, which is answered and counts nothing.",
}


def _request(auction: str, **more: Any) -> dict[str, Any]:
    return {
        "id": auction,
        "at": 1,
        "imp": [{"id": "1", "banner": {"w": 300, "h": 250}, "bidfloor": more.pop("floor", 0)}],
        "site": {"domain": "example.com", "page": "https://example.com/"},
        "device": {"ua": "Mozilla/5.0", "ip": "192.0.2.1", "geo": {"country": "USA"}},
        **more,
    }


def _response(base_url: str) -> dict[str, Any]:
    query = "id=auction-1&impId=1"
    bid = {
        "id": "5d3f0c9f1a-0",
        "impid": "1",
        "price": 2.5,
        "adm": '<a href="https://brand.example/"><img src="https://cdn.brand.example/1.png"></a>',
        "adomain": ["brand.example"],
        "cid": "spring-sale",
        "crid": "spring-sale-300x250",
        "cat": ["IAB22"],
        "w": 300,
        "h": 250,
        "mtype": 1,
        "nurl": f"{base_url}/rtb/win?{query}",
        "burl": f"{base_url}/rtb/bill?{query}",
        "lurl": f"{base_url}/rtb/loss?{query}&nbr=${{AUCTION_LOSS}}",
    }
    seat = {"bid": [bid], "seat": "brand"}
    return {"id": "auction-1", "seatbid": [seat], "bidid": "5d3f0c9f1a", "cur": "USD"}


def bid_examples(base_url: str) -> list[Example]:
    """In the order in which they can be sent."""

    def post(name: str, summary: str, status: int, **more: Any) -> Example:
        own = {"target": ACME, "headers": JSON_HEADERS} | more
        return Example(name=name, summary=summary, method="POST", status=status, **own)

    return [
        post(
            "bid",
            "The connectivity test, answered with a bid",
            200,
            body=_request("auction-1"),
            answer=_response(base_url),
        ),
        post("no_bid", "A floor above all campaigns", 204, body=_request("auction-2", floor=9000)),
        post("test", "A test: never counted or billed", 200, body=_request("auction-3", test=1)),
        post(
            "no_impressions",
            "Without an impression",
            400,
            body={"id": "auction-4", "imp": []},
            code="bad_request",
        ),
        post(
            "unknown_ssp",
            "An SSP id that is not registered",
            404,
            target=f"{BID_PREFIX}nobody{BID_SUFFIX}",
            body=_request("auction-5"),
            code="unknown_ssp",
        ),
        post(
            "media_type",
            "Not sent as JSON",
            415,
            headers={"Content-Type": "text/plain"},
            body=_request("auction-6"),
            code="unsupported_media_type",
        ),
    ]


def bid(settings: Settings, examples: list[Example]) -> Fragment:
    """The operation of the bid endpoint."""
    limit = settings.bid_max_bytes
    answered = {
        "200": {
            "description": "A bid. Fire its notification URLs unchanged but for the macro.",
            "headers": headers("content-encoding"),
            "content": body(
                ref("BidResponse"),
                [example for example in examples if example.status == 200],
                answers=True,
            ),
        },
        "204": {
            "description": "No bid: no campaign matches, or time ran out. Not an error; there is "
            "nothing to do."
        },
    }
    errors = failures(
        ref("Error"),
        "error",
        [
            _when(
                "The body is not JSON or not as it is encoded, is cut short, lacks `id` or "
                "`imp`, or an impression's `id` is missing or not unique",
                BadRequest("imp: is required and may not be empty"),
            ),
            _when("The SSP's requests come from other addresses", Forbidden()),
            _when(
                "The SSP id is not registered",
                UnknownSsp("the SSP id in the path is not registered"),
            ),
            _when("Any other method", MethodNotAllowed("POST")),
            _when("The body has not come in time; the connection is closed", BodyTimeout()),
            _when(
                f"The body is over {limit} bytes, decompressed",
                TooLarge(f"the body is over {limit} bytes"),
            ),
            _when(
                "The type is not `application/json`, or the encoding neither gzip nor zstd",
                UnsupportedMediaType("Content-Type: must be application/json"),
            ),
            internal(),
        ],
    )
    return {
        "operationId": "bid",
        TRY: AS_TEST,
        "tags": ["Bidding"],
        "summary": "Submit a bid request",
        "description": (
            "One endpoint for each SSP id, which the operator assigns. No credentials are "
            "required.\n\nEach impression gets a bid of the campaign that pays most, or none. "
            "A price is never below the floor; blocklists, seats and deals are respected.\n\n"
            f"The answer leaves within `tmax` milliseconds ({settings.tmax_ms} if absent); a "
            "request that cannot be answered in time gets a 204 at once. Values are read as "
            "exchanges send them: numbers as strings, `300.0` for `300`, booleans as flags; "
            '`""`, `null` and empty lists count as absent, unknown fields are ignored. A field '
            "whose type makes "
            "no sense gets a 400 that names it.\n\nErrors are checked in this order: 405, 404, "
            "403, 415, 413, 400."
        ),
        "security": [],
        "parameters": [
            parameter("sspId", "path", SSP, "The SSP id that the operator assigned.",
                      example="acme"),
            parameter("Content-Encoding", "header", {"enum": ["gzip", "zstd", "identity"]},
                      "`gzip` or `zstd` where the body is compressed."),
            parameter("Accept-Encoding", "header", {"type": "string"},
                      "With `gzip` or `zstd`, a response over 1 KiB is compressed if that is "
                      "quick enough."),
        ],
        "requestBody": {"required": True, "content": body(ref("BidRequest"), _valid(examples))},
        "responses": answered | errors,
    }  # fmt: skip


def _valid(examples: list[Example]) -> list[Example]:
    return [example for example in examples if example.status < 300]


def _when(when: str, problem: Problem) -> tuple[str, Answer]:
    return when, problem_answer(problem)


def internal() -> tuple[str, Answer]:
    """The answer to an internal error."""
    return _when("Internal error; try again after a short delay",
                 Problem("the request could not be served"))  # fmt: skip


def notice_examples() -> list[Example]:
    """After the bid of `bid_examples`."""

    def get(name: str, summary: str, target: str, status: int = 200, **more: Any) -> Example:
        return Example(
            name=name, summary=summary, method="GET", target=target, status=status, **more
        )

    return [
        get("win", "The bid has won", "/rtb/win?id=auction-1&impId=1"),
        get("bill", "The impression is rendered", "/rtb/bill?id=auction-1&impId=1"),
        get("loss", "Lost to a higher bid (102)", "/rtb/loss?id=auction-1&impId=1&nbr=102"),
        get("no_impression", "Without impId", "/rtb/win?id=auction-1", 400, code="bad_request"),
    ]


NOTICES: Final = {
    "win": ("winNotice", "Win notice: `nurl`", "Fire it as soon as the bid has won. Required."),
    "bill": (
        "billingNotice",
        "Billing notice: `burl`",
        "Fire it when the impression is rendered and billed. Required.",
    ),
    "loss": (
        "lossNotice",
        "Loss notice: `lurl`",
        "Recommended. Replace `${AUCTION_LOSS}` with OpenRTB's loss reason code first; "
        "anything but 1 to 4 digits counts as reason -1.",
    ),
}


def notice(kind: str, settings: Settings) -> Fragment:
    """The operation of a notification URL: `win`, `bill` or `loss`."""
    operation_id, summary, description = NOTICES[kind]
    identifier = {"type": "string", "minLength": 1}
    parameters = [
        parameter("id", "query", identifier, f"The auction's id, up to {MAX_ID} bytes.",
                  required=True, example="auction-1"),
        parameter("impId", "query", identifier, f"The impression's id, up to {MAX_ID} bytes.",
                  required=True, example="1"),
    ]  # fmt: skip
    if kind == "loss":
        parameters.append(
            parameter("nbr", "query", {"type": "string"}, "The loss reason code.", example="102")
        )
    pixel = {
        "description": "A transparent pixel, also for a repeat and for an unknown auction.",
        "headers": headers("cache-control"),
        "content": {"image/gif": {"schema": {}}},
    }
    errors = failures(
        ref("Error"),
        "error",
        [
            _when(
                f"`id` or `impId` is missing, empty or over {MAX_ID} bytes",
                BadRequest("impId: is required and may not be empty"),
            ),
            _when("Any other method", MethodNotAllowed("GET, HEAD")),
            internal(),
            _when(
                "The notice cannot be stored now; fire it again",
                Unavailable("the notice cannot be kept at the moment"),
            ),
        ],
    )
    return {
        "operationId": operation_id,
        TRY: UNCOUNTED,
        "tags": ["Notifications"],
        "summary": summary,
        "description": (
            f"{description}\n\nUse the URL of the bid response unchanged. It counts once for each "
            f"auction and impression, for {settings.bid_ttl_s} seconds after the bid and however "
            "often it is fired. `HEAD` is answered and counts nothing."
        ),
        "security": [],
        "parameters": parameters,
        "responses": {"200": pixel} | errors,
    }


ERROR: Final = objects(
    {
        "error": {"type": "string", "description": "A short code for programs."},
        "detail": {"type": "string", "description": "For people: the field and the rule."},
    },
    title="Error",
    description="An error (bid, notifications and report).",
)
