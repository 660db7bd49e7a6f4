"""Access control for restricted SSPs: networks and request rate (contract 4).

Requests of unrestricted SSPs go to their endpoint directly.
"""

from collections.abc import Sequence
from typing import Final

from snapbid.base.access import Address, Network, client_address, contains
from snapbid.base.errors import Forbidden
from snapbid.base.http import Answer, Receive, RequestHandler, Scope, drain, refused
from snapbid.bidding.endpoint import BidEndpoint
from snapbid.bidding.reasons import Reason
from snapbid.queues.permits import Permits, PermitsUnavailable

_FORWARDED: Final = b"x-forwarded-for"


class GuardedBids:
    """The bid endpoint of a restricted SSP.

    Requests must come from `networks` (empty: any) and take one of the `permits` (None: unlimited).
    `handler` answers admitted requests; `endpoint` counts refused ones.
    """

    def __init__(
        self,
        endpoint: BidEndpoint,
        handler: RequestHandler,
        networks: Sequence[Network],
        proxies: Sequence[Network],
        permits: Permits | None,
    ) -> None:
        self._endpoint = endpoint
        self._handler = handler
        self._networks = networks
        self._proxies = proxies
        self._permits = permits

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        if self._networks and not self._is_allowed(scope):
            problem = Forbidden()
            self._endpoint.count_refusal(problem)
            raise await refused(problem, receive)
        if self._permits is not None:
            reason = await _refusal(self._permits)
            if reason is not None:
                await drain(receive)
                return self._endpoint.no_bid(reason)
        return await self._handler(scope["headers"], receive)

    def _is_allowed(self, scope: Scope) -> bool:
        address = source_of(scope, self._proxies)
        return address is not None and contains(self._networks, address)


def source_of(scope: Scope, proxies: Sequence[Network]) -> Address | None:
    """Return the address of a request's client, which a trusted proxy may state in a header."""
    forwarded = [value for name, value in scope["headers"] if name == _FORWARDED]
    return client_address(scope["client"][0], forwarded, proxies)


async def _refusal(permits: Permits) -> Reason | None:
    taken = permits.take()
    if taken is None:
        try:
            taken = await permits.fetch()
        except PermitsUnavailable:
            return Reason.STORE_DOWN
    return None if taken else Reason.RATE
