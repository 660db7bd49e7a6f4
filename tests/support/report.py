"""The daily report in this process: its endpoint over real stores, called without a socket."""

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import jwt
from redis.asyncio import Redis

from snapbid.base.errors import Problem
from snapbid.base.http import Message, problem_answer
from snapbid.report import tokens
from snapbid.report.endpoint import PREFIX, SUFFIX, ReportEndpoint
from snapbid.report.gate import TokenGate
from snapbid.warehouse.reports import open_pool
from support.http import Reply
from support.stack import connected

SECRET = "a secret of 64 bytes or more, so that HS512 could do with it, too"
KEY = SECRET.encode()
ISSUER = "snapbid"
NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
SSPS = {"acme": "acme", "acme-eu": "acme", "acme-video": "acme", "acme2": "acme2", "nova": "nova"}

COLUMNS = {
    "ssp": ("descriptor", "canonical"),
    "bid_daily": ("day", "descriptor", "bids", "wins", "win_cpm_micros"),
    "impression_daily": ("day", "ssp", "imps"),
}


def report_path(ssp: str, suffix: str = SUFFIX) -> str:
    """The path of an SSP's report, or of its document with another suffix."""
    return f"{PREFIX}{ssp}{suffix}"


class Reporter:
    """The endpoint of a worker."""

    def __init__(self, endpoint: ReportEndpoint) -> None:
        self.endpoint = endpoint

    async def ask(
        self,
        query: str,
        authorizations: Sequence[str],
        *,
        path: str = report_path("acme"),
        method: str = "GET",
    ) -> Reply:
        headers = [(b"authorization", value.encode("latin-1")) for value in authorizations]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode("latin-1"),
            "headers": headers,
        }
        try:
            answer = await self.endpoint(scope, _empty_body)
        except Problem as problem:
            answer = problem_answer(problem)
        start = answer.start
        named = {name.decode(): value.decode() for name, value in start["headers"]}
        assert len(named) == len(start["headers"]), "a header is sent twice"
        return Reply(start["status"], named, answer.body)

    async def report(self, token: str, window: str = "2026-03-01/2026-03-04") -> Reply:
        """Request the report of `acme` for a range of days."""
        first, last = window.split("/")
        return await self.ask(f"from={first}&to={last}", [f"Bearer {token}"])


@contextlib.asynccontextmanager
async def reporter(
    database: str,
    redis_url: str,
    clock: Callable[[], datetime] | None = None,
    registry: Callable[[], Mapping[str, str] | None] = lambda: SSPS,
) -> AsyncIterator[Reporter]:
    """The endpoint of a worker with its own connections; without a clock, the stores' clocks apply.

    Its Redis client has no timeouts: the report sets its own.
    """
    pool = await open_pool(database)
    redis = Redis.from_url(redis_url, socket_timeout=None, socket_connect_timeout=None)
    try:
        yield Reporter(
            ReportEndpoint(
                pool,
                redis,
                TokenGate(redis, key=KEY, issuer=ISSUER, registry=registry, clock=clock),
            )
        )
    finally:
        pool.terminate()
        await redis.aclose()


async def fill(database: str, tables: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    """Put rows into tables, in the order of COLUMNS; days as text."""
    async with connected(database) as connection:
        for table, rows in tables.items():
            dated = COLUMNS[table][0] == "day"
            records = [[date.fromisoformat(row[0]) if dated else row[0], *row[1:]] for row in rows]
            await connection.copy_records_to_table(table, records=records, columns=COLUMNS[table])


def token(ssp: str = "acme") -> str:
    """A valid token with a new `jti`."""
    return tokens.issue(ssp, KEY, ISSUER)


def sign(
    claims: Mapping[str, Any] | str,
    *,
    alg: str = "HS256",
    key: bytes = KEY,
    header: Mapping[str, Any] | None = None,
) -> str:
    """A token with any claims, or any text as payload, and a valid signature (empty for `none`).

    `header` sets members of its header, whatever that does to the meaning of the signature.
    """
    payload = claims if isinstance(claims, str) else json.dumps(claims)
    head = json.dumps({"alg": alg, "typ": "JWT", **(header or {})})
    signed = b".".join(_encoded(part.encode()) for part in (head, payload))
    signature = jwt.get_algorithm_by_name(alg).sign(signed, key if alg != "none" else None)
    return b".".join((signed, _encoded(signature))).decode()


def _encoded(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")


async def _empty_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
