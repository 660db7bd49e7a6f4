"""Routes all requests but bid requests: by a table of fixed paths, else by resolvers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from snapbid.base.errors import NotFound
from snapbid.base.http import Answer, Handler, Receive, Scope, refused


class Route(msgspec.Struct, frozen=True):
    """A handler and how to call it; `name` is the label `route` in metrics.

    Methods other than `methods` get a 405; if `methods` is empty, the handler checks the method
    itself. `paced` requests may have to queue, to leave time for bids.
    """

    name: str
    handler: Handler
    methods: tuple[str, ...] = ("GET", "HEAD")
    paced: bool = True


Resolver: TypeAlias = Callable[[str], Route | None]
"""Returns the route of a path with parameters; None for a path it does not know."""


async def not_found(_scope: Scope, receive: Receive) -> Answer:
    """Raise NotFound for any method, after draining the request's body."""
    raise await refused(NotFound("there is nothing at this path"), receive)


UNKNOWN: Final = Route("other", not_found, methods=())


class Routes:
    """A table of fixed paths, and resolvers to try in order."""

    def __init__(self, fixed: Mapping[str, Route], resolvers: Sequence[Resolver] = ()) -> None:
        self._fixed = fixed
        self._resolvers = resolvers

    def find(self, path: str) -> Route:
        """Return the route of a path, or `UNKNOWN`."""
        route = self._fixed.get(path)
        if route is not None:
            return route
        for resolve in self._resolvers:
            route = resolve(path)
            if route is not None:
                return route
        return UNKNOWN
