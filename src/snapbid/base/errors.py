"""Errors with an HTTP status, which `server/app.py` turns into answers.

Also `where`, which describes any exception in a form that is safe to log, and `is_disk_full`.
"""

import errno
import traceback
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class Problem(Exception):
    """An error to report to the client: a mistake in its request, or a reason not to serve it.

    The client is sent `detail`, which names the field and the rule and reveals nothing internal.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"

    def __init__(self, detail: str, headers: Headers = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.headers = headers


class BadRequest(Problem):
    """400: the request is malformed, or lacks a required value."""

    status = 400
    code = "bad_request"


class NotFound(Problem):
    """404: no such path."""

    status = 404
    code = "not_found"


class UnknownSsp(Problem):
    """404: the SSP id in the path is not registered."""

    status = 404
    code = "unknown_ssp"


class Forbidden(Problem):
    """403: the SSP may not send from this address."""

    status = 403
    code = "forbidden"

    def __init__(self) -> None:
        super().__init__("this SSP may not send requests from this address")


class MethodNotAllowed(Problem):
    """405: the path does not support the method; `Allow` lists the methods it supports."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, allow: str) -> None:
        super().__init__(f"use {allow}", ((b"allow", allow.encode()),))


class BodyTimeout(Problem):
    """408: the body did not arrive in time; the connection is closed (RFC 9110, 15.5.9)."""

    status = 408
    code = "request_timeout"

    def __init__(self) -> None:
        super().__init__("the body did not arrive in time", ((b"connection", b"close"),))


class TooLarge(Problem):
    """413: the body exceeds the limit, compressed or inflated."""

    status = 413
    code = "too_large"


class UnsupportedMediaType(Problem):
    """415: the media type or encoding of the body is not supported."""

    status = 415
    code = "unsupported_media_type"


class Unavailable(Problem):
    """503: a store is unavailable; the client may retry."""

    status = 503
    code = "unavailable"


class _Unauthorized(Problem):
    """401, with `WWW-Authenticate`."""

    status = 401

    def __init__(self, detail: str) -> None:
        super().__init__(detail, ((b"www-authenticate", b"Bearer"),))


class MissingToken(_Unauthorized):
    """401: the request carries no bearer token."""

    code = "missing_token"


class InvalidToken(_Unauthorized):
    """401: the token is invalid."""

    code = "invalid_token"


class SspMismatch(_Unauthorized):
    """401: the token belongs to an SSP other than the one in the path."""

    code = "ssp_mismatch"


class RateLimited(Problem):
    """429: the rate limit is reached; `Retry-After` says when to retry."""

    status = 429
    code = "rate_limited"


class BadDate(Problem):
    """400: a date in the report's query is missing, repeated or malformed."""

    status = 400
    code = "bad_date"


class BadWindow(Problem):
    """400: the report's window is too long, reversed, or ends after today."""

    status = 400
    code = "bad_window"


def where(error: BaseException) -> str:
    """Describe an error by its type and origin, without its text, which may quote data."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    frames_text = " > ".join(f"{frame.name}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__} in {frames_text}"


def is_disk_full(error: OSError) -> bool:
    """Return whether the disk is full or the user's quota is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
