"""`GET /api/v1/ssp/{sspId}/diagnosis` over HTTP (contract 11): JSON, or a page for browsers.

Token and order of checks are those of the report. The rate limit is separate, so that reading the
diagnosis does not use up the report's quota.
"""

from base64 import b64encode
from hashlib import sha256
from typing import Final

import asyncpg
from redis.asyncio import Redis

from snapbid.base.errors import Problem
from snapbid.base.http import JSON, Answer, Receive, Scope, answer
from snapbid.base.redis_keys import DIAGNOSIS_RATE
from snapbid.partners.diagnosis import window
from snapbid.partners.diagnosis.source import DiagnosisSource, Numbers
from snapbid.report.endpoint import ssp_of
from snapbid.report.gate import Clock, Fields, Registry, TokenGate

SUFFIX: Final = "/diagnosis"

ROUTE: Final = "diagnosis"
"""Value of the label `route` of `snapbid_http_requests_total`."""

HTML: Final = b"text/html; charset=utf-8"
_VARY: Final = (b"vary", b"accept")


def is_diagnosis_path(path: str) -> bool:
    """Return whether `DiagnosisEndpoint` answers this path."""
    return ssp_of(path, SUFFIX) is not None


class DiagnosisEndpoint:
    """Answers with diagnoses. Raises Problem for an error; see `TokenGate` for the arguments."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        redis: Redis,
        *,
        key: bytes,
        issuer: str,
        registry: Registry,
        numbers: Numbers,
        base_url: str,
        clock: Clock | None = None,
    ) -> None:
        self._registry = registry
        self._gate = TokenGate(
            redis,
            key=key,
            issuer=issuer,
            registry=registry,
            clock=clock,
            rate=DIAGNOSIS_RATE,
            basic=True,
        )
        self._source = DiagnosisSource(pool, redis, numbers, base_url)

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        admitted = await self._gate.admit(scope, receive, ssp_of(scope["path"], SUFFIX))
        ssp, now, fields, use_cache = admitted
        family = [name for name, id in (self._registry() or {}).items() if id == ssp]
        try:
            asked = window.parse(scope["query_string"], now.date())
            made = await self._source.get(ssp, family, asked, now, use_cache=use_cache)
        except Problem as problem:
            problem.headers = (*problem.headers, *fields)
            raise
        if made.age_s is not None:
            fields = (*fields, (b"age", b"%d" % made.age_s))
        keep = b"private, max-age=%d" % self._source.ttl_s(asked)
        fields = (*fields, (b"cache-control", keep), _VARY)
        reply = (
            _page(made.body, fields) if _wants_page(scope) else answer(200, made.body, JSON, fields)
        )
        return Answer(reply.start, b"") if scope["method"] == "HEAD" else reply


def _wants_page(scope: Scope) -> bool:
    """Return whether the client is a browser: they all list text/html first."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    types = [item.partition(b";")[0].strip().lower() for item in accepted.split(b",")]
    if b"text/html" not in types:
        return False
    return JSON not in types or types.index(b"text/html") < types.index(JSON)


def _page(body: bytes, fields: Fields) -> Answer:
    from snapbid.partners.diagnosis.page import STYLE, page

    style = b64encode(sha256(STYLE.encode()).digest())
    policy = (
        b"default-src 'none'; style-src 'sha256-%b'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'" % style
    )
    own = (
        (b"content-security-policy", policy),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )
    return answer(200, page(body).encode(), HTML, (*fields, *own))
