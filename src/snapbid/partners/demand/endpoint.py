"""`GET /api/v1/ssp/{sspId}/demand` over HTTP (contract 11): the rules that the drain has built.

Requests are authorised and checked as for the report; the rate limit is separate.
"""

import logging
from typing import Final

import asyncpg

from snapbid.base.errors import Problem, Unavailable
from snapbid.base.http import JSON, Answer, Receive, Scope, answer, has_current, not_modified
from snapbid.base.reasons import text_of
from snapbid.report.endpoint import ssp_of
from snapbid.report.gate import Admitted, TokenGate
from snapbid.warehouse import demand
from snapbid.warehouse.reports import TIMEOUT_S
from snapbid.warehouse.unavailable import UNAVAILABLE

SUFFIX: Final = "/demand"

ROUTE: Final = "demand"
"""The label `route` of `snapbid_http_requests_total`."""

MAX_AGE_S: Final = 60

logger = logging.getLogger(__name__)


class DemandEndpoint:
    """Answers with the demand rules for the token's SSP. Raises Problem to answer with an error."""

    def __init__(self, pool: asyncpg.Pool, gate: TokenGate) -> None:
        self._pool = pool
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        ssp = ssp_of(scope["path"], SUFFIX)
        return await self._gate.serve(scope, receive, ssp, self._make)

    async def _make(self, scope: Scope, admitted: Admitted) -> Answer:
        ssp = admitted.ssp
        try:
            signal = await demand.fetch(self._pool, ssp, TIMEOUT_S)
        except UNAVAILABLE as error:
            logger.warning(
                "failed to read the demand rules of %(ssp)s: %(reason)s; answered 500",
                {"ssp": ssp, "reason": text_of(error)},
            )
            raise Problem(
                "the rules cannot be read right now; retry after a short delay"
            ) from error
        if signal is None:
            retry = (b"retry-after", b"5")
            raise Unavailable("there are no current rules; send all requests", (retry,))
        tag = b'"%b"' % signal.etag.encode()
        fields = ((b"etag", tag), (b"cache-control", b"private, max-age=%d" % MAX_AGE_S))
        if has_current(scope["headers"], tag):
            return not_modified(fields)
        return answer(200, signal.rules, JSON, fields)
