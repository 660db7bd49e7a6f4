"""`GET /api/v1/ssp/{sspId}/diagnosis` over HTTP (contract 11): JSON, or a page for browsers.

Requests are authorised and checked as for the report. The rate limit is separate, so reading the
diagnosis does not use up the report's quota.
"""

from base64 import b64encode
from hashlib import sha256
from typing import Final

import asyncpg
from redis.asyncio import Redis

from snapbid.base.http import JSON, Answer, Receive, Scope, answer
from snapbid.partners.diagnosis import window
from snapbid.partners.diagnosis.page import STYLE, page
from snapbid.partners.diagnosis.source import DiagnosisSource, Numbers, ttl_s
from snapbid.report.endpoint import ssp_of
from snapbid.report.gate import Admitted, Registry, TokenGate

SUFFIX: Final = "/diagnosis"

ROUTE: Final = "diagnosis"
"""The label `route` of `snapbid_http_requests_total`."""

HTML: Final = b"text/html; charset=utf-8"
_VARY: Final = (b"vary", b"accept")


class DiagnosisEndpoint:
    """Answers with diagnoses. Raises Problem for an error answer."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        redis: Redis,
        gate: TokenGate,
        *,
        registry: Registry,
        numbers: Numbers,
        base_url: str,
    ) -> None:
        self._gate = gate
        self._registry = registry
        self._source = DiagnosisSource(pool, redis, numbers, base_url)

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        ssp = ssp_of(scope["path"], SUFFIX)
        return await self._gate.serve(scope, receive, ssp, self._make)

    async def _make(self, scope: Scope, admitted: Admitted) -> Answer:
        ssp, now, use_cache = admitted
        family = [name for name, id in (self._registry() or {}).items() if id == ssp]
        asked = window.parse(scope["query_string"], now.date())
        made = await self._source.get(ssp, family, asked, now, use_cache=use_cache)
        keep = b"private, max-age=%d" % ttl_s(asked)
        fields = (*made.age(), (b"cache-control", keep), _VARY)
        if _wants_page(scope):
            return _page(made.body, fields)
        return answer(200, made.body, JSON, fields)


def _wants_page(scope: Scope) -> bool:
    """Return whether the client prefers HTML to JSON, as every browser does."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    types = [item.partition(b";")[0].strip().lower() for item in accepted.split(b",")]
    if b"text/html" not in types:
        return False
    return JSON not in types or types.index(b"text/html") < types.index(JSON)


def _page(body: bytes, fields: tuple[tuple[bytes, bytes], ...]) -> Answer:
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
