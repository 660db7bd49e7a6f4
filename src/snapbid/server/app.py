"""The ASGI application, without a framework: dispatch, answers, and statuses for errors.

A bid request of an SSP without limits finds its handler with one lookup of its path; every other
request has a `Route`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol

from snapbid.base.errors import MethodNotAllowed, Problem
from snapbid.base.http import (
    Answer,
    Disconnected,
    Receive,
    RequestHandler,
    Scope,
    Send,
    answer,
    json_answer,
    problem_answer,
    refused,
)
from snapbid.base.tasks import end
from snapbid.bidding.routes import BID_ROUTE, SIGNED_PREFIX
from snapbid.bidding.routes import ROUTES as NOTICE_ROUTES
from snapbid.server._running import AT_ONCE, BEHIND, IN_TASK
from snapbid.server.pace import Pace
from snapbid.server.routes import Route, Routes

LIVE_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
HEALTH_PATHS: Final = (LIVE_PATH, READY_PATH)
HEALTH_ROUTE: Final = "health"

logger = logging.getLogger(__name__)


class Resources(Protocol):
    """The resources that the application opens, uses and closes."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def missing(self) -> list[str]:
        """Name the resources that the worker still lacks; empty once it is ready."""
        ...

    def unavailable(self) -> list[str]:
        """Name the unavailable shards of the ledger, whose auctions get no bid."""
        ...

    def unreplicated(self) -> list[str]:
        """Name the shards that acknowledge writes without a replica."""
        ...

    @property
    def bid_endpoints(self) -> Mapping[str, RequestHandler]:
        """Handlers for POST requests to bid paths, by path."""
        ...

    @property
    def routes(self) -> Routes:
        """Routes of the requests that `bid_endpoints` has no handler for."""
        ...

    def count(self, route: str, status: int) -> None:
        """Count an answered request."""
        ...


class Application:
    """The ASGI application; it calls `started` once startup is complete."""

    def __init__(
        self, resources: Resources, started: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        self._resources = resources
        self._started = started
        self._pace = Pace()
        self._own = {
            LIVE_PATH: Route(HEALTH_ROUTE, self._healthz, paced=False),
            READY_PATH: Route(HEALTH_ROUTE, self._readyz, paced=False),
        }

    def kind_of(self, path: str) -> int:
        """Choose how requests to this path run.

        Bids and health checks run at once, notices behind them, and all other requests in tasks.
        """
        if path in self._resources.bid_endpoints:
            return AT_ONCE
        if path in NOTICE_ROUTES or path.startswith(SIGNED_PREFIX):
            return BEHIND
        return AT_ONCE if path in HEALTH_PATHS else IN_TASK

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        resources, path, method = self._resources, scope["path"], scope["method"]
        handler = resources.bid_endpoints.get(path)
        name = BID_ROUTE
        try:
            if handler is not None and method == "POST":
                self._pace.bidding = True
                reply = await handler(scope["headers"], receive)
            else:
                route = self._own.get(path) or resources.routes.find(path)
                name, handle, methods = route.name, route.handler, route.methods
                if route.paced:
                    await self._pace.turn()
                if methods and method not in methods:
                    raise await refused(MethodNotAllowed(", ".join(methods)), receive)
                reply = await handle(scope, receive)
        except Disconnected:
            reply = answer(400)
        except Problem as problem:
            reply = problem_answer(problem)
        except Exception:
            logger.exception(
                "failed to serve a request (route %(route)s); answered 500", {"route": name}
            )
            reply = problem_answer(Problem("the request could not be served"))
        resources.count(name, reply.start["status"])
        await send(reply.start)
        await send(reply.end)

    async def _healthz(self, _scope: Scope, _receive: Receive) -> Answer:
        return json_answer(200, {"status": "ok"})

    async def _readyz(self, _scope: Scope, _receive: Receive) -> Answer:
        missing = await self._resources.missing()
        if missing:
            detail = f"missing: {', '.join(missing)}"
            return json_answer(503, {"error": "not_ready", "detail": detail, "missing": missing})
        shards = {
            "unavailable": self._resources.unavailable(),
            "unreplicated": self._resources.unreplicated(),
        }
        named = {state: names for state, names in shards.items() if names}
        return json_answer(200, {"status": "ready", **named})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        try:
            await self._resources.open()
        except Exception:
            logger.exception("worker failed to start")
            await send({"type": "lifespan.startup.failed"})
            return
        await send({"type": "lifespan.startup.complete"})
        started = [asyncio.create_task(self._started())] if self._started is not None else []
        await receive()  # lifespan.shutdown
        await end(*started)
        await self._resources.close()
        await send({"type": "lifespan.shutdown.complete"})
