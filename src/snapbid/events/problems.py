"""Errors in document 3's form: `{code, message, violations}`, and 429 as `{error}` alone."""

from typing import ClassVar, Final

import msgspec

from snapbid.errors import Problem
from snapbid.events import answers
from snapbid.events.outcomes import VALIDATION_ERROR, Finding, Refusal
from snapbid.events.validate import BODY
from snapbid.http import Answer, json_answer

RETRY_S: Final = 1  # after which a store that was away is likely to be back

_CODES: Final = {
    401: "UNAUTHORIZED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    503: "UNAVAILABLE",
}
_INTERNAL: Final = "INTERNAL_ERROR"
RATE_EXCEEDED: Final = "RATE_EXCEEDED"  # in counts alone: the body of a 429 has no code


class _Coded(msgspec.Struct):
    code: str = RATE_EXCEEDED


_decode: Final = msgspec.json.Decoder(_Coded).decode


class Unauthorized(Problem):
    """401: no key, or none of ours."""

    status: ClassVar[int] = 401

    def __init__(self) -> None:
        detail = "X-API-KEY must carry a key that was issued"
        super().__init__(detail, ((b"www-authenticate", b"ApiKey"),))


class RateExceeded(Problem):
    """429, with `Retry-After`."""

    status: ClassVar[int] = 429

    def __init__(self, rate: int, wait_s: int) -> None:
        detail = f"more than {rate} requests of this key in a minute; retry after {wait_s} seconds"
        super().__init__(detail, ((b"retry-after", b"%d" % wait_s),))


class Away(Problem):
    """503: nothing can be kept now."""

    status: ClassVar[int] = 503

    def __init__(self) -> None:
        detail = "events cannot be taken now; send them again after a short delay"
        super().__init__(detail, ((b"retry-after", b"%d" % RETRY_S),))


def problem_answer(problem: Problem) -> Answer:
    """A problem as partners of document 3 see it."""
    headers = tuple(problem.headers)
    if problem.status == 429:
        return json_answer(429, {"error": problem.detail}, *headers)
    if problem.status == 400:  # the body as such could not be had: cut short, or no gzip
        violations = [Finding(BODY, "malformed_json", None)]
        message = f"the body cannot be read: {problem.detail}"
        return refusal_answer(Refusal(VALIDATION_ERROR, message, violations), *headers)
    document = {
        "code": _CODES.get(problem.status, _INTERNAL),
        "message": problem.detail,
        "violations": [Finding(BODY, "max_size", None)] if problem.status == 413 else [],
    }
    return json_answer(problem.status, document, *headers)


def refusal_answer(refusal: Refusal, *headers: tuple[bytes, bytes]) -> Answer:
    """What is wrong with the events of a request."""
    return json_answer(refusal.status, answers.refused(refusal), *headers)


def code_of_answer(given: Answer) -> str:
    """How an answer is counted: `accepted` (202), `valid` (200, test mode), or its error's code."""
    status = given.start["status"]
    if status < 400:
        return "accepted" if status == 202 else "valid"
    return _decode(given.body).code
