"""Routes of all requests but bids: a table of fixed paths, then the rooms' resolvers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from snapbid.base.errors import NotFound
from snapbid.base.http import Answer, Receive, Scope, refused

Handler: TypeAlias = Callable[[Scope, Receive], Awaitable[Answer]]


class Route(NamedTuple):
    """A handler and how to call it; `name` is the label `route` in its metrics.

    Methods other than `methods` get a 405; if `methods` is empty, the handler checks the method
    itself. `paced` requests may queue, so that a flood of them leaves time for bids.
    """

    name: str
    handler: Handler
    methods: tuple[str, ...] = ("GET", "HEAD")
    paced: bool = True


Resolver: TypeAlias = Callable[[str], Route | None]
"""Returns the route of a path with parameters; None for paths of other rooms."""


async def not_found(_scope: Scope, receive: Receive) -> Answer:
    """Raise NotFound, whatever the method."""
    raise await refused(NotFound("there is nothing at this path"), receive)


UNKNOWN: Final = Route("other", not_found, methods=())


class Routes:
    """The table of fixed paths and the resolvers, which are tried in order."""

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
