"""The documented error responses, made by the server's own code.

They are keyed by the section and the name that they have in `api.toml`.
"""

from typing import Any, Final

import msgspec

from snapbid.base.errors import (
    BadDate,
    BadRequest,
    BadWindow,
    BodyTimeout,
    Forbidden,
    InvalidToken,
    MethodNotAllowed,
    MissingToken,
    NotFound,
    Problem,
    RateLimited,
    SspMismatch,
    TooLarge,
    Unavailable,
    UnknownSsp,
    UnsupportedMediaType,
)
from snapbid.base.http import Answer, problem_answer
from snapbid.base.settings import Settings
from snapbid.events import answers
from snapbid.events.answers import EventsUnavailable, RateExceeded, UnknownApiKey
from snapbid.events.endpoint import MAX_BYTES
from snapbid.events.fields import CORE
from snapbid.events.outcomes import Product
from snapbid.events.rulebook import BATCH_TOO_LARGE, RefusedRequest, refuse_body
from snapbid.events.validate import read_single
from snapbid.queues.rate import WINDOW_S, RateDecision
from snapbid.report import gate
from snapbid.report.window import MAX_DAYS
from snapbid.warehouse.products import RATE

WHEN_MS: Final = 1_750_000_000_000
_SHOP: Final = Product("shop", frozenset({CORE}))
_QUOTA: Final = gate.headers(RateDecision(True, 9, 60))
_MEDIA: Final = "Content-Type: must be application/json"
_INTERNAL: Final = "the request could not be served"


def problems(settings: Settings) -> dict[str, dict[str, Answer]]:
    """Return a server's error responses, by their section and name in `api.toml`."""
    raised: dict[str, dict[str, Problem]] = {
        "bid": _bid(settings),
        "notice": _notice(),
        "token": _token(),
        "report": _report(),
        "demand": {
            "unavailable": Unavailable(
                "there are no current rules; send all requests", ((b"retry-after", b"5"),)
            )
        },
    }
    given = {
        section: {name: problem_answer(problem) for name, problem in each.items()}
        for section, each in raised.items()
    }
    too_many = refuse_body(BATCH_TOO_LARGE, "max_items")
    given["token"]["internal"].start["headers"] += _QUOTA
    return given | {"event": _event(), "batch": {"too_many": _refused(too_many)}}


def _bid(settings: Settings) -> dict[str, Problem]:
    return {
        "bad_request": BadRequest("imp: is required and may not be empty"),
        "forbidden": Forbidden(),
        "unknown_ssp": UnknownSsp("the SSP id in the path is not registered"),
        "method_not_allowed": MethodNotAllowed("POST"),
        "request_timeout": BodyTimeout(),
        "too_large": TooLarge(f"the body is over {settings.bid_max_bytes} bytes"),
        "unsupported_media_type": UnsupportedMediaType(_MEDIA),
        "internal": Problem(_INTERNAL),
    }


def _notice() -> dict[str, Problem]:
    return {
        "bad_request": BadRequest("impId: is required and may not be empty"),
        "method_not_allowed": MethodNotAllowed("GET, HEAD"),
        "internal": Problem(_INTERNAL),
        "unavailable": Unavailable("the notice cannot be stored at present"),
    }


def _report() -> dict[str, Problem]:
    """Return the errors of endpoints that take a window of days."""
    long = f"the window is {MAX_DAYS + 1} days long, more than {MAX_DAYS}"
    return {
        "bad_date": BadDate("from: is missing", _QUOTA),
        "bad_window": BadWindow(long, _QUOTA),
    }


def _token() -> dict[str, Problem]:
    """Return the errors of endpoints that take a report token."""
    limited = f"more than {gate.REQUESTS} requests with this token in {WINDOW_S} seconds"
    return {
        "missing_token": MissingToken("Authorization: must be Bearer followed by a token"),
        "invalid_token": InvalidToken("Authorization: the token was not issued here"),
        "ssp_mismatch": SspMismatch("the SSP id in the path must equal the token's sub"),
        "not_found": NotFound("there is nothing at this path"),
        "method_not_allowed": MethodNotAllowed("GET, HEAD"),
        "rate_limited": RateLimited(
            f"{limited}; retry after 12 seconds", ((b"retry-after", b"12"), *_QUOTA)
        ),
        "internal": Problem(_INTERNAL),
    }


def _event() -> dict[str, Answer]:
    def read(event: str, user: str = "user-1", **context: Any) -> Answer:
        envelope = {
            "event": event,
            "timestamp": WHEN_MS,
            "identity": {"client_user_id": user},
            "context": {"ip_address": "192.0.2.1", **context},
        }
        return _refused(read_single(msgspec.json.encode(envelope), _SHOP, WHEN_MS))

    raised = {
        "unreadable": BadRequest("the gzip body was cut short"),
        "unknown_key": UnknownApiKey(),
        "method_not_allowed": MethodNotAllowed("POST"),
        "timeout": BodyTimeout(),
        "too_large": TooLarge(f"the body is over {MAX_BYTES} bytes"),
        "media_type": UnsupportedMediaType(_MEDIA),
        "rate": RateExceeded(RATE, "requests", 12),
        "internal": Problem(_INTERNAL),
        "unavailable": EventsUnavailable(),
    }
    return {
        "invalid": read("login", user="", user_agent="Mozilla/5.0"),
        "unknown_event": read("signup"),
        "disabled_event": read("deposit", transaction_id="tx-1", amount=20, currency="EUR"),
        **{name: answers.failed(problem)[0] for name, problem in raised.items()},
    }


def _refused(refusal: object) -> Answer:
    assert isinstance(refusal, RefusedRequest)
    return answers.refused(refusal)[0]
